"""What replay ranks, clients and parameter channels read: every byte of it may be another's."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from choices import Choices

from libsumtree import MAX_CAPACITY
from libsumtree.errors import ArgumentError, ArgumentTypeError, ProtocolError
from libsumtree.records import check_record_dtype, dtype_from_text, dtype_to_text
from libsumtree.replay import archive
from libsumtree.replay.limiter import RateLimit, RateLimiter
from libsumtree.replay.messages import (
    HEADER_SIZE,
    TEXT_LIMIT,
    Code,
    Flag,
    Kind,
    Message,
    decode,
    plain_ack,
    plain_add,
)
from libsumtree.replay.status import STATUS_SIZE, ReplayStatus
from libsumtree.replay.terms import Terms

_STATE = {
    "step": np.int64(7),
    "network/weight": np.arange(6, dtype="<f4").reshape(2, 3),
    "flags": np.array([True]),
}
_TERMS = Terms(10, 1, 3, 3, 16, 100, 50, True, 2, 1, "[[7], 0, 4]", 12)
_DTYPES = (
    [("observation", "<f4", (4,)), ("action", "<i8"), ("reward", "<f4")],
    [("a", "|b1"), ("", [("inner", ">u2", (2, 2))]), ("t", "<M8[ns]"), ("name", "|S3")],
)
_SIZES = {
    **{Kind.ADD: 24, Kind.UPDATE: 48, Kind.UPDATED: STATUS_SIZE, Kind.DRAW: 32},
    **{Kind.REPLY: STATUS_SIZE + 72, Kind.DRAWN: STATUS_SIZE + 72},
}


def _as_array(data: bytes) -> Any:
    return np.frombuffer(data, np.uint8).copy()


def control(data: bytes) -> None:
    """A control message is refused, or is the bytes that it came as, and its parts fit.

    The short ways to read one take nothing that is refused, and nothing for anything else.
    """
    array = _as_array(data)
    add, ack = plain_add(array), plain_ack(array)
    try:
        message = decode(array, source=3)
    except ProtocolError:
        assert (add, ack) == (None, None)
        return
    if add is not None:
        assert (message.kind, message.code, message.flags) == (Kind.ADD, Code.OK, Flag.INLINE)
        assert add == (message.sequence, message.count, message.itemsize)
        assert message.payload == message.count * message.itemsize > 0
    if ack is not None:
        assert (message.kind, message.code) == (Kind.ACK, Code.OK)
        assert repr(ack) == repr((message.sequence, message.value, message.real))
    assert message.source == 3
    assert data[:48] == message.encode()[:48]
    assert data[HEADER_SIZE:] == message.body.tobytes()
    assert message.count >= 0
    assert 0 <= message.payload < 2**31
    assert len(message.inline()) <= max(message.payload, 0)
    assert isinstance(message.text, str)
    if message.kind is Kind.UPDATED and message.code is Code.OK:
        ReplayStatus.unpack(message.body)
    body_of(message)


def body_of(message: Message) -> None:
    """What is in a body that is text is read as the receiver does."""
    if message.code is Code.OK and message.kind in (Kind.HELLO, Kind.WELCOME, Kind.LIMIT):
        {Kind.HELLO: dtype, Kind.WELCOME: terms, Kind.LIMIT: limit}[message.kind](
            message.body.tobytes()
        )


def fields(data: bytes) -> None:
    """A message of which each field is chosen, so that more than its first check is reached."""
    choose = Choices(data)
    form = "<4sHHIIqqqqqd"
    values = [b"STRR", 1, choose.pick(tuple(Kind)), choose.below(64), choose.below(300)]
    values += [choose.integer() for _ in range(4)]
    values += [choose.pick((0, 0, 0, 3, 15, -1)), choose.real()]
    values[6] = choose.pick((values[6], 0, 1, 3))
    values[7] = choose.pick((values[7], 0, 28))
    values[5:10] = [v if -(2**63) <= v < 2**63 else 0 for v in values[5:10]]
    control(struct.pack(form, *values) + choose.rest())


def state(data: bytes) -> None:
    """A learner state is refused, or packed again to a state of the same bits."""
    try:
        found = archive.unpack(_as_array(data))
    except ProtocolError:
        return
    again = archive.unpack(archive.pack(found))
    assert found.keys() == again.keys()
    for name, array in found.items():
        assert (array.dtype, array.shape) == (again[name].dtype, again[name].shape)
        assert array.tobytes() == again[name].tobytes()


def table(data: bytes) -> None:
    """A learner state whose table has the right length."""
    head, _, arrays = data.partition(b"\0")
    state(struct.pack("<Q", len(head)) + head + arrays)


def terms(data: bytes) -> None:
    """Terms are refused, or written and read again to the same."""
    try:
        found = Terms.from_json(data.decode("utf-8", "replace"))
    except ProtocolError:
        return
    assert repr(Terms.from_json(found.to_json())) == repr(found)


def dtype(data: bytes) -> None:
    """A record dtype is refused, or has a text that gives the very same."""
    try:
        found = check_record_dtype(dtype_from_text(data.decode("utf-8", "replace")))
    except ArgumentTypeError:
        return
    assert not found.hasobject
    assert dtype_from_text(dtype_to_text(found)) == found


def limit(data: bytes) -> None:
    """A rate limit is refused, or can be written and read again, and says why anybody waits."""
    try:
        found = RateLimit.from_json(data.decode("utf-8", "replace"))
    except (ArgumentError, ArgumentTypeError):
        return
    assert RateLimit.from_json(found.to_json()) == found
    if found.min_size_to_sample <= MAX_CAPACITY:
        limiter = RateLimiter()
        limiter.change(found, 1 << 20)
        limiter.inserted(1 << 10)
        assert isinstance(limiter.why_no_sample(512, 1 << 10), str)
        assert isinstance(limiter.why_no_insert(1 << 10), str)


_PARTS: tuple[Callable[[bytes], None], ...] = (control, fields, state, table, terms, dtype, limit)


def one(data: bytes) -> None:
    if data:
        _PARTS[data[0] % len(_PARTS)](data[1 : 1 + TEXT_LIMIT])


def seeds() -> list[bytes]:
    kept = [
        (control, Message(kind, 5, 3, 28, 0).encode(bytes(_SIZES.get(kind, 0)))) for kind in Kind
    ]
    kept += [
        (control, Message(Kind.HELLO, flags=Flag.ACTOR).encode(b'[["x", "<f4", [3]]]')),
        (control, Message(Kind.ADD, 1, 1, 4, 4, flags=36).encode(b"abcd")),
        (control, Message(Kind.ADD, 1, 1, 4, 4, flags=32).encode(bytes(8), b"abcd")),
        (control, Message(Kind.REPLY, 1, 3, code=Code.EMPTY).encode(b"nothing")),
        (fields, bytes(40)),
        (state, archive.pack(_STATE).tobytes()),
        (table, archive.pack(_STATE)[8:].tobytes().replace(b"]}]", b"]}]\0")),
        (terms, _TERMS.to_json().encode()),
        (limit, RateLimit(3, 8.0, 100.0).to_json().encode()),
    ]
    kept += [(dtype, dtype_to_text(np.dtype(fields)).encode()) for fields in _DTYPES]
    return [bytes([_PARTS.index(part)]) + data for part, data in kept]
