"""Learners: samples at the rate limiter's pace, new priorities at once."""

from __future__ import annotations

from collections import deque

from ..errors import EmptyTreeError, IdError, PriorityError, ShapeError
from .intake import as_bytes
from .messages import Code, Flag, Kind, Message, Wait
from .peers import Peer, Peers, RefusedError, check_count, check_role

_ENDING = "the replay rank is ending"


class Samples:
    """What a replay rank does with SAMPLE and UPDATE.

    Requests are served in the order in which they came; those that the rate limiter does not let
    pass yet, wait.
    """

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._requests: deque[tuple[Peer, Message]] = deque()
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
        if peer.waiting >= peers.config.sample_credits:
            raise RefusedError(
                Code.CREDIT, f"more than {peers.config.sample_credits} requests without an answer"
            )
        check_count(message.count, peers.most_rows())
        if not message.flags & Flag.DEFAULT and not 0.0 <= message.real <= 1.0:
            raise RefusedError(Code.EXPONENT, f"beta is {message.real}: it must be in 0 .. 1")
        if not peers.limiter.admits(message.count):
            raise RefusedError(
                Code.SHAPE,
                f"{message.count} samples at once can never pass an error_buffer of "
                f"{peers.limiter.error_buffer:g}: at least {message.count / 2:g} is needed",
            )
        peer.waiting += 1
        peers.limiter.expect_sample(message.count)
        self._requests.append((peer, message))
        self.serve()

    def serve(self) -> bool:
        """Answer the requests that may be answered now; return whether there were any."""
        peers, busy = self._peers, False
        while self._requests:
            peer, request = self._requests[0]
            if not peers.limiter.may_sample(request.count, len(peers.ring())):
                return busy
            if peers.channel.unsent(peer.rank) > 2 * peers.config.sample_credits:
                return busy
            self._requests.popleft()
            self._reply(peer, request)
            busy = True
        return busy

    def largest(self) -> int:
        """Return how many samples the largest request that waits is for; 0 if none does."""
        return max((request.count for _, request in self._requests), default=0)

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._requests)

    def why(self, peer: Peer) -> tuple[Wait, str] | None:
        """Say what the oldest request of a client waits for; None if it has none."""
        if all(owner is not peer for owner, _ in self._requests):
            return None
        first, request = self._requests[0]
        peers = self._peers
        text = peers.limiter.why_no_sample(request.count, len(peers.ring()))
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
        while self._requests:
            peer, request = self._requests.popleft()
            peer.waiting -= 1
            self._peers.refuse(request, Code.STOPPING, _ENDING)

    def forget(self, peer: Peer) -> None:
        """Drop the requests of a client that left, or begins anew."""
        self._requests = deque(r for r in self._requests if r[0] is not peer)

    def _reply(self, peer: Peer, request: Message) -> None:
        peers, buffer = self._peers, self._peers.ring()
        peer.waiting -= 1
        beta = None if request.flags & Flag.DEFAULT else request.real
        try:
            sample = buffer.sample(request.count, beta)
        except EmptyTreeError as error:
            peers.refuse(request, Code.EMPTY, str(error))
            return
        peers.progress.sampled += request.count
        peers.counters.requests += 1
        peers.counters.sampled += request.count
        peers.limiter.sampled(request.count)
        transitions = as_bytes(sample.transitions)
        answer = request.answer(
            Kind.REPLY,
            count=request.count,
            itemsize=buffer.sample_dtype.itemsize,
            payload=transitions.nbytes,
        )
        body = (peers.status().pack(), sample.ids, sample.indices, sample.weights)
        peers.send(peer, answer, *body, payload=transitions)

    def update(self, message: Message, peer: Peer) -> None:
        """Apply new priorities.

        Raises
        ------
        RefusedError
            If an id was never issued or a priority is not one; nothing has changed.
        """
        check_role(message, peer, Flag.LEARNER)
        peers, count = self._peers, message.count
        check_count(count, peers.config.max_batch)
        ids, priorities = (
            message.body[: 8 * count].view("<i8"),
            message.body[8 * count :].view("<f8"),
        )
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
