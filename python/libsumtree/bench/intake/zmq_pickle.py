"""ZeroMQ with pickle: the published server of Ape-X agents, written anew after its design.

Three proxies, each a process of its own, take messages from a ROUTER on TCP to a DEALER on a local
socket: batches, requests and priorities. Behind them asyncio workers (4, 4 and 8) each take one
message at a time, do its work in a thread, one lock around all of it, and answer; a batch is added
with one call for each transition, and acknowledged by an empty frame. Actors have at most 3 batches
in flight, the learner 16 updates.

The buffer is the published one, too (published.py). Addresses are those of this machine.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import zmq
import zmq.asyncio
from numpy.typing import NDArray

from ...arguments import Doubles
from .board import Board, Phase
from .published import Columns, PublishedBuffer, Sample, add_all, columns_of, dumps, loads
from .records import Batch, Held
from .task import ACTOR_CREDITS, SERVER, UPDATE_CREDITS, Task

_BATCHES, _REQUESTS, _PRIORITIES = range(3)
_WORKERS = {_BATCHES: 4, _REQUESTS: 4, _PRIORITIES: 8}
_LOOK_SECONDS = 0.02

Work = Callable[[Any], bytes]


def library() -> str:
    """Name what carries the messages."""
    return f"libzmq {zmq.zmq_version()}, pyzmq {zmq.pyzmq_version()}"


def serve(task: Task, board: Board) -> Held:
    """Serve until the run is over."""
    buffer = PublishedBuffer(task.kind, task.alpha)
    processes = multiprocessing.get_context("fork")
    for proxy in _WORKERS:
        process = processes.Process(target=_proxy, args=(task, board, proxy), daemon=True)
        process.start()
        assert process.pid is not None
        board.say(SERVER, proxy, process.pid)
    board.wait(lambda: all(board.said(SERVER, len(_WORKERS) + proxy) for proxy in _WORKERS))
    asyncio.run(_serve(task, board, buffer))
    return buffer.held(task.checked)


def _proxy(task: Task, board: Board, proxy: int) -> None:
    """Carry messages of one kind to and fro, until the server ends this process."""
    context = zmq.Context()
    front, back = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    port = front.bind_to_random_port("tcp://127.0.0.1")
    back.bind(_address(task, proxy))
    board.say(SERVER, len(_WORKERS) + proxy, port)
    with task.ended_with_starter():  # timers are not inherited
        zmq.proxy(front, back)


async def _serve(task: Task, board: Board, buffer: PublishedBuffer) -> None:
    lock = asyncio.Lock()
    context = zmq.asyncio.Context()
    works = {
        _BATCHES: lambda data: _add(buffer, data),
        _REQUESTS: lambda data: dumps(buffer.sample(task.kind.request)),
        _PRIORITIES: lambda data: _update(buffer, data),
    }
    with ThreadPoolExecutor() as threads:
        workers = [
            asyncio.create_task(_work(context, _address(task, proxy), works[proxy], threads, lock))
            for proxy, count in _WORKERS.items()
            for _ in range(count)
        ]
        board.come(SERVER, os.getpid())
        over = asyncio.create_task(_wait_for_end(board))
        done, _ = await asyncio.wait([over, *workers], return_when=asyncio.FIRST_COMPLETED)
        for ended in done:
            ended.result()
        for worker in workers:
            worker.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*workers)
    context.destroy(linger=0)


async def _wait_for_end(board: Board) -> None:
    while board.phase < Phase.OVER:
        await asyncio.sleep(_LOOK_SECONDS)


async def _work(
    context: zmq.asyncio.Context,
    address: str,
    work: Work,
    threads: ThreadPoolExecutor,
    lock: asyncio.Lock,
) -> None:
    """Do what messages of one kind ask for, one after another."""
    loop = asyncio.get_running_loop()
    socket = context.socket(zmq.DEALER)
    socket.connect(address)
    while True:
        sender, data = await socket.recv_multipart(copy=False)
        async with lock:
            answer = await loop.run_in_executor(threads, work, data)
        await socket.send_multipart((sender, answer), copy=False)


def _add(buffer: PublishedBuffer, data: Any) -> bytes:
    add_all(buffer, loads(data))
    return b""


def _update(buffer: PublishedBuffer, data: Any) -> bytes:
    buffer.update_priorities(*loads(data))
    return b""


class _Credits:
    """A socket to one proxy, with so many messages without an answer at most."""

    def __init__(self, context: zmq.Context[Any], board: Board, proxy: int, credits: int) -> None:
        self._socket = context.socket(zmq.DEALER)
        self._socket.connect(f"tcp://127.0.0.1:{board.said(SERVER, len(_WORKERS) + proxy)}")
        self._credits = credits
        self.outstanding = 0

    def send(self, data: bytes) -> None:
        while self.outstanding >= self._credits:
            self.receive()
        self._socket.send(data, copy=False)
        self.outstanding += 1

    def receive(self) -> Any:
        answer = self._socket.recv(copy=False)
        self.outstanding -= 1
        return answer

    def flush(self) -> None:
        while self.outstanding:
            self.receive()

    def close(self) -> None:
        self._socket.close()


class _Actor:
    def __init__(self, board: Board) -> None:
        self._context = zmq.Context()
        self._batches = _Credits(self._context, board, _BATCHES, ACTOR_CREDITS)
        self.flush = self._batches.flush

    def prepare(self, batch: Batch) -> Columns:
        return columns_of(batch)

    def add(self, prepared: Columns) -> None:
        self._batches.send(dumps(prepared))

    @property
    def unacknowledged(self) -> int:
        return self._batches.outstanding

    def close(self) -> None:
        self._batches.close()
        self._context.term()


class _Learner:
    def __init__(self, board: Board) -> None:
        self._context = zmq.Context()
        self._requests = _Credits(self._context, board, _REQUESTS, 1)
        self._updates = _Credits(self._context, board, _PRIORITIES, UPDATE_CREDITS)
        self.flush = self._updates.flush

    def sample(self, n: int) -> Sample:
        self._requests.send(b"")
        drawn: Sample = loads(self._requests.receive())
        return drawn

    def actions(self, drawn: Sample) -> NDArray[np.int64]:
        return np.array(drawn[0][1], np.int64)

    def update(self, drawn: Sample, priorities: Doubles) -> None:
        self._updates.send(dumps((drawn[2], priorities.tolist())))

    def close(self) -> None:
        self._requests.close()
        self._updates.close()
        self._context.term()


def make_actor(task: Task, board: Board, place: int) -> _Actor:
    """Connect an actor."""
    return _Actor(board)


def make_learner(task: Task, board: Board) -> _Learner:
    """Connect a learner."""
    return _Learner(board)


def _address(task: Task, proxy: int) -> str:
    return f"ipc://@{task.address}-{proxy}"
