"""Batches of actors: checked, announced, and acknowledged at the rate limiter's pace."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

import numpy as np

from ..arguments import Doubles
from ..errors import PriorityError
from ..tree import MAX_MASS
from .intake import Announced, PayloadIntake, Purpose
from .messages import (
    HEADER_SIZE,
    Bytes,
    Code,
    Flag,
    Kind,
    Message,
    Wait,
    encode_ack,
    plain_add,
)
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

    def take(self, data: Bytes, source: int) -> bool:
        """Add the batch of a control message as it came, if it is as nearly all of them are.

        That is: a small ADD with its priorities and transitions in it, from an actor that has a
        credit and no other payload under way, all of it as `handle` would have it.

        Returns
        -------
        bool
            False if the message is to be read, and handled or refused, one step after the other;
            nothing has changed then.
        """
        fields = plain_add(data)
        peer = self._peers.members.get(source)
        if fields is None or peer is None or not self._may_take(peer):
            return False
        sequence, count, itemsize = fields
        peers = self._peers
        ring = peers.ring()
        if itemsize != ring.dtype.itemsize or count > peers.most_rows():
            return False
        if not ring.append_packed(data, HEADER_SIZE, count):
            return False
        now = peers.counters.received_add(source, sequence, len(data))
        self._use_credit(peer, now)
        self._added(peer, sequence, count)
        return True

    def _use_credit(self, peer: Peer, now: int) -> None:
        peer.unacked += 1
        self._peers.share.came(now, 2 * peer.unacked > self._peers.config.actor_credits)

    def _may_take(self, peer: Peer) -> bool:
        return (
            peer.role == Flag.ACTOR
            and peer.leaving is None
            and not peer.broken
            and peer.unacked < self._peers.config.actor_credits
            and self._intake.is_free(peer.rank)
        )

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
        self._use_credit(peer, time.perf_counter_ns())
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
        self._added(peer, announced.sequence, announced.count)

    def _added(self, peer: Peer, sequence: int, count: int) -> None:
        peers = self._peers
        peers.added[peer.rank] += count
        peers.counters.batches += 1
        peers.counters.added += count
        peers.limiter.inserted(count)
        self._held.append((peer, sequence, count))

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
        last: dict[Peer, tuple[int, int]] = {}
        for peer, sequence, count in held:
            peer.unacked -= 1
            peers.counters.times.end(peer.rank, sequence)
            last[peer] = sequence, count + (last[peer][1] if peer in last else 0)
        ring = peers.ring()
        value, real = ring.inserted, ring.tree.max
        for peer, (sequence, count) in last.items():
            if peers.has(peer):
                peers.channel.send_encoded(peer.rank, encode_ack(sequence, count, value, real))
