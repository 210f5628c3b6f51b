"""What the lines of one service add up to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .histogram import Histogram
from .lines import LATENCIES, Line

RATES = ("added", "sampled", "updated", "bytes_in", "bytes_out")
QUEUES = ("requests", "held", "payloads", "unsent")


@dataclass(frozen=True, slots=True)
class Course:
    """How a number went: its mean over the time, its greatest value, and the last."""

    mean: float
    max: float
    last: float


@dataclass(frozen=True)
class Summary:
    """One service, from its first line to its last.

    Attributes
    ----------
    runs : int
        Services that wrote to this file; the last one is summed up.
    torn : int
        Lines that were broken off.
    lines : int
        Of this service.
    begin, end : float
        Of the first and the last line, in seconds since 1970.
    reason : str, optional
        Why it ended; None if it has not, or was killed.
    rates : dict of str to Course
        A second.
    queues : dict of str to Course
    latency : dict of str to dict
        Of all requests: count, p50, p99 and max, in seconds.
    rss : Course
        In bytes.
    last : dict
        The last line.
    """

    runs: int
    torn: int
    lines: int
    begin: float
    end: float
    seconds: float
    reason: str | None
    rates: dict[str, Course]
    queues: dict[str, Course]
    latency: dict[str, dict[str, Any]]
    rss: Course
    last: Line

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        return asdict(self)


def last_run(lines: Sequence[Line]) -> Sequence[Line]:
    """Return the lines of the service that began last."""
    starts = [i for i, line in enumerate(lines) if line["event"] == "start"]
    return lines[starts[-1] :] if starts else lines


def summarize(lines: Sequence[Line], torn: int = 0) -> Summary:
    """Sum up the lines of a metrics file, of which there is at least one.

    Parameters
    ----------
    lines : sequence of dict
        What `read_metrics` returned.
    torn : int
        Lines that were broken off.
    """
    own = last_run(lines)
    last = own[-1]
    return Summary(
        runs=max(1, sum(line["event"] == "start" for line in lines)),
        torn=torn,
        lines=len(own),
        begin=own[0]["time"],
        end=last["time"],
        seconds=last["uptime"],
        reason=last.get("reason") if last["event"] == "end" else None,
        rates={name: _course(own, "rates", name) for name in RATES},
        queues={name: _course(own, "queues", name) for name in QUEUES},
        latency={name: _latency(own, name) for name in LATENCIES},
        rss=_course(own, "process", "rss"),
        last=last,
    )


def _course(lines: Sequence[Line], section: str, name: str) -> Course:
    values = [line[section][name] for line in lines]
    seconds = [line["seconds"] for line in lines]
    whole = sum(seconds)
    weighted = sum(value * part for value, part in zip(values, seconds, strict=True))
    return Course(weighted / whole if whole else values[-1], max(values), values[-1])


def _latency(lines: Sequence[Line], name: str) -> dict[str, Any]:
    merged = Histogram()
    for line in lines:
        merged.merge(Histogram.from_json(line["latency"][name]))
    fields = merged.as_json()
    return {key: fields[key] for key in ("count", "p50", "p99", "max")}
