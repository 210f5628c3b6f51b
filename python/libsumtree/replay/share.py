"""How much of a replay rank's time learners may take while actors add without a pause."""

from __future__ import annotations

import time

_QUIET = 1_000_000
"""Nanoseconds without a batch, after which nobody has to make way for actors."""


class LearnerShare:
    """Has learners make way for actors.

    A learner that asks without a pause would take nearly all the time of a replay rank, for a
    request is worth many batches. So once learners have taken some time, and an actor has used all
    its credits meanwhile, further requests wait until as much time has passed as makes that their
    share; but only while batches keep coming.

    Parameters
    ----------
    share : float
        Above 0, at most 1: nobody waits.
    """

    def __init__(self, share: float) -> None:
        self._pause = 1.0 / share - 1.0
        self._due = 0.0
        self._batch = 0
        self._pressed = False

    def came(self, now: int, last_credit: bool) -> None:
        """Note that a batch came now (``time.perf_counter_ns``), for the last credit of its actor.

        Actors that find a credit whenever they have a batch lack nothing.
        """
        self._batch = now
        self._pressed = self._pressed or last_credit

    def spent(self, begin: int) -> None:
        """Note that learners have had the time since `begin` (``time.perf_counter_ns``)."""
        now = time.perf_counter_ns()
        taken = now - begin
        self._due = max(self._due + taken, now) + self._pause * taken

    def served(self, begin: int) -> None:
        """Note the same of a request that was served; actors may lack credits after it."""
        self.spent(begin)
        self._pressed = False

    def is_spent(self, coming: bool) -> bool:
        """Whether requests have to wait, given whether a batch is known to be on its way."""
        if not self._pressed or not self._pause:
            return False
        now = time.perf_counter_ns()
        return now < self._due and (coming or now - self._batch < _QUIET)
