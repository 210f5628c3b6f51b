"""What several shards of one service have measured, as if they were one replay rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .histogram import Histogram
from .lines import LATENCIES, Line
from .summary import QUEUES, RATES, Course, Summary, last_run, summarize

Numbers = Sequence[Any]


def _sum(values: Numbers) -> Any:
    return sum(values)


def _most(values: Numbers) -> Any:
    return max(values)


def _least(values: Numbers) -> Any:
    return min((value for value in values if value is not None), default=None)


def _sum_of_all(values: Numbers) -> Any:
    return None if None in values else sum(values)


def _oldest(values: Numbers) -> Any:
    return None if None in values else max(values)


def _first(values: Numbers) -> Any:
    return next((value for value in values if value is not None), None)


# How fields are put together that are no sums. Clients and checkpoints are those of every shard.
_FIELDS: dict[str, dict[str, Callable[[Numbers], Any]]] = {
    "buffer": {"epoch": _most, "min": _least, "max": _most},
    "credits": {"actors": _most, "learners": _most},
    "limiter": {
        "samples_per_insert": _first,
        "error_buffer": _sum_of_all,
        "surplus": _sum_of_all,
        "changes": _most,
        "waits_for": _first,
    },
    "checkpoints": {"written": _most, "failures": _most, "age": _oldest, "writing": _most},
}
_SECTIONS = ("buffer", "rates", "counts", "queues", "credits", "limiter", "checkpoints", "process")


def summarize_together(files: Sequence[Sequence[Line]], torn: int = 0) -> Summary:
    """Sum up what several shards wrote, a file each, from the first line to the last of any.

    Parameters
    ----------
    files : sequence of sequences of dict
        What `read_metrics` returned for each file; each has a line at least.
    torn : int
        Lines that were broken off, in all files.

    Notes
    -----
    Rates, queues and memory are sums; so the greatest value of one is the sum of the greatest of
    each shard, a bound: they need not be of one moment. Latencies are those of all requests.
    """
    parts = [summarize(lines) for lines in files]
    return Summary(
        runs=max(part.runs for part in parts),
        torn=torn,
        lines=sum(part.lines for part in parts),
        begin=min(part.begin for part in parts),
        end=max(part.end for part in parts),
        seconds=max(part.seconds for part in parts),
        reason=None if any(part.reason is None for part in parts) else parts[0].reason,
        rates={name: _add([part.rates[name] for part in parts]) for name in RATES},
        queues={name: _add([part.queues[name] for part in parts]) for name in QUEUES},
        latency={name: _latency(files, name) for name in LATENCIES},
        rss=_add([part.rss for part in parts]),
        last=add_up([part.last for part in parts]),
    )


def add_up(lines: Sequence[Line]) -> Line:
    """Return one line for those of several shards; what is no sum is what fits all of them."""
    made = dict(lines[0])
    for section in _SECTIONS:
        rules = _FIELDS.get(section, {})
        made[section] = {
            name: rules.get(name, _sum)([line[section][name] for line in lines])
            for name in lines[0][section]
            if all(name in line[section] for line in lines)
        }
    return made


def _add(courses: Sequence[Course]) -> Course:
    return Course(
        sum(course.mean for course in courses),
        sum(course.max for course in courses),
        sum(course.last for course in courses),
    )


def _latency(files: Sequence[Sequence[Line]], name: str) -> dict[str, Any]:
    merged = Histogram()
    for lines in files:
        for line in last_run(lines):
            merged.merge(Histogram.from_json(line["latency"][name]))
    fields = merged.as_json()
    return {key: fields[key] for key in ("count", "p50", "p99", "max")}
