"""One line of a metrics file: a JSON object of schema `SCHEMA`; docs/metrics.md says what is in it.

A reader takes lines of its own schema, with whatever else stands in them; a field is never removed
and never changes its meaning without a new schema.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..arguments import short
from ..errors import MetricsError
from .histogram import Histogram

SCHEMA = 1
"""The version of the fields of a line."""
EVENTS = ("start", "interval", "end")
"""A service writes one line ``start``, then one ``interval`` after another, and one ``end``."""
LATENCIES = ("add", "sample", "update")

Line = dict[str, Any]


class TornLineError(MetricsError):
    """A line is no JSON: whoever wrote it was killed meanwhile, or it is no metrics file."""


_NUMBERS = (int, float)
_LARGEST = sys.float_info.max
_LATEST = 253_402_300_800  # the year 10000, in seconds since 1970
_NULLABLE = (int, float, type(None))
# Sections and fields that a line must have, and what they may be. Others may stand beside them.
_FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    "buffer": {
        **dict.fromkeys(("size", "capacity", "inserted", "sampled", "epoch"), (int,)),
        **dict.fromkeys(("total", "max"), _NUMBERS),
        "min": _NULLABLE,
    },
    "rates": dict.fromkeys(("added", "sampled", "updated", "bytes_in", "bytes_out"), _NUMBERS),
    "counts": dict.fromkeys(
        (
            "messages",
            "batches",
            "added",
            "requests",
            "sampled",
            "updates",
            "updated",
            "stale",
            "rejected",
            "clamped",
            "bytes_in",
            "bytes_out",
            "lost_lines",
        ),
        (int,),
    ),
    "queues": dict.fromkeys(("requests", "held", "payloads", "unsent"), (int,)),
    "credits": dict.fromkeys(
        ("actors", "learners", "batches", "batches_used", "requests", "requests_used"), (int,)
    ),
    "limiter": {
        "min_size_to_sample": (int,),
        "changes": (int,),
        **dict.fromkeys(("samples_per_insert", "error_buffer", "surplus"), _NULLABLE),
        "waits_for": (str, type(None)),
    },
    "checkpoints": {
        "written": (int,),
        "failures": (int,),
        "age": _NULLABLE,
        "writing": (bool,),
    },
    "process": {"rss": (int,), "cpu": _NUMBERS},
}


def encode_line(line: Mapping[str, Any]) -> bytes:
    """Return a line as it stands in a file, newline included; what is not finite becomes null."""
    return json.dumps(finite(line), allow_nan=False, separators=(",", ":")).encode() + b"\n"


def finite(value: Any) -> Any:
    """Return a value of JSON with None for each number that is not finite, which JSON lacks."""
    if isinstance(value, Mapping):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def decode_line(text: str) -> Line:
    """Read one line and check that everything is there that the schema promises.

    Raises
    ------
    MetricsError
        Saying what is not, and nothing about file or place; `TornLineError` if it is no JSON.
    """
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        raise TornLineError(f"{text!r:.60} is no JSON") from None
    if not isinstance(line, dict) or type(line.get("schema")) is not int:
        raise MetricsError("JSON, but no object with a 'schema'")
    if line["schema"] != SCHEMA:
        raise MetricsError(f"schema {line['schema']}, and this version reads {SCHEMA}")
    if line.get("event") not in EVENTS:
        raise MetricsError(f"event {line.get('event')!r} is none of {', '.join(EVENTS)}")
    _check(line, "version", (str,))
    for name in ("time", "uptime", "seconds"):
        _check(line, name, _NUMBERS)
    if not 0 <= line["time"] < _LATEST:
        raise MetricsError(f"'time' is {line['time']!r:.40}")
    for section, expected in _FIELDS.items():
        _check(line, section, (dict,))
        for name, types in expected.items():
            _check(line[section], name, types, f"{section}.")
    _check_latencies(line)
    return line


def _check(fields: Line, name: str, types: tuple[type, ...], prefix: str = "") -> None:
    if name not in fields:
        raise MetricsError(f"no '{prefix}{name}'")
    value = fields[name]
    if type(value) not in types or (type(value) in _NUMBERS and not abs(value) <= _LARGEST):
        raise MetricsError(f"'{prefix}{name}' is {short(value)}")


def _check_latencies(line: Line) -> None:
    _check(line, "latency", (dict,))
    for name in LATENCIES:
        _check(line["latency"], name, (dict,), "latency.")
        try:
            Histogram.from_json(line["latency"][name])
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise MetricsError(f"'latency.{name}' is no histogram: {error}") from None


def shard_path(path: Path, shard: int) -> Path:
    """Return the metrics file of one of several shards: ``m.jsonl`` is ``m.shard2.jsonl``."""
    return path.with_name(f"{path.stem}.shard{shard}{path.suffix}")
