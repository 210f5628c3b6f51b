"""The replay ranks of one service among themselves: who is there, and what they tell each other.

Ranks 0 .. shards - 1 of the service's communicator make a communicator of their own, once each has
said that it is a replay rank. Messages are JSON; the longest hold a record dtype.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backends import AUTO, open_backend, resolve
from ..errors import ProtocolError, WorldError
from .channel import MPI, Backoff

_TAG = 21333
_MOST_BYTES = 1 << 18
#: Seconds that a rank waits for the others to say that they are replay ranks.
JOIN_SECONDS = 60.0
_LONGEST_SLEEP = 0.001


class ShardGroup:
    """The shards of one service; collective over them.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        The communicator of the service; its tag 21333 belongs to the shards.
    shards : int
        Ranks 0 .. shards - 1 are replay ranks.
    seconds : float
        How long to wait for the others.

    Attributes
    ----------
    shard, shards : int
        Which of how many this is.
    place : int
        The number of this shard among those of its node.

    Raises
    ------
    WorldError
        If this rank is none of them, or another one is not there.
    """

    def __init__(self, comm: MPI.Intracomm, shards: int, seconds: float = JOIN_SECONDS) -> None:
        self.shard, self.shards = comm.Get_rank(), shards
        if self.shard >= shards:
            raise WorldError(
                f"rank {self.shard} is started as a replay rank where ranks 0 .. {shards - 1} are: "
                "start the replay ranks first"
            )
        _meet(comm, shards, seconds)
        ranks = comm.Get_group().Incl(range(shards))
        self._comm = comm.Create_group(ranks, _TAG)
        node = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.place = node.Get_rank()
        node.Free()
        # With what MPI still reads.
        self._sending: list[tuple[MPI.Request, bytes]] = []

    def device(self, backend: str, capacity: int) -> int | None:
        """Return the device of this shard's tree: shards of a node are dealt out to its devices."""
        if resolve(backend or AUTO, capacity) != "gpu":
            return None
        count = open_backend("gpu").device_count
        return self.place % count if count else None

    # ---- all together ----

    def exchange(self, value: Any) -> list[Any]:
        """Return what every shard gave, in their order; all must call this."""
        data = np.frombuffer(json.dumps(value).encode(), np.uint8)
        lengths = np.zeros(self.shards, np.int64)
        self._comm.Allgather(np.array([len(data)], np.int64), lengths)
        starts = np.cumsum(lengths) - lengths
        received = np.empty(int(lengths.sum()), np.uint8)
        self._comm.Allgatherv([data, MPI.BYTE], [received, lengths, starts, MPI.BYTE])
        ends = starts + lengths
        return [
            json.loads(received[start:end].tobytes())
            for start, end in zip(starts, ends, strict=True)
        ]

    def close(self) -> None:
        """Free the communicator; all must call this."""
        backoff = Backoff(_LONGEST_SLEEP)
        while self._is_sending():
            backoff.turn(busy=False)
        self._comm.Free()

    # ---- one to one ----

    def tell(self, shard: int, kind: str, **facts: Any) -> None:
        """Begin to send a message to another shard."""
        data = json.dumps({"kind": kind, **facts}).encode()
        request = self._comm.Isend([data, MPI.BYTE], shard, _TAG)
        self._sending.append((request, data))
        self._is_sending()

    def tell_others(self, kind: str, **facts: Any) -> None:
        """Begin to send a message to every other shard."""
        for shard in range(self.shards):
            if shard != self.shard:
                self.tell(shard, kind, **facts)

    def hear(self) -> tuple[int, dict[str, Any]] | None:
        """Return the next message and the shard that sent it; None if there is none."""
        self._is_sending()
        status = MPI.Status()
        if not self._comm.Iprobe(MPI.ANY_SOURCE, _TAG, status):
            return None
        count, shard = status.Get_count(MPI.BYTE), status.Get_source()
        if not 0 <= count <= _MOST_BYTES:
            raise ProtocolError(f"shard {shard} sent {count} bytes: at most {_MOST_BYTES}")
        data: NDArray[np.uint8] = np.empty(count, np.uint8)
        self._comm.Recv([data, MPI.BYTE], shard, _TAG)  # the very same: one thread receives
        return shard, json.loads(data.tobytes())

    def _is_sending(self) -> bool:
        self._sending = [sending for sending in self._sending if not sending[0].Test()]
        return bool(self._sending)


def _meet(comm: MPI.Intracomm, shards: int, seconds: float) -> None:
    """Return once every replay rank has said to rank 0 that it is one, and rank 0 that all are."""
    rank = comm.Get_rank()
    others = range(1, shards) if rank == 0 else [0]
    empty: NDArray[np.uint8] = np.empty(0, np.uint8)
    waiting = {other: comm.Irecv([empty, MPI.BYTE], other, _TAG) for other in others}
    sent = [] if rank == 0 else [comm.Isend([empty, MPI.BYTE], 0, _TAG)]
    deadline, backoff = time.monotonic() + seconds, Backoff(_LONGEST_SLEEP)
    while waiting:
        if time.monotonic() > deadline:
            ranks = ", ".join(map(str, waiting))
            raise WorldError(
                f"{shards} replay ranks were asked for, and ranks {ranks} did not say within "
                f"{seconds:g} s that they are some: start the service in ranks 0 .. {shards - 1}"
            )
        waiting = {other: request for other, request in waiting.items() if not request.Test()}
        backoff.turn(busy=False)
    if rank == 0:
        sent = [comm.Isend([empty, MPI.BYTE], other, _TAG) for other in range(1, shards)]
    MPI.Request.Waitall(sent)
