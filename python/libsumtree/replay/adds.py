"""Batches of actors: checked, announced, and acknowledged at the rate limiter's pace."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np

from ..arguments import Doubles
from ..errors import PriorityError
from ..tree import MAX_MASS
from .intake import Announced, PayloadIntake, Purpose
from .messages import Code, Flag, Kind, Message, Wait
from .peers import Peer, Peers, RefusedError, check_count, check_role

_DOUBLE = np.dtype("<f8")


class Adds:
    """What a replay rank does with ADD.

    An acknowledgement is a credit: while the actors are too far ahead of the learner, it is held
    back.
    """

    def __init__(self, peers: Peers, intake: PayloadIntake) -> None:
        self._peers = peers
        self._intake = intake
        self._held: deque[tuple[Peer, int, int]] = deque()

    def handle(self, message: Message, peer: Peer) -> None:
        """Check header and priorities; then expect the payload.

        Raises
        ------
        RefusedError
            Before anything has changed.
        """
        check_role(message, peer, Flag.ACTOR)
        self._check(message, peer)
        masses = self._masses(message)
        peer.unacked += 1
        inline = message.inline() if message.flags & Flag.INLINE else None
        payload, count = message.payload, message.count
        elsewhere = 0.0 if masses is not None else message.real
        self._intake.announce(
            Announced(
                Purpose.ADD, peer, message.sequence, payload, count, masses, elsewhere, inline
            )
        )

    def _masses(self, message: Message) -> Doubles | None:
        if message.flags & Flag.DEFAULT:
            if not 0.0 <= message.real <= MAX_MASS:
                raise RefusedError(
                    Code.PRIORITY, f"the largest mass in other shards is {message.real}"
                )
            return None
        priorities = np.frombuffer(message.body.data, _DOUBLE, message.count)
        try:
            return self._peers.ring().check_priorities(priorities, (message.count,))
        except PriorityError as error:
            raise RefusedError(Code.PRIORITY, str(error)) from None

    def _check(self, message: Message, peer: Peer) -> None:
        credits, itemsize = self._peers.config.actor_credits, self._peers.ring().dtype.itemsize
        if peer.unacked >= credits:
            raise RefusedError(Code.CREDIT, f"more than {credits} batches without an answer")
        check_count(message.count, self._peers.most_rows())
        if message.itemsize != itemsize:
            raise RefusedError(
                Code.DTYPE, f"records of {message.itemsize} bytes where {itemsize} are needed"
            )
        if message.payload != message.count * itemsize:
            raise RefusedError(
                Code.SHAPE,
                f"{message.payload} bytes are not {message.count} records of {itemsize} bytes",
            )

    def landed(self, announced: Announced, failure: str) -> None:
        """Take note that a batch is in the ring, or (`failure` not empty) that it is not."""
        peer, peers = announced.peer, self._peers
        if failure:
            peer.unacked -= 1
            refused = Message(Kind.ADD, sequence=announced.sequence, source=peer.rank)
            peers.reject(refused, Code.PAYLOAD, failure)
            return
        peers.added[peer.rank] += announced.count
        peers.counters.batches += 1
        peers.counters.added += announced.count
        peers.limiter.inserted(announced.count)
        self._held.append((peer, announced.sequence, announced.count))

    def release(self) -> bool:
        """Acknowledge what the rate limiter lets pass; everything once the service is ending."""
        peers, held = self._peers, self._held
        if not held or not (peers.stopping or peers.limiter.may_insert(len(peers.ring()))):
            return False
        self._held = deque()
        self._acknowledge(held)
        return True

    @property
    def held(self) -> int:
        """How many acknowledgements are held back."""
        return len(self._held)

    def why(self, peer: Peer) -> tuple[Wait, str] | None:
        """Say what the acknowledgements of a client wait for; None if none is held back."""
        if all(held[0] is not peer for held in self._held):
            return None
        text = self._peers.limiter.why_no_insert(len(self._peers.ring()))
        return Wait.RATE_LIMITER, text or "is about to acknowledge"

    def settle(self, peer: Peer) -> None:
        """Acknowledge all the batches of a client that is leaving."""
        self._acknowledge(held for held in self._held if held[0] is peer)
        self.forget(peer)

    def forget(self, peer: Peer) -> None:
        """Owe nothing more to a client that begins anew."""
        self._held = deque(held for held in self._held if held[0] is not peer)

    def _acknowledge(self, held: Iterable[tuple[Peer, int, int]]) -> None:
        """Send each client one ACK for all its batches."""
        peers = self._peers
        acks: dict[Peer, Message] = {}
        for peer, sequence, count in held:
            peer.unacked -= 1
            ack = acks.get(peer)
            if ack is None:
                acks[peer] = Message(Kind.ACK, sequence=sequence, count=count)
                continue
            peers.counters.answered(peer.rank, ack.sequence)
            ack.sequence = sequence
            ack.count += count
        ring = peers.ring()
        for peer, ack in acks.items():
            ack.value, ack.real = ring.inserted, ring.tree.max
            peers.send(peer, ack)
