"""A view of a running service on a terminal: curves of the last minutes, redrawn in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..metrics.lines import LATENCIES
from .metrics_text import QUEUE_NAMES, RATE_NAMES, credits_text, duration, limiter_text

if TYPE_CHECKING:
    from rich.console import Group

    Line = dict[str, Any]

_LEVELS = "▁▂▃▄▅▆▇"
_ASCII_LEVELS = "_.:-=+#"
_WIDTH = 40


def sparkline(values: Sequence[float], width: int = _WIDTH, ascii_only: bool = False) -> str:
    """Return the last `width` values as bars between 0 and the greatest of them."""
    levels = _ASCII_LEVELS if ascii_only else _LEVELS
    shown = values[-width:]
    most = max(shown, default=0.0)
    if most <= 0:
        return levels[0] * len(shown)
    return "".join(levels[round((len(levels) - 1) * max(value, 0.0) / most)] for value in shown)


def position_bar(limiter: dict[str, Any], width: int = _WIDTH) -> str:
    """Return where the surplus stands between the bounds of the error buffer; empty unpaced."""
    if limiter["surplus"] is None or not limiter["error_buffer"]:
        return ""
    share = 0.5 + limiter["surplus"] / limiter["error_buffer"] / 2
    place = round((width - 1) * min(max(share, 0.0), 1.0))
    cells = ["-"] * width
    cells[width // 2] = "|"
    cells[place] = "o"
    return f"samples ahead [{''.join(cells)}] inserts ahead"


def view(name: str, lines: Sequence[Line], ascii_only: bool = False) -> Group:
    """Draw the lines of one service, of which there is at least one."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    last = lines[-1]
    head = Text(f"{name}: {last['uptime']:,.0f} s, {last['buffer']['size']:,} of ", style="bold")
    head.append(f"{last['buffer']['capacity']:,} transitions")
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=True, header_style="dim")
    table.add_column("")
    table.add_column("now", justify="right", min_width=11)
    table.add_column("unit")
    table.add_column(f"the last {min(len(lines), _WIDTH)} lines", no_wrap=True)
    for label, now, unit, values in _rows(lines):
        table.add_row(label, now, unit, sparkline(values, ascii_only=ascii_only))
    return Group(head, table, *map(Text, _foot(last)))


_SECONDS = "s"
# Label, unit, place in a line, and what one unit is.
_ROWS: tuple[tuple[str, str, tuple[str, ...], float], ...] = (
    *(
        (name.removeprefix("bytes "), "MB/s", ("rates", key), 1e6)
        if key.startswith("bytes")
        else (name, "/s", ("rates", key), 1)
        for key, name in RATE_NAMES.items()
    ),
    *((f"{kind}, p99", _SECONDS, ("latency", kind, "p99"), 1) for kind in LATENCIES),
    *((name, "", ("queues", key), 1) for key, name in QUEUE_NAMES.items()),
    ("actors' credits used", "", ("credits", "batches_used"), 1),
    ("learners' credits used", "", ("credits", "requests_used"), 1),
    ("RSS", "MiB", ("process", "rss"), 2**20),
)


def _rows(lines: Sequence[Line]) -> Iterator[tuple[str, str, str, list[float]]]:
    for label, unit, place, scale in _ROWS:
        values = [_value(line, place) for line in lines]
        now = values[-1]
        if unit == _SECONDS:
            yield label, duration(now), "", [value or 0.0 for value in values]
        else:
            shown = f"{(now or 0.0) / scale:,.{1 if unit == 'MB/s' else 0}f}"
            yield label, shown, unit, [(value or 0.0) / scale for value in values]


def _value(line: Line, place: tuple[str, ...]) -> float | None:
    found: Any = line
    for name in place:
        found = found[name]
    return None if found is None else float(found)


def _foot(line: Line) -> Iterator[str]:
    counts = line["counts"]
    yield (
        f"stale {counts['stale']:,}   rejected {counts['rejected']:,}   clamped "
        f"{counts['clamped']:,}   checkpoints {line['checkpoints']['written']:,}"
    )
    yield f"credits: {credits_text(line['credits'])}"
    yield f"rate limit: {limiter_text(line['limiter'])}"
    bar = position_bar(line["limiter"])
    if bar:
        yield bar
    if line["event"] == "end":
        yield f"ended: {line.get('reason', 'no reason given')}"
