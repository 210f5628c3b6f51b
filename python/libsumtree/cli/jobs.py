"""``libsumtree jobs``: templates for batch schedulers, filled, tried out and handed in."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..jobs.ranks import run_rank
from .complaints import USAGE_STATUS, launched_rank

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[Any]


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the subcommand ``jobs`` and return its parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "jobs",
        help="job templates for Slurm, PBS and LSF: list, render, check, submit",
        description="Job templates for batch schedulers, and the sites that fill them.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_rank(actions)
    return parser


def _add_rank(actions: Subparsers) -> None:
    """Add what the templates run in every rank; people need not know it."""
    parser = actions.add_parser("rank", description="Run a command of libsumtree as a rank of a job.")
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--mark", type=Path, required=True)
    parser.add_argument("program", nargs=argparse.REMAINDER)
    parser.set_defaults(run=_rank)


def main(args: argparse.Namespace) -> int:
    """Do what the arguments ask for; return the exit status."""
    status: int = args.run(args)
    return status


def _rank(args: argparse.Namespace) -> int:
    from . import main as command

    program = args.program[1:] if args.program[:1] == ["--"] else args.program
    speak = launched_rank() in (None, 0)
    status = run_rank(args.ranks, args.mark, lambda: command(program), speak)
    return USAGE_STATUS if status is None else status
