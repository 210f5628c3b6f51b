"""Learners: samples at the rate limiter's pace, new priorities at once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from ..errors import EmptyTreeError, IdError, OutOfMemoryError, PriorityError, ShapeError
from . import draws
from .messages import Code, Flag, Kind, Message, Wait
from .peers import Peer, Peers, RefusedError, check_count, check_role
from .routing import of_former_shards
from .streams import ALONE

_ENDING = "the replay rank is ending"


class Samples:
    """What a replay rank does with SAMPLE, DRAW and UPDATE.

    Requests are served in the order in which they came; those that the rate limiter does not let
    pass yet, wait; so do those that come after learners have had their share of the time.
    """

    def __init__(self, peers: Peers, coming: Callable[[], bool]) -> None:
        self._peers = peers
        self._coming = coming
        self._requests: deque[tuple[Peer, Message]] = deque()
        self._questions: list[tuple[Peer, Message]] = []
        self.updates = 0
        """Batches of priorities taken since the start."""

    def handle(self, message: Message, peer: Peer) -> None:
        """Check a request, and serve it before any later message unless it must wait.

        Raises
        ------
        RefusedError
            If it can never be served.
        """
        check_role(message, peer, Flag.LEARNER)
        peers = self._peers
        if peers.stopping:
            peers.refuse(message, Code.STOPPING, _ENDING)
            return
        self._answer_questions([asked for asked in self._questions if asked[0] is peer])
        if peer.waiting >= peers.config.sample_credits:
            raise RefusedError(
                Code.CREDIT, f"more than {peers.config.sample_credits} requests without an answer"
            )
        if message.kind is Kind.DRAW:
            draws.check(peers, message)
        else:
            self._check(message)
        amount = draws.amount(peers, message)
        if not peers.limiter.admits(amount):
            raise RefusedError(
                Code.SHAPE,
                f"{amount:g} samples at once can never pass an error_buffer of "
                f"{peers.limiter.error_buffer:g}: at least {amount / 2:g} is needed",
            )
        peer.waiting += 1
        peers.limiter.expect_sample(amount)
        (self._questions if draws.is_question(message) else self._requests).append((peer, message))
        self.serve()

    def _check(self, message: Message) -> None:
        check_count(message.count, self._peers.most_rows())
        if not message.flags & Flag.DEFAULT and not 0.0 <= message.real <= 1.0:
            raise RefusedError(Code.EXPONENT, f"beta is {message.real}: it must be in 0 .. 1")

    def serve(self, at_once: bool = False) -> bool:
        """Answer the requests that may be answered now; return whether there were any.

        With `at_once`, also those that only make way for batches.
        """
        peers = self._peers
        ready = [asked for asked in self._questions if draws.may_pass(peers, asked[1])]
        self._answer_questions(ready)
        busy = bool(ready)
        while self._requests and (at_once or not self._make_way()):
            peer, request = self._requests[0]
            if not draws.may_pass(peers, request):
                return busy
            if peers.channel.unsent(peer.rank) > 2 * peers.config.sample_credits:
                return busy
            self._requests.popleft()
            begin = time.perf_counter_ns()
            self._reply(peer, request)
            peers.share.served(begin)
            busy = True
        return busy

    def _make_way(self) -> bool:
        """Whether requests wait for batches; not if it is the rate limiter that actors wait for."""
        peers = self._peers
        if not peers.share.is_spent(self._coming()):
            return False
        return peers.limiter.may_insert(len(peers.ring()))

    def largest(self) -> float:
        """Return how many samples the largest request that waits is for; 0 if none does."""
        amounts = (draws.amount(self._peers, request) for _, request in self._requests)
        return max(amounts, default=0)

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._requests) + len(self._questions)

    def why(self, peer: Peer) -> tuple[Wait, str] | None:
        """Say what the oldest request of a client waits for; None if it has none."""
        waiting = [*self._requests, *self._questions]
        if all(owner is not peer for owner, _ in waiting):
            return None
        first, request = waiting[0]
        peers = self._peers
        amount = draws.amount(peers, request)
        text = peers.limiter.why_no_sample(amount, len(peers.ring()))
        if text:
            wait = Wait.RATE_LIMITER
        elif peers.channel.unsent(first.rank) > 2 * peers.config.sample_credits:
            wait, text = Wait.RECEIVER, f"waits until rank {first.rank} takes what was sent to it"
        else:
            return Wait.TURN, "is about to draw"
        if first is not peer:
            text = f"serves {first} first, and for that {text}"
        return wait, text

    def refuse_all(self) -> None:
        """Answer every request that waits: the service is ending."""
        self._requests.extend(self._questions)
        self._questions = []
        while self._requests:
            peer, request = self._requests.popleft()
            peer.waiting -= 1
            self._peers.refuse(request, Code.STOPPING, _ENDING)

    def forget(self, peer: Peer) -> None:
        """Drop the requests of a client that left, or begins anew."""
        self._requests = deque(r for r in self._requests if r[0] is not peer)
        self._questions = [r for r in self._questions if r[0] is not peer]

    def _answer_questions(self, ready: list[tuple[Peer, Message]]) -> None:
        for asked in ready:
            self._questions.remove(asked)
            self._reply(*asked)

    def _reply(self, peer: Peer, request: Message) -> None:
        peers, buffer = self._peers, self._peers.ring()
        peer.waiting -= 1
        beta = None if request.flags & Flag.DEFAULT else request.real
        try:
            if request.kind is Kind.DRAW:
                draws.answer(peers, peer, request)
                return
            if peer.learner == ALONE:
                sample = buffer.sample(request.count, beta)
            else:
                sample = draws.sample(peers, peer, request.count, beta)
        except EmptyTreeError as error:
            peers.refuse(request, Code.EMPTY, str(error))
            return
        except OutOfMemoryError as error:
            peers.refuse(request, Code.SHAPE, str(error))
            return
        peers.limiter.sampled(request.count)
        columns = sample.ids, sample.indices, sample.weights
        peers.send_drawn(peer, request.answer(Kind.REPLY), columns, sample.transitions)

    def _check_update_credit(self, peer: Peer) -> None:
        """Refuse updates of a learner that takes no answers, which would pile up here.

        One that keeps to its credits leaves no more with MPI than it has credits; an answer that it
        has received may be among them until MPI is asked.
        """
        channel, config = self._peers.channel, self._peers.config
        most = 2 * (config.update_credits + config.sample_credits)
        if channel.unsent(peer.rank) > most:
            channel.reap()
            if channel.unsent(peer.rank) > most:
                text = f"more than {most} answers wait for this learner to take them"
                raise RefusedError(Code.CREDIT, text)

    def update(self, message: Message, peer: Peer) -> None:
        """Apply new priorities.

        Raises
        ------
        RefusedError
            If an id was never issued, a priority is not one, or a learner goes beyond its credits;
            nothing has changed.
        """
        begin = time.perf_counter_ns()
        check_role(message, peer, Flag.LEARNER)
        peer.updates += 1
        self._check_update_credit(peer)
        peers, count = self._peers, message.count
        check_count(count, peers.config.max_batch)
        ids, priorities = (
            message.body[: 8 * count].view("<i8"),
            message.body[8 * count :].view("<f8"),
        )
        if peers.progress.most_shards > 1:
            ids = of_former_shards(ids, peers.progress.most_shards, peers.ring().epoch)
        try:
            stale = peers.ring().update_priorities(ids, priorities)
        except IdError as error:
            raise RefusedError(Code.ID, str(error)) from None
        except (PriorityError, ShapeError) as error:
            raise RefusedError(Code.PRIORITY, str(error)) from None
        self.updates += 1
        peers.counters.updates += 1
        peers.progress.stale += stale
        peers.counters.updated += count
        peers.counters.stale += stale
        peers.counters.stale_of[peer.rank] += stale
        peers.send(peer, message.answer(Kind.UPDATED, value=stale), peers.status().pack())
        peers.share.spent(begin)
