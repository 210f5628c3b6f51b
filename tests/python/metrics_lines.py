"""Lines of metrics for tests: whole, and easily changed."""

from __future__ import annotations

import json
from typing import Any

from libsumtree.metrics import Histogram


def line(event: str = "interval", number: int = 0, added: float = 10.0) -> dict[str, Any]:
    """Return a line of a service, 10 seconds after the one before."""
    histogram = Histogram()
    for microseconds in range(1, 101) if event != "start" else ():
        histogram.add(1000 * microseconds)
    made = 0 if event == "start" else round(10 * added * number)
    fields: dict[str, Any] = {
        "schema": 1,
        "event": event,
        "version": "0.1.0",
        "time": 1_790_000_000.0 + 10 * number,
        "uptime": 10.0 * number,
        "seconds": 0.0 if event == "start" else 10.0,
        "rank": 0,
        "buffer": {
            **{"size": min(made, 1000), "capacity": 1000, "inserted": made, "sampled": 2 * made},
            **{"epoch": 0, "total": 5.5, "min": None, "max": 1.0},
        },
        "rates": {
            **{"added": 0.0 if event == "start" else added, "sampled": 2.0 * added},
            **{"updated": 2.0 * added, "bytes_in": 1e6, "bytes_out": 2e6 + 1e5 * (number % 3)},
        },
        "counts": {
            **{"messages": 7, "batches": 3, "added": made, "requests": 4, "sampled": 2 * made},
            **{"updates": 5, "updated": 6, "stale": 17, "rejected": 3, "clamped": 1},
            **{"bytes_in": 1000, "bytes_out": 2000, "lost_lines": 0},
        },
        "rejected": {"priority": 3},
        "queues": {"requests": 1, "held": number % 4, "payloads": 0, "unsent": 2},
        "credits": {
            **{"actors": 4, "learners": 1, "batches": 12, "batches_used": 5},
            **{"requests": 3, "requests_used": 1},
        },
        "learners": [{"rank": 1, "waiting": 1, "stale": 17}],
        "limiter": {
            **{"min_size_to_sample": 100, "samples_per_insert": 2.0, "error_buffer": 200.0},
            **{"surplus": -50.0, "changes": 0, "waits_for": None},
        },
        "latency": {name: histogram.as_json() for name in ("add", "sample", "update")},
        "checkpoints": {"written": 2, "failures": 0, "age": 3.5, "writing": False},
        "process": {"rss": (64 + number) << 20, "cpu": 1.5},
    }
    if event == "end":
        fields["reason"] = "a test"
    return dict(json.loads(json.dumps(fields)))


def service(lines: int, added: float = 10.0) -> list[dict[str, Any]]:
    """Return the lines of a service from its start to its end."""
    events = ["start", *["interval"] * (lines - 2), "end"]
    return [line(event, number, added) for number, event in enumerate(events)]
