"""``libsumtree verify``: check the installed backends against the reference, bit for bit."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..backends import BACKENDS, installed, problem
from ..errors import BackendError, VerificationError
from ..vectors import vector_levels
from ..verification import CHECKS, verify_backend
from .complaints import complain
from .progress import Bar, bar
from .statuses import REFUSED

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[Any]

ALL = "all"


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the subcommand ``verify`` and return its parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "verify",
        help="check the installed backends against the reference",
        description="Run every operation of the installed backends, at each vector level, against "
        "the plain-Python reference and compare bit for bit. Takes seconds. Ends with status 2 if "
        "anything differs, or if a backend cannot run here: one line says why.",
    )
    parser.add_argument(
        "--backend",
        choices=(*BACKENDS, ALL),
        action="append",
        help="which one; may be given again (default: all that are installed)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    return parser


def main(args: argparse.Namespace) -> int:
    """Verify; return the exit status: 0, or 2 after one line for each backend that fails.

    Raises
    ------
    BackendError
        If no backend is installed.
    """
    wanted = dict.fromkeys(args.backend or [ALL])
    backends = list(installed()) if ALL in wanted else list(wanted)
    if not backends:
        raise BackendError("no backend is installed beside the package: install it again")
    passed: dict[str, list[dict[str, Any]]] = {}
    problems: dict[str, str] = {}
    able = [backend for backend in backends if problem(backend) is None]
    with bar(sum(len(vector_levels(backend)) * len(CHECKS) for backend in able)) as shown:
        for backend in backends:
            passed[backend] = []
            shown.say(f"checking {backend}")
            reason = problem(backend)
            if reason is None:
                reason = _verify(backend, passed[backend], not args.json, shown)
            if reason is not None:
                problems[backend] = reason
    good = [backend for backend in backends if backend not in problems]
    if args.json:
        print(json.dumps({"verified": good, "problems": problems, "passed": passed}, indent=1))
    elif good:
        print(f"verified: {', '.join(good)}")
    for backend, reason in problems.items():
        complain(f"{backend} is not verified: {reason}")
    return REFUSED if problems else 0


def _verify(backend: str, passed: list[dict[str, Any]], aloud: bool, shown: Bar) -> str | None:
    """Run the checks of one backend; give what is wrong."""
    try:
        for check in verify_backend(backend):
            passed.append(asdict(check))
            shown.advance()
            if aloud:
                print(
                    f"{backend:<10} {check.level:<9} {check.name:<26} as the reference "
                    f"{check.seconds:6.2f} s",
                    flush=True,
                )
    except VerificationError as error:
        return str(error)
    return None
