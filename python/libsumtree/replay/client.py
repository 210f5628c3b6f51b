"""What actors and learners have in common: the handshake, the waiting, and the leave-taking."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import DTypeLike

from ..arguments import as_real
from ..errors import (
    ArgumentError,
    CheckpointError,
    EmptyTreeError,
    ProtocolError,
    RejectedError,
    ReplayError,
    ReplayStopped,
    ReplayTimeoutError,
    SumTreeError,
    WorldError,
)
from ..records import check_record_dtype, dtype_to_text
from .channel import MPI, Backoff, Channel, Malformed
from .messages import TEXT_LIMIT, Bytes, Code, Flag, Kind, Message
from .terms import Terms

_LONGEST_SLEEP = 0.001
_FAREWELL_SECONDS = 2.0


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

    Attributes
    ----------
    epoch : int
        The epoch of the buffer, which every restore advances.
    stopping : bool
        The replay rank is ending; brought up to date by `poll` and by every other call.
    checkpointing : bool
        Whether the replay rank writes checkpoints.

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

    def __init__(
        self,
        comm: MPI.Intracomm,
        dtype: DTypeLike,
        replay_rank: int = 0,
        timeout: float = 60.0,
    ) -> None:
        self.dtype: np.dtype[Any] = check_record_dtype(dtype)
        self._timeout = as_real(timeout, "timeout")
        if math.isnan(self._timeout) or self._timeout <= 0:
            raise ArgumentError(f"timeout is {timeout} s: a positive number of seconds")
        size = comm.Get_size()
        if not 0 <= replay_rank < size or replay_rank == comm.Get_rank():
            raise WorldError(
                f"replay_rank is {replay_rank}: another rank of the {size} is needed, "
                f"and this is rank {comm.Get_rank()}"
            )
        self._server = replay_rank
        self._channel = Channel(comm, TEXT_LIMIT, replay_rank)
        # Answers to a former client of this rank must never pass for answers to this one.
        self._sequence = time.time_ns()
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
            self._say_bye(Flag.NONE, self._timeout)
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
        elif not self._gone:
            self._leave_failed()

    # ---- for the two kinds of client ----

    def _handle(self, message: Message) -> None:
        """Take an answer of the kinds that only this kind of client gets."""
        raise ProtocolError(f"the replay rank sent {message.kind.name}, which nothing asked for")

    def _send(self, message: Message, *body: Any, payload: Bytes | None = None) -> Any:
        if self._gone:
            raise ReplayError("this client is closed")
        return self._channel.send(self._server, message, *body, payload=payload)

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
        while (message := self._channel.receive()) is not None:
            busy = True
            if isinstance(message, Malformed):
                raise ProtocolError(f"from the replay rank: {message.reason}")
            self._take(message)
        self._channel.reap()
        return busy

    def _wait(
        self,
        ready: Callable[[], bool],
        what: str,
        timeout: float | None = None,
        *,
        stop: bool = False,
        problems: bool = True,
    ) -> None:
        """Take messages until `ready`.

        Raises what was refused, unless not `problems`; and, with `stop`, `ReplayStopped` once the
        replay rank is ending.
        """
        pause = _Pause(self._server, what, self._timeout if timeout is None else timeout)
        while True:
            busy = self._pump()
            if ready():
                return
            if problems:
                self._raise_problem()
            if stop:
                self._raise_if_stopping()
            pause.turn(busy)

    def _receive_payload(self, nbytes: int) -> Bytes:
        """Receive the payload that the last control message announced."""
        pause = _Pause(self._server, "payload", self._timeout)
        while (payload := self._channel.probe(self._server)) is None:
            pause.turn(busy=False)
        if payload.nbytes != nbytes:
            raise ProtocolError(f"a payload of {payload.nbytes} bytes instead of {nbytes}")
        incoming = payload.receive(np.empty(nbytes, np.uint8))
        while not incoming.done():
            pause.turn(busy=False)
        return incoming.buffer

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

    def _take(self, message: Message) -> None:
        if message.kind is Kind.STOPPING:
            self.stopping = True
        elif message.kind is Kind.GOODBYE:
            self._gone = True
        elif message.kind is Kind.WELCOME:
            self._be_welcome(message)
        elif message.kind is Kind.REFUSED:
            self._note_problem(message)
        else:
            self._handle(message)

    def _say_hello(self) -> None:
        hello = Message(Kind.HELLO, sequence=self._next_sequence(), flags=self._ROLE)
        self._send(hello, dtype_to_text(self.dtype).encode())
        self._wait(lambda: self._terms is not None, "welcome")

    def _be_welcome(self, message: Message) -> None:
        if message.sequence != self._sequence or self._terms is not None:
            raise ProtocolError("the replay rank sent WELCOME, which nothing asked for")
        terms = Terms.from_json(message.text)
        self._channel.set_max_batch(terms.max_batch)
        self.stopping = self.stopping or bool(message.flags & Flag.STOPPING)
        if message.payload:
            self._take_state(self._receive_payload(message.payload))
        self._terms = terms

    def _take_state(self, data: Bytes) -> None:
        raise ProtocolError("the replay rank sent a learner state to a client that is no learner")

    def _say_bye(self, flag: int, timeout: float) -> None:
        self._send(Message(Kind.BYE, sequence=self._next_sequence(), flags=flag))
        self._wait(lambda: self._gone, "goodbye", timeout, problems=False)

    def _leave_failed(self) -> None:
        """Tell that this client failed; the exception on its way matters more than any answer."""
        try:
            self._say_bye(Flag.FAILED, min(_FAREWELL_SECONDS, self._timeout))
        except SumTreeError:
            pass
        finally:
            self._gone = True


class _Pause:
    """Waits between two looks for what the replay rank owes, until the time is over."""

    def __init__(self, rank: int, what: str, seconds: float) -> None:
        self._complaint = f"no {what} from the replay rank (rank {rank}) within {seconds:g} s"
        self._deadline = time.monotonic() + seconds
        self._backoff = Backoff(_LONGEST_SLEEP)

    def turn(self, busy: bool) -> None:
        if not busy and time.monotonic() > self._deadline:
            raise ReplayTimeoutError(self._complaint)
        self._backoff.turn(busy)


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


def refuse_longer(name: str, length: int, most: int) -> NoReturn:
    """Raise for a batch that no message can hold."""
    raise ArgumentError(f"{name} has length {length}: one message holds at most {most}")
