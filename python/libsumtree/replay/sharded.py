"""What the clients of several shards have in common: one client for each shard, tended together."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

from ..arguments import as_count
from ..errors import ReplayStopped, SumTreeError, WorldError
from .channel import MPI, Backoff
from .client import ReplayClient, asking_time, checked_timeout, leave_failed
from .routing import Handles

Client = TypeVar("Client", bound=ReplayClient)


class ShardedClient(Generic[Client]):
    """A client of several replay ranks, ranks 0 .. shards - 1 of a communicator.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    shards : int
        How many there are.
    timeout : float
        Seconds to wait for anything.
    connect : callable
        Makes the client of one shard.
    idle_sleep : float
        See `ReplayClient`.

    Raises
    ------
    RejectedError, ReplayTimeoutError, WorldError
        See `ReplayClient`; and if the shards are not those that were expected.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        shards: int,
        timeout: float,
        connect: Callable[[int], Client],
        idle_sleep: float,
    ) -> None:
        count = as_count(shards, "shards")
        self._timeout = checked_timeout(timeout)
        self._idle_sleep = checked_timeout(idle_sleep, "idle_sleep")
        if not 1 <= count < comm.Get_size() or comm.Get_rank() < count:
            raise WorldError(
                f"shards is {count}: ranks 0 .. {count - 1} are replay ranks, and a client is one "
                f"of those above them; this is rank {comm.Get_rank()} of {comm.Get_size()}"
            )
        self._clients: list[Client] = []
        try:
            for shard in range(count):
                self._clients.append(connect(shard))
            self._handles = self._checked_handles()
        except BaseException:
            leave_failed(self._clients)
            raise

    def _checked_handles(self) -> Handles:
        capacities = [client._agreed.capacity for client in self._clients]
        if len(set(capacities)) > 1:
            raise WorldError(f"the shards have capacities {capacities}: all must have the same")
        handles = Handles(len(self._clients))
        handles.check_epoch(self.epoch)
        return handles

    # ---- for callers ----

    @property
    def shards(self) -> tuple[Client, ...]:
        """The client of each shard."""
        return tuple(self._clients)

    @property
    def epoch(self) -> int:
        """The highest epoch of the shards' buffers: a restart advances it."""
        return max(client.epoch for client in self._clients)

    @property
    def stopping(self) -> bool:
        """Whether a replay rank is ending; brought up to date by `poll` and every other call."""
        return any(client.stopping for client in self._clients)

    @property
    def checkpointing(self) -> bool:
        """Whether the replay ranks write checkpoints."""
        return self._clients[0].checkpointing

    def poll(self) -> None:
        """Take what the replay ranks have sent, without waiting.

        Raises
        ------
        RejectedError
            If something that was sent before was refused.
        """
        self._pump()
        self._raise_problem()

    def close(self) -> None:
        """Take leave, once every replay rank has all that was sent; further calls do nothing.

        Raises
        ------
        RejectedError, ReplayTimeoutError
            See `ReplayClient.close`; all shards are left all the same.
        """
        problem: SumTreeError | None = None
        for client in self._clients:
            try:
                ReplayClient.close(client)
            except SumTreeError as error:
                problem = problem or error
        if problem is not None:
            raise problem

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None or issubclass(kind, ReplayStopped):
            self.close()
        else:
            leave_failed(self._clients)

    # ---- for the two kinds of client ----

    def _pump(self) -> bool:
        """Take every message that is there; return whether there was any."""
        return any([client._pump() for client in self._clients])  # noqa: C419 - every one of them

    def _raise_problem(self) -> None:
        for client in self._clients:
            client._raise_problem()

    def _raise_if_stopping(self) -> None:
        for client in self._clients:
            client._raise_if_stopping()

    def _wait(
        self,
        missing: Callable[[], list[int]],
        what: str,
        timeout: float | None = None,
        *,
        stop: bool = False,
    ) -> None:
        """Take messages until no shard is `missing`.

        Raises what was refused; and, with `stop`, `ReplayStopped` once a replay rank is ending.
        """
        seconds = self._timeout if timeout is None else checked_timeout(timeout)
        deadline, backoff = time.monotonic() + seconds, Backoff(self._idle_sleep)
        asking = asking_time(deadline, seconds)
        for client in self._clients:
            client._asked = 0
        while True:
            busy = self._pump()
            late = missing()
            if not late:
                return
            self._raise_problem()
            if stop:
                self._raise_if_stopping()
            now = time.monotonic()
            if now >= deadline and not busy:
                raise self._clients[late[0]]._timed_out(what, seconds)
            if now >= asking:
                asking = math.inf
                for shard in late:
                    self._clients[shard]._ask()
            backoff.turn(busy, any(client._is_moving for client in self._clients))
