"""How a command says that it cannot do what was asked: one line, from one rank, and status 2."""

from __future__ import annotations

import argparse
import os
import sys
from typing import NoReturn

USAGE_STATUS = 2
# Where launchers put a process's rank: MPICH and Slurm's PMI-2, PMIx, Open MPI.
_RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")


class Parser(argparse.ArgumentParser):
    """A parser that says what is wrong in one line, and in one rank of a job."""

    def error(self, message: str) -> NoReturn:
        """Print the line and exit with status 2."""
        ranks = [os.environ[name] for name in _RANK_VARIABLES if name in os.environ]
        if not any(rank.isdigit() and int(rank) > 0 for rank in ranks):
            complain(f"{message}; see {self.prog} --help")
        sys.exit(USAGE_STATUS)


def complain(text: str) -> None:
    """Print the one line that ends a command which cannot do what was asked."""
    print(f"libsumtree: error: {' '.join(text.split())}", file=sys.stderr, flush=True)
