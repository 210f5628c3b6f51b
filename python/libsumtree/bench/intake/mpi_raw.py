"""MPI with raw records: replay rank and clients of `libsumtree.replay`, as users get them."""

from __future__ import annotations

import os

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from ...arguments import Doubles
from ...replay import (
    ActorClient,
    LearnerClient,
    ReplayConfig,
    ReplayRank,
    ReplaySample,
)
from .board import Board
from .records import Batch, Held
from .task import ACTOR_CREDITS, BETA, SERVER, UPDATE_CREDITS, Task
from .world import library, rank

__all__ = ["library", "make_actor", "make_learner", "rank", "serve"]

_SECONDS = 60.0


def serve(task: Task, board: Board) -> Held:
    """Serve until all clients have left."""
    kind = task.kind
    server = ReplayRank(
        MPI.COMM_WORLD,
        ReplayConfig(
            kind.capacity,
            kind.dtype,
            task.alpha,
            BETA,
            seed=0,
            actor_credits=ACTOR_CREDITS,
            update_credits=UPDATE_CREDITS,
            grace=_SECONDS,
        ),
    )
    board.come(SERVER, os.getpid())
    summary = server.run()
    if summary.rejected or summary.silent:
        raise RuntimeError(f"refused: {summary.rejected}; silent: {summary.silent}")
    assert server.buffer is not None
    return Held.by(server.buffer, task.checked)


class _Actor:
    def __init__(self, client: ActorClient) -> None:
        self._client = client
        self.close = client.close

    def prepare(self, batch: Batch) -> Batch:
        return batch

    def add(self, prepared: Batch) -> None:
        self._client.add(*prepared, copy=False)  # as raw ZeroMQ sends them: from where they lie

    @property
    def unacknowledged(self) -> int:
        return self._client.unacknowledged

    def flush(self) -> None:
        while self._client.unacknowledged:
            self._client.poll()


class _Learner:
    def __init__(self, client: LearnerClient) -> None:
        self._client = client
        self.close = client.close

    def sample(self, n: int) -> ReplaySample:
        return self._client.sample(n)

    def actions(self, drawn: ReplaySample) -> NDArray[np.int64]:
        actions: NDArray[np.int64] = drawn.transitions["action"]
        return actions

    def update(self, drawn: ReplaySample, priorities: Doubles) -> None:
        self._client.update_priorities(drawn.ids, priorities)

    def flush(self) -> None:
        while self._client.unacknowledged:
            self._client.poll()


def make_actor(task: Task, board: Board, place: int) -> _Actor:
    """Connect an actor."""
    return _Actor(ActorClient(MPI.COMM_WORLD, task.kind.dtype, timeout=_SECONDS))


def make_learner(task: Task, board: Board) -> _Learner:
    """Connect a learner."""
    return _Learner(LearnerClient(MPI.COMM_WORLD, task.kind.dtype, timeout=_SECONDS))
