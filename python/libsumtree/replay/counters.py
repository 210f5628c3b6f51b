"""What a replay rank counts: integers on one object, and the times of its answers."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from ..metrics import Histogram
from .messages import HEADER_SIZE, Code, Kind, Message

_TIMED = {Kind.ADD: "add", Kind.SAMPLE: "sample", Kind.DRAW: "sample", Kind.UPDATE: "update"}


_MOST_TIMES = 4096


def _lists() -> dict[str, list[int]]:
    return {name: [] for name in _TIMED.values()}


def _histograms() -> dict[str, Histogram]:
    return {name: Histogram() for name in sorted({*_TIMED.values()})}


@dataclass(slots=True)
class Counters:
    """Counts since the start of the service; a message costs the same, however long it is.

    Attributes
    ----------
    messages : int
        Control messages taken.
    batches, added : int
        Batches of transitions taken, and transitions in them.
    requests, sampled : int
        Requests answered with a sample, and transitions in these.
    updates, updated, stale : int
        Batches of priorities taken, priorities in them, and those that were stale.
    clamped : int
        Targets that learners drew and that were fitted to a total that had moved since.
    bytes_in : int
        Bytes of all that was taken: headers, bodies and payloads. What was sent, the channel knows.
    rejected : Counter of Code
        Messages refused.
    stale_of : Counter of int
        Stale updates of each rank.
    latency : dict of str to Histogram
        From a request to its answer, since `take_latency`: ``"add"``, ``"sample"``, ``"update"``.
        What the rate limiter holds back counts.
    """

    messages: int = 0
    batches: int = 0
    added: int = 0
    requests: int = 0
    sampled: int = 0
    updates: int = 0
    updated: int = 0
    stale: int = 0
    clamped: int = 0
    bytes_in: int = 0
    rejected: Counter[Code] = field(default_factory=Counter)
    stale_of: Counter[int] = field(default_factory=Counter)
    latency: dict[str, Histogram] = field(default_factory=_histograms)
    _open: dict[tuple[int, int], tuple[str, int]] = field(default_factory=dict)
    # Times go into the histograms many at once: that costs a tenth of one after another.
    _times: dict[str, list[int]] = field(default_factory=_lists)

    def received(self, message: Message) -> None:
        """Count a control message; if it is a request that is timed, its time begins."""
        self.messages += 1
        self.bytes_in += HEADER_SIZE + len(message.body)
        name = _TIMED.get(message.kind)
        if name is not None:
            self._open[message.source, message.sequence] = name, time.perf_counter_ns()

    def received_add(self, source: int, sequence: int, nbytes: int) -> int:
        """Count an ADD of so many bytes; its time begins, and is returned."""
        now = time.perf_counter_ns()
        self.messages += 1
        self.bytes_in += nbytes
        self._open[source, sequence] = "add", now
        return now

    def answered(self, rank: int, sequence: int) -> None:
        """End the time of a request, if it has one."""
        begun = self._open.pop((rank, sequence), None)
        if begun is not None:
            times = self._times[begun[0]]
            times.append(time.perf_counter_ns() - begun[1])
            if len(times) >= _MOST_TIMES:
                self._count_times()

    def forget(self, rank: int) -> None:
        """End all the times of a client that left, or begins anew; they count for nothing."""
        for key in [key for key in self._open if key[0] == rank]:
            del self._open[key]

    def _count_times(self) -> None:
        for name, times in self._times.items():
            self.latency[name].add_all(times)
            times.clear()

    def take_latency(self) -> dict[str, Histogram]:
        """Return the times, and begin with none."""
        self._count_times()
        taken, self.latency = self.latency, _histograms()
        return taken
