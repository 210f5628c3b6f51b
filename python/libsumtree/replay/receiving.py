"""How messages are received: two ways with the same results, and no length goes unchecked.

**matched**: a matched probe tells the length, then the message is received into a buffer that holds
it. **staged**, for fabrics without working matched probes: control messages are received into a
ring of buffers that are posted beforehand, each as long as the longest control message can be;
payloads are probed for and received by their source, which is the same message, for one thread
alone receives. MPI refuses what is longer than its buffer; so the sizes of the ring are an
agreement, which a replay rank and its clients keep by `MOST_STAGED`.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any, Literal, Protocol, TypeAlias, get_args

import numpy as np

from ..errors import ArgumentError, ProtocolError
from .messages import CONTROL_TAG, MESSAGE_LIMIT, PAYLOAD_TAG, Bytes, control_limit
from .mpi import MPI

Receive: TypeAlias = Literal["matched", "staged"]
"""The name of a way."""

LOOKS_MOVING = 32
"""Looks in a row at a long message that is on its way."""
MOST_STAGED = 1 << 16
"""Transitions, samples or ids in one message that is received into a ring of buffers."""
_RING = 16
_STAGING_BYTES = 1 << 14
_MOST_ARRIVING = 1024


_left: dict[int, tuple[MPI.Request, Any]] = {}


def leave(request: MPI.Request | None, buffers: Any) -> None:
    """Keep the buffers of a request that has not ended, whoever gave it up, until it has."""
    if request and not MPI.Is_finalized():
        _left[id(request)] = request, buffers
        for key, (each, _) in list(_left.items()):
            if _has_ended(each):
                _left.pop(key, None)


def _has_ended(request: MPI.Request) -> bool:
    try:
        return bool(request.Test())
    except MPI.Exception:  # as where MPI reads the memory of a sender that is no more
        return True


class Malformed:
    """A control message that was received and dropped, for it is none of the protocol.

    Attributes
    ----------
    source : int
        Its sender; -1 where MPI does not tell.
    reason : str
    """

    __slots__ = ("reason", "source")

    def __init__(self, source: int, reason: str) -> None:
        self.source = source
        self.reason = reason


class Incoming:
    """A message that is being received into a buffer of exactly its size."""

    __slots__ = ("_request", "buffer", "source")

    def __init__(self, request: MPI.Request, buffer: Bytes, source: int) -> None:
        self.buffer = buffer
        self.source = source
        self._request = request

    def __del__(self) -> None:
        """Leave to the process what MPI still writes to, when a receiver is given up."""
        leave(self._request, self.buffer)

    def done(self, looks: int = 1) -> bool:
        """Whether all the bytes are there, at the first of so many looks, or a later one."""
        return ends(self._request, looks)


def ends(request: MPI.Request, looks: int) -> bool:
    """Whether a transfer ends within so many looks; where it goes in parts, each moves some."""
    return any(request.Test() for _ in range(looks))


class Probe:
    """A payload that is there: its size is known, unchecked, and nothing is received yet.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    matched : mpi4py.MPI.Message, optional
        None: the next payload of the source is received by its tag, before any other is probed for.
    status : mpi4py.MPI.Status
    """

    __slots__ = ("_comm", "_matched", "nbytes", "source")

    def __init__(
        self, comm: MPI.Intracomm, matched: MPI.Message | None, status: MPI.Status
    ) -> None:
        self._comm = comm
        self._matched = matched
        self.source = status.Get_source()
        self.nbytes: int = status.Get_count(MPI.BYTE)

    def drop(self) -> Incoming:
        """Begin to receive into memory that nobody looks at.

        One that is longer than `MESSAGE_LIMIT` stays with MPI, or, staged, is cut off by it.
        """
        if 0 <= self.nbytes <= MESSAGE_LIMIT:
            return self.receive(np.empty(self.nbytes, np.uint8))
        nothing: Bytes = np.empty(0, np.uint8)
        if self._matched is not None:
            return Incoming(MPI.REQUEST_NULL, nothing, self.source)
        request = self._comm.Irecv([nothing, MPI.BYTE], self.source, PAYLOAD_TAG)
        return Incoming(request, nothing, self.source)

    def receive(self, buffer: Bytes) -> Incoming:
        """Begin to receive; `buffer` has exactly ``nbytes`` bytes."""
        if buffer.nbytes != self.nbytes:
            raise ProtocolError(
                f"a payload of {self.nbytes} bytes does not fit a buffer of {buffer.nbytes}"
            )
        if self._matched is None:
            request = self._comm.Irecv([buffer, MPI.BYTE], self.source, PAYLOAD_TAG)
        else:
            request = self._matched.Irecv([buffer, MPI.BYTE])
        return Incoming(request, buffer, self.source)


Received: TypeAlias = tuple[Bytes, int, bool]
"""A control message: its bytes, its sender, and whether the bytes stay only until the next one."""


class Receiver(Protocol):
    """Receives for a `Channel`."""

    def next(self) -> Received | Malformed | None:
        """Return the next control message, in order for each source; None if none is there."""

    def holds(self, source: int) -> bool:
        """Whether a control message of `source` is there, and not yet returned."""

    @property
    def is_receiving(self) -> bool:
        """Whether a part of a control message is there, as far as can be told."""

    def probe(self, source: int) -> Probe | None:
        """Return the next payload of `source`, if one is there; it is to be received at once."""

    def close(self) -> None:
        """Receive nothing more."""


class MatchedReceiver:
    """Receives by matched probes.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    peer : int
        The rank to listen to, or `MPI.ANY_SOURCE`.
    """

    def __init__(self, comm: MPI.Intracomm, peer: int) -> None:
        self._comm = comm
        self._peer = peer
        self._status = MPI.Status()
        self._improbe = comm.Improbe
        self._stage()
        self._arriving: dict[int, deque[Incoming]] = {}
        self._arriving_count = 0

    def next(self) -> Received | Malformed | None:
        """Return the next control message, see `Receiver`."""
        if self._arriving:
            arrived = self._next_arrived()
            if arrived is not None:
                return arrived
            if self._arriving_count >= _MOST_ARRIVING:
                return None
        matched = self._improbe(self._peer, CONTROL_TAG, self._status)
        if matched is None:
            return None
        source = self._status.Get_source()
        try:
            nbytes = _length(self._status)
        except ProtocolError as error:  # it stays with MPI: no buffer is to hold it
            return Malformed(source, str(error))
        try:
            if nbytes > _STAGING_BYTES:
                buffer: Bytes = np.empty(nbytes, np.uint8)
                request, borrowed = matched.Irecv([buffer, MPI.BYTE]), False
            else:
                buffer = self._staging[:nbytes]
                request, borrowed = matched.Irecv(self._place), True
            if source not in self._arriving and request.Test():
                return buffer, source, borrowed
        except MPI.Exception as error:
            return _unreceived(source, error)
        if borrowed:  # MPI writes to this one until it is done
            self._stage()
        self._arriving.setdefault(source, deque()).append(Incoming(request, buffer, source))
        self._arriving_count += 1
        return None

    def _stage(self) -> None:
        self._staging: Bytes = np.empty(_STAGING_BYTES, np.uint8)
        self._place = [self._staging, MPI.BYTE]

    def _next_arrived(self) -> Received | Malformed | None:
        for source in list(self._arriving):
            incoming = self._arriving[source][0]
            try:
                if incoming.done(LOOKS_MOVING):
                    self._drop_first(source)
                    return incoming.buffer, source, False
            except MPI.Exception as error:
                self._drop_first(source)
                return _unreceived(source, error)
        return None

    def _drop_first(self, source: int) -> None:
        queue = self._arriving[source]
        queue.popleft()
        self._arriving_count -= 1
        if not queue:
            del self._arriving[source]

    def holds(self, source: int) -> bool:
        """Whether a control message of `source` is there, see `Receiver`."""
        return source in self._arriving or bool(self._comm.Iprobe(source, CONTROL_TAG))

    @property
    def is_receiving(self) -> bool:
        """Whether a part of a control message is there, see `Receiver`."""
        return bool(self._arriving)

    def probe(self, source: int) -> Probe | None:
        """Match the next payload of `source`, see `Receiver`."""
        matched = self._comm.Improbe(source, PAYLOAD_TAG, self._status)
        return None if matched is None else Probe(self._comm, matched, self._status)

    def close(self) -> None:
        """Receive nothing more."""


class StagedReceiver:
    """Receives control messages into a ring of buffers that are posted beforehand.

    They are taken in the order in which they were matched, over all sources: one whose sender stops
    in the middle of a long control message holds the others up.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    peer : int
        The rank to listen to, or `MPI.ANY_SOURCE`.
    """

    def __init__(self, comm: MPI.Intracomm, peer: int) -> None:
        self._comm = comm
        self._status = MPI.Status()
        limit = control_limit(MOST_STAGED)
        self._buffers: list[Bytes] = [np.empty(limit, np.uint8) for _ in range(_RING)]
        self._requests = [
            comm.Recv_init([buffer, MPI.BYTE], peer, CONTROL_TAG) for buffer in self._buffers
        ]
        self._head = 0
        self._borrowed = False
        self._arrived: list[Received | Malformed | None] = [None] * _RING
        MPI.Prequest.Startall(self._requests)
        # MPI writes to the buffers until then, whoever has lost sight of this receiver.
        self._finish = weakref.finalize(self, _let_go, self._requests, self._buffers, self._arrived)

    def next(self) -> Received | Malformed | None:
        """Return the next control message, see `Receiver`."""
        if not self._finish.alive:
            return None
        if self._borrowed:
            self._arrived[self._head] = None
            self._requests[self._head].Start()
            self._head = (self._head + 1) % _RING
        found = self._look(self._head)
        self._borrowed = found is not None
        return found

    def _look(self, place: int) -> Received | Malformed | None:
        """Return what a posted receive has got, None if nothing yet.

        A receive is tested until it is done, and never again before it is started anew:
        MPI_Request_get_status, which would not end it, does end it in MPICH 5.0.
        """
        if self._arrived[place] is None:
            try:
                if not self._requests[place].Test(self._status):
                    return None
                data = self._buffers[place][: _length(self._status)]
                self._arrived[place] = data, self._status.Get_source(), True
            except MPI.Exception as error:
                source = self._status.Get_source()
                self._arrived[place] = Malformed(source, f"a control message: {error}")
        return self._arrived[place]

    def holds(self, source: int) -> bool:
        """Whether a control message may be there, see `Receiver`: the ring tells no source."""
        taken = self._head if self._borrowed else -1
        places = (place for place in range(len(self._requests)) if place != taken)
        return any(self._look(place) is not None for place in places)

    @property
    def is_receiving(self) -> bool:
        """Not to be told of receives that are posted beforehand, see `Receiver`."""
        return False

    def probe(self, source: int) -> Probe | None:
        """Look for the next payload of `source`, see `Receiver`."""
        if not self._comm.Iprobe(source, PAYLOAD_TAG, self._status):
            return None
        return Probe(self._comm, None, self._status)

    def close(self) -> None:
        """Receive nothing more: the buffers are the process's own again."""
        self._finish()


def _let_go(
    requests: list[MPI.Prequest],
    buffers: list[Bytes],
    arrived: list[Received | Malformed | None],
) -> None:
    """Take back receives that were posted; what was under way is received, and dropped."""
    if not MPI.Is_finalized():
        for request, found in zip(requests, arrived, strict=True):
            if found is None:  # else it is done, and not started anew
                request.Cancel()
                request.Wait()
            request.Free()
    requests.clear()
    buffers.clear()


def make_receiver(receive: Receive, comm: MPI.Intracomm, peer: int) -> Receiver:
    """Make the receiver of this name, which `check_receive` knows."""
    return StagedReceiver(comm, peer) if receive == "staged" else MatchedReceiver(comm, peer)


def check_receive(receive: str, max_batch: int) -> None:
    """Raise `ArgumentError` unless messages about so many items can be received in this way."""
    if receive not in get_args(Receive):
        raise ArgumentError(f"receive is {receive!r}: it must be 'matched' or 'staged'")
    if receive == "staged" and max_batch > MOST_STAGED:
        raise ArgumentError(
            f"receive is 'staged' and max_batch {max_batch}: at most {MOST_STAGED} then"
        )


def _unreceived(source: int, error: MPI.Exception) -> Malformed:
    """Say of a message that it came, and is lost: its sender may be no more, and its memory."""
    return Malformed(source, f"a control message could not be received: {error}")


def _length(status: MPI.Status) -> int:
    count: int = status.Get_count(MPI.BYTE)
    if not 0 <= count <= MESSAGE_LIMIT:
        raise ProtocolError(
            f"rank {status.Get_source()} sent a message whose length MPI gives as {count} bytes: "
            f"at most {MESSAGE_LIMIT} can be received"
        )
    return count
