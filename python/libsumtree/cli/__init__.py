"""The command line: ``libsumtree`` and its commands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from types import ModuleType

from ..errors import SumTreeError
from . import apex, bench, info, replay, tune, verify
from .complaints import USAGE_STATUS, Parser, UsageError, abort_job, complain, launched_rank

COMMANDS: Mapping[str, ModuleType] = {
    "info": info,
    "verify": verify,
    "tune": tune,
    "bench": bench,
    "replay": replay,
    "apex": apex,
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
        The exit status: 0, or 2 after one line on standard error that says what was wrong.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        options = make_parser().parse_args(given)
    except UsageError as error:
        return _refuse(error, given)
    try:
        status: int = COMMANDS[options.command].main(options)
    except (SumTreeError, OSError, ImportError) as error:
        complain(str(error))
        return USAGE_STATUS
    return status


def _refuse(error: UsageError, given: Sequence[str]) -> int:
    """Say what is wrong. The ranks of ``apex`` all find it; ``replay`` has others beside it."""
    alone = "replay" in given[:1]
    if alone or not launched_rank():
        complain(str(error))
    if alone and launched_rank() is not None:
        abort_job()
    return USAGE_STATUS
