"""Draws whose targets the learner has drawn: what a shard does with DRAW.

A learner of several shards routes its targets by the totals that it was told, and every shard is
asked, for no target perhaps. The shard counts its share of the whole draw, 1 / shards, towards its
rate limiter, whatever was routed to it: so each shard paces its part of the intake alone.

A DRAW that is of no draw, for no target, is a question: it waits until the rate limiter lets draws
pass, or until the same learner asks for anything else, and its answer tells the total.
"""

from __future__ import annotations

import struct

import numpy as np

from ..arguments import Doubles
from ..buffer import Sample
from ..errors import EmptyTreeError
from .messages import Code, Kind, Message
from .peers import Peer, Peers, RefusedError
from .routing import find_rests, fit_targets, fractions_of, targets_of, weights_of

_POSITION = struct.Struct("<q")


def body_of(position: int, rests: Doubles) -> tuple[bytes, Doubles]:
    """Return the body of a DRAW."""
    return _POSITION.pack(position), np.ascontiguousarray(rests, "<f8")


def check(peers: Peers, message: Message) -> None:
    """Raise `RefusedError` unless a DRAW can be answered."""
    most = peers.most_rows()
    if not 0 <= message.count <= most or not 0 <= message.value <= most * peers.shards:
        raise RefusedError(
            Code.SHAPE, f"{message.count} targets of a draw of {message.value}: at most {most}"
        )
    targets = _targets(message)
    told = message.real if np.isfinite(message.real) else 0.0
    if message.count and not (told > 0.0 and (targets >= 0.0).all() and np.isfinite(targets).all()):
        raise RefusedError(
            Code.SHAPE, f"targets of a total of {message.real}: numbers from 0 on are needed"
        )
    if _POSITION.unpack_from(message.body.data)[0] < 0:
        raise RefusedError(Code.SHAPE, "the position of a stream is negative")


def _targets(message: Message) -> Doubles:
    targets: Doubles = message.body[_POSITION.size :].view("<f8")
    return targets


def amount(peers: Peers, request: Message) -> float:
    """Return how many samples a request is to the rate limiter."""
    return request.value / peers.shards if request.kind is Kind.DRAW else request.count


def may_pass(peers: Peers, request: Message) -> bool:
    """Tell whether a request may be served now: an empty shard holds no draw up."""
    size = len(peers.ring())
    if request.kind is Kind.DRAW and not is_question(request):
        size = max(size, 1)
    return peers.limiter.may_sample(amount(peers, request), size)


def is_question(request: Message) -> bool:
    """Tell whether a request is a DRAW that is of no draw."""
    return request.kind is Kind.DRAW and request.count == 0 and request.value == 0


def sample(peers: Peers, peer: Peer, n: int, beta: float | None) -> Sample:
    """Draw as `PrioritizedReplayBuffer.sample` does, from the stream of a learner with a number.

    Raises
    ------
    EmptyTreeError
        If no transition has a positive mass; nothing was drawn.
    """
    buffer = peers.ring()
    tree, exponent = buffer.tree, buffer.beta if beta is None else beta
    if tree.total == 0.0:
        raise EmptyTreeError(
            "the tree holds no positive mass: nothing was added yet, or every mass is 0"
        )
    uniforms = peers.streams().random(peer.learner, n)
    indices = tree.find(targets_of(fractions_of(uniforms), tree.total))
    taken = buffer.take(indices)
    weights = weights_of(taken.masses, tree.min, exponent)
    return Sample(taken.ids, indices, taken.masses, weights, taken.transitions)


def answer(peers: Peers, peer: Peer, request: Message) -> None:
    """Send what stands at the targets; nothing of them if this shard has become empty."""
    buffer = peers.ring()
    total = buffer.tree.total
    rests = _targets(request) if total > 0.0 else np.zeros(0)
    if len(rests) and request.real != total:
        peers.counters.clamped += len(rests)
    indices = np.zeros(0, np.int64)
    if len(rests):
        indices = find_rests(buffer.tree, fit_targets(rests, request.real, total))
    beta = buffer.beta
    taken = buffer.take(indices, counts=request.value > 0)
    peers.note_position(peer, _POSITION.unpack_from(request.body.data)[0])
    peers.limiter.sampled(amount(peers, request))
    columns = taken.ids, indices, taken.masses
    peers.send_drawn(peer, request.answer(Kind.DRAWN, real=beta), columns, taken.transitions)
