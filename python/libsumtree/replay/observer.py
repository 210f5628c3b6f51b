"""Metrics and status of a replay rank: lines of JSON in a file, and a line on standard error."""

from __future__ import annotations

import math
import os
import resource
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from ..metrics import SCHEMA, MetricsSink, encode_line
from .console import end_status, say, show_status
from .messages import Flag
from .peers import Peers

_CLOSE_SECONDS = 2.0
_PAGE = os.sysconf("SC_PAGE_SIZE")
_RATES = ("added", "sampled", "updated", "bytes_in", "bytes_out")


class Queues(Protocol):
    """What waits in a service."""

    def depths(self) -> dict[str, int]:
        """Return the lengths of its queues."""
        ...


class Observer:
    """Writes what a replay rank does, at its times; `turn` between two looks for messages.

    Parameters
    ----------
    peers : Peers
    queues : Queues
    checkpoints : callable
        Gives the fields of the section ``checkpoints``.

    Raises
    ------
    MetricsError
        If the metrics file cannot be opened for writing.
    """

    def __init__(
        self, peers: Peers, queues: Queues, checkpoints: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._peers = peers
        self._queues = queues
        self._checkpoints = checkpoints
        self._sink: MetricsSink | None = None
        if peers.config.metrics is not None:
            self._sink = MetricsSink(peers.config.metrics, say)
        self._begin = time.monotonic()
        self._metrics = _Interval(peers.config.metrics_interval, self._begin)
        self._status = _Interval(peers.config.status_interval, self._begin)
        self._next = math.inf
        self._set_next()
        if self._sink is not None:
            self._write("start", self._begin)

    def turn(self) -> None:
        """Write what is due."""
        now = time.monotonic()
        if now < self._next:
            return
        if self._sink is not None and now >= self._metrics.due:
            self._write("interval", now)
        if now >= self._status.due:
            show_status(self._status_line(now))
        self._set_next()

    def end(self, reason: str) -> None:
        """Write the last line, and wait a moment until it is on its way to the disk."""
        end_status()
        if self._sink is None:
            return
        self._write("end", time.monotonic(), reason=reason)
        if not self._sink.close(_CLOSE_SECONDS):
            say(f"the metrics file {self._peers.config.metrics} was not written to the end")
        self._sink = None

    def _set_next(self) -> None:
        metrics = math.inf if self._sink is None else self._metrics.due
        self._next = min(metrics, self._status.due)

    # ---- lines ----

    def _write(self, event: str, now: float, **more: str) -> None:
        assert self._sink is not None
        self._sink.put(encode_line(self._line(event, now) | more))

    def _line(self, event: str, now: float) -> dict[str, Any]:
        from .. import __version__

        peers = self._peers
        counts = self._counts()
        seconds, rates = self._metrics.rates(counts, now)
        latency = peers.counters.times.take()
        return {
            "schema": SCHEMA,
            "event": event,
            "version": __version__,
            "time": time.time(),
            "uptime": now - self._begin,
            "seconds": seconds,
            "rank": peers.channel.comm.Get_rank(),
            "buffer": self._buffer(),
            "rates": rates,
            "counts": counts,
            "rejected": {code.name.lower(): n for code, n in peers.counters.rejected.items()},
            "queues": self._queues.depths(),
            "credits": self._credits(),
            "learners": self._learners(),
            "limiter": self._limiter(),
            "latency": {name: histogram.as_json() for name, histogram in latency.items()},
            "checkpoints": dict(self._checkpoints()),
            "process": _process(),
        }

    def _counts(self) -> dict[str, int]:
        counters = self._peers.counters
        names = ("messages", "batches", "added", "requests", "sampled", "updates", "updated")
        counts = {name: getattr(counters, name) for name in names}
        return counts | {
            "stale": counters.stale,
            "rejected": self._peers.rejected.total(),
            "clamped": counters.clamped,
            "bytes_in": counters.bytes_in,
            "bytes_out": self._peers.channel.bytes_out,
            "lost_lines": 0 if self._sink is None else self._sink.lost,
        }

    def _buffer(self) -> dict[str, Any]:
        status = self._peers.status()
        names = ("size", "inserted", "sampled", "epoch", "total", "min", "max")
        capacity = self._peers.config.capacity
        return {"capacity": capacity} | {name: getattr(status, name) for name in names}

    def _credits(self) -> dict[str, int]:
        config, members = self._peers.config, self._peers.members.values()
        actors = [peer for peer in members if peer.role == Flag.ACTOR]
        learners = [peer for peer in members if peer.role == Flag.LEARNER]
        return {
            "actors": len(actors),
            "learners": len(learners),
            "batches": config.actor_credits * len(actors),
            "batches_used": sum(peer.unacked for peer in actors),
            "requests": config.sample_credits * len(learners),
            "requests_used": sum(peer.waiting for peer in learners),
        }

    def _learners(self) -> list[dict[str, int]]:
        stale = self._peers.counters.stale_of
        return [
            {"rank": peer.rank, "waiting": peer.waiting, "stale": stale[peer.rank]}
            for peer in self._peers.members.values()
            if peer.role == Flag.LEARNER
        ]

    def _limiter(self) -> dict[str, Any]:
        limiter = self._peers.limiter
        limit = limiter.limit
        size = 0 if self._peers.buffer is None else len(self._peers.buffer)
        waits = None
        if not limiter.may_insert(size):
            waits = "samples"
        elif not limiter.may_sample(1, size):
            waits = "inserts"
        return {
            "min_size_to_sample": limit.min_size_to_sample,
            "samples_per_insert": limit.samples_per_insert,
            "error_buffer": None if limiter.surplus is None else limiter.error_buffer,
            "surplus": limiter.surplus,
            "changes": limiter.changes,
            "waits_for": waits,
        }

    def _status_line(self, now: float) -> str:
        peers, counters = self._peers, self._peers.counters
        seconds, rates = self._status.rates(self._counts(), now)
        size = 0 if peers.buffer is None else len(peers.buffer)
        limiter = self._limiter()
        parts = [
            f"{now - self._begin:.0f} s",
            f"{size:,} of {peers.config.capacity:,} held",
            f"{rates['added']:,.0f} added/s",
            f"{rates['sampled']:,.0f} sampled/s",
            f"{rates['bytes_in'] / 1e6:,.1f} MB/s in",
            f"stale {counters.stale:,}",
            f"rejected {peers.rejected.total():,}",
        ]
        if limiter["waits_for"]:
            parts.append(f"rate limiter waits for {limiter['waits_for']}")
        return ", ".join(parts)


class _Interval:
    """Times that come again and again, and the rates of counts between two of them."""

    def __init__(self, seconds: float, begin: float) -> None:
        self._seconds = seconds
        self._last = begin
        self._before: dict[str, int] = dict.fromkeys(_RATES, 0)
        self.due = begin + seconds if seconds else math.inf

    def rates(self, counts: Mapping[str, int], now: float) -> tuple[float, dict[str, float]]:
        """Return the seconds since the last call and each count's rate; the next time begins."""
        seconds = now - self._last
        rates = {
            name: (counts[name] - before) / seconds if seconds > 0 else 0.0
            for name, before in self._before.items()
        }
        self._last, self._before = now, {name: counts[name] for name in _RATES}
        if self._seconds:
            self.due = max(self.due + self._seconds, now)
        return seconds, rates


def _process() -> dict[str, Any]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {"rss": pages * _PAGE, "cpu": usage.ru_utime + usage.ru_stime}
