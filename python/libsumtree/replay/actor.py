"""The client of an actor: transitions go out, and nothing comes back but credits."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike, DTypeLike

from ..arguments import as_doubles
from ..errors import ArgumentTypeError, ShapeError
from ..frames import check_runs, layout_of
from ..masses import check_priorities
from .channel import MPI, Outgoing
from .client import IDLE_SLEEP, ReplayClient, refuse_longer
from .messages import INLINE_LIMIT, Bytes, Code, Flag, Kind, Message, encode_add, plain_ack
from .receiving import Receive

_PUSH_SECONDS = 0.005
_SOON_SECONDS = 0.001


class Slot:
    """Memory for one large batch on its way, written to again only once MPI has let go of it."""

    __slots__ = ("outgoing", "rows")

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.rows: npt.NDArray[Any] = np.empty(0, dtype)
        self.outgoing: Outgoing | None = None

    def free(self) -> bool:
        """Whether it may be written to."""
        return self.outgoing is None or self.outgoing.done()

    def load(self, transitions: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
        """Copy a batch; return its bytes."""
        if len(self.rows) < len(transitions):
            self.rows = np.empty(len(transitions), self.rows.dtype)
        part = self.rows[: len(transitions)]
        part[...] = transitions
        return part.view(np.uint8)


class ActorClient(ReplayClient):
    """Adds transitions to the buffer of a replay rank.

    At most `ReplayConfig.actor_credits` batches are without an answer; the replay rank holds
    answers back while actors are too far ahead of the learner.

    Parameters
    ----------
    comm, dtype, replay_rank, timeout, idle_sleep, receive
        See `ReplayClient`.
    """

    _ROLE = Flag.ACTOR
    _elsewhere = 0.0
    """The largest mass in other shards."""

    def __init__(
        self,
        comm: MPI.Intracomm,
        dtype: DTypeLike,
        replay_rank: int = 0,
        timeout: float = 60.0,
        idle_sleep: float = IDLE_SLEEP,
        receive: Receive = "matched",
    ) -> None:
        self._inflight: dict[int, int] = {}
        """Transitions of each batch without an answer, by sequence, in order."""
        self._slots: deque[Slot] = deque()
        self._left = -math.inf
        super().__init__(comm, dtype, replay_rank, timeout, idle_sleep, receive)
        self._itemsize = self.dtype.itemsize
        self._layout = layout_of(self.dtype)
        self._slots.extend(Slot(self.dtype) for _ in range(self._agreed.actor_credits))

    @property
    def unacknowledged(self) -> int:
        """How many batches are without an answer."""
        return len(self._inflight)

    def add(
        self,
        transitions: npt.NDArray[Any],
        priorities: ArrayLike | None = None,
        timeout: float | None = None,
        copy: bool = True,
    ) -> None:
        """Send transitions; returns as soon as they are copied and on their way.

        Parameters
        ----------
        transitions : structured ndarray, shape (n,)
            Records of this client's dtype, oldest first; the array may be written to again at once.
        priorities : array_like of real numbers, shape (n,), or one number, optional
            Finite, >= 0. None: the largest priority held, see `PrioritizedReplayBuffer.add`.
        timeout : float, optional
            Seconds to wait for a credit; the client's own if not given.
        copy : bool
            False: a large batch is sent from where it lies, if it is contiguous. It must not be
            written to before it is acknowledged.

        Raises
        ------
        ArgumentTypeError, ShapeError, ArgumentError, PriorityError
            If the arguments are not as described; nothing was sent.
        ReplayStopped
            If the replay rank is ending; nothing was sent.
        RejectedError
            If a batch sent before was refused; this one was not sent.
        ReplayTimeoutError
            If no credit came, saying what for: the rate limiter for instance. Nothing was sent; the
            same call may be made again.

        Notes
        -----
        One copy of the batch, O(n) bytes. Waits only if no credit is left; with a batch of many
        bytes it stays up to 5 ms to get it going, unless the last one was just before. Such a batch
        moves only while either side is inside an MPI call: `poll` between two long computations
        helps it along.
        """
        rows = self._rows(transitions)
        values = _priorities(priorities, len(rows))
        self.poll()
        self._raise_if_stopping()
        if len(rows) == 0:
            return
        inline = rows.nbytes <= INLINE_LIMIT
        ready = self._has_credit if inline else self._has_slot
        if not ready():
            self._wait(ready, "credit for another batch", timeout, stop=True)
        if inline and values is not None:
            self._send_plain(np.ascontiguousarray(rows), values)
            return
        message = Message(
            Kind.ADD,
            sequence=self._next_sequence(),
            count=len(rows),
            itemsize=self.dtype.itemsize,
            payload=rows.nbytes,
            real=self._elsewhere if values is None else 0.0,
            flags=Flag.DEFAULT if values is None else Flag.NONE,
        )
        body = () if values is None else (values,)
        if inline:
            message.flags |= Flag.INLINE
            self._send(message, *body, np.ascontiguousarray(rows).view(np.uint8))
        else:
            borrow = not copy and rows.flags.c_contiguous
            self._send_large(message, body, rows, borrow)
        self._inflight[message.sequence] = len(rows)

    def _send_plain(self, rows: npt.NDArray[Any], values: npt.NDArray[np.float64]) -> None:
        sequence, count = self._next_sequence(), len(rows)
        data = encode_add(sequence, count, self._itemsize, values, rows.view(np.uint8))
        self._begin(Kind.ADD, sequence)
        self._channel.send_encoded(self._replay_rank, data)
        self._inflight[sequence] = count

    def _send_large(
        self, message: Message, body: Any, rows: npt.NDArray[Any], borrow: bool
    ) -> None:
        """Send a batch by the first slot, which `_has_slot` has found to be free."""
        begun = time.monotonic()
        slot = self._slots[0]
        self._slots.rotate(-1)
        payload = rows.view(np.uint8) if borrow else slot.load(rows)
        slot.outgoing = self._send(message, *body, payload=payload)
        if begun - self._left > _SOON_SECONDS:
            self._push(slot)
        self._left = time.monotonic()

    def _push(self, slot: Slot) -> None:
        """Stay with MPI for a moment: a large message moves only while its sender is there.

        That is for an actor that takes its time; one that comes back at once helps it along then,
        and makes the next batch ready while this one is under way.
        """
        deadline = time.monotonic() + _PUSH_SECONDS
        while not slot.free() and time.monotonic() < deadline:
            time.sleep(0)
            self._channel.reap()

    def _has_credit(self) -> bool:
        return len(self._inflight) < self._agreed.actor_credits

    def _has_slot(self) -> bool:
        if not self._has_credit():
            return False
        for _ in range(len(self._slots)):
            if self._slots[0].free():
                return True
            self._slots.rotate(-1)
        return False

    def _handle(self, message: Message, payload: Bytes) -> None:
        if message.kind is not Kind.ACK:
            super()._handle(message, payload)
            return
        if message.code is Code.OK:
            self._acknowledged(message.sequence, message.value, message.real)
        elif message.sequence in self._inflight:
            self._release(message.sequence)
            self._note_problem(message)

    def _take_plain(self, data: Bytes) -> bool:
        fields = plain_ack(data)
        if fields is None:
            return False
        self._acknowledged(*fields)
        return True

    def _acknowledged(self, sequence: int, inserted: int, largest: float) -> None:
        """Take note of an ACK for every batch up to this sequence, of what is held and its mass."""
        for each in [each for each in self._inflight if each <= sequence]:
            self._release(each)

    def _release(self, sequence: int) -> None:
        self._answered(sequence)
        del self._inflight[sequence]

    def _rows(self, transitions: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if not isinstance(transitions, np.ndarray) or (
            transitions.dtype is not self.dtype and transitions.dtype != self.dtype
        ):
            given = getattr(transitions, "dtype", type(transitions).__name__)
            raise ArgumentTypeError(
                f"transitions are {given}: an array of the record dtype {self.dtype} is needed"
            )
        if transitions.ndim != 1:
            raise ShapeError(f"transitions have shape {transitions.shape}: (n,) is needed")
        if len(transitions) > self._agreed.most_rows:
            refuse_longer("transitions", len(transitions), self._agreed.most_rows)
        if self._layout is not None:
            check_runs(transitions["age"], transitions["ahead"], self._layout.stack, whole=True)
        return transitions


def _priorities(priorities: ArrayLike | None, count: int) -> npt.NDArray[np.float64] | None:
    if priorities is None:
        return None
    return checked_priorities(priorities, count)


def checked_priorities(priorities: ArrayLike, count: int) -> npt.NDArray[np.float64]:
    """Return priorities as contiguous little-endian float64, shape (count,), finite and >= 0.

    Raises
    ------
    ArgumentTypeError, ShapeError, PriorityError
        Naming the first that is not.
    """
    values = as_doubles(priorities, "priorities")
    if values.ndim == 0:
        values = np.full(count, values)
    if values.shape != (count,):
        raise ShapeError(f"priorities have shape {values.shape}: ({count},) is needed")
    check_priorities(values)
    return values
