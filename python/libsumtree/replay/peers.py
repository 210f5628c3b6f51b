"""What a replay rank knows and owes: its buffer, its clients, its counters, and how it answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.random import SeedSequence
from numpy.typing import NDArray

from ..buffer import PrioritizedReplayBuffer
from .channel import Channel
from .config import ReplayConfig
from .counters import Counters
from .limiter import RateLimiter
from .messages import INLINE_LIMIT, MESSAGE_LIMIT, TEXT_LIMIT, Code, Flag, Kind, Message
from .restored import Progress
from .share import LearnerShare
from .status import ReplayStatus
from .streams import ALONE, Stream, Streams, position_of

MOST_UNSENT = 256
"""Messages that a rank may have to take before it gets no more answers to questions."""
_ANSWERS = {
    Kind.ADD: Kind.ACK,
    Kind.SAMPLE: Kind.REPLY,
    Kind.UPDATE: Kind.UPDATED,
    Kind.CHECKPOINT: Kind.CHECKPOINTED,
    Kind.LIMIT: Kind.LIMITED,
    Kind.ASK: Kind.REASON,
    Kind.DRAW: Kind.DRAWN,
}


class RefusedError(Exception):
    """A request that is answered with a code and a text; nothing changed."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


@dataclass(slots=True, eq=False)
class Peer:
    """A client, from its HELLO until it has left.

    Attributes
    ----------
    rank : int
    role : int
        `Flag.ACTOR` or `Flag.LEARNER`.
    unacked : int
        Batches without an answer.
    learner : int
        Of a learner, its number, or `streams.ALONE`.
    updates : int
        Batches of priorities that came from it, taken or refused.
    waiting : int
        Sample requests without an answer.
    leaving : Message, optional
        Its BYE.
    broken : bool
        It sent what is no message of the protocol: nothing more is taken before its next HELLO.
    told : bool
        It was told that the service is ending.
    """

    rank: int
    role: int
    learner: int = ALONE
    unacked: int = 0
    updates: int = 0
    waiting: int = 0
    leaving: Message | None = None
    broken: bool = False
    told: bool = False

    def __str__(self) -> str:
        return f"the {'learner' if self.role == Flag.LEARNER else 'actor'} on rank {self.rank}"


@dataclass(slots=True)
class Peers:
    """The state that all the parts of a replay rank share.

    Attributes
    ----------
    channel : Channel
    config : ReplayConfig
    limiter : RateLimiter
    progress : Progress
        Counters and learner state, as checkpoints hold them.
    buffer : PrioritizedReplayBuffer, optional
        None before the first client has named a record dtype.
    members : dict of int to Peer
        The clients that are there, by rank.
    left : Counter of int
        How often a client of each rank has left since the start, or can never come.
    added, rejected : Counter
        Transitions taken and messages refused, by rank, since the start.
    shard, shards : int
        Which replay rank of how many this is.
    stopping : bool
        No more samples are given.
    share : LearnerShare
        Whether learners have to make way for actors.
    counters : Counters
        Of this service, for its metrics.
    stop_reason : str
        Why the service is to end; empty as long as it is not.
    """

    channel: Channel
    config: ReplayConfig
    limiter: RateLimiter
    progress: Progress
    buffer: PrioritizedReplayBuffer | None = None
    members: dict[int, Peer] = field(default_factory=dict)
    left: Counter[int] = field(default_factory=Counter)
    added: Counter[int] = field(default_factory=Counter)
    rejected: Counter[int] = field(default_factory=Counter)
    counters: Counters = field(default_factory=Counters)
    share: LearnerShare = field(init=False)
    shard: int = 0
    shards: int = 1
    stopping: bool = False
    stop_reason: str = ""
    _streams: Streams | None = None
    _most_rows: int = 0

    def __post_init__(self) -> None:
        self.share = LearnerShare(self.config.learner_share)

    def has(self, peer: Peer) -> bool:
        """Whether this very client is still there."""
        return self.members.get(peer.rank) is peer

    def send(self, peer: Peer, message: Message, *body: Any, payload: Any = None) -> None:
        """Send to a client if it is still there."""
        if self.has(peer):
            self.counters.times.end(peer.rank, message.sequence)
            self.channel.send(peer.rank, message, *body, payload=payload)

    def send_drawn(
        self, peer: Peer, answer: Message, columns: Iterable[Any], transitions: NDArray[Any]
    ) -> None:
        """Send what was drawn, and count it: few transitions in the body, more of them behind it.

        Parameters
        ----------
        peer : Peer
        answer : Message
            Without what follows from the transitions.
        columns : iterable of ndarray, shape (n,) each
            Ids, indices, and weights or masses.
        transitions : structured ndarray, shape (n,)
            Contiguous.
        """
        count, rows = len(transitions), transitions.view(np.uint8)
        self.progress.sampled += count
        self.counters.requests += 1
        self.counters.sampled += count
        answer.count, answer.itemsize = count, transitions.dtype.itemsize
        answer.payload, answer.value = rows.nbytes, peer.updates
        body = self.status().pack(), *columns
        if rows.nbytes <= INLINE_LIMIT:
            answer.flags = Flag.INLINE
            self.send(peer, answer, *body, rows)
        else:
            self.send(peer, answer, *body, payload=rows)

    def reject(self, message: Message, code: Code, text: str) -> None:
        """Count a request as rejected, and refuse it."""
        self.count_rejected(message.source, code)
        self.refuse(message, code, text)

    def count_rejected(self, source: int, code: Code) -> None:
        """Count a request as rejected."""
        self.rejected[source] += 1
        self.counters.rejected[code] += 1

    def refuse(self, message: Message, code: Code, text: str) -> None:
        """Answer with a code and a text; a rank that takes no answers gets no more of them."""
        self.counters.times.end(message.source, message.sequence)
        if self.channel.unsent(message.source) < MOST_UNSENT:
            kind = _ANSWERS.get(message.kind, Kind.REFUSED)
            answer = message.answer(kind, code=code)
            self.channel.send(
                message.source, answer, text.encode("utf-8", "backslashreplace")[:TEXT_LIMIT]
            )

    def ring(self) -> PrioritizedReplayBuffer:
        """Return the buffer; there is one since the first HELLO."""
        assert self.buffer is not None
        return self.buffer

    def streams(self) -> Streams:
        """Return the streams of learners; there is a buffer since the first HELLO."""
        if self._streams is None:
            own = self.ring().tree.seed
            seed = SeedSequence(own.entropy, pool_size=own.pool_size)
            self._streams = Streams(seed, self.progress.streams)
        return self._streams

    def position_of(self, peer: Peer) -> int:
        """Return how many doubles a learner has taken from its stream."""
        if self._draws_as_buffer(peer):
            return position_of(self.ring().tree.rng_state)
        return self.streams().position(peer.learner)

    def note_position(self, peer: Peer, position: int) -> None:
        """Take note of how many doubles a learner has taken for itself."""
        if self._draws_as_buffer(peer):
            stream = Stream(self.streams().seed, ALONE, position)
            self.ring().tree.rng_state = stream.state
        else:
            self.streams().note(peer.learner, position)

    def _draws_as_buffer(self, peer: Peer) -> bool:
        """Whether the stream of a learner is that of the buffer itself."""
        return peer.learner == ALONE and self.shards == 1

    def most_rows(self) -> int:
        """Return how many transitions one message may hold, be they added or drawn."""
        if not self._most_rows:
            buffer = self.ring()
            largest = max(buffer.dtype.itemsize, buffer.sample_dtype.itemsize)
            self._most_rows = min(self.config.max_batch, MESSAGE_LIMIT // largest)
        return self._most_rows

    def status(self) -> ReplayStatus:
        """Return what the service holds and has done."""
        actors = sum(peer.role == Flag.ACTOR for peer in self.members.values())
        buffer = self.buffer
        if buffer is None:
            return ReplayStatus(actors=actors, learners=len(self.members) - actors)
        tree = buffer.tree
        return ReplayStatus(
            len(buffer),
            buffer.inserted,
            self.progress.sampled,
            self.progress.stale,
            self.rejected.total(),
            buffer.epoch,
            actors,
            len(self.members) - actors,
            tree.total,
            tree.min,
            tree.max,
            self.counters.clamped,
        )


def check_role(message: Message, peer: Peer, role: int) -> None:
    """Raise `RefusedError` unless `peer` has this role and has not said BYE."""
    if peer.role != role:
        raise RefusedError(Code.ROLE, f"{message.kind.name} from {peer}, which has another role")
    if peer.leaving is not None:
        raise RefusedError(Code.ROLE, f"{message.kind.name} from {peer} after its BYE")


def check_count(count: int, most: int) -> None:
    """Raise `RefusedError` unless a batch of this length is possible."""
    if not 1 <= count <= most:
        raise RefusedError(Code.SHAPE, f"a batch of {count}: 1 .. {most} are possible")
