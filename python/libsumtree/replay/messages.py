"""The messages between a replay rank and its clients: a fixed header, and what follows from it.

Every message is plain bytes, little-endian. A **control** message (tag `CONTROL_TAG`) is a 64-byte
header and a small body, such as priorities or ids. Transitions of up to `INLINE_LIMIT` bytes are
the end of that body (`Flag.INLINE`): one message less is worth more than one copy less. More of
them, and learner states, travel alone in a **payload** message (tag `PAYLOAD_TAG`), which the
control message before it announces, so that they can be received in place; it is sent once MPI has
let go of that one. The sender of a message is what MPI says it is, never a field. Nothing here is
ever pickled or unpickled.

============ =========== ===================================================== ================
kind         from        body                                                  payload
============ =========== ===================================================== ================
HELLO        client      record dtype (JSON)
WELCOME      replay rank terms of the service (JSON)                           learner state
ADD          actor       priorities, float64 (count,); none by default         transitions
ACK          replay rank
SAMPLE       learner
REPLY        replay rank status, then ids, indices, weights, each (count,)     transitions
UPDATE       learner     ids int64 (count,), then priorities float64 (count,)
UPDATED      replay rank status
CHECKPOINT   learner                                                           learner state
CHECKPOINTED replay rank name of the file (text)
DUE          replay rank
STOP         learner
STOPPING     replay rank
BYE          client
GOODBYE      replay rank
REFUSED      replay rank what was wrong (text)
LIMIT        learner     a rate limit (JSON); nothing: what is in force?
LIMITED      replay rank the rate limit in force (JSON)
ASK          client
REASON       replay rank what it waits for (text); ``value`` says it, too
DRAW         learner     int64 position, then targets float64 (count,)
DRAWN        replay rank status, then ids, indices, masses, each (count,)      transitions
============ =========== ===================================================== ================

An ACK stands for every batch up to its sequence that was not refused before. An answer whose
``code`` is not ``OK`` has a text as its body, and no payload.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ProtocolError
from .status import STATUS_SIZE

MAGIC = b"STRR"
VERSION = 1
CONTROL_TAG = 21331
PAYLOAD_TAG = 21332
TEXT_LIMIT = 1 << 16
"""The longest text in a body, in bytes."""
INLINE_LIMIT = 1 << 15
"""The most bytes of transitions in a body."""
MESSAGE_LIMIT = (1 << 31) - 1
"""The longest message, in bytes: what a count of MPI is sure to express."""

_HEADER = struct.Struct("<4sHHIIqqqqqd")
HEADER_SIZE = _HEADER.size
_pack, _unpack = _HEADER.pack, _HEADER.unpack_from
_BEGIN = MAGIC, VERSION

Bytes = npt.NDArray[np.uint8]


class Kind(IntEnum):
    """What a message is; the table is at the top of this module."""

    HELLO = 1
    WELCOME = 2
    ADD = 3
    ACK = 4
    SAMPLE = 5
    REPLY = 6
    UPDATE = 7
    UPDATED = 8
    CHECKPOINT = 9
    CHECKPOINTED = 10
    DUE = 11
    STOP = 12
    STOPPING = 13
    BYE = 14
    GOODBYE = 15
    REFUSED = 16
    LIMIT = 20
    LIMITED = 21
    ASK = 22
    REASON = 23
    DRAW = 30
    DRAWN = 31


class Flag:
    """What a message says besides its numbers: bits of `Message.flags`."""

    NONE = 0
    ACTOR = 1
    LEARNER = 2
    DEFAULT = 4
    """ADD: no priorities follow. SAMPLE: the buffer's own beta."""
    STOPPING = 8
    FAILED = 16
    """BYE: the client leaves because of an exception."""
    INLINE = 32
    """ADD, REPLY: the transitions are the end of the body; no payload message follows."""


class Code(IntEnum):
    """Why a request was refused."""

    OK = 0
    PROTOCOL = 1
    UNKNOWN_CLIENT = 2
    ROLE = 3
    DTYPE = 4
    SHAPE = 5
    PRIORITY = 6
    ID = 7
    EXPONENT = 8
    CREDIT = 9
    PAYLOAD = 10
    EMPTY = 11
    STOPPING = 12
    CHECKPOINT = 13
    LIMIT = 14


class Wait(IntEnum):
    """What a client waits for, as the replay rank sees it."""

    ANSWER = 0
    RATE_LIMITER = 1
    TURN = 2
    CHECKPOINT = 3
    PAYLOAD = 4
    RECEIVER = 5

    @property
    def text(self) -> str:
        """The words of `ReplayTimeoutError.waits_for`."""
        return self.name.lower().replace("_", " ")


def _no_bytes() -> Bytes:
    return np.empty(0, np.uint8)


_ADD, _ACK = int(Kind.ADD), int(Kind.ACK)
_KINDS = {int(kind): kind for kind in Kind}
_CODES = {int(code): code for code in Code}


@dataclass(slots=True, eq=False)
class Message:
    """One control message.

    Attributes
    ----------
    kind : Kind
    sequence : int
        The client's number of its request; the answer carries the same.
    count : int
        Transitions, ids or samples that the message is about.
    itemsize : int
        Bytes of one record.
    payload : int
        Bytes of transitions or of a learner state: of the payload message that follows, or, with
        `Flag.INLINE`, of the end of the body.
    value : int
        HELLO: 1 + the learner's number; 0 if it has none. ACK: transitions ever added. UPDATED:
        stale updates. REPLY, DRAWN: updates of this learner that came before. DRAW: samples of the
        whole draw, over all shards; 0 if it was counted before. REASON: a `Wait`.
    real : float
        SAMPLE, DRAWN: beta. ADD by default: the largest mass in other shards. ACK: the largest mass
        in this one. DRAW: the total that the targets are of.
    body : ndarray of uint8
        What follows the header. That of an ADD is borrowed, see ``Channel.receive``.
    source : int
        The rank that MPI names as the sender; -1 in a message not yet sent.
    """

    kind: Kind
    sequence: int = 0
    count: int = 0
    itemsize: int = 0
    payload: int = 0
    value: int = 0
    real: float = 0.0
    code: Code = Code.OK
    flags: int = Flag.NONE
    body: Bytes = field(default_factory=_no_bytes)
    source: int = -1

    def encode(self, *body: Any) -> bytes:
        """Return the bytes to send; each part of the body is any contiguous buffer."""
        header = _HEADER.pack(
            MAGIC,
            VERSION,
            self.kind,
            self.flags,
            self.itemsize,
            self.sequence,
            self.count,
            self.payload,
            self.value,
            self.code,
            self.real,
        )
        return b"".join((header, *body))

    @property
    def announced(self) -> int:
        """Bytes of the payload message that follows; 0 if none does."""
        return 0 if self.flags & Flag.INLINE else self.payload

    def inline(self) -> Bytes:
        """Return the transitions at the end of the body: a view of it."""
        return self.body[len(self.body) - self.payload :]

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.tobytes().decode("utf-8", "replace")

    def answer(self, kind: Kind, **changes: Any) -> Message:
        """Return the beginning of an answer: the same sequence, nothing else."""
        return replace(Message(kind, sequence=self.sequence), **changes)


def _only_text(_: Message) -> None:
    return None


def _nothing(_: Message) -> int:
    return 0


def _inline(message: Message) -> int:
    return message.payload if message.flags & Flag.INLINE else 0


_BODY: dict[Kind, Callable[[Message], int | None]] = {
    Kind.HELLO: _only_text,
    Kind.WELCOME: _only_text,
    Kind.CHECKPOINTED: _only_text,
    Kind.REFUSED: _only_text,
    Kind.LIMIT: _only_text,
    Kind.LIMITED: _only_text,
    Kind.REASON: _only_text,
    Kind.ADD: lambda m: _inline(m) + (0 if m.flags & Flag.DEFAULT else 8 * m.count),
    Kind.REPLY: lambda m: _inline(m) + STATUS_SIZE + 24 * m.count,
    Kind.DRAW: lambda m: 8 + 8 * m.count,
    Kind.DRAWN: lambda m: _inline(m) + STATUS_SIZE + 24 * m.count,
    Kind.UPDATE: lambda m: 16 * m.count,
    Kind.UPDATED: lambda m: STATUS_SIZE,
}


_WITH_TRANSITIONS = (Kind.ADD, Kind.REPLY, Kind.DRAWN)
_REFUSING = (
    *(Kind.ACK, Kind.REPLY, Kind.UPDATED, Kind.CHECKPOINTED, Kind.REFUSED, Kind.LIMITED),
    *(Kind.REASON, Kind.DRAWN),
)
"""Kinds whose code may be another than OK: answers."""


def control_limit(max_batch: int) -> int:
    """Return the bytes of the longest control message about `max_batch` items at most."""
    return HEADER_SIZE + max(TEXT_LIMIT, STATUS_SIZE + 24 * max_batch + INLINE_LIMIT)


def decode(data: Bytes, source: int) -> Message:
    """Read one control message and check that its length is what its header says.

    Parameters
    ----------
    data : ndarray of uint8, shape (n,)
        Exactly the bytes received; the body of the message is a view of it.
    source : int
        The sender, from MPI's status.

    Raises
    ------
    ProtocolError
        If this is not a message of the protocol.
    """
    if len(data) < HEADER_SIZE:
        raise ProtocolError(
            f"a message of {len(data)} bytes, shorter than a header ({HEADER_SIZE})"
        )
    magic, version, kind, flags, itemsize, sequence, count, payload, value, code, real = (
        _HEADER.unpack_from(data.data)
    )
    if magic != MAGIC:
        raise ProtocolError(f"a message begins with {magic!r} instead of {MAGIC!r}")
    if version != VERSION:
        raise ProtocolError(f"a message of protocol version {version}; this is version {VERSION}")
    try:
        message = Message(
            _KINDS[kind],
            sequence,
            count,
            itemsize,
            payload,
            value,
            real,
            _CODES[code],
            flags,
            data[HEADER_SIZE:],
            source,
        )
    except KeyError:
        raise ProtocolError(f"a message of unknown kind {kind} or code {code}") from None
    _check_length(message)
    return message


def plain_add(data: Bytes) -> tuple[int, int, int] | None:
    """Return sequence, count and itemsize of an ADD that `decode` would take, of the usual kind.

    That is one with priorities, and with its transitions in its body; None for anything else,
    malformed messages included.
    """
    if len(data) <= HEADER_SIZE:
        return None
    magic, version, kind, flags, itemsize, sequence, count, payload, _, code, _ = _unpack(data.data)
    usual = kind == _ADD and flags == Flag.INLINE and code == 0
    if not usual or count < 1 or (magic, version) != _BEGIN:
        return None
    if payload != count * itemsize or not 0 < payload <= INLINE_LIMIT:
        return None
    if len(data) != HEADER_SIZE + 8 * count + payload:
        return None
    return sequence, count, itemsize


def plain_ack(data: Bytes) -> tuple[int, int, float] | None:
    """Return sequence, value and real of an ACK that refuses nothing; None for anything else."""
    if len(data) != HEADER_SIZE:
        return None
    magic, version, kind, flags, _, sequence, count, payload, value, code, real = _unpack(data.data)
    if kind != _ACK or flags or code or payload or count < 0 or (magic, version) != _BEGIN:
        return None
    return sequence, value, real


def encode_ack(sequence: int, count: int, value: int, real: float) -> bytes:
    """Return the bytes of an ACK."""
    return _pack(MAGIC, VERSION, _ACK, 0, 0, sequence, count, 0, value, 0, real)


def encode_add(sequence: int, count: int, itemsize: int, *body: Any) -> bytes:
    """Return the bytes of an ADD with its priorities and its transitions in its body."""
    flags, payload = Flag.INLINE, count * itemsize
    header = _pack(MAGIC, VERSION, _ADD, flags, itemsize, sequence, count, payload, 0, 0, 0.0)
    return b"".join((header, *body))


def _check_length(message: Message) -> None:
    inline = message.flags & Flag.INLINE
    if inline and message.kind not in _WITH_TRANSITIONS:
        raise ProtocolError(f"{message.kind.name} with transitions in its body")
    most = INLINE_LIMIT if inline else MESSAGE_LIMIT
    if message.count < 0 or not 0 <= message.payload <= most:
        raise ProtocolError(
            f"{message.kind.name} with count {message.count} and a payload of "
            f"{message.payload} bytes"
        )
    refusal = message.code is not Code.OK
    if refusal and message.kind not in _REFUSING:
        raise ProtocolError(f"{message.kind.name} with code {message.code.name}, as answers have")
    expected = None if refusal else _BODY.get(message.kind, _nothing)(message)
    length = len(message.body)
    if expected is None:
        if length > TEXT_LIMIT:
            raise ProtocolError(
                f"{message.kind.name} with a text of {length} bytes: at most {TEXT_LIMIT}"
            )
    elif length != expected:
        raise ProtocolError(
            f"{message.kind.name} with count {message.count} and a body of {length} bytes "
            f"instead of {expected}"
        )
