"""``libsumtree tune``: measure which backend pays here, for ``backend="auto"`` to take."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .. import tuning
from ..backends import AUTO, DEFAULT, installed, problem
from ..bench.racing import Limits
from ..bench.tuning import BATCH, CAPACITIES, LIMITS, tune
from ..tree import MAX_CAPACITY
from .complaints import UsageError, complain
from .progress import bar
from .statuses import REFUSED

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[Any]


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the subcommand ``tune`` and return its parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "tune",
        help="measure which backend pays on this machine",
        description="Measure a learner's step (an update and a sample) on every backend that can "
        "run here, print where each pays, and keep it in a file of yours, from which "
        f'backend="{AUTO}" takes what a tree of its capacity is to run on. The file holds for '
        "this kind of machine: processor, threads, GPUs and installed backends.",
    )
    parser.add_argument(
        "--batch",
        type=int,
        default=BATCH,
        metavar="K",
        help=f'the batch size that "{AUTO}" is decided for (default: {BATCH})',
    )
    parser.add_argument(
        "--capacities",
        type=int,
        nargs="+",
        default=list(CAPACITIES),
        metavar="N",
        help="capacities to measure; others take the nearest "
        f"(default: {' '.join(map(str, CAPACITIES))})",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=LIMITS.rounds,
        metavar="N",
        help=f"rounds of each measurement, at most (default: {LIMITS.rounds})",
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--show", action="store_true", help="print what was measured before")
    instead.add_argument("--reset", action="store_true", help="remove what was measured before")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def main(args: argparse.Namespace) -> int:
    """Measure, show or remove; return the exit status.

    Raises
    ------
    TuningError
        If the file cannot be written, read or removed.
    BackendError, BenchmarkError, OutOfMemoryError
        If it cannot be measured.
    """
    _check(args)
    kind = tuning.Kind.here(installed())
    if args.reset:
        removed = tuning.remove(kind)
        print(f"{'removed' if removed else 'there is no'} {tuning.path_of(kind)}")
        return 0
    if args.show:
        return _show(tuning.read(kind), kind, args.json)
    tuning.prepare()
    result = _measure(args)
    path = tuning.write(result)
    _print(result, args.json)
    if not args.json:
        print(f"written to {path}")
    return 0


def _check(args: argparse.Namespace) -> None:
    numbers = {"--batch": [args.batch], "--capacities": args.capacities, "--rounds": [args.rounds]}
    for option, values in numbers.items():
        for value in values:
            if not 1 <= value <= MAX_CAPACITY:
                raise UsageError(f"argument {option}: {value} is not in 1 .. {MAX_CAPACITY}")


def _measure(args: argparse.Namespace) -> tuning.Tuning:
    backends = []
    for name in installed():
        reason = problem(name)
        if reason is None:
            backends.append(name)
        else:
            print(f"{name} is not measured: {reason}", file=sys.stderr)
    limits = Limits(args.rounds, LIMITS.seconds, min(args.rounds, LIMITS.least))
    with bar(len(set(args.capacities))) as shown:

        def tell(capacity: int) -> None:
            if measured:
                shown.advance()
            measured.append(capacity)
            shown.say(f"measuring capacity {capacity:,}")

        measured: list[int] = []
        return tune(backends, args.batch, args.capacities, limits, tell)


def _show(stored: tuning.Tuning | None, kind: tuning.Kind, as_json: bool) -> int:
    if stored is None:
        complain(
            f"nothing was measured on this machine ({tuning.path_of(kind)} is not there): "
            f'backend="{AUTO}" is {DEFAULT!r}; run `libsumtree tune`'
        )
        return REFUSED
    _print(stored, as_json)
    if not as_json:
        print(f"read from {tuning.path_of(kind)}")
    return 0


def _print(result: tuning.Tuning, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(result), indent=1))
        return
    kind = result.kind
    print(f"machine: {kind.processor}, {kind.threads} threads", *kind.gpus, sep=", GPU ")
    print("an update and a sample of a PriorityTree: the backend that pays, and its microseconds;")
    print(f"in brackets, how many times as fast as {DEFAULT} it is\n")
    print(f"{'capacity':>13} {'batch':>9}  {'pays':<10} {'us':>11}")
    for row in result.rows:
        times, best = row["microseconds"], row["pays"]
        factor = "" if best == DEFAULT else f"  ({times[DEFAULT] / times[best]:.1f})"
        size = f"{row['capacity']:>13,} {row['batch']:>9,}"
        print(f"{size}  {best:<10} {times[best]:>11,.1f}{factor}")
    print(f'\nbackend="{AUTO}", which is decided for batches of {result.batch:,}, by the nearest:')
    for capacity, name in result.choices.items():
        print(f"{capacity:>13,}  {name}")
