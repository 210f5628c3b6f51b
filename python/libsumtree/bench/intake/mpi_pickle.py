"""MPI with pickle: a matched probe, and what mpi4py's lower-case methods receive.

The loop waits as our replay rank does, without sleeping at first; credits are the published ones,
although the published servers of this kind have none. The buffer is that of published.py.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from ...arguments import Doubles
from ...replay.channel import Backoff
from .board import Board, Phase
from .published import Columns, PublishedBuffer, Sample, add_all, columns_of
from .records import Batch, Held
from .task import ACTOR_CREDITS, SERVER, UPDATE_CREDITS, Task
from .world import library, rank

__all__ = ["library", "make_actor", "make_learner", "rank", "serve"]

_ADD, _SAMPLE, _UPDATE, _DONE = 1, 2, 3, 4
_SERVER_SLEEP, _CLIENT_SLEEP = 0.002, 0.001


def serve(task: Task, board: Board) -> Held:
    """Serve until the run is over."""
    server = _Server(PublishedBuffer(task.kind, task.alpha))
    board.come(SERVER, os.getpid())
    backoff = Backoff(_SERVER_SLEEP)
    while True:
        over = board.phase >= Phase.OVER
        busy = server.turn()
        if over and not busy:
            break
        backoff.turn(busy)
    server.sending.wait()
    return server.buffer.held(task.checked)


class _Sending:
    """Messages on their way: their pickles live as long as their requests."""

    def __init__(self) -> None:
        self._requests: list[MPI.Request] = []

    def send(self, content: object, dest: int, tag: int) -> None:
        self._requests.append(MPI.COMM_WORLD.isend(content, dest, tag))

    def reap(self) -> None:
        self._requests = [request for request in self._requests if not request.Test()]

    def wait(self) -> None:
        MPI.Request.Waitall(self._requests)


class _Server:
    def __init__(self, buffer: PublishedBuffer) -> None:
        self.buffer = buffer
        self.sending = _Sending()

    def turn(self) -> bool:
        """Answer a message, if there is one."""
        status = MPI.Status()
        message = MPI.COMM_WORLD.improbe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
        if message is None:
            return False
        source, tag = status.Get_source(), status.Get_tag()
        content = message.recv()
        if tag == _SAMPLE:
            self.sending.send(self.buffer.sample(content), source, _SAMPLE)
        else:
            self._take(tag, content)
            self.sending.send(None, source, _DONE)
        self.sending.reap()
        return True

    def _take(self, tag: int, content: Any) -> None:
        if tag == _ADD:
            add_all(self.buffer, content)
        else:
            self.buffer.update_priorities(*content)


class _Client:
    """Has so many messages without an answer at most."""

    def __init__(self, credits: int) -> None:
        self._credits = credits
        self._sending = _Sending()
        self.unacknowledged = 0

    def _send(self, content: object, tag: int) -> None:
        while self.unacknowledged >= self._credits:
            self._take()
        while self.unacknowledged and MPI.COMM_WORLD.iprobe(SERVER, _DONE):
            self._take()
        self._sending.send(content, SERVER, tag)
        self.unacknowledged += 1

    def _take(self) -> None:
        self._receive(_DONE)
        self.unacknowledged -= 1

    def _receive(self, tag: int) -> Any:
        backoff = Backoff(_CLIENT_SLEEP)
        while (message := MPI.COMM_WORLD.improbe(SERVER, tag)) is None:
            self._sending.reap()
            backoff.turn(busy=False)
        return message.recv()

    def flush(self) -> None:
        while self.unacknowledged:
            self._take()

    def close(self) -> None:
        self._sending.wait()


class _Actor(_Client):
    def prepare(self, batch: Batch) -> Columns:
        return columns_of(batch)

    def add(self, prepared: Columns) -> None:
        self._send(prepared, _ADD)


class _Learner(_Client):
    def sample(self, n: int) -> Sample:
        self._sending.send(n, SERVER, _SAMPLE)
        drawn: Sample = self._receive(_SAMPLE)
        return drawn

    def actions(self, drawn: Sample) -> NDArray[np.int64]:
        return np.array(drawn[0][1], np.int64)

    def update(self, drawn: Sample, priorities: Doubles) -> None:
        self._send((drawn[2], priorities.tolist()), _UPDATE)


def make_actor(task: Task, board: Board, place: int) -> _Actor:
    """Connect an actor."""
    return _Actor(ACTOR_CREDITS)


def make_learner(task: Task, board: Board) -> _Learner:
    """Connect a learner."""
    return _Learner(UPDATE_CREDITS)
