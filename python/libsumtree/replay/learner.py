"""The client of a learner: samples come in, new priorities and learner states go out."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike, DTypeLike

from ..arguments import Doubles, Indices, as_count, as_real
from ..errors import (
    ArgumentError,
    CheckpointError,
    ExponentError,
    ProtocolError,
    SumTreeError,
)
from ..frames import sample_dtype_of
from . import archive
from .actor import checked_priorities
from .channel import MPI
from .client import IDLE_SLEEP, ReplayClient, checked_ids, error_of, refuse_longer
from .limiter import RateLimit
from .messages import Bytes, Code, Flag, Kind, Message
from .receiving import Receive
from .status import STATUS_SIZE, ReplayStatus
from .streams import learner_number


class ReplaySample(NamedTuple):
    """A draw from the buffer of a replay rank.

    Attributes
    ----------
    ids : ndarray of int64, shape (n,)
        For `LearnerClient.update_priorities`.
    indices : ndarray of int64, shape (n,)
    weights : ndarray of float64, shape (n,)
    transitions : structured ndarray, shape (n,)
        The receiver's own memory. Of the record dtype, or `FrameLayout.stacked` where records
        are frames.
    status : ReplayStatus
        As of the draw.
    lag : int
        How many updates that this learner has sent by now came too late for the draw; of several
        shards, for the part of that shard for which most did.
    """

    ids: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]
    transitions: npt.NDArray[np.void]
    status: ReplayStatus
    lag: int = 0


@dataclass(slots=True)
class _Request:
    """A request in flight, then with its result."""

    n: int
    beta: float | None
    result: ReplaySample | SumTreeError | None = None
    updates: int = 0
    """How many updates of this learner had come before it was drawn."""


class LearnerClient(ReplayClient):
    """Draws from the buffer of a replay rank, and tells it new priorities.

    Parameters
    ----------
    comm, dtype, replay_rank, timeout, idle_sleep, receive
        See `ReplayClient`.
    prefetch : int
        So many requests are in flight when `sample` returns: the next samples are drawn and on
        their way while the learner computes, so they know nothing of its latest updates; how many,
        `ReplaySample.lag` tells. 0 .. `ReplayConfig.sample_credits`.
    learner : int, optional
        The number of this one of several learners, which draws from a stream of its own, that of
        ``SeedSequence(seed, spawn_key=(learner,))``. None: the stream of the buffer.

    Attributes
    ----------
    state : dict of str to ndarray, optional
        The learner state of the checkpoint that the replay rank went on from, or that was sent
        last; None if there is none.
    status : ReplayStatus
        As of the last answer, but `stale` counts up with every acknowledged update.
    stale : int
        Updates of this client that were skipped because their transition was gone.
    checkpoint_due : bool
        The replay rank asks for a `checkpoint`; it writes one by itself, with the state that came
        last, if none comes within a few seconds.
    """

    _ROLE = Flag.LEARNER

    def __init__(
        self,
        comm: MPI.Intracomm,
        dtype: DTypeLike,
        replay_rank: int = 0,
        timeout: float = 60.0,
        learner: int | None = None,
        idle_sleep: float = IDLE_SLEEP,
        receive: Receive = "matched",
        prefetch: int = 0,
    ) -> None:
        self._prefetch = as_count(prefetch, "prefetch")
        self._updates_sent = 0
        self._number = learner_number(learner)
        self.stale = 0
        self.state: archive.State | None = None
        self.status = ReplayStatus()
        self.checkpoint_due = False
        self._order: deque[int] = deque()
        self._requests: dict[int, _Request] = {}
        self._updates: set[int] = set()
        self._answers: dict[int, Message | None] = {}
        super().__init__(comm, dtype, replay_rank, timeout, idle_sleep, receive)
        if self._prefetch > self._agreed.sample_credits:
            most = self._agreed.sample_credits
            self.close()
            raise ArgumentError(
                f"prefetch is {prefetch}: the replay rank grants {most} requests without an answer"
            )
        self._sample_dtype = sample_dtype_of(self.dtype)

    @property
    def requested(self) -> int:
        """How many requests have not been received by `sample`."""
        return len(self._order)

    @property
    def unacknowledged(self) -> int:
        """How many updates are without an answer."""
        return len(self._updates)

    def request(self, n: int, beta: float | None = None, timeout: float | None = None) -> None:
        """Ask for a draw of `n` transitions; `sample` receives them in the order of the requests.

        Parameters
        ----------
        n : int
            > 0.
        beta : float, optional
            Exponent of the weights, in 0 .. 1; the buffer's own if not given.
        timeout : float, optional
            Seconds to wait for a credit; the client's own if not given.

        Raises
        ------
        ArgumentError, ExponentError
            If an argument is out of its domain.
        ReplayStopped
            If the replay rank is ending.
        ReplayTimeoutError
            If no credit came; nothing was asked for.

        Notes
        -----
        Waits only while `ReplayConfig.sample_credits` requests are without an answer.
        """
        count, exponent = self._count(n), None if beta is None else as_real(beta, "beta")
        if exponent is not None and not 0.0 <= exponent <= 1.0:
            raise ExponentError(f"beta is {exponent}: it must be in 0 .. 1")
        self.poll()
        self._raise_if_stopping()
        self._wait(self._has_sample_credit, "credit for another request", timeout, stop=True)
        self._request(count, exponent)

    def _request(self, count: int, exponent: float | None) -> None:
        message = Message(
            Kind.SAMPLE,
            sequence=self._next_sequence(),
            count=count,
            real=exponent or 0.0,
            flags=Flag.DEFAULT if exponent is None else Flag.NONE,
        )
        self._send(message)
        self._requests[message.sequence] = _Request(count, exponent)
        self._order.append(message.sequence)

    def sample(
        self, n: int, beta: float | None = None, timeout: float | None = None
    ) -> ReplaySample:
        """Receive the draw of the oldest request in flight; make one first if there is none.

        Then as many requests like it are made as `prefetch` asks for.

        Parameters
        ----------
        n : int
            The number that the request asks, or asked, for.
        beta : float, optional
            For a request that is made now.
        timeout : float, optional
            Seconds to wait; the client's own if not given. The request stays in flight, and its
            draw is what the next call receives.

        Raises
        ------
        ArgumentError
            If the oldest request asked for another number.
        EmptyTreeError
            If no transition has a positive mass.
        ReplayStopped
            If the replay rank is ending.
        ReplayTimeoutError
            If nothing came, saying what the request waits for: the rate limiter for instance.
        """
        if not self._order:
            self.request(n, beta, timeout)
        sequence = self._order[0]
        request = self._requests[sequence]
        if request.n != n:
            raise ArgumentError(f"n is {n}, but the oldest request in flight is for {request.n}")
        # What was drawn before the replay rank began to end came before it said so.
        self._wait(lambda: request.result is not None or self.stopping, f"sample of {n}", timeout)
        self._order.popleft()
        del self._requests[sequence]
        if isinstance(request.result, SumTreeError):
            raise request.result
        if request.result is None:
            self._raise_if_stopping()
        assert request.result is not None
        self._request_ahead(request)
        return request.result._replace(lag=self._updates_sent - request.updates)

    def _request_ahead(self, like: _Request) -> None:
        while len(self._order) < self._prefetch and self._has_sample_credit() and not self.stopping:
            self._request(like.n, like.beta)

    def update_priorities(
        self, ids: ArrayLike, priorities: ArrayLike, timeout: float | None = None
    ) -> None:
        """Send new priorities; returns as soon as they are on their way.

        Parameters
        ----------
        ids : array_like of integers, shape (n,)
            From a sample; stale ones are skipped, and counted in ``status.stale``.
        priorities : array_like of real numbers, shape (n,), or one number
            Finite, >= 0.
        timeout : float, optional
            Seconds to wait for a credit; the client's own if not given.

        Raises
        ------
        ArgumentTypeError, ShapeError, ArgumentError, PriorityError
            If the arguments are not as described; nothing was sent.
        RejectedError
            If something sent before was refused, an id that was never issued for instance.
        ReplayTimeoutError
            If no credit came; nothing was sent.
        """
        names = checked_ids(ids)
        self.check_length(len(names))
        values = checked_priorities(priorities, len(names))
        self.poll()
        if len(names) == 0:
            return
        self._wait(self._has_update_credit, "credit for another update", timeout)
        self.send_update(names, values)

    def check_length(self, count: int) -> None:
        """Raise `ArgumentError` unless so many ids fit one message."""
        if count > self._agreed.max_batch:
            refuse_longer("ids", count, self._agreed.max_batch)

    def send_update(self, names: Indices, values: Doubles) -> None:
        """Send new priorities, which were checked, for a credit that is there."""
        message = Message(Kind.UPDATE, sequence=self._next_sequence(), count=len(names))
        self._send(message, names.astype("<i8", copy=False), values)
        self._updates.add(message.sequence)
        self._updates_sent += 1

    def checkpoint(self, state: Mapping[str, npt.ArrayLike], timeout: float | None = None) -> str:
        """Have one file written: the buffer, after all updates sent before, and this state.

        Parameters
        ----------
        state : mapping of str to array
            See `libsumtree.replay.archive.check_state`.
        timeout : float, optional
            Seconds to wait for the file; the client's own if not given.

        Returns
        -------
        str
            The name of the file in the replay rank's folder.

        Raises
        ------
        CheckpointError
            If the file could not be written, or the replay rank has no folder; it serves on.
        ArgumentError, ArgumentTypeError, ShapeError
            If the state is not one.
        ReplayTimeoutError
            If no answer came.
        """
        if not self.checkpointing:
            raise CheckpointError(
                "the replay rank has no checkpoint folder: give it checkpoint_dir"
            )
        data = archive.pack(state)
        self.checkpoint_due = False
        message = Message(Kind.CHECKPOINT, sequence=self._next_sequence(), payload=data.nbytes)
        return self._answer_to(message, "checkpoint", timeout, payload=data).text

    def rate_limit(self, timeout: float | None = None) -> RateLimit:
        """Return the rate limit in force.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for the answer; the client's own if not given.

        Raises
        ------
        ReplayTimeoutError
            If no answer came.
        """
        return self._limited(None, timeout)

    def set_rate_limit(
        self,
        min_size_to_sample: int = 1,
        samples_per_insert: float | None = None,
        error_buffer: float | None = None,
        timeout: float | None = None,
    ) -> RateLimit:
        """Have learner and actors paced by other numbers from now on.

        The change is for all clients, stands in metrics and checkpoints, and outlives a restart
        that asks for the same rate limit as this service was started with.

        Parameters
        ----------
        min_size_to_sample, samples_per_insert, error_buffer
            See `RateLimiter`; they replace all three that are in force.
        timeout : float, optional
            Seconds to wait for the answer; the client's own if not given.

        Returns
        -------
        RateLimit
            What is in force now.

        Raises
        ------
        ArgumentError, ArgumentTypeError
            If they cannot pace anything; nothing was sent.
        RejectedError
            If the buffer could never hold as many transitions, or a request that waits could never
            be served; nothing has changed.
        ReplayTimeoutError
            If no answer came; whether the change was made, `rate_limit` tells.
        """
        limit = RateLimit(min_size_to_sample, samples_per_insert, error_buffer)
        return self._limited(limit, timeout)

    def stop(self) -> None:
        """Ask the replay rank to end; it tells all clients, this one included."""
        self._send(Message(Kind.STOP, sequence=self._next_sequence()))

    def close(self, state: Mapping[str, npt.ArrayLike] | None = None) -> None:
        """Take leave, once the replay rank has everything that was sent; further calls do nothing.

        Parameters
        ----------
        state : mapping of str to array, optional
            The last state, for a last checkpoint; ignored if the replay rank writes none.

        Raises
        ------
        RejectedError, CheckpointError, ReplayTimeoutError
            See `checkpoint` and `ReplayClient.close`.
        """
        if self._gone:
            return
        try:
            if state is not None and self.checkpointing:
                self.checkpoint(state)
        finally:
            super().close()

    # ---- inside ----

    def _limited(self, limit: RateLimit | None, timeout: float | None) -> RateLimit:
        text = "" if limit is None else limit.to_json()
        message = Message(Kind.LIMIT, sequence=self._next_sequence())
        answer = self._answer_to(message, "rate limit", timeout, text.encode())
        try:
            return RateLimit.from_json(answer.text)
        except ArgumentError as error:
            raise ProtocolError(f"the rate limit of the replay rank: {error}") from None

    def _answer_to(
        self,
        message: Message,
        what: str,
        timeout: float | None,
        *body: Any,
        payload: Bytes | None = None,
    ) -> Message:
        """Send a request that is answered once, and wait; one that comes too late is dropped."""
        self._answers[message.sequence] = None
        try:
            self._send(message, *body, payload=payload)
            self._wait(lambda: self._answers[message.sequence] is not None, what, timeout)
            answer = self._answers[message.sequence]
        finally:
            del self._answers[message.sequence]
        assert answer is not None
        if answer.code is not Code.OK:
            raise error_of(answer)
        return answer

    def _count(self, n: int) -> int:
        count = as_count(n, "n")
        if not 1 <= count <= self._agreed.most_rows:
            raise ArgumentError(f"n is {count}: 1 .. {self._agreed.most_rows} are possible")
        return count

    def _has_sample_credit(self) -> bool:
        waiting = sum(request.result is None for request in self._requests.values())
        return waiting < self._agreed.sample_credits

    def _has_update_credit(self) -> bool:
        return len(self._updates) < self._agreed.update_credits

    def _take_state(self, data: Bytes) -> None:
        self.state = archive.unpack(data)

    def _handle(self, message: Message, payload: Bytes) -> None:
        if message.kind is Kind.REPLY:
            self._take_reply(message, payload)
        elif message.kind is Kind.UPDATED:
            self._take_updated(message)
        elif message.kind in (Kind.CHECKPOINTED, Kind.LIMITED):
            if message.sequence in self._answers:
                self._answers[message.sequence] = message
        elif message.kind is Kind.DUE:
            self.checkpoint_due = True
        else:
            super()._handle(message, payload)

    def _take_reply(self, message: Message, payload: Bytes) -> None:
        request = self._requests.get(message.sequence)
        if message.code is not Code.OK:
            if request is not None:
                request.result = error_of(message)
            return
        if request is None:
            return
        if message.count != request.n:
            raise ProtocolError(f"{message.count} transitions came, not {request.n}")
        drawn = self._read_drawn(message, payload)
        request.updates = message.value
        request.result = ReplaySample(*drawn, self.status)

    def _read_drawn(
        self, message: Message, payload: Bytes
    ) -> tuple[Indices, Indices, Doubles, npt.NDArray[np.void]]:
        """Return ids, indices, weights or masses, and transitions; take note of the status."""
        n = message.count
        rows = message.inline() if message.flags & Flag.INLINE else payload
        if len(rows) != n * self._sample_dtype.itemsize:
            raise ProtocolError(f"{n} transitions in {len(rows)} bytes came")
        self._note_status(message)
        columns = message.body[STATUS_SIZE : STATUS_SIZE + 24 * n].reshape(3, 8 * n)
        ids, indices = columns[:2].view("<i8")
        return ids, indices, columns[2].view("<f8"), rows.view(self._sample_dtype)

    def _take_updated(self, message: Message) -> None:
        if message.sequence not in self._updates:
            return
        self._updates.remove(message.sequence)
        if message.code is Code.OK:
            self.stale += message.value
            self._note_status(message)
        else:
            self._note_problem(message)

    def _note_status(self, message: Message) -> None:
        self.status = ReplayStatus.unpack(message.body)
