"""Times from requests to their answers, as a replay rank and its clients measure them."""

from __future__ import annotations

import time

from ..metrics import Histogram
from .messages import Kind

_NAMES = {Kind.ADD: "add", Kind.SAMPLE: "sample", Kind.DRAW: "sample", Kind.UPDATE: "update"}
# Times go into the histograms many at once: that costs a tenth of one after another.
_MOST_TIMES = 4096


class RequestTimes:
    """Histograms of times, by ``"add"``, ``"sample"`` and ``"update"``; of no other request."""

    __slots__ = ("_histograms", "_open", "_times")

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], tuple[str, int]] = {}
        self._times: dict[str, list[int]] = {name: [] for name in _NAMES.values()}
        self._histograms = _histograms()

    def begin(self, rank: int, sequence: int, kind: Kind) -> int:
        """Begin the time of a request to or from a rank; return the time now."""
        now = time.perf_counter_ns()
        name = _NAMES.get(kind)
        if name is not None:
            self._open[rank, sequence] = name, now
        return now

    def end(self, rank: int, sequence: int) -> None:
        """End the time of a request, if it has one."""
        begun = self._open.pop((rank, sequence), None)
        if begun is not None:
            times = self._times[begun[0]]
            times.append(time.perf_counter_ns() - begun[1])
            if len(times) >= _MOST_TIMES:
                self._count()

    def forget(self, rank: int) -> None:
        """End all the times of a rank; they count for nothing."""
        for key in [key for key in self._open if key[0] == rank]:
            del self._open[key]

    def histograms(self) -> dict[str, Histogram]:
        """Return the times so far."""
        self._count()
        return self._histograms

    def take(self) -> dict[str, Histogram]:
        """Return the times so far, and begin with none."""
        taken, self._histograms = self.histograms(), _histograms()
        return taken

    def _count(self) -> None:
        for name, times in self._times.items():
            self._histograms[name].add_all(times)
            times.clear()


def _histograms() -> dict[str, Histogram]:
    return {name: Histogram() for name in sorted({*_NAMES.values()})}
