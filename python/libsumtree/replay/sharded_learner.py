"""The client of a learner that draws over several shards as from one buffer."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace

import numpy.typing as npt
from numpy.typing import ArrayLike, DTypeLike

from ..arguments import as_count, as_real
from ..errors import ArgumentError, EmptyTreeError, ExponentError
from . import archive
from .actor import checked_priorities
from .channel import MPI
from .client import IDLE_SLEEP, checked_ids
from .learner import ReplaySample
from .limiter import RateLimit
from .receiving import Receive
from .routing import Routing, fractions_of, parts_of, weights_of
from .shard_draws import Draw, Result, ShardLearner
from .sharded import ShardedClient
from .status import ReplayStatus
from .streams import Stream, learner_number, seed_of


class ShardedLearner(ShardedClient[ShardLearner]):
    """Draws from the buffers of several shards, each transition in proportion to its mass.

    The targets are drawn here, from ``Philox(SeedSequence(seed))``, over the sum of the totals that
    the shards told last, and each is looked for in the shard that it falls to. Without an update
    in between, and with shards whose capacity is a power of two, these are the very draws of one
    buffer that holds the shards as its blocks.

    What this learner has updated is told back before it draws again. What others add or update
    meanwhile shifts a shard's share of the draw by as much as its total moved, no more: within a
    shard draws are always in proportion to the masses that it holds, and the weight of a transition
    is that of its mass and of the least mass, both as of the draw.

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
    learner : int, optional
        The number of this one of several learners, see `LearnerClient`.
    idle_sleep, receive
        See `ReplayClient`.
    prefetch : int
        So many requests are in flight when `sample` returns, see `LearnerClient`; fewer as long as
        an update is without an answer.

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
        learner: int | None = None,
        idle_sleep: float = IDLE_SLEEP,
        receive: Receive = "matched",
        prefetch: int = 0,
    ) -> None:
        self._prefetch = as_count(prefetch, "prefetch")
        self._draws: deque[Draw] = deque()
        super().__init__(
            comm,
            shards,
            timeout,
            lambda shard: ShardLearner(
                comm, dtype, shards, shard, timeout, learner, idle_sleep, receive
            ),
            idle_sleep,
        )
        credits = min(client._agreed.sample_credits for client in self._clients)
        if self._prefetch > credits:
            self.close()
            raise ArgumentError(
                f"prefetch is {prefetch}: the replay ranks grant {credits} requests without an "
                "answer"
            )
        terms = self._clients[0]._agreed
        self._stream = Stream(seed_of(terms.seed), learner_number(learner), terms.position)

    # ---- what it is ----

    @property
    def state(self) -> archive.State | None:
        """The learner state of the checkpoint that the service went on from, or None."""
        return self._clients[0].state

    @property
    def status(self) -> ReplayStatus:
        """What the shards hold and have done together, each as of its last answer."""
        parts = [client.status for client in self._clients]
        sums = ("size", "inserted", "sampled", "stale", "rejected", "clamped")
        return replace(
            parts[0],
            **{name: sum(getattr(part, name) for part in parts) for name in sums},
            epoch=self.epoch,
            total=Routing([part.total for part in parts]).total,
            min=min(part.min for part in parts),
            max=max(part.max for part in parts),
        )

    @property
    def stale(self) -> int:
        """Updates of this client that were skipped because their transition was gone."""
        return sum(client.stale for client in self._clients)

    @property
    def checkpoint_due(self) -> bool:
        """Whether the service asks for a `checkpoint`."""
        return self._clients[0].checkpoint_due

    @property
    def requested(self) -> int:
        """How many requests have not been received by `sample`."""
        return len(self._draws)

    @property
    def unacknowledged(self) -> int:
        """How many updates are without an answer of a shard."""
        return sum(client.unacknowledged for client in self._clients)

    # ---- drawing ----

    def request(self, n: int, beta: float | None = None, timeout: float | None = None) -> None:
        """Ask for a draw of `n` transitions; `sample` receives them in the order of the requests.

        Waits until what was updated before is told back. See `LearnerClient.request`.
        """
        count, exponent = self._count(n), None if beta is None else as_real(beta, "beta")
        if exponent is not None and not 0.0 <= exponent <= 1.0:
            raise ExponentError(f"beta is {exponent}: it must be in 0 .. 1")
        self.poll()
        self._raise_if_stopping()
        self._wait(self._short_of_credit, "credit for another request", timeout, stop=True)
        self._wait(self._without_answer, "answer to an update", timeout, stop=True)
        self._draws.append(Draw(count, exponent))
        self._advance()

    def sample(
        self, n: int, beta: float | None = None, timeout: float | None = None
    ) -> ReplaySample:
        """Receive the draw of the oldest request in flight; make one first if there is none.

        Returns
        -------
        ReplaySample
            ``ids`` are handles: they name shard and id. ``indices`` count through the shards, in
            their order. ``status`` is that of all shards together.

        Raises
        ------
        ArgumentError, EmptyTreeError, ReplayStopped, ReplayTimeoutError
            See `LearnerClient.sample`.
        """
        if not self._draws:
            self.request(n, beta, timeout)
        draw = self._draws[0]
        if draw.n != n:
            raise ArgumentError(f"n is {n}, but the oldest request in flight is for {draw.n}")
        self._wait(lambda: [] if self.stopping else draw.missing(), f"sample of {n}", timeout)
        self._draws.popleft()
        draw.forget(self._clients)
        if draw.error is not None:
            raise draw.error
        if not draw.done:
            self._raise_if_stopping()
        assert draw.result is not None
        self._request_ahead(draw)
        return self._sample_of(draw.result, draw.beta)

    def _request_ahead(self, like: Draw) -> None:
        while len(self._draws) < self._prefetch and not self.stopping:
            if self._short_of_credit() or self._without_answer():
                return
            self._draws.append(Draw(like.n, like.beta))
            self._advance()

    def _sample_of(self, result: Result, beta: float | None) -> ReplaySample:
        exponent = result.beta if beta is None else beta
        return ReplaySample(
            self._handles.join(result.shards, result.ids),
            result.shards * self._clients[0]._agreed.capacity + result.indices,
            weights_of(result.masses, result.least, exponent),
            result.transitions,
            self.status,
            self._lag(result),
        )

    def _lag(self, result: Result) -> int:
        late = (self._clients[s].updates_sent - came for s, came in result.updates.items())
        return max(late, default=0)

    # ---- telling ----

    def update_priorities(
        self, ids: ArrayLike, priorities: ArrayLike, timeout: float | None = None
    ) -> None:
        """Send new priorities; returns as soon as they are on their way.

        Parameters
        ----------
        ids : array_like of integers, shape (n,)
            From a sample of this service; stale ones are skipped, and counted.
        priorities : array_like of real numbers, shape (n,), or one number
            Finite, >= 0.

        Raises
        ------
        IdError, ArgumentTypeError, ShapeError, ArgumentError, PriorityError, RejectedError
            See `LearnerClient.update_priorities`; nothing was sent, to any shard.
        ReplayTimeoutError
            If a shard whose transitions are among them gave no credit; nothing was sent.
        """
        handles = checked_ids(ids)
        shards, names = self._handles.split(handles)
        values = checked_priorities(priorities, len(handles))
        found = enumerate(parts_of(shards, len(self._clients)))
        parts = {shard: part for shard, part in found if len(part)}
        for shard, part in parts.items():
            self._clients[shard].check_length(len(part))
        self.poll()
        self._wait(
            lambda: [s for s in parts if not self._clients[s].has_update_credit()],
            "credit for another update",
            timeout,
        )
        for shard, part in parts.items():
            self._clients[shard].send_update(names[part], values[part])

    def checkpoint(self, state: Mapping[str, npt.ArrayLike], timeout: float | None = None) -> str:
        """Have one state of all shards written: after all updates sent before, and with this.

        Returns
        -------
        str
            The name of the manifest in the folder of the checkpoints.

        Raises
        ------
        CheckpointError, ArgumentError, ArgumentTypeError, ShapeError, ReplayTimeoutError
            See `LearnerClient.checkpoint`. There is no manifest unless every shard has written.
        """
        self._wait(self._without_answer, "answer to an update", timeout)
        return self._clients[0].checkpoint(state, timeout)

    def rate_limit(self, timeout: float | None = None) -> RateLimit:
        """Return the rate limit in force, over all shards; see `LearnerClient.rate_limit`."""
        parts = [client.rate_limit(timeout) for client in self._clients]
        return parts[0].whole(len(parts))

    def set_rate_limit(
        self,
        min_size_to_sample: int = 1,
        samples_per_insert: float | None = None,
        error_buffer: float | None = None,
        timeout: float | None = None,
    ) -> RateLimit:
        """Have learner and actors paced by other numbers: each shard takes its part of them.

        See `LearnerClient.set_rate_limit`. If a shard refuses, those before it have what they had.
        """
        whole = RateLimit(min_size_to_sample, samples_per_insert, error_buffer)
        asked = whole.part(len(self._clients))
        before = [client.rate_limit(timeout) for client in self._clients]
        parts: list[RateLimit] = []
        try:
            for client in self._clients:
                parts.append(_pace(client, asked, timeout))
        except BaseException:
            for client, limit in zip(self._clients[: len(parts)], before, strict=False):
                _pace(client, limit, timeout)
            raise
        return parts[0].whole(len(parts))

    def stop(self) -> None:
        """Ask all replay ranks to end; they tell all clients, this one included."""
        for client in self._clients:
            client.stop()

    def close(self, state: Mapping[str, npt.ArrayLike] | None = None) -> None:
        """Take leave, once every replay rank has all that was sent; further calls do nothing.

        Parameters
        ----------
        state : mapping of str to array, optional
            The last state, for a last checkpoint; ignored if the service writes none.

        Raises
        ------
        RejectedError, CheckpointError, ReplayTimeoutError
            See `checkpoint` and `ReplayClient.close`.
        """
        if self._clients[0]._gone:
            return
        try:
            if state is not None and self.checkpointing:
                self.checkpoint(state)
        finally:
            super().close()

    # ---- inside ----

    def _count(self, n: int) -> int:
        count, most = as_count(n, "n"), min(c._agreed.most_rows for c in self._clients)
        if not 1 <= count <= most:
            raise ArgumentError(f"n is {count}: 1 .. {most} are possible")
        return count

    def _short_of_credit(self) -> list[int]:
        waiting = sum(not draw.done for draw in self._draws)
        if waiting < min(client._agreed.sample_credits for client in self._clients):
            return []
        return next(draw for draw in self._draws if not draw.done).missing()

    def _without_answer(self) -> list[int]:
        return [s for s, client in enumerate(self._clients) if client.unacknowledged]

    def _pump(self) -> bool:
        busy = super()._pump()
        self._advance()
        return busy

    def _advance(self) -> None:
        """Route the draws in their order, and take what has come of them."""
        for draw in self._draws:
            if draw.fractions is None and not draw.done and not self._route(draw):
                return
            if draw.fractions is not None and not draw.done:
                draw.advance(self._clients, self._stream.position)

    def _route(self, draw: Draw) -> bool:
        """Route a draw if there is anything to draw from; tell whether the next one's turn is."""
        parts = [client.status for client in self._clients]
        if not any(part.total > 0.0 for part in parts):
            return self._look(draw, any(part.size for part in parts))
        draw.forget(self._clients)
        fractions = fractions_of(self._stream.random(draw.n))
        draw.route(self._clients, fractions, self._stream.position)
        return True

    def _look(self, draw: Draw, held: bool) -> bool:
        """Ask for the totals; what holds transitions, and no mass, is empty."""
        if not draw.look(self._clients, self._stream.position):
            return False
        draw.forget(self._clients)
        if held and not draw.done:
            draw.end(EmptyTreeError("no shard holds a positive mass"))
        return draw.done


def _pace(client: ShardLearner, limit: RateLimit, timeout: float | None) -> RateLimit:
    minimum, ratio, buffer = limit.min_size_to_sample, limit.samples_per_insert, limit.error_buffer
    return client.set_rate_limit(minimum, ratio, buffer, timeout)
