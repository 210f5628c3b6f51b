"""Transitions that are drawn no more although they are held: drawn often enough, or too old.

Such a transition is **withdrawn**: its mass is 0, and no priority for it changes that. It can be
read by its id, and is stale once its place in the ring is taken, as any other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arguments import Indices, as_integer
from .errors import ArgumentError


def as_limit(value: Any, name: str) -> int | None:
    """Take an integer >= 1, or None for no limit."""
    if value is None:
        return None
    limit = as_integer(value, name)
    if limit < 1:
        raise ArgumentError(f"{name} is {limit}: it must be at least 1, or None for no limit")
    return limit


class Withdrawal:
    """The limits of one buffer, and how often each transition was drawn.

    Parameters
    ----------
    max_times_sampled, max_age : int or None
        See `PrioritizedReplayBuffer`.
    counts : ndarray of int64, shape (capacity,), or None
        Zeros, one for each slot; None where `max_times_sampled` is.
    """

    def __init__(
        self, max_times_sampled: int | None, max_age: int | None, counts: Indices | None
    ) -> None:
        self.max_times_sampled = max_times_sampled
        self.max_age = max_age
        self._counts = counts
        self._counted = 0  # slots of higher numbers hold the counts of those that they replaced
        self._aged = 0  # lower numbers are too old, and have the mass 0

    def note(self, slots: Indices, next_number: int) -> Indices:
        """Count a draw of transitions in these slots; return the slots that are withdrawn by it.

        A transition that was drawn twice counts twice.
        """
        counts, limit = self._counts, self.max_times_sampled
        if counts is None or limit is None or not len(slots):
            return slots[:0]
        self._forget_replaced(counts, next_number)
        drawn, times = np.unique(slots, return_counts=True)
        counts[drawn] += times
        return drawn[counts[drawn] >= limit]

    def times(self, numbers: Indices, next_number: int) -> Indices:
        """Return how often transitions that are held were drawn; 0 where nothing is counted."""
        if self._counts is None:
            return np.zeros_like(numbers)
        self._forget_replaced(self._counts, next_number)
        return np.asarray(self._counts[numbers % len(self._counts)])

    def set_times(self, numbers: Indices, times: Indices, next_number: int) -> None:
        """Take over the counts of transitions that are held."""
        if self._counts is not None:
            self._forget_replaced(self._counts, next_number)
            self._counts[numbers % len(self._counts)] = times

    def holds(self, numbers: Indices, next_number: int) -> NDArray[np.bool_]:
        """Tell which transitions, all of them held, are withdrawn."""
        withdrawn = np.zeros(numbers.shape, bool)
        if self.max_times_sampled is not None:
            withdrawn |= self.times(numbers, next_number) >= self.max_times_sampled
        if self.max_age is not None:
            withdrawn |= numbers < next_number - self.max_age
        return withdrawn

    def too_old(self, oldest: int, next_number: int) -> tuple[int, int]:
        """Return the numbers start .. stop-1 that are held, and became too old since `settle`."""
        if self.max_age is None:
            return 0, 0
        start, stop = max(self._aged, oldest), next_number - self.max_age
        return start, max(start, stop)

    def settle(self, stop: int) -> None:
        """Take note that all numbers below `stop` have the mass 0."""
        self._aged = max(self._aged, stop)

    def _forget_replaced(self, counts: Indices, next_number: int) -> None:
        fresh = min(next_number - self._counted, len(counts))
        if fresh > 0:
            slot = (next_number - fresh) % len(counts)
            first = min(fresh, len(counts) - slot)
            counts[slot : slot + first] = 0
            counts[: fresh - first] = 0
        self._counted = next_number
