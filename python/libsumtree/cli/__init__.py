"""The command line: ``libsumtree`` and its commands."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from types import ModuleType

from ..errors import SumTreeError
from . import apex, bench, checkpoint, info, jobs, replay, stats, tune, verify
from .complaints import USAGE_STATUS, Parser, UsageError, abort_job, complain, launched_rank

UNREAD_STATUS = 1

COMMANDS: Mapping[str, ModuleType] = {
    "info": info,
    "verify": verify,
    "tune": tune,
    "bench": bench,
    "checkpoint": checkpoint,
    "replay": replay,
    "apex": apex,
    "stats": stats,
    "jobs": jobs,
}


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of all commands."""
    parser = Parser(prog="libsumtree", description="Prioritized replay: exact, fast, deployable.")
    parser.add_argument(
        "--version", action="version", version=f"libsumtree {version('libsumtree')}"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS.values():
        command.add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    arguments : sequence of str, optional
        Instead of the process's own.

    Returns
    -------
    int
        The exit status: 0; 2 after one line on standard error that says what was wrong; 1 where
        nobody reads standard output any more; or what the command's help says.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        options = make_parser().parse_args(given)
    except UsageError as error:
        return _refuse(error, given)
    try:
        status: int = COMMANDS[options.command].main(options)
        sys.stdout.flush()
    except BrokenPipeError:
        return _unread()
    except (SumTreeError, OSError, ImportError) as error:
        complain(str(error))
        return USAGE_STATUS
    return status


def _unread() -> int:
    """End without a word: whoever read the output, such as ``head``, wants no more of it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
    return UNREAD_STATUS


def _refuse(error: UsageError, given: Sequence[str]) -> int:
    """Say what is wrong. The ranks of ``apex`` all find it; ``replay`` has others beside it."""
    alone = "replay" in given[:1]
    if alone or not launched_rank():
        complain(str(error))
    if alone and launched_rank() is not None:
        abort_job()
    return USAGE_STATUS
