"""``libsumtree verify``: check the installed backends against the reference, bit for bit."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ..backends import BACKENDS, installed
from ..errors import BackendError
from ..verification import verify_backend

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[Any]


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the subcommand ``verify`` and return its parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "verify",
        help="check the installed backends against the reference",
        description="Run every operation of the installed backends against the plain-Python "
        "reference and compare bit for bit. Takes seconds; ends with status 2 at the first "
        "difference.",
    )
    parser.add_argument(
        "--backend",
        choices=(*BACKENDS, "all"),
        default="all",
        help="which one (default: all that are installed)",
    )
    return parser


def main(args: argparse.Namespace) -> int:
    """Verify; return the exit status.

    Raises
    ------
    VerificationError
        At the first difference.
    BackendError
        If the backend is not installed, or none is.
    """
    backends = installed() if args.backend == "all" else [args.backend]
    if not backends:
        raise BackendError("no backend is installed beside the package: install it again")
    for backend in backends:
        for check in verify_backend(backend):
            print(f"{backend:<10} {check.name:<26} as the reference  {check.seconds:6.2f} s")
    print(f"verified: {', '.join(backends)}")
    return 0
