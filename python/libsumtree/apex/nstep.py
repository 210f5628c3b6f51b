"""n-step returns (Sutton and Barto, 2018, chapter 7), one transition for every step."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class NStepTransition(NamedTuple):
    """One row of the replay buffer.

    ``reward`` is the discounted sum of the next k rewards and ``discount`` is gamma**k, or 0 if
    the episode terminated within them, so that the TD target is always
    ``reward + discount * value(next_observation)``.
    """

    observation: Any
    action: int
    reward: float
    discount: float
    next_observation: Any


class NStepAccumulator:
    """Turns the steps of one environment into n-step transitions.

    A transition is complete after n steps, or earlier at the end of its episode: k is then the
    number of steps that were left. It never reaches across a reset, and every step starts exactly
    one transition. A terminated episode has no value after its end (discount 0); a truncated one
    goes on out of sight, so its last observation is bootstrapped from.

    Parameters
    ----------
    n : int
        Longest number of rewards in one transition, at least 1.
    gamma : float
        Discount of one step.
    """

    def __init__(self, n: int, gamma: float) -> None:
        self._n = n
        self._powers = [gamma**k for k in range(n + 1)]
        self._pending: deque[tuple[Any, int, float]] = deque()

    def __len__(self) -> int:
        """Return the number of steps whose transition is not complete."""
        return len(self._pending)

    def step(
        self,
        observation: Any,
        action: int,
        reward: float,
        next_observation: Any,
        terminated: bool,
        truncated: bool,
    ) -> list[NStepTransition]:
        """Take one step and return the transitions that it completes, oldest first."""
        self._pending.append((observation, action, reward))
        if terminated:
            return self._drain(next_observation, bootstrap=False)
        if truncated:
            return self._drain(next_observation, bootstrap=True)
        if len(self._pending) < self._n:
            return []
        return [self._pop(next_observation, bootstrap=True)]

    def cut(self, next_observation: Any) -> list[NStepTransition]:
        """Complete every pending transition, as if the episode were truncated here."""
        return self._drain(next_observation, bootstrap=True)

    def _drain(self, next_observation: Any, *, bootstrap: bool) -> list[NStepTransition]:
        return [self._pop(next_observation, bootstrap=bootstrap) for _ in range(len(self._pending))]

    def _pop(self, next_observation: Any, *, bootstrap: bool) -> NStepTransition:
        """Complete the oldest transition with all pending rewards."""
        powers = self._powers
        total = 0.0
        for k, (_, _, reward) in enumerate(self._pending):
            total += powers[k] * reward
        discount = powers[len(self._pending)] if bootstrap else 0.0
        observation, action, _ = self._pending.popleft()
        return NStepTransition(observation, action, total, discount, next_observation)


class TransitionBatch:
    """A structured array that is filled row by row.

    Parameters
    ----------
    dtype : numpy.dtype
        Record dtype with the fields of `NStepTransition`.
    capacity : int
        Rows of a full batch.
    """

    def __init__(self, dtype: np.dtype[Any], capacity: int) -> None:
        self._rows = np.zeros(capacity, dtype)
        self._fields = [self._rows[name] for name in NStepTransition._fields]
        self._size = 0

    def __len__(self) -> int:
        """Return the number of rows filled."""
        return self._size

    @property
    def full(self) -> bool:
        """Whether the next row would not fit."""
        return self._size == len(self._rows)

    def append(self, transition: NStepTransition) -> None:
        """Fill the next row."""
        row = self._size
        for field, value in zip(self._fields, transition, strict=True):
            field[row] = value
        self._size = row + 1

    def take(self) -> NDArray[np.void]:
        """Return a copy of the rows filled and start again."""
        rows = self._rows[: self._size].copy()
        self._size = 0
        return rows
