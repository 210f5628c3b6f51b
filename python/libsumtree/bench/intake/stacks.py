"""The four stacks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stack:
    """A server and its clients.

    Attributes
    ----------
    module : str
        Of this package.
    title : str
    mpi : bool
        Whether it runs under mpiexec.
    """

    module: str
    title: str
    mpi: bool


ZMQ_PICKLE = Stack("zmq_pickle", "ZeroMQ, pickle", False)
MPI_PICKLE = Stack("mpi_pickle", "MPI, pickle", True)
ZMQ_RAW = Stack("zmq_raw", "ZeroMQ, raw", False)
MPI_RAW = Stack("mpi_raw", "MPI, raw", True)
STACKS = (ZMQ_PICKLE, MPI_PICKLE, ZMQ_RAW, MPI_RAW)
