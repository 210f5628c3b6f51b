"""The four stacks."""

from __future__ import annotations

from dataclasses import dataclass

_PACKAGE = __package__


@dataclass(frozen=True)
class Stack:
    """A server and its clients.

    Attributes
    ----------
    module : str
        Has `serve`, `make_actor`, `make_learner`, `library`, and, for MPI, `rank`.
    title : str
    mpi : bool
        Whether it runs under mpiexec.
    """

    module: str
    title: str
    mpi: bool


ZMQ_PICKLE = Stack(f"{_PACKAGE}.zmq_pickle", "pickled ZeroMQ", False)
MPI_PICKLE = Stack(f"{_PACKAGE}.mpi_pickle", "pickled MPI", True)
ZMQ_RAW = Stack(f"{_PACKAGE}.zmq_raw", "raw ZeroMQ", False)
MPI_RAW = Stack(f"{_PACKAGE}.mpi_raw", "raw MPI", True)
STACKS = (ZMQ_PICKLE, MPI_PICKLE, ZMQ_RAW, MPI_RAW)
