"""Payloads: from MPI straight into the ring, or into scratch if they are not as announced.

The control message of a batch was checked before anything of this begins. Then, once its payload is
there and has exactly the size that was announced, the slots are retired (mass 0), the bytes are
received into them, and only then do they get their masses: a payload that fails leaves empty slots,
never a torn row. A long payload that may be long under way, for its sender has to go on with it, is
received first, and then copied into its slots.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arguments import Doubles
from ..errors import ArgumentError
from ..intake import Intake
from .channel import MPI, Channel, Incoming, Probe
from .messages import Bytes
from .peers import Peer
from .receiving import LOOKS_MOVING

IN_PLACE_BYTES = 8 << 10
"""A longer payload is received beside the ring unless its source is prompt: see `PayloadIntake`."""
_MOST_SPARE = 4


class Purpose(Enum):
    """What a payload is for."""

    ADD = 1
    STATE = 2
    DISCARD = 3


@dataclass(slots=True)
class Announced:
    """A payload that a checked control message announced, or, if it is small, brought along.

    Attributes
    ----------
    purpose : Purpose
    peer : Peer
        Whose it is.
    sequence : int
        The number of the request.
    nbytes : int
        The exact size, unless it is to be discarded.
    count : int
        ADD: transitions.
    masses : ndarray of float64, shape (count,), optional
        ADD: what `PrioritizedReplayBuffer.check_priorities` made of the priorities; None for the
        default.
    elsewhere : float
        ADD: the largest mass in other shards, for the default.
    inline : ndarray of uint8, optional
        ADD: the transitions, if they came with the control message.
    """

    purpose: Purpose
    peer: Peer
    sequence: int
    nbytes: int
    count: int = 0
    masses: Doubles | None = None
    elsewhere: float = 0.0
    inline: Bytes | None = None


@dataclass(slots=True)
class _Landing:
    incoming: Incoming
    intake: Intake | None = None
    failure: str = ""


Landed = Callable[[Announced, Bytes, str], None]
"""Called with what was announced, the bytes that came, and what went wrong ("" if nothing did)."""


class PayloadIntake:
    """Receives the payloads that were announced, one at a time of each source, in their order.

    At most one batch is being received into the ring at any time; long ones, one of each source,
    beside it, until the source has shown that it is prompt: its last long payload, and one at least
    as long, were there whole as soon as their receive began. So it is where MPI reads the memory of
    a sender on the same host, which then has no part in it; and a read that fails ends at once.
    """

    def __init__(
        self,
        channel: Channel,
        begin_add: Callable[[Announced], Intake],
        append: Callable[[Announced, Bytes], object],
        landed: Landed,
    ) -> None:
        self._channel = channel
        self._append = append
        self._begin_intake = begin_add
        self._landed = landed
        self._queues: dict[int, deque[Announced]] = {}
        self._landing: dict[int, _Landing] = {}
        self._strays: list[Incoming] = []
        self._spare: list[Bytes] = []
        self._prompt: dict[int, int] = {}
        self._ring_taken = False

    def announce(self, announced: Announced) -> None:
        """Expect a payload; those of one source come in the order in which they were announced.

        Transitions that came along are taken at once, unless others must be in before them.
        """
        rank = announced.peer.rank
        if announced.inline is None or self._ring_taken or rank in self._queues:
            if announced.inline is not None:
                announced.inline = announced.inline.copy()  # the message is borrowed
            self._queues.setdefault(rank, deque()).append(announced)
        else:
            self._take(announced, announced.inline)

    def is_free(self, source: int) -> bool:
        """Whether transitions of `source` that are there may go into the ring at once."""
        return not self._ring_taken and source not in self._queues

    def backlog(self, source: int) -> int:
        """Return how many payloads of `source` have been announced and not received."""
        return len(self._queues.get(source, ()))

    @property
    def announced(self) -> int:
        """How many payloads of all have been announced and not received."""
        return sum(map(len, self._queues.values())) if self._queues else 0

    @property
    def is_receiving(self) -> bool:
        """Whether a payload is being received now."""
        return bool(self._landing or self._strays)

    @property
    def ring_taken(self) -> bool:
        """Whether a batch is being received into the ring now."""
        return self._ring_taken

    def forget(self, source: int) -> None:
        """Expect nothing more of `source`, but what is being received already."""
        self._prompt.pop(source, None)
        queue = self._queues.get(source)
        if queue is None:
            return
        landing = source in self._landing
        while len(queue) > landing:
            queue.pop()
        if not queue:
            del self._queues[source]

    def turn(self) -> bool:
        """Receive what is there; return whether anything was."""
        if self._strays:
            self._strays = [stray for stray in self._strays if not _has_ended(stray)]
        busy = False
        for source in list(self._queues):
            busy = self._advance(source) or busy
        return busy

    def drop_stray(self, source: int) -> int | None:
        """Receive into scratch, and drop, a payload that nothing announced; return its size."""
        probe = self._channel.probe(source)
        if probe is None:
            return None
        self._strays.append(probe.drop())
        return probe.nbytes

    def _advance(self, source: int) -> bool:
        queue = self._queues[source]
        announced = queue[0]
        landing = self._landing.get(source)
        if landing is None:
            needs_ring = announced.inline is not None or self._in_place(announced)
            if self._ring_taken and needs_ring:
                return False
            if announced.inline is not None:
                self._pop(source)
                self._take(announced, announced.inline)
                return True
            probe = self._channel.probe(source)
            if probe is None:
                return False
            landing = self._landing[source] = self._begin_safely(announced, probe)
            here = self._arrived(landing)
            self._note_promptness(announced, here and not landing.failure)
            if not here:
                return False
        elif not self._arrived(landing, LOOKS_MOVING):
            return False
        beside = announced.purpose is Purpose.ADD and landing.intake is None
        if beside and self._ring_taken and not landing.failure:
            return False
        del self._landing[source]
        self._pop(source)
        if beside and not landing.failure:
            self._take(announced, landing.incoming.buffer)
            if len(self._spare) < _MOST_SPARE:
                self._spare.append(landing.incoming.buffer)
        else:
            self._finish(announced, landing)
        return True

    def _pop(self, source: int) -> None:
        queue = self._queues[source]
        queue.popleft()
        if not queue:
            del self._queues[source]

    def _take(self, announced: Announced, rows: Bytes) -> None:
        """Add transitions that are there."""
        failure = ""
        try:
            self._append(announced, rows)
        except ArgumentError as error:  # frames that are not what they say: see `check_runs`
            failure = str(error)
        self._landed(announced, rows, failure)

    def _beside(self, probe: Probe) -> Bytes:
        """Give memory for a payload, in caches still if one of its size came before."""
        while self._spare:
            spare = self._spare.pop()
            if len(spare) >= probe.nbytes:
                return spare[: probe.nbytes]
        return _scratch(probe)

    def _begin_safely(self, announced: Announced, probe: Probe) -> _Landing:
        try:
            return self._begin(announced, probe)
        except MPI.Exception as error:  # as where MPI reads the memory of a sender that is no more
            nothing = Incoming(MPI.REQUEST_NULL, np.empty(0, np.uint8), probe.source)
            return _Landing(nothing, failure=f"the payload could not be received: {error}")

    def _begin(self, announced: Announced, probe: Probe) -> _Landing:
        if announced.purpose is Purpose.DISCARD:
            return _discard(probe, "")
        if probe.nbytes != announced.nbytes:
            return _discard(
                probe,
                f"a payload of {probe.nbytes} bytes where {announced.nbytes} were announced",
            )
        if not self._in_place(announced):
            if announced.purpose is Purpose.STATE:
                return _Landing(probe.receive(_scratch(probe)))
            return _Landing(probe.receive(self._beside(probe)))
        return self._begin_add(announced, probe)

    def _in_place(self, announced: Announced) -> bool:
        """Whether a payload goes straight into the ring, which it then takes until it is there.

        A long one may come bit by bit, at its sender's pace, or never if that dies: nobody else is
        to wait for it.
        """
        if announced.purpose is not Purpose.ADD:
            return False
        return announced.nbytes <= self._prompt.get(announced.peer.rank, IN_PLACE_BYTES)

    def _note_promptness(self, announced: Announced, prompt: bool) -> None:
        """Note how long payloads of a source may be to be there at once, as its last one was."""
        source, nbytes = announced.peer.rank, announced.nbytes
        if announced.purpose is not Purpose.ADD or nbytes <= IN_PLACE_BYTES:
            return
        if prompt:
            self._prompt[source] = max(nbytes, self._prompt.get(source, 0))
        else:
            self._prompt.pop(source, None)

    def _begin_add(self, announced: Announced, probe: Probe) -> _Landing:
        """Receive into the ring; beside it if the batch is split or longer than the ring."""
        intake = self._begin_intake(announced)
        target = as_bytes(intake.segments[0]) if _is_whole(intake) else _scratch(probe)
        try:
            incoming = probe.receive(target)
        except BaseException:
            intake.abandon()
            raise
        self._ring_taken = True
        return _Landing(incoming, intake)

    def _arrived(self, landing: _Landing, looks: int = 1) -> bool:
        try:
            return landing.incoming.done(looks)
        except MPI.Exception as error:
            landing.failure = f"the payload could not be received: {error}"
            return True

    def _finish(self, announced: Announced, landing: _Landing) -> None:
        if landing.intake is not None:
            self._ring_taken = False
            self._end_add(announced, landing, landing.intake)
        self._landed(announced, landing.incoming.buffer, landing.failure)

    def _end_add(self, announced: Announced, landing: _Landing, intake: Intake) -> None:
        if not landing.failure:
            try:
                self._fill(intake, landing.incoming.buffer)
                intake.publish(announced.masses)
                return
            except ArgumentError as error:  # frames that are not what they say: see `check_runs`
                landing.failure = str(error)
        intake.abandon()

    def _fill(self, intake: Intake, received: Bytes) -> None:
        """Copy into the ring what was received beside it."""
        if not _is_whole(intake):
            intake.fill(received.view(intake.segments[0].dtype))


def as_bytes(records: npt.NDArray[Any]) -> Bytes:
    """Return the bytes of a contiguous array of records: the same memory."""
    return records.view(np.uint8)


def _is_whole(intake: Intake) -> bool:
    """Whether the ring takes the whole batch in one piece."""
    return len(intake.segments) == 1 and len(intake.segments[0]) == intake.count


def _scratch(probe: Probe) -> Bytes:
    return np.empty(probe.nbytes, np.uint8)


def _discard(probe: Probe, failure: str) -> _Landing:
    return _Landing(probe.drop(), failure=failure)


def _has_ended(stray: Incoming) -> bool:
    try:
        return stray.done()
    except MPI.Exception:  # cut off, see `Probe.drop`
        return True
