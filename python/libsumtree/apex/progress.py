"""What the learner says on screen while it runs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Episodes over which the training return is a mean.
EPISODES = 100


@dataclass(frozen=True)
class Counters:
    """What the replay rank has counted since the buffer was new."""

    inserted: int
    sampled: int
    stale: int


class Progress:
    """Collects episode returns and losses and prints a line now and then.

    Parameters
    ----------
    interval : float
        Seconds between two lines.
    write : callable
        Takes one line.
    clock : callable
        Seconds, monotonic.
    """

    def __init__(
        self,
        interval: float,
        write: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval = interval
        self._write = write
        self._clock = clock
        self._start = self._last_time = clock()
        self._last: Counters | None = None
        self._losses: list[float] = []
        self._returns: deque[float] = deque(maxlen=EPISODES)
        self.episodes = 0
        self.validation_return = float("nan")

    @property
    def elapsed(self) -> float:
        """Seconds since this was made."""
        return self._clock() - self._start

    @property
    def training_return(self) -> float:
        """Mean return of the actors' last episodes, NaN before the first."""
        return float(np.mean(self._returns)) if self._returns else float("nan")

    def add_episodes(self, episodes: NDArray[Any]) -> None:
        """Take episodes that actors reported, `EPISODE_DTYPE`."""
        self.episodes += len(episodes)
        self._returns.extend(episodes["episode_return"].tolist())

    def add_loss(self, loss: float) -> None:
        """Take the loss of one learner step."""
        self._losses.append(loss)

    def tick(self, counters: Counters) -> None:
        """Print a line if it is time."""
        now = self._clock()
        if self._last is None:
            self._last, self._last_time = counters, now
        elif now - self._last_time >= self._interval:
            self._write(self._line(counters, now, self._last))
            self._last, self._last_time = counters, now
            self._losses.clear()

    def _line(self, counters: Counters, now: float, last: Counters) -> str:
        seconds = now - self._last_time
        loss = float(np.mean(self._losses)) if self._losses else float("nan")
        return (
            f"{now - self._start:7.1f} s"
            f"  steps {counters.inserted:9,d}"
            f"  intake {(counters.inserted - last.inserted) / seconds:8,.0f}/s"
            f"  samples {(counters.sampled - last.sampled) / seconds:9,.0f}/s"
            f"  return {self.training_return:8.2f}"
            f"  greedy {self.validation_return:8.2f}"
            f"  loss {loss:8.4f}"
            f"  stale {counters.stale:7,d}"
        )
