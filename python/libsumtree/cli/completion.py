"""``libsumtree completion``: a script that completes commands and options in a shell."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..apex.errors import require
from .help import commands_of

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[Any]

SHELLS = ("bash", "zsh", "fish")
_FOLDERS = ("DIR", "FOLDER")


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the subcommand ``completion`` and return its parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "completion",
        help="print a script that completes commands in a shell",
        description="Print a script for a shell to complete the commands and options of "
        "libsumtree. Put it where the shell looks for such scripts, and start a new shell; zsh "
        "looks into ~/.zfunc if ~/.zshrc says fpath+=~/.zfunc before compinit.",
    )
    parser.add_argument("shell", choices=SHELLS, metavar="bash|zsh|fish")
    return parser


def main(args: argparse.Namespace) -> int:
    """Print the script; return the exit status.

    Raises
    ------
    MissingExtraError
        If shtab is not installed.
    """
    require("shtab", "cli")
    import shtab

    from . import make_parser

    parser = make_parser()
    for _, command in commands_of(parser):
        for action in command._actions:
            if action.type is Path:
                folder = str(action.metavar) in _FOLDERS
                action.complete = shtab.DIRECTORY if folder else shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, shell=args.shell))
    return 0
