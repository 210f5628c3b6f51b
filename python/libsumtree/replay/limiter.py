"""Samples per insert: learner and actors pace each other, whatever the speed of the machine.

The rule is Reverb's ``SampleToInsertRatio`` (Cassirer et al., 2021): the balance
``inserted * samples_per_insert - sampled`` is kept within `error_buffer` of where it stands when
the first `min_size_to_sample` transitions are in.
"""

from __future__ import annotations

import math

from ..errors import ArgumentError


class RateLimiter:
    """Says when transitions may be drawn, and when actors must wait.

    Parameters
    ----------
    min_size_to_sample : int
        Nothing is drawn while the buffer holds fewer transitions.
    samples_per_insert : float, optional
        Draws for each transition added, on average. None: no pacing, only the minimum size.
    error_buffer : float, optional
        How far the balance may stray, in samples. None: as far as the largest request and the
        largest batch seen so far need. A request of n samples needs n <= 2 * error_buffer: with
        less, learner and actors could wait for each other for ever.
    inserted : int
        Transitions that the buffer has ever taken, when a service goes on from a checkpoint.
    surplus : float, optional
        What `surplus` was then; brought within the present bounds. None: in balance.

    Raises
    ------
    ArgumentError
        If a number is not one that can be paced by.
    """

    def __init__(
        self,
        min_size_to_sample: int = 1,
        samples_per_insert: float | None = None,
        error_buffer: float | None = None,
        inserted: int = 0,
        surplus: float | None = None,
    ) -> None:
        check_pacing(min_size_to_sample, samples_per_insert, error_buffer)
        self._min_size = min_size_to_sample
        self._ratio = samples_per_insert
        self._fixed = error_buffer
        self._widest = max(1.0, samples_per_insert or 0.0)
        self._offset = min_size_to_sample * (samples_per_insert or 0.0)
        self._balance = inserted * (samples_per_insert or 0.0)
        if inserted >= min_size_to_sample:
            width = self.error_buffer
            self._balance = self._offset + min(max(surplus or 0.0, -width), width)

    @property
    def surplus(self) -> float | None:
        """How far inserts are ahead of samples, in samples; None without pacing."""
        return None if self._ratio is None else self._balance - self._offset

    @property
    def error_buffer(self) -> float:
        """How far the balance may stray now, in samples."""
        return self._widest if self._fixed is None else self._fixed

    def admits(self, n: int) -> bool:
        """Whether a request of `n` samples can ever be served."""
        return self._ratio is None or self._fixed is None or n <= 2 * self._fixed

    def expect_sample(self, n: int) -> None:
        """Note that a request of `n` samples is waiting."""
        self._widest = max(self._widest, float(n))

    def may_sample(self, n: int, size: int) -> bool:
        """Whether `n` samples may be drawn from `size` transitions now."""
        if size < self._min_size:
            return False
        return self._ratio is None or self._balance - n >= self._offset - self.error_buffer

    def may_insert(self, size: int) -> bool:
        """Whether actors may go on; always while `size` is below `min_size_to_sample`."""
        if self._ratio is None or size < self._min_size:
            return True
        return self._balance <= self._offset + self.error_buffer

    def inserted(self, count: int) -> None:
        """Note that `count` transitions were added."""
        if self._ratio is not None:
            self._widest = max(self._widest, count * self._ratio)
            self._balance += count * self._ratio

    def sampled(self, n: int) -> None:
        """Note that `n` samples were drawn."""
        if self._ratio is not None:
            self._balance -= n


def check_pacing(
    min_size_to_sample: int, samples_per_insert: float | None, error_buffer: float | None
) -> None:
    """Raise `ArgumentError` unless these three numbers can pace learner and actors."""
    if min_size_to_sample < 1:
        raise ArgumentError(f"min_size_to_sample is {min_size_to_sample}: at least 1")
    ratio = samples_per_insert
    if ratio is not None and not (math.isfinite(ratio) and ratio > 0):
        raise ArgumentError(
            f"samples_per_insert is {ratio}: a positive number, or None for no pacing"
        )
    if error_buffer is None:
        return
    if ratio is None:
        raise ArgumentError("error_buffer has no meaning without samples_per_insert")
    least = max(1.0, ratio)
    if not (math.isfinite(error_buffer) and error_buffer >= least):
        raise ArgumentError(
            f"error_buffer is {error_buffer}: at least max(1, samples_per_insert) = {least}, "
            "or neither samples nor inserts could ever pass"
        )
