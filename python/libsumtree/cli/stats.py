"""``libsumtree stats``: what a replay rank wrote to its metrics file."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..apex.errors import require
from ..metrics import MetricsReader, read_metrics, summarize, summarize_together
from ..metrics.summary import last_run
from .complaints import UsageError
from .metrics_text import one_line, summary_lines
from .plots import save_metrics
from .printing import print_line, printable

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[Any]

_POLL_SECONDS = 0.25

_DESCRIPTION = """\
Sum up a metrics file, as `libsumtree replay --metrics FILE` and `libsumtree apex --metrics FILE`
write one: rates, queues, latencies, counts, memory. The last service that wrote to it counts.
Of several files, those of the shards of one service, all is added up.
"""


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the subcommand ``stats`` and return its parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "stats",
        help="sum up, watch or plot the metrics of a replay rank",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "files", type=Path, nargs="+", metavar="FILE", help="a metrics file, or one of each shard"
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        help="watch the file grow: a live view on a terminal, plain lines elsewhere; ends with the "
        "service, or with Ctrl-C",
    )
    parser.add_argument("--output", type=Path, metavar="PNG", help="plot all lines of the file")
    parser.add_argument(
        "--json", action="store_true", help="print JSON; with --follow, the lines themselves"
    )
    return parser


def main(args: argparse.Namespace) -> int:
    """Print, watch or plot; return the exit status.

    Raises
    ------
    MetricsError, OSError
        If the file cannot be read, or is none of metrics.
    MissingExtraError
        If rich or matplotlib is needed and not installed.
    """
    if args.follow and args.output is not None:
        raise UsageError(
            "--follow and --output exclude each other: plot once the service has ended"
        )
    if len(args.files) > 1 and (args.follow or args.output is not None):
        raise UsageError("--follow and --output are for one file")
    if args.follow:
        return _follow(args)
    if args.output is not None:
        require("matplotlib", "cli")
    found = [read_metrics(file) for file in args.files]
    files, torn = [lines for lines, _ in found], sum(torn for _, torn in found)
    summary = summarize(files[0], torn) if len(files) == 1 else summarize_together(files, torn)
    if args.output is not None:
        save_metrics(args.output, args.files[0].name, files[0])
    if args.json:
        print(json.dumps(summary.as_json(), indent=1))
    else:
        names = " + ".join(file.name for file in args.files)
        print(*map(printable, summary_lines(names, summary)), sep="\n")
    return 0


def _follow(args: argparse.Namespace) -> int:
    reader = MetricsReader(args.files[0])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # to end by Ctrl-C
    try:
        if args.json:
            _watch(reader, lambda new: print(*map(json.dumps, new), sep="\n", flush=True))
        elif sys.stdout.isatty():
            _watch_live(reader)
        else:
            _watch(reader, _print_lines)
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGINT, before)
    return 0


def _print_lines(new: Sequence[dict[str, Any]]) -> None:
    for line in new:
        print_line(one_line(line))


def _watch(reader: MetricsReader, show: Callable[[Sequence[dict[str, Any]]], None]) -> None:
    """Show the lines there are and those that come, until the service has ended."""
    while True:
        new = reader.read()
        if new:
            show(new)
            if new[-1]["event"] == "end":
                return
        time.sleep(_POLL_SECONDS)


def _watch_live(reader: MetricsReader) -> None:
    require("rich", "cli")
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from .live import view

    console = Console()
    lines: list[dict[str, Any]] = []
    name = printable(reader.path.name)
    waiting = Text(f"{name}: no line yet")
    with Live(waiting, console=console, auto_refresh=False) as live:

        def show(new: Sequence[dict[str, Any]]) -> None:
            lines.extend(new)
            lines[:] = last_run(lines)[-200:]
            shown = view(name, lines, not console.encoding.startswith("utf"))
            live.update(shown, refresh=True)

        _watch(reader, show)
