"""What actors and learners do, whatever carries their messages."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import cycle
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...arguments import Doubles
from .board import Board, Phase
from .records import BATCH, CHECKED_PRIORITY, Batch, numbered, pool
from .task import FIRST_ACTOR, LEARNER, Task

_IDLE_SECONDS = 0.002


class Actor(Protocol):
    """Carries batches to a server."""

    def prepare(self, batch: Batch) -> Any:
        """Make of a batch what `add` takes, untimed: what an actor would have gathered."""

    def add(self, prepared: Any) -> None:
        """Send a batch as soon as there is a credit."""

    @property
    def unacknowledged(self) -> int:
        """How many batches are without an answer, as far as is known."""

    def flush(self) -> None:
        """Wait for all answers."""

    def close(self) -> None:
        """Take leave."""


class Learner(Protocol):
    """Carries requests and new priorities to a server."""

    def sample(self, n: int) -> Any:
        """Ask for n transitions and wait for them, their weights and what names them."""

    def actions(self, drawn: Any) -> NDArray[np.int64]:
        """Give the actions of a sample, shape (n,)."""

    def update(self, drawn: Any, priorities: Doubles) -> None:
        """Send new priorities of a sample as soon as there is a credit."""

    def flush(self) -> None:
        """Wait for all answers."""

    def close(self) -> None:
        """Take leave."""


def act(actor: Actor, task: Task, board: Board, place: int) -> None:
    """Add batches until actors are to rest, or those of the task."""
    number = place - FIRST_ACTOR
    batches: Iterable[Any]
    if task.checked:
        batches = [actor.prepare(b) for b in numbered(task.kind, number, task.batches)]
    else:
        batches = cycle([actor.prepare(batch) for batch in pool(task.kind, number)])
    board.wait(lambda: board.phase >= Phase.FLOOD)
    sent = 0
    for prepared in batches:
        if board.phase >= Phase.REST:
            break
        actor.add(prepared)
        sent += BATCH
        board.count(place, sent - BATCH * actor.unacknowledged)
    actor.flush()
    board.count(place, sent)


def learn(learner: Learner, task: Task, board: Board) -> dict[str, NDArray[Any]]:
    """Draw and update while it is asked for.

    Returns
    -------
    dict of str to ndarray
        ``begins`` and ``seconds`` of all requests (``time.perf_counter``), and ``drawn``: the
        actions of the first.
    """
    n = task.kind.request
    priorities = 1.0 - np.random.default_rng(LEARNER).random((16, n))
    begins: list[float] = []
    seconds: list[float] = []
    actions = np.empty(0, np.int64)
    while board.phase < Phase.LEARN:
        time.sleep(_IDLE_SECONDS)
    while board.phase < Phase.END:
        begins.append(time.perf_counter())
        drawn = learner.sample(n)
        seconds.append(time.perf_counter() - begins[-1])
        board.count(LEARNER, len(seconds))
        if task.checked:
            actions = learner.actions(drawn)
            learner.update(drawn, np.full(n, CHECKED_PRIORITY))
            break
        learner.update(drawn, priorities[len(seconds) % 16])
    learner.flush()
    return {"begins": np.array(begins), "seconds": np.array(seconds), "drawn": actions}
