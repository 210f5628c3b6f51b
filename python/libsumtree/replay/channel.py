"""Control and payload messages over MPI: nothing blocks, and no length goes unchecked."""

from __future__ import annotations

import os
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from ..errors import ProtocolError
from .messages import CONTROL_TAG, PAYLOAD_TAG, Bytes, Kind, Message, control_limit, decode
from .mpi import MPI
from .receiving import (
    LOOKS_MOVING,
    Incoming,
    Malformed,
    Probe,
    Receive,
    Received,
    ends,
    leave,
    make_receiver,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


# Looks in vain without a sleep.
_SPINS = 50
# While a long message is on its way: seconds of looks without a sleep, and the sleep after that.
_AWAKE_MOVING = 1e-3
_SLEEP_MOVING = 50e-6
# A message that has not moved for so long may never do so.
_HOPE_MOVING = 5.0


class Outgoing:
    """A message on its way: it owns what is sent until MPI has let go of it."""

    __slots__ = ("_buffers", "_control", "_payload", "_place")

    def __init__(
        self, control: MPI.Request, data: Any, payload: Bytes | None, place: tuple[Any, int]
    ) -> None:
        self._control: MPI.Request | None = control
        self._payload: MPI.Request | None = None
        self._buffers = data, payload
        self._place = place

    def __del__(self) -> None:
        """Leave to the process what MPI still reads, when a client is given up."""
        leave(self._control, self._buffers)
        leave(self._payload, self._buffers)

    def advance(self) -> bool:
        """Send the payload once MPI has let go of the control message; return whether it has."""
        if self._control is None:
            return True
        if not self._control.Test():
            return False
        self._control = None
        data, payload = self._buffers
        if payload is not None:
            comm, dest = self._place
            self._payload = comm.Isend([payload, MPI.BYTE], dest, PAYLOAD_TAG)
        return True

    def done(self) -> bool:
        """Whether the buffers may be written to again."""
        if self._control is not None:
            return False
        if self._payload is not None and ends(self._payload, LOOKS_MOVING):
            self._payload = None
        if self._payload is None:
            self._buffers = None, None
        return self._payload is None


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
    receive : {"matched", "staged"}
        See `libsumtree.replay.receiving`.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        max_batch: int,
        peer: int | None = None,
        receive: Receive = "matched",
    ) -> None:
        self._comm = comm
        self._limit = control_limit(max_batch)
        self._peer = MPI.ANY_SOURCE if peer is None else peer
        self._receiver = make_receiver(receive, comm, self._peer)
        self._sending: dict[int, deque[Outgoing]] = {}
        self.bytes_out = 0
        """Bytes of all that was sent: headers, bodies and payloads."""

    @property
    def comm(self) -> MPI.Intracomm:
        """The communicator."""
        return self._comm

    def set_max_batch(self, max_batch: int) -> None:
        """Bound the length of a control message anew."""
        self._limit = control_limit(max_batch)

    def close(self) -> None:
        """Receive nothing more."""
        self._receiver.close()

    def send(
        self, dest: int, message: Message, *body: Any, payload: Bytes | None = None
    ) -> Outgoing | None:
        """Begin to send a control message, and the payload that it announces.

        Returns
        -------
        Outgoing or None
            `payload` must not be written to until it is done; None if it is already. Both are kept
            alive until then.
        """
        return self.send_encoded(dest, message.encode(*body), payload)

    def send_encoded(
        self, dest: int, data: bytes | Bytes, payload: Bytes | None = None
    ) -> Outgoing | None:
        """Begin to send a whole control message, and the payload that it announces; see `send`."""
        self.bytes_out += len(data)
        control = self._comm.Isend([data, MPI.BYTE], dest, CONTROL_TAG)
        if payload is None and control.Test():
            return None
        if payload is not None:
            self.bytes_out += payload.nbytes
        outgoing = Outgoing(control, data, payload, (self._comm, dest))
        self._sending.setdefault(dest, deque()).append(outgoing)
        self._advance(dest)
        return outgoing

    def _advance(self, dest: int) -> None:
        """Go on with what is on its way: payloads are sent in the order of their announcements."""
        queue = self._sending[dest]
        for outgoing in queue:
            if not outgoing.advance():
                break
        while queue and queue[0].done():
            queue.popleft()
        if not queue:
            del self._sending[dest]

    def unsent(self, dest: int) -> int:
        """Return how many messages to `dest` MPI has not let go of."""
        return len(self._sending.get(dest, ()))

    @property
    def is_moving(self) -> bool:
        """Whether a message is on its way out, or a control message in, see `Backoff`."""
        return bool(self._sending) or self._receiver.is_receiving

    def unsent_to_all(self) -> int:
        """Return how many messages MPI has not let go of."""
        return sum(map(len, self._sending.values()))

    def reap(self) -> bool:
        """Go on with what is on its way; return whether anything still is."""
        for dest in list(self._sending):
            self._advance(dest)
        return bool(self._sending)

    def receive(self) -> Message | Malformed | None:
        """Return the next control message, in order for each source; None if there is none.

        The body of an ADD is borrowed until the next call; of any other message it is its own.
        """
        received = self.next()
        if received is None or isinstance(received, Malformed):
            return received
        return self.read(received)

    def next(self) -> Received | Malformed | None:
        """Return the next control message as it came, for `read`; None if there is none."""
        return self._receiver.next()

    def read(self, received: Received) -> Message | Malformed:
        """Read what `next` returned; see `receive`."""
        data, source, borrowed = received
        if len(data) > self._limit:
            reason = f"a control message of {len(data)} bytes: at most {self._limit}"
            return Malformed(source, reason)
        try:
            message = decode(data, source)
        except ProtocolError as error:
            return Malformed(source, str(error))
        if borrowed and message.kind is not Kind.ADD:
            message.body = message.body.copy()
        return message

    def probe(self, source: int) -> Probe | None:
        """Return the next payload of `source`, if one is there; it is to be received at once."""
        return self._receiver.probe(source)

    def payload_waiting(self) -> int | None:
        """Return a rank whose payload is there and not received, if there is one."""
        status = MPI.Status()
        if self._comm.Iprobe(self._peer, PAYLOAD_TAG, status):
            return status.Get_source()
        return None

    def control_waiting(self, source: int) -> bool:
        """Whether a control message of `source` is there and not yet returned."""
        return self._receiver.holds(source)


class Backoff:
    """Waits between two looks for messages: briefly without sleeping, then longer and longer.

    Parameters
    ----------
    longest : float
        The longest sleep, in seconds; 0 for none.
    """

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._idle = 0
        self._asleep_from = 0.0
        self._sleep = 0.0

    def turn(self, busy: bool, moving: bool = False) -> None:
        """Wait as long as befits a look that found something (`busy`) or nothing.

        While a long message is on its way (`moving`), sleeps come late and are short: where MPI
        cannot read the memory of the other side, a look moves a part of it, and 2 ms of sleep
        between two of them make 400 ms of 2.8 MB. Without any, those who wait take the processor
        from the one who is to receive it, where ranks outnumber processors.
        """
        if busy:
            self._idle, self._sleep = 0, 0.0
            return
        self._idle += 1
        if self._idle <= _SPINS or not self._longest:
            os.sched_yield()
        elif moving:
            self._turn_moving()
        else:
            self._sleep_longer()

    def _turn_moving(self) -> None:
        now = time.monotonic()
        if self._idle == _SPINS + 1:
            self._asleep_from = now + _AWAKE_MOVING
        if now < self._asleep_from:
            os.sched_yield()
        elif now < self._asleep_from + _HOPE_MOVING:
            time.sleep(min(self._longest, _SLEEP_MOVING))
        else:
            self._sleep_longer()

    def _sleep_longer(self) -> None:
        self._sleep = min(self._longest, max(20e-6, 1.5 * self._sleep))
        time.sleep(self._sleep)


def wait_turns(seconds: float, longest: float = 0.001) -> Iterator[float]:
    """Yield the seconds that have passed, with growing pauses between, until `seconds` have."""
    backoff = Backoff(longest)
    begin = time.monotonic()
    while (passed := time.monotonic() - begin) < seconds:
        yield passed
        backoff.turn(busy=False)


__all__ = [
    "MPI",
    "Backoff",
    "Channel",
    "Incoming",
    "Malformed",
    "Outgoing",
    "Probe",
    "wait_turns",
]
