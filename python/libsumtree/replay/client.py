"""What actors and learners have in common: the handshake, the waiting, and the leave-taking."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from ..arguments import Indices, as_indices, as_real
from ..errors import (
    ArgumentError,
    CheckpointError,
    EmptyTreeError,
    ProtocolError,
    RejectedError,
    ReplayError,
    ReplayStopped,
    ReplayTimeoutError,
    ShapeError,
    SumTreeError,
    WorldError,
)
from ..metrics import Histogram
from ..records import check_record_dtype, dtype_to_text
from .arrivals import Arrival, arrivals_of
from .channel import MPI, Backoff, Channel, Malformed, Outgoing, wait_turns
from .messages import TEXT_LIMIT, Bytes, Code, Flag, Kind, Message, Wait
from .receiving import Receive, Received, check_receive
from .streams import ALONE
from .terms import Terms
from .times import RequestTimes

IDLE_SLEEP = 0.001
"""Longest sleep of a client between two looks for messages, in seconds, if nothing is said."""
_FAREWELL_SECONDS = 2.0
# Before its time is over, a client asks what it is waiting for: so long before, at most; where the
# whole wait is shorter than the least, it only looks.
_ASK_SECONDS = 1.0
_LEAST_ASKING = 0.05
_NOTHING: Bytes = np.empty(0, np.uint8)


class ReplayClient:
    """A client of a replay rank; `ActorClient` and `LearnerClient` are the two kinds.

    A rank has one client at a time, and one thread calls it. A context manager: leaving it closes
    the client, or, with an exception, tells the replay rank that this client failed.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        The communicator of the replay rank.
    dtype : dtype_like
        The record dtype of the transitions.
    replay_rank : int
        The replay rank in `comm`.
    timeout : float
        Seconds to wait for anything.
    idle_sleep : float
        Longest sleep between two looks for messages, in seconds: the less, the sooner an answer is
        seen, and the more of a processor goes into waiting. 0: none at all.
    receive : {"matched", "staged"}
        "staged" where the MPI has no working matched probes, see `ReplayConfig`.

    Attributes
    ----------
    epoch : int
        The epoch of the buffer, which every restore advances.
    stopping : bool
        The replay rank is ending; brought up to date by `poll` and by every other call.
    checkpointing : bool
        Whether the replay rank writes checkpoints.
    round_trips : dict of str to Histogram
        Times from a request to its answer: ``"add"`` of an actor, ``"sample"`` and ``"update"`` of
        a learner. What the rate limiter held back counts.

    Raises
    ------
    RejectedError
        If the replay rank does not take such a client, because of the record dtype for instance.
    ReplayTimeoutError
        If it does not answer.
    WorldError
        If there is no such rank, or it is this one.
    """

    _ROLE = Flag.NONE
    _number = ALONE
    _place = 1, 0
    """How many shards the service has, and which of them this is a client of."""

    def __init__(
        self,
        comm: MPI.Intracomm,
        dtype: DTypeLike,
        replay_rank: int = 0,
        timeout: float = 60.0,
        idle_sleep: float = IDLE_SLEEP,
        receive: Receive = "matched",
    ) -> None:
        self.dtype: np.dtype[Any] = check_record_dtype(dtype)
        self._timeout = as_real(timeout, "timeout")
        if math.isnan(self._timeout) or self._timeout <= 0:
            raise ArgumentError(f"timeout is {timeout} s: a positive number of seconds")
        self._idle_sleep = checked_timeout(idle_sleep, "idle_sleep")
        self._receive = receive
        check_receive(receive, 1)
        self._times = RequestTimes()
        self._asked = 0
        self._reason: Message | None = None
        size = comm.Get_size()
        if not 0 <= replay_rank < size or replay_rank == comm.Get_rank():
            raise WorldError(
                f"replay_rank is {replay_rank}: another rank of the {size} is needed, "
                f"and this is rank {comm.Get_rank()}"
            )
        self._replay_rank = replay_rank
        self._channel = Channel(comm, TEXT_LIMIT, replay_rank, receive)
        self._arrivals = arrivals_of(comm)
        # Answers to a former client of this rank must never pass for answers to this one.
        self._sequence = self._first = time.time_ns()
        self._problem: SumTreeError | None = None
        self._terms: Terms | None = None
        self._gone = False
        self.stopping = False
        self._say_hello()

    # ---- for callers ----

    @property
    def epoch(self) -> int:
        """The epoch of the replay rank's buffer."""
        return self._agreed.epoch

    @property
    def checkpointing(self) -> bool:
        """Whether the replay rank writes checkpoints."""
        return self._agreed.checkpoints

    @property
    def round_trips(self) -> dict[str, Histogram]:
        """Times from a request to its answer, by ``"add"``, ``"sample"`` and ``"update"``."""
        return self._times.histograms()

    def poll(self) -> None:
        """Take what the replay rank has sent, without waiting.

        Raises
        ------
        RejectedError
            If something that was sent before was refused.
        """
        self._pump()
        self._raise_problem()

    def close(self) -> None:
        """Take leave, once the replay rank has everything that was sent; further calls do nothing.

        Raises
        ------
        RejectedError
            If something that was sent before was refused.
        ReplayTimeoutError
            If the replay rank does not answer.
        """
        if not self._gone:
            self._say_bye()
            self._raise_problem()

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
            leave_failed([self])

    # ---- for the two kinds of client ----

    def _handle(self, message: Message, payload: Bytes) -> None:
        """Take an answer of the kinds that only this kind of client gets, and its payload."""
        raise ProtocolError(f"the replay rank sent {message.kind.name}, which nothing asked for")

    def _send(self, message: Message, *body: Any, payload: Bytes | None = None) -> Outgoing | None:
        self._begin(message.kind, message.sequence)
        return self._channel.send(self._replay_rank, message, *body, payload=payload)

    def _begin(self, kind: Kind, sequence: int) -> None:
        """Begin the time of a request that is timed."""
        if self._gone:
            raise ReplayError("this client is closed")
        self._times.begin(self._replay_rank, sequence, kind)

    def _next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    @property
    def _agreed(self) -> Terms:
        """The terms; there are some since the constructor returned."""
        assert self._terms is not None
        return self._terms

    def _pump(self) -> bool:
        """Take every message that is there; return whether there was any."""
        busy = False
        while True:
            if self._replay_rank in self._arrivals:
                payload = self._arrivals[self._replay_rank].turn(self._channel)
                if payload is None:
                    break
                self._take(self._arrivals.pop(self._replay_rank).message, payload)
                busy = True
            received = self._channel.next()
            if received is None:
                break
            busy = True
            if isinstance(received, Malformed) or not self._take_plain(received[0]):
                self._read(received)
        self._channel.reap()
        return busy

    def _take_plain(self, data: Bytes) -> bool:
        """Take an answer as it came, if it is one of the usual; False if it is to be read first."""
        return False

    def _read(self, received: Received | Malformed) -> None:
        message = received if isinstance(received, Malformed) else self._channel.read(received)
        if isinstance(message, Malformed):
            raise ProtocolError(f"from the replay rank: {message.reason}")
        if message.announced:
            self._arrivals[self._replay_rank] = Arrival(message)
        else:
            self._take(message, _NOTHING)

    def _wait(
        self,
        ready: Callable[[], bool],
        what: str,
        timeout: float | None = None,
        *,
        stop: bool = False,
        problems: bool = True,
        ask: bool = True,
    ) -> None:
        """Take messages until `ready`.

        Raises what was refused, unless not `problems`; and, with `stop`, `ReplayStopped` once the
        replay rank is ending. With `ask`, a client that has waited nearly long enough asks what
        for.
        """
        seconds = self._timeout if timeout is None else checked_timeout(timeout)
        deadline = time.monotonic() + seconds
        asking = asking_time(deadline, seconds) if ask else math.inf
        backoff = Backoff(self._idle_sleep)
        self._asked, self._reason = 0, None
        while True:
            busy = self._pump()
            if ready():
                return
            if problems:
                self._raise_problem()
            if stop:
                self._raise_if_stopping()
            now = time.monotonic()
            if now >= deadline and not busy:
                raise self._timed_out(what, seconds)
            if now >= asking:
                asking = math.inf
                self._ask()
            backoff.turn(busy, self._is_moving)

    @property
    def _is_moving(self) -> bool:
        """Whether a long message is on its way in or out, see `Backoff`."""
        return self._replay_rank in self._arrivals or self._channel.is_moving

    def _ask(self) -> None:
        """Ask the replay rank what it waits for."""
        self._asked, self._reason = self._next_sequence(), None
        self._send(Message(Kind.ASK, sequence=self._asked))

    def _timed_out(self, what: str, seconds: float) -> ReplayTimeoutError:
        """Return the exception of a client that has waited long enough, with what for."""
        late = f"no {what} from the replay rank (rank {self._replay_rank}) within {seconds:g} s"
        if not self._asked:
            return ReplayTimeoutError(late)
        if self._reason is None:
            return ReplayTimeoutError(f"{late}: no answer from rank {self._replay_rank}")
        return ReplayTimeoutError(f"{late}: it {self._reason.text}", _wait_of(self._reason).text)

    def _raise_problem(self) -> None:
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem

    def _raise_if_stopping(self) -> None:
        if self.stopping:
            raise ReplayStopped("the replay rank is ending")

    def _note_problem(self, message: Message) -> None:
        if self._problem is None:
            self._problem = error_of(message)

    # ---- inside ----

    def _take(self, message: Message, payload: Bytes) -> None:
        if 0 < message.sequence <= self._first:
            return  # the answer to a former client, which has not waited for it
        self._answered(message.sequence)
        if message.kind is Kind.STOPPING:
            self.stopping = True
        elif message.kind is Kind.GOODBYE:
            self._gone = True
        elif message.kind is Kind.WELCOME:
            self._be_welcome(message, payload)
        elif message.kind is Kind.REFUSED:
            self._note_problem(message)
        elif message.kind is Kind.REASON:
            if message.sequence == self._asked:  # else it is of an earlier wait
                self._reason = message
        else:
            self._handle(message, payload)

    def _answered(self, sequence: int) -> None:
        """End the time of a request, if it has one."""
        self._times.end(self._replay_rank, sequence)

    def _say_hello(self) -> None:
        hello = Message(
            Kind.HELLO, sequence=self._next_sequence(), flags=self._ROLE, value=self._number + 1
        )
        self._send(hello, dtype_to_text(self.dtype).encode())
        self._wait(lambda: self._terms is not None, "welcome", ask=False)
        misfit = self._misfit(self._agreed)
        if misfit:
            self._say_bye()
            raise WorldError(misfit)

    def _misfit(self, terms: Terms) -> str:
        """Say why this client is not for such a replay rank; empty if it is."""
        shards, shard = self._place
        if (terms.shards, terms.shard) == self._place:
            return ""
        if shards == 1:
            return (
                f"the replay rank (rank {self._replay_rank}) is one of {terms.shards} shards: "
                f"use ShardedActor and ShardedLearner, with shards={terms.shards}"
            )
        return (
            f"the replay rank (rank {self._replay_rank}) is shard {terms.shard} of {terms.shards}, "
            f"where shard {shard} of {shards} was expected: give its service and all clients the "
            "same shards"
        )

    def _be_welcome(self, message: Message, payload: Bytes) -> None:
        if message.sequence != self._sequence or self._terms is not None:
            raise ProtocolError("the replay rank sent WELCOME, which nothing asked for")
        terms = Terms.from_json(message.text)
        check_receive(self._receive, terms.max_batch)
        self._channel.set_max_batch(terms.max_batch)
        self.stopping = self.stopping or bool(message.flags & Flag.STOPPING)
        if message.payload:
            self._take_state(payload)
        self._terms = terms

    def _take_state(self, data: Bytes) -> None:
        raise ProtocolError("the replay rank sent a learner state to a client that is no learner")

    def _say_bye(self) -> None:
        self._send_bye(Flag.NONE)
        self._wait(lambda: self._gone, "goodbye", problems=False, ask=False)
        self._channel.close()

    def _send_bye(self, flag: int) -> None:
        self._send(Message(Kind.BYE, sequence=self._next_sequence(), flags=flag))


def leave_failed(clients: Sequence[ReplayClient]) -> None:
    """Tell that these clients failed, all at once; the exception on its way matters more."""
    leaving = [client for client in clients if not client._gone]
    if not leaving:
        return
    try:
        for client in leaving:
            client._send_bye(Flag.FAILED)
        waiting, first = leaving, leaving[0]
        for _ in wait_turns(min(_FAREWELL_SECONDS, first._timeout), first._idle_sleep):
            waiting = [client for client in waiting if not _has_parted(client)]
            if not waiting:
                break
    finally:
        for client in leaving:
            client._gone = True
            client._channel.close()


def _has_parted(client: ReplayClient) -> bool:
    """Whether a client that has said BYE has nothing more to wait for."""
    try:
        client._pump()
    except SumTreeError:
        return True
    return client._gone


def checked_timeout(timeout: float, name: str = "timeout") -> float:
    """Return a timeout, or another time, checked: seconds, 0 or more.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        If it is not that.
    """
    seconds = as_real(timeout, name)
    if math.isnan(seconds) or seconds < 0:
        raise ArgumentError(f"{name} is {timeout} s: a number of seconds >= 0")
    return seconds


def _wait_of(reason: Message) -> Wait:
    known = reason.code is Code.OK and reason.value in set(Wait)
    return Wait(reason.value) if known else Wait.ANSWER


def error_of(message: Message) -> SumTreeError:
    """Return the exception that a refusal of the replay rank is to the caller."""
    kinds: dict[Code, type[SumTreeError]] = {
        Code.STOPPING: ReplayStopped,
        Code.EMPTY: EmptyTreeError,
        Code.CHECKPOINT: CheckpointError,
        Code.PROTOCOL: ProtocolError,
        Code.UNKNOWN_CLIENT: ProtocolError,
    }
    return kinds.get(message.code, RejectedError)(f"the replay rank refused: {message.text}")


def asking_time(deadline: float, seconds: float) -> float:
    """Return when a client that waits for so many seconds asks what for."""
    if seconds < _LEAST_ASKING:
        return math.inf
    return deadline - min(seconds / 2, _ASK_SECONDS)


def refuse_longer(name: str, length: int, most: int) -> NoReturn:
    """Raise for a batch that no message can hold."""
    raise ArgumentError(f"{name} has length {length}: one message holds at most {most}")


def checked_ids(ids: ArrayLike) -> Indices:
    """Return ids as int64, shape (n,).

    Raises
    ------
    ArgumentTypeError, ShapeError, IndexOutOfRangeError
        If they are not that.
    """
    names = as_indices(ids, 1 << 63, "ids")
    if names.ndim != 1:
        raise ShapeError(f"ids have shape {names.shape}: (n,) is needed")
    return names
