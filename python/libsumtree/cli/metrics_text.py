"""Metrics in words and columns: the summary of a file, and one line of text for each of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from ..metrics import Summary

RATE_NAMES = {
    "added": "added",
    "sampled": "sampled",
    "updated": "priorities",
    "bytes_in": "bytes in",
    "bytes_out": "bytes out",
}
QUEUE_NAMES = {
    "requests": "requests waiting",
    "held": "answers held back",
    "payloads": "payloads on the way",
    "unsent": "answers unsent",
}


def summary_lines(name: str, summary: Summary) -> Iterator[str]:
    """Give the lines of a summary; `name` is the file's."""
    last = summary.last
    services = "1 service" if summary.runs == 1 else f"{summary.runs} services, the last of them"
    torn = f", {summary.torn} broken off" if summary.torn else ""
    yield f"{name}: {services}, {summary.lines} lines{torn}, libsumtree {last['version']}"
    ended = "has not ended, or was killed" if summary.reason is None else summary.reason
    yield f"{_utc(summary.begin)} to {_utc(summary.end)}, {summary.seconds:.1f} s: {ended}"
    yield ""
    yield from _courses(summary)
    yield ""
    yield from _latencies(summary)
    yield ""
    yield from _facts(last)


def _courses(summary: Summary) -> Iterator[str]:
    yield f"{'':<22}{'mean':>14}{'max':>14}{'last':>14}"
    for name, course in summary.rates.items():
        unit = "/s"
        scale = 1.0
        if name.startswith("bytes"):
            unit, scale = "MB/s", 1e-6
        label = f"{RATE_NAMES[name].replace('bytes ', '')} ({unit})"
        values = (f"{value * scale:,.1f}" for value in (course.mean, course.max, course.last))
        yield f"{label:<22}" + "".join(f"{value:>14}" for value in values)
    for name, course in summary.queues.items():
        yield _row(QUEUE_NAMES[name], course.mean, course.max, course.last)
    rss = summary.rss
    yield _row("RSS (MiB)", *(value / 2**20 for value in (rss.mean, rss.max, rss.last)))


def _row(label: str, *values: float) -> str:
    return f"{label:<22}" + "".join(f"{value:>14,.1f}" for value in values)


def _latencies(summary: Summary) -> Iterator[str]:
    yield f"{'request to answer':<22}{'count':>14}{'p50':>14}{'p99':>14}{'max':>14}"
    for name, fields in summary.latency.items():
        times = "".join(f"{duration(fields[key]):>14}" for key in ("p50", "p99", "max"))
        yield f"{name:<22}{fields['count']:>14,}{times}"


def _facts(line: dict[str, Any]) -> Iterator[str]:
    buffer, counts = line["buffer"], line["counts"]
    yield (
        f"held        {buffer['size']:,} of {buffer['capacity']:,} transitions; "
        f"{buffer['inserted']:,} ever added, {buffer['sampled']:,} drawn"
    )
    yield (
        f"counted     {counts['stale']:,} stale, {counts['rejected']:,} rejected, "
        f"{counts['clamped']:,} clamped, {counts['lost_lines']:,} lines lost"
    )
    yield f"credits     {credits_text(line['credits'])}"
    yield f"rate limit  {limiter_text(line['limiter'])}"
    checkpoints = line["checkpoints"]
    yield f"checkpoints {checkpoints['written']} written, {checkpoints['failures']} failed"


def credits_text(credits: dict[str, int]) -> str:
    """Say who is there, and how many credits are in use."""
    actors, learners = credits["actors"], credits["learners"]
    return (
        f"{actors} actor{'' if actors == 1 else 's'}, {credits['batches_used']} of "
        f"{credits['batches']} in use; {learners} learner{'' if learners == 1 else 's'}, "
        f"{credits['requests_used']} of {credits['requests']}"
    )


def limiter_text(limiter: dict[str, Any]) -> str:
    """Say what a rate limiter allows, and where it stands."""
    parts = [f"{limiter['min_size_to_sample']:,} transitions first"]
    if limiter["samples_per_insert"] is not None:
        parts.append(f"{limiter['samples_per_insert']:g} samples per insert")
    if None not in (limiter["surplus"], limiter["error_buffer"]):
        parts.append(f"surplus {limiter['surplus']:,.0f} within {limiter['error_buffer']:,.0f}")
    if limiter["changes"]:
        parts.append(f"changed {limiter['changes']} times")
    if limiter["waits_for"]:
        parts.append(f"waits for {limiter['waits_for']}")
    return ", ".join(parts)


def duration(seconds: float | None) -> str:
    """Write a time with a unit that fits; a dash for none."""
    if seconds is None:
        return "-"
    for unit, scale in (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)):
        if seconds < 999.5 * scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds:,.3g} s" if seconds < 1000 else f"{seconds:,.0f} s"


def one_line(line: dict[str, Any]) -> str:
    """Write a line of metrics as one line of text."""
    rates, counts, queues = line["rates"], line["counts"], line["queues"]
    parts = [
        time.strftime("%H:%M:%S", time.localtime(line["time"])),
        f"{line['buffer']['size']:,} held",
        f"{rates['added']:,.0f} added/s",
        f"{rates['sampled']:,.0f} sampled/s",
        f"{rates['bytes_in'] / 1e6:,.1f} MB/s in",
        f"{rates['bytes_out'] / 1e6:,.1f} MB/s out",
        f"p99 of a sample {duration(line['latency']['sample']['p99'])}",
        "waiting " + "/".join(str(queues[name]) for name in QUEUE_NAMES),
        f"stale {counts['stale']:,}",
        f"rejected {counts['rejected']:,}",
        f"RSS {line['process']['rss'] / 2**20:,.0f} MiB",
    ]
    if line["event"] == "start":
        return f"{parts[0]}  started, libsumtree {line['version']}"
    if line["event"] == "end":
        parts.append(f"ended: {line.get('reason', 'no reason given')}")
    return "  ".join(parts)


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
