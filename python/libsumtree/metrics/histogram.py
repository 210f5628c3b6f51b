"""A histogram of times with buckets of equal width of their logarithm, nearly.

Times are whole nanoseconds. Those below 16 have a bucket each; above, every power of two is cut
into `STEPS` buckets of one width, so that no bucket is wider than 1 / `STEPS` of its lower bound.
Counts are exact, and so is the sum of two histograms; only where in its bucket a time lies is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentError

STEPS = 8
"""Buckets of one power of two."""
_SHIFT = STEPS.bit_length()
_MOST = (1 << 62) - 1
_EXACT = 1 << 52
NANOSECONDS = 1e-9


class Histogram:
    """Counts times, in nanoseconds; O(1) each, in a few hundred bytes.

    Attributes
    ----------
    count : int
        Times taken.
    total : int
        Their sum, in nanoseconds.
    least, most : int
        The least and the greatest; 0 if there is none.
    counts : dict of int to int
        How many there are in each bucket that has any, see `bounds`.
    """

    __slots__ = ("count", "counts", "least", "most", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.least = 0
        self.most = 0
        self.counts: dict[int, int] = {}

    def add(self, nanoseconds: int) -> None:
        """Take one time; a negative one counts as 0, one above 2**62 - 1 as that."""
        value = min(max(nanoseconds, 0), _MOST)
        exponent = max(value.bit_length() - _SHIFT, 0)
        bucket = STEPS * exponent + (value >> exponent)
        self.counts[bucket] = self.counts.get(bucket, 0) + 1
        self.least = value if self.count == 0 else min(self.least, value)
        self.most = max(self.most, value)
        self.count += 1
        self.total += value

    def add_all(self, nanoseconds: Sequence[int]) -> None:
        """Take many times at once, as `add` would take each."""
        if len(nanoseconds) == 0:
            return
        least, most = min(nanoseconds), max(nanoseconds)
        if least < 0 or most >= _EXACT:
            for one in nanoseconds:
                self.add(one)
            return
        values = np.array(nanoseconds, np.int64)
        # frexp's exponent is the bit length of an integer that a double holds exactly.
        exponents = np.maximum(np.frexp(values.astype(np.float64))[1] - _SHIFT, 0)
        counts = np.bincount(STEPS * exponents + (values >> exponents))
        for bucket in np.flatnonzero(counts).tolist():
            self.counts[bucket] = self.counts.get(bucket, 0) + int(counts[bucket])
        self.least = least if self.count == 0 else min(self.least, least)
        self.most = max(self.most, most)
        self.count += len(values)
        self.total += sum(nanoseconds)

    def merge(self, other: Histogram) -> None:
        """Take all the times of another histogram; O(buckets)."""
        if other.count:
            self.least = other.least if self.count == 0 else min(self.least, other.least)
            self.most = max(self.most, other.most)
        self.count += other.count
        self.total += other.total
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count

    def quantile(self, share: float) -> float | None:
        """Return an upper bound of the time that `share` of all times do not exceed, in seconds.

        The time itself is the one of nearest rank, ``sorted(times)[ceil(share * count) - 1]``; the
        bound is less than 1 / `STEPS` above it. None if there is no time. O(buckets).

        Raises
        ------
        ArgumentError
            If `share` is not in 0 .. 1.
        """
        if not 0.0 <= share <= 1.0:
            raise ArgumentError(f"share is {share}: it must be in 0 .. 1")
        if self.count == 0:
            return None
        rank = max(1, -int(-share * self.count // 1))
        for bucket in sorted(self.counts):
            rank -= self.counts[bucket]
            if rank <= 0:
                return max(self.least, min(bounds(bucket)[1] - 1, self.most)) * NANOSECONDS
        return self.most * NANOSECONDS

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON can hold it: times in seconds, buckets by their numbers."""
        return {
            "count": self.count,
            "sum": self.total * NANOSECONDS,
            "min": self.least * NANOSECONDS if self.count else None,
            "max": self.most * NANOSECONDS if self.count else None,
            "p50": self.quantile(0.5),
            "p99": self.quantile(0.99),
            "buckets": {str(bucket): self.counts[bucket] for bucket in sorted(self.counts)},
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Histogram:
        """Read what `as_json` returned.

        Raises
        ------
        KeyError, TypeError, ValueError
            If it is not that.
        """
        made = cls()
        made.counts = {int(bucket): count for bucket, count in fields["buckets"].items()}
        for bucket, count in made.counts.items():
            if bucket < 0 or type(count) is not int or count < 1:
                raise ValueError(f"bucket {bucket} holds {count!r}")
        made.count = sum(made.counts.values())
        if made.count != fields["count"]:
            raise ValueError(f"{made.count} times in the buckets where {fields['count']} are said")
        if made.count:
            made.total = round(fields["sum"] / NANOSECONDS)
            made.least = round(fields["min"] / NANOSECONDS)
            made.most = round(fields["max"] / NANOSECONDS)
        return made


def bounds(bucket: int) -> tuple[int, int]:
    """Return the least time of a bucket and the first above it, in nanoseconds."""
    exponent = max(bucket // STEPS - 1, 0)
    low = bucket - STEPS * exponent
    return low << exponent, (low + 1) << exponent
