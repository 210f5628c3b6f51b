"""Samples per insert: learner and actors pace each other, whatever the speed of the machine.

The rule is Reverb's ``SampleToInsertRatio`` (Cassirer et al., 2021): the balance
``inserted * samples_per_insert - sampled`` is kept within `error_buffer` of where it stands when
the first `min_size_to_sample` transitions are in.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from ..arguments import as_integer, as_real
from ..errors import ArgumentError, ArgumentTypeError, ShapeError

_MOST_SAMPLES = 2.0**53
"""The largest samples per insert and error buffer, 1 over it the least: all stays finite."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The three numbers that learner and actors are paced by, see `RateLimiter`.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        If they cannot pace anything.
    """

    min_size_to_sample: int = 1
    samples_per_insert: float | None = None
    error_buffer: float | None = None

    def __post_init__(self) -> None:
        minimum = as_integer(self.min_size_to_sample, "min_size_to_sample")
        object.__setattr__(self, "min_size_to_sample", minimum)
        for name in ("samples_per_insert", "error_buffer"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _number(value, name))
        check_pacing(self.min_size_to_sample, self.samples_per_insert, self.error_buffer)

    def part(self, shards: int) -> RateLimit:
        """Return the part of one of so many shards.

        Raises
        ------
        ArgumentError
            If the error buffer is too small to be shared out.
        """
        buffer = self.error_buffer
        minimum = -(-self.min_size_to_sample // shards)
        return RateLimit(
            minimum, self.samples_per_insert, None if buffer is None else buffer / shards
        )

    def whole(self, shards: int) -> RateLimit:
        """Return what so many shards, each with these numbers, are together."""
        buffer = self.error_buffer
        minimum = self.min_size_to_sample * shards
        return RateLimit(
            minimum, self.samples_per_insert, None if buffer is None else buffer * shards
        )

    def to_json(self) -> str:
        """Return the three numbers as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> RateLimit:
        """Read the three numbers from text.

        Raises
        ------
        ArgumentError, ArgumentTypeError
            If they are not that, or cannot pace anything.
        """
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ArgumentError(f"not JSON: {error}") from None
        if not isinstance(fields, dict) or set(fields) != set(cls.__slots__):
            raise ArgumentError(f"{text!r:.80} is not made of {', '.join(cls.__slots__)}")
        return cls(**fields)


def _number(value: Any, name: str) -> float:
    try:
        return as_real(value, name)
    except ShapeError as error:
        raise ArgumentTypeError(str(error)) from None


class RateLimiter:
    """Says when transitions may be drawn, and when actors must wait.

    Parameters
    ----------
    min_size_to_sample : int
        Nothing is drawn while the buffer holds fewer transitions.
    samples_per_insert : float, optional
        Draws for each transition added, on average; 2^-53 .. 2^53. None: no pacing, only the
        minimum size.
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
        self._asked = RateLimit(min_size_to_sample, samples_per_insert, error_buffer)
        self._changes = 0
        self._largest_request = 0.0
        self._largest_batch = 0
        self._take(self._asked, inserted, surplus)

    def _take(self, limit: RateLimit, inserted: int, surplus: float | None) -> None:
        """Pace by these numbers from now on, as far from balance as before if that is allowed."""
        self._limit = limit
        self._min_size = limit.min_size_to_sample
        self._ratio = ratio = limit.samples_per_insert
        self._fixed = limit.error_buffer
        self._offset = self._min_size * (ratio or 0.0)
        self._balance = inserted * (ratio or 0.0)
        batch = (ratio or 0.0) * max(1, self._largest_batch)
        self._widest = max(1.0, batch, float(self._largest_request))
        if inserted >= self._min_size:
            width = self.error_buffer
            self._balance = self._offset + min(max(surplus or 0.0, -width), width)

    def change(self, limit: RateLimit, inserted: int) -> None:
        """Pace by other numbers from now on.

        Parameters
        ----------
        limit : RateLimit
        inserted : int
            Transitions that the buffer has ever taken.

        Notes
        -----
        `surplus` stays what it was, brought within the new bounds; 0 if there was no pacing, or
        fewer transitions than were needed for the first draw.
        """
        self._take(limit, inserted, self.surplus if inserted >= self._min_size else None)
        self._changes += 1

    def saved(self) -> str | None:
        """Return what a checkpoint holds of changes made at run time; None if there was none."""
        if not self._changes:
            return None
        return _saved(self._asked, self._limit, self._changes)

    def go_on(self, saved: str, inserted: int, surplus: float | None, capacity: int) -> bool:
        """Take over changes made at run time, before a restart.

        They hold as long as the same is asked for at the start as was then.

        Parameters
        ----------
        saved : str
            What `saved` returned.
        inserted, surplus
            As for the constructor.
        capacity : int
            Of the buffer: what needs a larger one does not hold.

        Returns
        -------
        bool
            Whether they hold.

        Raises
        ------
        ArgumentError
            If it is not that.
        """
        asked, in_force, changes = _read_saved(saved)
        if asked != self._asked or in_force.min_size_to_sample > capacity:
            return False
        self._take(in_force, inserted, surplus)
        self._changes = changes
        return True

    @property
    def limit(self) -> RateLimit:
        """The numbers in force."""
        return self._limit

    @property
    def changes(self) -> int:
        """How often the numbers were changed at run time, over restarts."""
        return self._changes

    @property
    def surplus(self) -> float | None:
        """How far inserts are ahead of samples, in samples; None without pacing."""
        return None if self._ratio is None else self._balance - self._offset

    @property
    def error_buffer(self) -> float:
        """How far the balance may stray now, in samples."""
        return self._widest if self._fixed is None else self._fixed

    def admits(self, n: float) -> bool:
        """Whether a request of `n` samples can ever be served."""
        return self._ratio is None or self._fixed is None or n <= 2 * self._fixed

    def expect_sample(self, n: float) -> None:
        """Note that a request of `n` samples is waiting."""
        self._largest_request = max(self._largest_request, n)
        self._widest = max(self._widest, float(n))

    def may_sample(self, n: float, size: int) -> bool:
        """Whether `n` samples may be drawn from `size` transitions now."""
        if size < self._min_size:
            return False
        return self._ratio is None or self._balance - n >= self._offset - self.error_buffer

    def may_insert(self, size: int) -> bool:
        """Whether actors may go on; always while `size` is below `min_size_to_sample`."""
        if self._ratio is None or size < self._min_size:
            return True
        return self._balance <= self._offset + self.error_buffer

    def why_no_sample(self, n: float, size: int) -> str:
        """Say why `n` samples may not be drawn from `size` transitions; empty if they may."""
        if size < self._min_size:
            return f"waits for the rate limiter: {size} of {self._min_size} transitions"
        if self.may_sample(n, size):
            return ""
        assert self._ratio is not None
        short = self._offset - self.error_buffer + n - self._balance
        missing = math.ceil(short / self._ratio)
        return (
            f"waits for the rate limiter: {missing} more transitions must come first, at "
            f"{self._ratio:g} samples per insert (surplus {self._balance - self._offset:g}, "
            f"error buffer {self.error_buffer:g})"
        )

    def why_no_insert(self, size: int) -> str:
        """Say why actors may not go on with `size` transitions held; empty if they may."""
        if self.may_insert(size):
            return ""
        ahead = math.ceil(self._balance - self._offset - self.error_buffer)
        return (
            f"waits for the rate limiter: {ahead} more samples must be drawn first, at "
            f"{self._ratio:g} samples per insert (surplus {self._balance - self._offset:g}, "
            f"error buffer {self.error_buffer:g})"
        )

    def inserted(self, count: int) -> None:
        """Note that `count` transitions were added."""
        self._largest_batch = max(self._largest_batch, count)
        if self._ratio is not None:
            self._widest = max(self._widest, count * self._ratio)
            self._balance += count * self._ratio

    def sampled(self, n: float) -> None:
        """Note that `n` samples were drawn."""
        if self._ratio is not None:
            self._balance -= n


def shared_out(saved: str, asked: RateLimit, before: int, after: int) -> str | None:
    """Turn what the limiter of one of `before` shards saved into what one of `after` would have.

    Parameters
    ----------
    saved : str
        What `RateLimiter.saved` returned.
    asked : RateLimit
        What is asked for now, of all shards together.
    before, after : int

    Returns
    -------
    str or None
        None if something else was asked for then, or its parts would be too small.

    Raises
    ------
    ArgumentError
        If it is not that.
    """
    asked_then, in_force, changes = _read_saved(saved)
    if asked_then != asked.part(before):
        return None
    try:
        part = in_force.whole(before).part(after)
    except ArgumentError:
        return None
    return _saved(asked.part(after), part, changes)


def _saved(asked: RateLimit, in_force: RateLimit, changes: int) -> str:
    pair = {"asked": asdict(asked), "in_force": asdict(in_force)}
    return json.dumps({**pair, "changes": changes})


def _read_saved(saved: str) -> tuple[RateLimit, RateLimit, int]:
    try:
        fields = json.loads(saved)
        asked, in_force = (RateLimit(**fields[name]) for name in ("asked", "in_force"))
        return asked, in_force, int(fields["changes"])
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ArgumentError(f"no rate limit: {error}") from None


def check_pacing(
    min_size_to_sample: int, samples_per_insert: float | None, error_buffer: float | None
) -> None:
    """Raise `ArgumentError` unless these three numbers can pace learner and actors."""
    if min_size_to_sample < 1:
        raise ArgumentError(f"min_size_to_sample is {min_size_to_sample}: at least 1")
    ratio = samples_per_insert
    if ratio is not None and not 1 / _MOST_SAMPLES <= ratio <= _MOST_SAMPLES:
        raise ArgumentError(f"samples_per_insert is {ratio}: 2^-53 .. 2^53, or None for no pacing")
    if error_buffer is None:
        return
    if ratio is None:
        raise ArgumentError("error_buffer has no meaning without samples_per_insert")
    least = max(1.0, ratio)
    if not error_buffer >= least:
        raise ArgumentError(
            f"error_buffer is {error_buffer}: at least max(1, samples_per_insert) = {least}, "
            "or neither samples nor inserts could ever pass"
        )
    if error_buffer > _MOST_SAMPLES:
        raise ArgumentError(f"error_buffer is {error_buffer}: at most 2^53")
