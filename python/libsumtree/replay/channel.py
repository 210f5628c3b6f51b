"""Control and payload messages over MPI: nothing blocks, and no length goes unchecked."""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ProtocolError, no_mpi
from .messages import (
    CONTROL_TAG,
    MESSAGE_LIMIT,
    PAYLOAD_TAG,
    Bytes,
    Message,
    control_limit,
    decode,
)

try:
    from mpi4py import MPI
except ImportError as error:
    raise ImportError(
        "the replay rank and its clients need mpi4py, which cannot be imported "
        f"({error}): pip install 'libsumtree[mpi]'"
    ) from error
except RuntimeError as error:  # mpi4py is there, and no MPI
    raise ImportError(no_mpi(error)) from error

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_ARRIVING = 1024


class Outgoing:
    """A message on its way: it owns what is sent until MPI has let go of it."""

    __slots__ = ("_buffers", "_requests")

    def __init__(self, requests: list[MPI.Request], buffers: tuple[Any, ...]) -> None:
        self._requests = requests
        self._buffers = buffers

    def done(self) -> bool:
        """Whether the buffers may be written to again."""
        if self._requests and MPI.Request.Testall(self._requests):
            self._requests = []
            self._buffers = ()
        return not self._requests


class Incoming:
    """A message that is being received into a buffer of exactly its size."""

    __slots__ = ("_request", "buffer", "source")

    def __init__(self, matched: MPI.Message, buffer: Bytes, source: int) -> None:
        self.buffer = buffer
        self.source = source
        self._request = matched.Irecv([buffer, MPI.BYTE])

    def done(self) -> bool:
        """Whether all the bytes are there."""
        return bool(self._request.Test())


@dataclass(frozen=True, slots=True)
class Malformed:
    """A control message that was received and dropped, for it is none of the protocol."""

    source: int
    reason: str


class Probe:
    """A payload that was matched: its size is known, and nothing is received yet."""

    __slots__ = ("_matched", "nbytes", "source")

    def __init__(self, matched: MPI.Message, status: MPI.Status) -> None:
        self._matched = matched
        self.source = status.Get_source()
        self.nbytes = _length(status)

    def receive(self, buffer: Bytes) -> Incoming:
        """Begin to receive; `buffer` has exactly ``nbytes`` bytes."""
        if buffer.nbytes != self.nbytes:
            raise ProtocolError(
                f"a payload of {self.nbytes} bytes does not fit a buffer of {buffer.nbytes}"
            )
        return Incoming(self._matched, buffer, self.source)


class Channel:
    """The two tags of the protocol on one communicator.

    One thread, always the same, calls it. It owns every buffer that MPI still reads or writes.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        The tags 21331 and 21332 of it belong to the replay service.
    max_batch : int
        Bounds the length of a control message.
    peer : int, optional
        The only rank to listen to; all of them by default.
    """

    def __init__(self, comm: MPI.Intracomm, max_batch: int, peer: int | None = None) -> None:
        self._comm = comm
        self._limit = control_limit(max_batch)
        self._peer = MPI.ANY_SOURCE if peer is None else peer
        self._sending: dict[int, deque[Outgoing]] = {}
        self._arriving: dict[int, deque[Incoming]] = {}
        self._arriving_count = 0
        self._status = MPI.Status()
        self.bytes_out = 0
        """Bytes of all that was sent: headers, bodies and payloads."""

    @property
    def comm(self) -> MPI.Intracomm:
        """The communicator."""
        return self._comm

    def set_max_batch(self, max_batch: int) -> None:
        """Bound the length of a control message anew."""
        self._limit = control_limit(max_batch)

    def send(
        self, dest: int, message: Message, *body: Any, payload: Bytes | None = None
    ) -> Outgoing:
        """Begin to send a control message, and the payload that it announces.

        `payload` must not be written to until the result is done; both are kept alive until then.
        """
        data = message.encode(*body)
        self.bytes_out += len(data) + (0 if payload is None else payload.nbytes)
        requests = [self._comm.Isend([data, MPI.BYTE], dest, CONTROL_TAG)]
        if payload is not None:
            requests.append(self._comm.Isend([payload, MPI.BYTE], dest, PAYLOAD_TAG))
        outgoing = Outgoing(requests, (data, payload))
        if not outgoing.done():
            self._sending.setdefault(dest, deque()).append(outgoing)
        return outgoing

    def unsent(self, dest: int) -> int:
        """Return how many messages to `dest` MPI has not let go of."""
        return len(self._sending.get(dest, ()))

    def unsent_to_all(self) -> int:
        """Return how many messages MPI has not let go of."""
        return sum(map(len, self._sending.values()))

    def reap(self) -> bool:
        """Let go of what was sent; return whether anything is still on its way."""
        for dest in list(self._sending):
            queue = self._sending[dest]
            while queue and queue[0].done():
                queue.popleft()
            if not queue:
                del self._sending[dest]
        return bool(self._sending)

    def receive(self) -> Message | Malformed | None:
        """Return the next control message, in order for each source; None if there is none."""
        if self._arriving_count:
            arrived = self._next_arrived()
            if arrived is not None:
                return self._read(arrived)
            if self._arriving_count >= _MOST_ARRIVING:
                return None
        status = self._status
        matched = self._comm.Improbe(self._peer, CONTROL_TAG, status)
        if matched is None:
            return None
        incoming = Probe(matched, status).receive(np.empty(_length(status), np.uint8))
        if incoming.source not in self._arriving and incoming.done():
            return self._read(incoming)
        self._arriving.setdefault(incoming.source, deque()).append(incoming)
        self._arriving_count += 1
        return None

    def probe(self, source: int) -> Probe | None:
        """Match the next payload of `source`, if one is there."""
        status = self._status
        matched = self._comm.Improbe(source, PAYLOAD_TAG, status)
        return None if matched is None else Probe(matched, status)

    def payload_waiting(self) -> int | None:
        """Return a rank whose payload is there and not matched, if there is one."""
        if self._comm.Iprobe(self._peer, PAYLOAD_TAG, self._status):
            return self._status.Get_source()
        return None

    def control_waiting(self, source: int) -> bool:
        """Whether a control message of `source` is there and not yet returned."""
        return source in self._arriving or bool(self._comm.Iprobe(source, CONTROL_TAG))

    def _next_arrived(self) -> Incoming | None:
        for source in list(self._arriving):
            queue = self._arriving[source]
            if queue[0].done():
                incoming = queue.popleft()
                self._arriving_count -= 1
                if not queue:
                    del self._arriving[source]
                return incoming
        return None

    def _read(self, incoming: Incoming) -> Message | Malformed:
        if incoming.buffer.nbytes > self._limit:
            reason = f"a control message of {incoming.buffer.nbytes} bytes: at most {self._limit}"
            return Malformed(incoming.source, reason)
        try:
            return decode(incoming.buffer, incoming.source)
        except ProtocolError as error:
            return Malformed(incoming.source, str(error))


class Backoff:
    """Waits between two looks for messages: briefly without sleeping, then longer and longer.

    Parameters
    ----------
    longest : float
        The longest sleep, in seconds.
    spins : int
        Looks without a sleep.
    """

    def __init__(self, longest: float, spins: int = 50) -> None:
        self._longest = longest
        self._spins = spins
        self._idle = 0
        self._sleep = 0.0

    def turn(self, busy: bool) -> None:
        """Wait as long as befits a look that found something (`busy`) or nothing."""
        if busy:
            self._idle, self._sleep = 0, 0.0
            return
        self._idle += 1
        if self._idle <= self._spins:
            os.sched_yield()
            return
        self._sleep = min(self._longest, max(20e-6, 1.5 * self._sleep))
        time.sleep(self._sleep)


def wait_turns(seconds: float, longest: float = 0.001) -> Iterator[float]:
    """Yield the seconds that have passed, with growing pauses between, until `seconds` have."""
    backoff = Backoff(longest)
    begin = time.monotonic()
    while (passed := time.monotonic() - begin) < seconds:
        yield passed
        backoff.turn(busy=False)


def _length(status: MPI.Status) -> int:
    count = int(status.Get_count(MPI.BYTE))
    if not 0 <= count <= MESSAGE_LIMIT:
        raise ProtocolError(
            f"rank {status.Get_source()} sent a message whose length MPI gives as {count} bytes: "
            f"at most {MESSAGE_LIMIT} can be received"
        )
    return count


__all__ = ["MPI", "Backoff", "Channel", "Incoming", "Malformed", "Outgoing", "Probe", "wait_turns"]
