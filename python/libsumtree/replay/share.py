"""How much of a replay rank's time learners may take while actors add without a pause."""

from __future__ import annotations

import time

_QUIET = 1_000_000
"""Nanoseconds without a batch, after which nobody has to make way for actors."""

_LONGEST = 5_000_000
"""The longest wait of a request, and how long a pressed actor counts, in nanoseconds."""


class LearnerShare:
    """Has learners make way for actors.

    A learner that asks without a pause would take nearly all the time of a replay rank, for a
    request is worth many batches. So once learners have taken some time, and an actor has had more
    than half of its credits in use lately, further requests wait until as much time has passed as
    makes that their share; but only while batches keep coming.

    Parameters
    ----------
    share : float
        Above 0, at most 1: nobody waits.
    """

    def __init__(self, share: float) -> None:
        self._pause = min(1.0 / share - 1.0, float(_LONGEST))  # a share near 0 makes no infinity
        self._due = 0.0
        self._used = 0
        self._batch = 0
        self._pressed = -_LONGEST

    def came(self, now: int, pressed: bool) -> None:
        """Note that a batch came now (``time.perf_counter_ns``).

        `pressed`: its actor has more than half of its credits in use here. An actor of which no
        more ever wait lacks nothing.
        """
        self._batch = now
        if pressed:
            self._pressed = now

    def spent(self, begin: int) -> None:
        """Note that learners have had the time since `begin` (``time.perf_counter_ns``)."""
        self._used += time.perf_counter_ns() - begin

    def served(self, begin: int) -> None:
        """Note the same of a request that was served: the next one may have to wait.

        For this request and the updates since the one before, and no longer than 5 ms: what was
        given while no actor lacked credits is not asked back.
        """
        now = time.perf_counter_ns()
        self._due = now + min(self._pause * (self._used + now - begin), _LONGEST)
        self._used = 0

    def is_spent(self, coming: bool) -> bool:
        """Whether requests have to wait, given whether a batch is known to be on its way."""
        now = time.perf_counter_ns()
        if now >= self._due or now - self._pressed >= _LONGEST:
            return False
        return coming or now - self._batch < _QUIET
