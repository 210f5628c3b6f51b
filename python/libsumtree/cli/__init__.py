"""The command line: ``libsumtree info``, ``verify``, ``replay`` and ``apex``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from types import ModuleType

from ..errors import SumTreeError
from . import apex, info, replay, verify
from .complaints import USAGE_STATUS, Parser, complain

COMMANDS: Mapping[str, ModuleType] = {
    "info": info,
    "verify": verify,
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
    options = make_parser().parse_args(arguments)
    try:
        status: int = COMMANDS[options.command].main(options)
    except (SumTreeError, OSError, ImportError) as error:
        complain(str(error))
        return USAGE_STATUS
    return status
