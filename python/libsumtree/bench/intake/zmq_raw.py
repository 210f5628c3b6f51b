"""ZeroMQ with raw records: one ROUTER, one loop, one call of the buffer for a whole batch.

A message is one frame: kind and count, then priorities, then records, as they lie in the memory of
the actor, which sends them without a copy. The server adds them to the buffer from the memory in
which ZeroMQ received them, also without a copy: that into the ring is the only one.
"""

from __future__ import annotations

import os
import struct
from typing import Any

import numpy as np
import zmq
from numpy.typing import NDArray

from ...arguments import Doubles, Indices
from ...buffer import PrioritizedReplayBuffer
from .board import Board, Phase
from .records import Batch, Held, Rows
from .task import ACTOR_CREDITS, SERVER, UPDATE_CREDITS, Task

_HEAD = struct.Struct("<qq")
_ADD, _SAMPLE, _UPDATE = 1, 2, 3
_LOOK_MILLISECONDS = 20

_Sample = tuple[Indices, Doubles, Rows]


def library() -> str:
    """Name what carries the messages."""
    return f"libzmq {zmq.zmq_version()}, pyzmq {zmq.pyzmq_version()}"


def serve(task: Task, board: Board) -> Held:
    """Serve until the run is over."""
    buffer = task.make_buffer()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # an answer to nobody is an error
        socket.bind(_address(task))
        board.come(SERVER, os.getpid())
        server = _Server(socket, buffer)
        while board.phase < Phase.OVER or socket.poll(0):
            if socket.poll(_LOOK_MILLISECONDS):
                server.turn()
    return Held.by(buffer, task.checked)


class _Server:
    def __init__(self, socket: zmq.Socket[bytes], buffer: PrioritizedReplayBuffer) -> None:
        self._socket = socket
        self._buffer = buffer
        self._dtype = buffer.dtype
        self._answers = {_ADD: self._add, _SAMPLE: self._sample, _UPDATE: self._update}

    def turn(self) -> None:
        """Answer all messages that are there."""
        socket = self._socket
        while True:
            try:
                sender, frame = socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            data = frame.buffer
            kind, count = _HEAD.unpack_from(data)
            self._answers[kind](sender, data, count)

    def _add(self, sender: zmq.Frame, data: memoryview, count: int) -> None:
        start = _HEAD.size + 8 * count
        if len(data) != start + count * self._dtype.itemsize:
            raise ValueError(f"a batch of {count} in {len(data)} bytes")
        if not self._buffer.append_packed(np.frombuffer(data, np.uint8), _HEAD.size, count):
            priorities = np.frombuffer(data, "<f8", count, _HEAD.size)
            self._buffer.add(np.frombuffer(data, self._dtype, count, start), priorities)
        self._socket.send_multipart((sender, b""))

    def _sample(self, sender: zmq.Frame, data: memoryview, count: int) -> None:
        drawn = self._buffer.sample(count)
        columns = np.concatenate([drawn.ids.view("<f8"), drawn.weights])
        rows = drawn.transitions.view(np.uint8)
        self._socket.send_multipart((sender, columns.data, rows.data), copy=False)

    def _update(self, sender: zmq.Frame, data: memoryview, count: int) -> None:
        ids = np.frombuffer(data, "<i8", count, _HEAD.size)
        self._buffer.update_priorities(ids, np.frombuffer(data, "<f8", count, 8 * count + 16))
        self._socket.send_multipart((sender, b""))


class _Client:
    def __init__(self, task: Task, credits: int) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.connect(_address(task))
        self._credits = credits
        self.unacknowledged = 0

    def _take(self, flags: int = 0) -> None:
        self._socket.recv(flags)
        self.unacknowledged -= 1

    def flush(self) -> None:
        while self.unacknowledged:
            self._take()

    def close(self) -> None:
        self._socket.close()
        self._context.term()


class _Actor(_Client):
    def prepare(self, batch: Batch) -> NDArray[np.uint8]:
        return _packed(_ADD, *reversed(batch))

    def add(self, prepared: NDArray[np.uint8]) -> None:
        while self.unacknowledged >= self._credits:
            self._take()
        self._socket.send(prepared.data, copy=False)
        self.unacknowledged += 1


class _Learner(_Client):
    def __init__(self, task: Task) -> None:
        super().__init__(task, UPDATE_CREDITS)
        self._dtype = task.kind.dtype

    def sample(self, n: int) -> _Sample:
        self._socket.send(_HEAD.pack(_SAMPLE, n))
        while len(frames := self._socket.recv_multipart(copy=False)) == 1:
            self.unacknowledged -= 1
        columns, rows = frames
        ids = np.frombuffer(columns.buffer, "<i8", n)
        weights = np.frombuffer(columns.buffer, "<f8", n, 8 * n)
        return ids, weights, np.frombuffer(rows.buffer, self._dtype)

    def actions(self, drawn: _Sample) -> NDArray[np.int64]:
        return drawn[2]["action"].copy()

    def update(self, drawn: _Sample, priorities: Doubles) -> None:
        while self.unacknowledged >= self._credits:
            self._take()
        self._socket.send(_packed(_UPDATE, drawn[0], priorities).data)
        self.unacknowledged += 1


def make_actor(task: Task, board: Board, place: int) -> _Actor:
    """Connect an actor."""
    return _Actor(task, ACTOR_CREDITS)


def make_learner(task: Task, board: Board) -> _Learner:
    """Connect a learner."""
    return _Learner(task)


def _packed(kind: int, *columns: NDArray[Any]) -> NDArray[np.uint8]:
    head = np.frombuffer(_HEAD.pack(kind, len(columns[0])), np.uint8)
    return np.concatenate([head, *(column.view(np.uint8) for column in columns)])


def _address(task: Task) -> str:
    return f"ipc://@{task.address}"
