"""How a command says that it cannot do what was asked: one line, from one rank, and status 2."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from ..errors import SumTreeError
from ..machine import whole_number
from .help import Formatter
from .printing import printable
from .statuses import REFUSED

# Where launchers put a process's rank: MPICH and Slurm's PMI-2, PMIx, Open MPI.
_RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
_LINE_SECONDS = 0.5


class UsageError(SumTreeError, ValueError):
    """The arguments of the command line are not those of a command."""


class Parser(argparse.ArgumentParser):
    """A parser that raises `UsageError` instead of ending the process."""

    def __init__(self, *args: Any, **options: Any) -> None:
        options.setdefault("formatter_class", Formatter)
        super().__init__(*args, **options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what a command does not know in the command's own name, with what is like it."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown and self._subparsers is None:
            hint = _hint(unknown[0].partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return options, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            hint = _hint(str(value), map(str, action.choices or ()))
            raise argparse.ArgumentError(action, f"{error.message}{hint}") from None

    def error(self, message: str) -> NoReturn:
        """Raise."""
        raise UsageError(f"{message}; see {self.prog} --help")


def _hint(word: str, known: Iterable[str]) -> str:
    like = difflib.get_close_matches(word, known)
    return f", perhaps {like[0]} was meant" if like else ""


def complain(text: str) -> None:
    """Print the one line that ends a command which cannot do what was asked."""
    line = printable(" ".join(text.split()))
    print(f"libsumtree: error: {line}", file=sys.stderr, flush=True)


def text_of(error: BaseException) -> str:
    """Return an error as one line that needs no type to be understood."""
    if isinstance(error, SumTreeError):
        return str(error)
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    return str(error) or type(error).__name__


def text_of_fault(error: BaseException) -> str:
    """Return what no command should end with: its type, its text, and the line that it is from."""
    place = ""
    frames = traceback.extract_tb(error.__traceback__)
    if frames:
        place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
    return f"{type(error).__name__}: {error}{place}; --debug shows more"


def explain(error: BaseException) -> None:
    """Print the traceback of an error, for ``--debug``."""
    print("".join(traceback.format_exception(error)), end="", file=sys.stderr, flush=True)


def launched_rank() -> int | None:
    """Return the rank that a launcher gave this process; None if none started it."""
    ranks = [whole_number(os.environ.get(name, "")) for name in _RANK_VARIABLES]
    return next((rank for rank in ranks if rank is not None), None)


def abort_job(status: int = REFUSED) -> NoReturn:
    """End all ranks of the job: without MPI, they would wait in its start for this one."""
    from mpi4py import MPI

    time.sleep(_LINE_SECONDS)  # launchers lose lines that come with the abort
    MPI.COMM_WORLD.Abort(status)
    os._exit(status)  # some MPIs return from Abort, and end this process a little later
