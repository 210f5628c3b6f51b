"""The client of an actor that spreads its intake over several shards."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy.typing as npt
from numpy.typing import ArrayLike, DTypeLike

from .actor import ActorClient, Slot
from .channel import MPI
from .client import IDLE_SLEEP
from .messages import INLINE_LIMIT
from .receiving import Receive
from .sharded import ShardedClient


class ShardActor(ActorClient):
    """The client of one of several shards; see `ShardedActor`.

    Attributes
    ----------
    inserted : int
        Transitions ever added to the shard, as far as was told, and those on their way from here.
    largest : float
        The largest mass in the shard, as of the last answer.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        dtype: DTypeLike,
        shards: int,
        shard: int,
        timeout: float,
        idle_sleep: float,
        receive: Receive,
    ) -> None:
        self._place = shards, shard
        super().__init__(comm, dtype, shard, timeout, idle_sleep, receive)
        status = self._agreed.status
        self._told = status.inserted
        self._counts: dict[int, int] = {}
        self.largest = status.max

    @property
    def inserted(self) -> int:
        """Transitions in the shard, and on their way to it."""
        return self._told + sum(self._counts.values())

    def has_room(self, nbytes: int) -> bool:
        """Whether a batch of so many bytes can be sent without waiting."""
        return self._has_credit() if nbytes <= INLINE_LIMIT else self._has_slot()

    def share(self, slots: deque[Slot]) -> None:
        """Send large batches from this memory, which the clients of other shards use, too."""
        self._slots = slots

    def add_beside(
        self, transitions: npt.NDArray[Any], priorities: ArrayLike | None, elsewhere: float
    ) -> None:
        """Do as `add` does, where `elsewhere` is the largest mass in other shards."""
        self._elsewhere = elsewhere
        self.add(transitions, priorities)
        if len(transitions):
            self._counts[next(reversed(self._inflight))] = len(transitions)

    def _acknowledged(self, sequence: int, inserted: int, largest: float) -> None:
        self._told, self.largest = inserted, largest
        super()._acknowledged(sequence, inserted, largest)

    def _release(self, sequence: int) -> None:
        self._counts.pop(sequence, None)
        super()._release(sequence)


class ShardedActor(ShardedClient[ShardActor]):
    """Adds transitions to the buffers of several shards, a whole batch to one of them each.

    A batch goes to the shard that has taken the fewest transitions so far, among those that owe
    this actor a credit of their own: one that is held up by its rate limiter holds up no other.
    Large batches are sent from memory for ``actor_credits + 1`` of them, however many shards there
    are; it is free again as soon as MPI has let go of it, answered or not.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Its ranks 0 .. shards - 1 are the replay ranks.
    dtype : dtype_like
        The record dtype of the transitions.
    shards : int
        How many replay ranks there are.
    timeout : float
        Seconds to wait for anything.
    idle_sleep, receive
        See `ReplayClient`.

    Raises
    ------
    RejectedError, ReplayTimeoutError, WorldError
        See `ReplayClient`; and if the shards are not those that were expected.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        dtype: DTypeLike,
        shards: int,
        timeout: float = 60.0,
        idle_sleep: float = IDLE_SLEEP,
        receive: Receive = "matched",
    ) -> None:
        self._first = comm.Get_rank()
        super().__init__(
            comm,
            shards,
            timeout,
            lambda shard: ShardActor(comm, dtype, shards, shard, timeout, idle_sleep, receive),
            idle_sleep,
        )
        first = self._clients[0]
        # One more than a shard can hold up that takes nothing.
        slots = deque(Slot(first.dtype) for _ in range(first._agreed.actor_credits + 1))
        for client in self._clients:
            client.share(slots)

    @property
    def unacknowledged(self) -> int:
        """How many batches are without an answer."""
        return sum(client.unacknowledged for client in self._clients)

    def add(
        self,
        transitions: npt.NDArray[Any],
        priorities: ArrayLike | None = None,
        timeout: float | None = None,
    ) -> None:
        """Send transitions to one shard; returns as soon as they are copied and on their way.

        Parameters
        ----------
        transitions, priorities
            See `ActorClient.add`. Without priorities, each gets the largest mass that is in its
            shard, or that the others last told this actor of; 1.0 if none is positive anywhere.

        Raises
        ------
        ArgumentTypeError, ShapeError, ArgumentError, PriorityError, ReplayStopped, RejectedError
            See `ActorClient.add`.
        ReplayTimeoutError
            If no shard gave a credit.
        """
        self.poll()
        self._raise_if_stopping()
        everyone, nbytes = list(range(len(self._clients))), int(getattr(transitions, "nbytes", 0))
        self._wait(
            lambda: [] if self._free(nbytes) else everyone,
            "credit for another batch",
            timeout,
            stop=True,
        )
        shard = min(self._free(nbytes), key=self._precedence)
        others = [client.largest for client in self._clients if client is not self._clients[shard]]
        self._clients[shard].add_beside(transitions, priorities, max(others, default=0.0))

    def _free(self, nbytes: int) -> list[int]:
        return [shard for shard, client in enumerate(self._clients) if client.has_room(nbytes)]

    def _precedence(self, shard: int) -> tuple[int, int]:
        """Order by what the shards hold; actors begin with different ones."""
        return self._clients[shard].inserted, (shard - self._first) % len(self._clients)
