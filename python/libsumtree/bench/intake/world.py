"""The world of a run over MPI: which place a process has in it, and what carries its messages."""

from __future__ import annotations

import mpi4py
from mpi4py import MPI

from ...replay import check_world


def rank(places: int) -> int:
    """Give the place of this process, one of so many.

    Raises
    ------
    WorldError
        If the launcher did not join them all into one world.
    """
    check_world(MPI.COMM_WORLD, places)
    return int(MPI.COMM_WORLD.Get_rank())


def library() -> str:
    """Name what carries the messages."""
    words = MPI.Get_library_version().partition("\n")[0].strip("\0").split()
    return f"{' '.join(words)}, mpi4py {mpi4py.__version__}"
