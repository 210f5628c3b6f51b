"""Rounds: every contestant does the same fresh work, by turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..arguments import Doubles, Indices

Work = TypeVar("Work")
Work_contra = TypeVar("Work_contra", contravariant=True)

ELEMENTS = 2**15  # of a round, unless a batch is longer


@dataclass(frozen=True)
class Limits:
    """How long a row of a table is measured.

    Attributes
    ----------
    rounds : int
        At most so many rounds.
    seconds : float
        No further round after so long, once there were `least`.
    least : int
    """

    rounds: int = 21
    seconds: float = 6.0
    least: int = 5


class Contestant(Protocol[Work_contra]):
    """Does work and tells how long a batch took it."""

    @property
    def name(self) -> str:
        """What the tables call it."""

    def time(self, work: Work_contra) -> float:
        """Do the work; give the seconds of one batch."""


@dataclass(frozen=True)
class Updates:
    """Batches of an update.

    Attributes
    ----------
    indices, masses : ndarray of int64 and float64, shape (batches, count)
    """

    indices: Indices
    masses: Doubles


@dataclass(frozen=True)
class Called(Generic[Work]):
    """A contestant that is a Python function, called once for each batch of the work.

    Attributes
    ----------
    name : str
    call : callable
        Takes one batch, as `split` gives it.
    split : callable
        Gives the batches of the work.
    """

    name: str
    call: Callable[..., object]
    split: Callable[[Work], Sequence[tuple[object, ...]]]

    def time(self, work: Work) -> float:
        """Do the work; give the seconds of one batch."""
        batches = self.split(work)
        began = time.perf_counter()
        for batch in batches:
            self.call(*batch)
        return (time.perf_counter() - began) / len(batches)


def batches_of(count: int, elements: int = ELEMENTS) -> int:
    """Give how many batches of `count` make a round: at least two, unless they are very long."""
    return max(elements // count, 2 if count <= 2**17 else 1)


def random_updates(rng: np.random.Generator, leaves: int, batches: int, count: int) -> Updates:
    """Draw batches of uniform indices and positive masses."""
    shape = (batches, count)
    return Updates(rng.integers(0, leaves, shape), 1.0 - rng.random(shape))


def split_updates(work: Updates) -> list[tuple[object, ...]]:
    """Give the arguments of each update."""
    return list(zip(work.indices, work.masses, strict=True))


def race(
    contestants: Sequence[Contestant[Work]],
    draw: Callable[[], Work],
    limits: Limits,
    after: Callable[[Work], None] = lambda work: None,
) -> NDArray[np.float64]:
    """Have all contestants do the same work, round after round.

    In a round all do fresh work twice, there and back: first to last, then, with other work, last
    to first. Whoever goes first finds its tree in the caches, where it went last before; over a
    round that is the same for the first contestant and the last, which are thus to be compared.

    Parameters
    ----------
    contestants : sequence of Contestant
    draw : callable
        Makes work.
    limits : Limits
    after : callable
        Is given work once all have done it, untimed.

    Returns
    -------
    ndarray of float64, shape (rounds, contestants)
        Seconds of one batch, mean of both ways. A round that warms up is left out.
    """
    _there_and_back(contestants, draw, after)
    rows: list[list[float]] = []
    end = time.perf_counter() + limits.seconds
    while len(rows) < limits.rounds:
        if len(rows) >= limits.least and time.perf_counter() > end:
            break
        rows.append(_there_and_back(contestants, draw, after))
    return np.array(rows)


def _there_and_back(
    contestants: Sequence[Contestant[Work]],
    draw: Callable[[], Work],
    after: Callable[[Work], None],
) -> list[float]:
    seconds = [0.0] * len(contestants)
    there = range(len(contestants))
    for way in (there, reversed(there)):
        work = draw()
        for place in way:
            seconds[place] += contestants[place].time(work) / 2
        after(work)
    return seconds
