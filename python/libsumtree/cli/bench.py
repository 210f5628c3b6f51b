"""``libsumtree bench``: libsumtree against what people use otherwise."""

from __future__ import annotations

import argparse
import json
import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..apex.errors import require
from ..apex.files import prepare_folder
from ..bench.intake.records import RECORDS
from ..bench.intake.setting import IntakeSetting
from ..bench.racing import Limits
from ..bench.report import Report, Table, heading, markdown, missing, summary
from ..bench.suites import INTAKE, SUITES, TREE, Suite
from ..bench.trees import Setting
from ..files import write_atomically
from .complaints import UsageError
from .progress import Bar, bar

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[Any]

_DEFAULTS = Setting()
_INTAKE = IntakeSetting()
_MOST_SECONDS = 30


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the subcommand ``bench`` and return its parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "bench",
        help="measure libsumtree against what people use otherwise",
        description="Measure ratios side by side and compare them with the aims "
        "that libsumtree has. A missed aim is reported and is no error; results that differ in a "
        "bit, or messages that were lost, are. The machine should have nothing else to do. "
        "Each suite has a --help with its options.",
    )
    _add_options(parser)
    suites = parser.add_subparsers(dest="suite", metavar="SUITE")
    for suite in SUITES.values():
        about = suite.about + (" (default)" if suite is TREE else "")
        description = f"Measure {suite.about}. libsumtree bench --help says what to know of it."
        # What is not given again must not replace what was given before the suite's name.
        part = suites.add_parser(
            suite.name, help=about, description=description, argument_default=argparse.SUPPRESS
        )
        _add_options(part, suite)
        if suite is INTAKE:
            _add_intake(part)
        else:
            _add_trees(part, again=True)
    _add_trees(parser)
    return parser


def _add_options(parser: argparse.ArgumentParser, suite: Suite[Any] | None = None) -> None:
    """Add what all suites have, to the parser of one or, without a suite, of the command."""

    def default(value: Any) -> Any:
        return value if suite is None else argparse.SUPPRESS

    rounds = _INTAKE.rounds if suite is INTAKE else _DEFAULTS.limits.rounds
    apart = f"; of bench {INTAKE.name}: {_INTAKE.rounds}" if suite is None else ""
    parser.add_argument(
        "--rounds",
        type=_positive,
        default=default(None),
        metavar="N",
        help=f"rounds of each row, at most (default: {rounds}{apart})",
    )
    parser.add_argument(
        "--table",
        action="append",
        default=default(None),
        metavar="NAME",
        help="measure this table only; may be given again",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=default(None),
        metavar="DIR",
        help="write SUITE.json, SUITE.md and, but for the peers, a picture into this folder",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        default=default(False),
        help="print JSON instead of tables",
    )


def _add_trees(parser: argparse.ArgumentParser, again: bool = False) -> None:
    def default(value: Any) -> Any:
        return argparse.SUPPRESS if again else value

    parser.add_argument(
        "--leaves",
        type=_power_of_two,
        default=default(_DEFAULTS.leaves),
        metavar="N",
        help=f"leaves of the trees, a power of two (default: {_DEFAULTS.leaves})",
    )
    parser.add_argument(
        "--seed",
        type=_count,
        default=default(_DEFAULTS.seed),
        metavar="S",
        help=f"of the random inputs (default: {_DEFAULTS.seed})",
    )


def _add_intake(parser: argparse.ArgumentParser) -> None:
    def words(values: tuple[Any, ...]) -> str:
        return " ".join(map(str, values))

    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=_INTAKE.seconds,
        metavar="S",
        help="of each of the three parts of a run: actors alone, with the learner, the learner "
        f"alone (default: {_INTAKE.seconds:g})",
    )
    parser.add_argument(
        "--actors",
        type=_positive,
        nargs="+",
        default=_INTAKE.actors,
        metavar="N",
        help=f"numbers of actors (default: {words(_INTAKE.actors)})",
    )
    parser.add_argument(
        "--records",
        choices=tuple(RECORDS),
        nargs="+",
        default=_INTAKE.records,
        metavar="NAME",
        help=f"kinds of transitions (default: {words(_INTAKE.records)})",
    )


def main(args: argparse.Namespace) -> int:
    """Measure and report; return the exit status, which missed aims do not change.

    Raises
    ------
    BenchmarkError
        If results differ bit for bit, or something cannot be measured.
    UsageError, OptionError
        If an option names what is not there, or what cannot be written.
    MissingExtraError
        If there is to be a picture and matplotlib is not installed.
    """
    suite = SUITES[args.suite or TREE.name]
    names = _tables(suite, args.table)
    if args.output is not None:
        prepare_folder("--output", args.output)
        if suite.draw is not None:
            require("matplotlib", "cli")
    with bar(len(names)) as shown:
        setting = _setting(suite, args)
        report = suite.run(setting, names, partial(_show, not args.json, shown))
    if args.json:
        print(json.dumps(report.as_json(), indent=1))
    else:
        print(missing(report) + "\n" if report.missing else "", summary(report), sep="\n")
    if args.output is not None:
        _write(args.output, suite, report)
    return 0


def _setting(suite: Suite[Any], args: argparse.Namespace) -> Setting | IntakeSetting:
    if suite is INTAKE:
        actors, records = (tuple(dict.fromkeys(given)) for given in (args.actors, args.records))
        return IntakeSetting(args.rounds or _INTAKE.rounds, args.seconds, actors, records)
    limits = _DEFAULTS.limits
    rounds = args.rounds or limits.rounds
    limits = Limits(rounds, limits.seconds, min(rounds, limits.least))
    return Setting(args.leaves, limits, args.seed)


def _tables(suite: Suite[Any], wanted: list[str] | None) -> list[str]:
    for name in wanted or ():
        if name not in suite.tables:
            raise UsageError(
                f"argument --table: {name!r} is none of bench {suite.name}, which has: "
                f"{', '.join(suite.tables)}"
            )
    return [name for name in suite.tables if not wanted or name in wanted]


def _show(aloud: bool, shown: Bar, report: Report, table: Table | None) -> None:
    if aloud:
        print(heading(report) if table is None else f"\n{markdown(table)}", flush=True)
    if table is None:
        shown.say(f"measuring {report.suite}")
    else:
        shown.advance()


def _write(folder: Path, suite: Suite[Any], report: Report) -> None:
    content = json.dumps(report.as_json(), indent=1) + "\n"
    write_atomically(folder / f"{suite.name}.json", content.encode())
    write_atomically(folder / f"{suite.name}.md", report.as_markdown().encode())
    if suite.draw is not None:
        suite.draw(folder / f"{suite.name}.png", report)


def _positive(text: str) -> int:
    number = _count(text)
    if number == 0:
        raise argparse.ArgumentTypeError("0 is too few: 1 or more")
    return number


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0.0 < number < _MOST_SECONDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of seconds above 0 and below {_MOST_SECONDS}"
        )
    return number


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number >= 0")
    return int(text)


def _power_of_two(text: str) -> int:
    number = _count(text)
    if number < 2 or number & (number - 1):
        raise argparse.ArgumentTypeError(f"{number} is not a power of two >= 2")
    return number
