"""How a command says that it cannot do what was asked: one line, from one rank, and status 2."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import NoReturn

from ..errors import SumTreeError

USAGE_STATUS = 2
# Where launchers put a process's rank: MPICH and Slurm's PMI-2, PMIx, Open MPI.
_RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
_LINE_SECONDS = 0.5


class UsageError(SumTreeError, ValueError):
    """The arguments of the command line are not those of a command."""


class Parser(argparse.ArgumentParser):
    """A parser that raises `UsageError` instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        """Raise."""
        raise UsageError(f"{message}; see {self.prog} --help")


def complain(text: str) -> None:
    """Print the one line that ends a command which cannot do what was asked."""
    print(f"libsumtree: error: {' '.join(text.split())}", file=sys.stderr, flush=True)


def launched_rank() -> int | None:
    """Return the rank that a launcher gave this process; None if none started it."""
    ranks = [os.environ[name] for name in _RANK_VARIABLES if name in os.environ]
    return next((int(rank) for rank in ranks if rank.isdigit()), None)


def abort_job() -> NoReturn:
    """End all ranks of the job: without MPI, they would wait in its start for this one."""
    from mpi4py import MPI

    time.sleep(_LINE_SECONDS)  # launchers lose lines that come with the abort
    MPI.COMM_WORLD.Abort(USAGE_STATUS)
    os._exit(USAGE_STATUS)  # some MPIs return from Abort, and end this process a little later
