"""Messages, learner states and terms: what is written is read, and anything else is refused."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from libsumtree.errors import ArgumentError, ArgumentTypeError, ProtocolError, ShapeError
from libsumtree.replay import archive
from libsumtree.replay.messages import (
    HEADER_SIZE,
    INLINE_LIMIT,
    TEXT_LIMIT,
    Bytes,
    Code,
    Flag,
    Kind,
    Message,
    control_limit,
    decode,
    encode_ack,
    encode_add,
    plain_ack,
    plain_add,
)
from libsumtree.replay.status import STATUS_SIZE, ReplayStatus
from libsumtree.replay.terms import Terms

STATUS = ReplayStatus(1, 2, 3, 4, 5, 6, 7, 8, 9.5, 0.25, 4.0)
BODIES: dict[Kind, int] = {
    Kind.ADD: 8 * 3,
    Kind.REPLY: STATUS_SIZE + 24 * 3,
    Kind.DRAW: 8 + 8 * 3,
    Kind.DRAWN: STATUS_SIZE + 24 * 3,
    Kind.UPDATE: 16 * 3,
    Kind.DRAW: 8 + 8 * 3,
    Kind.DRAWN: STATUS_SIZE + 24 * 3,
    Kind.UPDATED: STATUS_SIZE,
}
TEXTS = (
    *(Kind.HELLO, Kind.WELCOME, Kind.CHECKPOINTED, Kind.REFUSED),
    *(Kind.LIMIT, Kind.LIMITED, Kind.REASON),
)

REQUESTS = (
    *(Kind.HELLO, Kind.ADD, Kind.SAMPLE, Kind.UPDATE, Kind.CHECKPOINT, Kind.STOP, Kind.BYE),
    *(Kind.LIMIT, Kind.ASK, Kind.DRAW),
)


def received(data: bytes) -> Bytes:
    return np.frombuffer(data, np.uint8).copy()


def test_header_has_64_bytes_and_begins_with_the_magic() -> None:
    data = Message(Kind.BYE).encode()
    assert len(data) == HEADER_SIZE == 64
    assert data[:4] == b"STRR"


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_is_read_as_written(kind: Kind) -> None:
    body = b"x" * (7 if kind in TEXTS else BODIES.get(kind, 0))
    sent = Message(kind, 2**62, 3, 28, 84, -5, 0.75, Code.OK, Flag.ACTOR | Flag.FAILED)
    message = decode(received(sent.encode(body)), source=9)
    assert message.source == 9
    assert message.body.tobytes() == body
    header = {field.name for field in dataclasses.fields(Message)} - {"source", "body"}
    assert {name: getattr(message, name) for name in header} == {
        name: getattr(sent, name) for name in header
    }


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("change", [-1, 1, 8])
def test_every_wrong_length_is_refused(kind: Kind, change: int) -> None:
    length = TEXT_LIMIT if kind in TEXTS else BODIES.get(kind, 0)
    length = length + max(change, 1) if kind in TEXTS else max(length + change, 1)
    with pytest.raises(ProtocolError, match=kind.name):
        decode(received(Message(kind, count=3).encode(bytes(length))), source=0)


def faults_of(data: bytes) -> Iterator[Bytes]:
    """Give a message with each bit of its header turned, then shorter and longer ones."""
    for bit in range(8 * HEADER_SIZE):
        spoiled = received(data)
        spoiled[bit // 8] ^= 1 << bit % 8
        yield spoiled
    for length in (0, 1, HEADER_SIZE - 1, HEADER_SIZE, len(data) - 1):
        yield received(data[:length])
    yield received(data + b"x")


def test_usual_batches_are_what_decode_reads() -> None:
    body = np.arange(3.0).tobytes(), bytes(range(84))
    data = encode_add(7, 3, 28, *body)
    fields = {"sequence": 7, "count": 3, "itemsize": 28, "payload": 84, "flags": Flag.INLINE}
    assert data == Message(Kind.ADD, **fields).encode(*body)
    assert plain_add(received(data)) == (7, 3, 28)
    usual = 0
    for spoiled in faults_of(data):
        found = plain_add(spoiled)
        if found is not None:
            message = decode(spoiled, 0)
            assert found == (message.sequence, message.count, message.itemsize)
            assert (message.kind, message.code, message.flags) == (Kind.ADD, Code.OK, Flag.INLINE)
            assert message.payload == message.count * message.itemsize == len(message.inline())
            usual += 1
    assert usual == 3 * 64  # the bits of sequence, value and real


def test_usual_answers_are_what_decode_reads() -> None:
    data = encode_ack(7, 3, 9, 0.5)
    assert data == Message(Kind.ACK, sequence=7, count=3, value=9, real=0.5).encode()
    assert plain_ack(received(data)) == (7, 9, 0.5)
    for spoiled in faults_of(data):
        found = plain_ack(spoiled)
        if found is not None:
            message = decode(spoiled, 0)
            assert (message.kind, message.code, message.flags) == (Kind.ACK, Code.OK, Flag.NONE)
            assert found[:2] == (message.sequence, message.value)
            assert np.array(found[2]).tobytes() == np.array(message.real).tobytes()


@pytest.mark.parametrize("count", [0, -1])
def test_an_empty_batch_is_not_usual(count: int) -> None:
    assert plain_add(received(encode_add(7, count, 28))) is None


def test_a_long_batch_is_not_usual() -> None:
    most = INLINE_LIMIT // 64
    assert plain_add(received(encode_add(7, most, 64, bytes(most * 72)))) == (7, most, 64)
    assert plain_add(received(encode_add(7, most + 1, 64, bytes((most + 1) * 72)))) is None


def test_refusal_of_any_kind_is_a_text() -> None:
    data = Message(Kind.REPLY, count=3, code=Code.EMPTY).encode(b"nothing, niente")
    assert decode(received(data), source=0).text == "nothing, niente"


@pytest.mark.parametrize("kind", [*REQUESTS, Kind.WELCOME, Kind.DUE, Kind.STOPPING, Kind.GOODBYE])
@pytest.mark.parametrize("length", [0, 3])
def test_only_answers_refuse(kind: Kind, length: int) -> None:
    data = Message(kind, count=3, code=Code.EMPTY).encode(bytes(length))
    with pytest.raises(ProtocolError, match=f"{kind.name} with code EMPTY"):
        decode(received(data), source=0)


@pytest.mark.parametrize(
    ("offset", "bytes_", "text"),
    [
        (0, b"STRr", "begins with"),
        (4, struct.pack("<H", 7), "version 7"),
        (6, struct.pack("<H", 0), "unknown kind 0"),
        (6, struct.pack("<H", 17), "unknown kind 17"),
        (24, struct.pack("<q", -1), "count -1"),
        (24, struct.pack("<q", 2**62), "instead of"),
        (32, struct.pack("<q", -1), "payload of -1"),
        (32, struct.pack("<q", 2**31), "payload of 2147483648"),
        (48, struct.pack("<q", 99), "code 99"),
    ],
)
def test_header_out_of_protocol_is_refused(offset: int, bytes_: bytes, text: str) -> None:
    data = received(Message(Kind.ADD, count=1).encode(bytes(8)))
    data[offset : offset + len(bytes_)] = np.frombuffer(bytes_, np.uint8)
    with pytest.raises(ProtocolError, match=text):
        decode(data, source=0)


@pytest.mark.parametrize("length", [0, 1, 63])
def test_part_of_a_header_is_refused(length: int) -> None:
    with pytest.raises(ProtocolError, match="shorter than a header"):
        decode(received(Message(Kind.BYE).encode()[:length]), source=0)


def test_random_bytes_are_refused_or_read_but_never_break() -> None:
    generator = np.random.default_rng(0)
    good = received(Message(Kind.UPDATE, count=2).encode(bytes(32)))
    for _ in range(3000):
        data = good.copy()
        data[generator.integers(len(data), size=3)] = generator.integers(256, size=3)
        try:
            message = decode(data, source=0)
        except ProtocolError:
            continue
        assert len(message.body) == (32 if message.code is Code.OK else len(message.body))


def test_control_limit_holds_every_message() -> None:
    reply = Message(Kind.REPLY, count=5000).encode(bytes(STATUS_SIZE + 24 * 5000))
    assert len(reply) <= control_limit(5000)
    assert control_limit(1) >= HEADER_SIZE + TEXT_LIMIT


def test_status_is_read_as_written() -> None:
    assert ReplayStatus.unpack(received(STATUS.pack() + b"more")) == STATUS


TERMS = Terms(10, 1, 3, 3, 16, 100, 50, True, 2, 1, "[[7], 0, 4]", 12, STATUS)


def test_terms_are_read_as_written() -> None:
    assert Terms.from_json(TERMS.to_json()) == TERMS


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", TERMS.to_json()[:-1] + ', "more": 1}', TERMS.to_json().replace("100", "-1")]
    + [TERMS.to_json().replace("true", "1"), TERMS.to_json().replace("16", '"16"'), "[" * 50_000],
)
def test_other_terms_are_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="terms"):
        Terms.from_json(text)


# ---- learner states ----

STATE: dict[str, Any] = {
    "step": np.int64(-3),
    "network/layer0.weight": np.arange(12, dtype=">f4").reshape(3, 4)[:, ::2],
    "network/layer0.bias": np.float16([1, np.nan, -0.0]),
    "empty": np.zeros((0, 5), np.complex128),
    "flags": np.array([[True], [False]]),
    "words": np.array([2**64 - 1], np.uint64),
}


def test_learner_state_is_read_bit_for_bit() -> None:
    found = archive.unpack(archive.pack(STATE))
    assert found.keys() == STATE.keys()
    for name, value in STATE.items():
        array = np.asarray(value)
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()
        assert found[name].flags.writeable
    assert archive.unpack(archive.pack({})) == {}


def test_no_part_of_a_learner_state_is_one() -> None:
    data = archive.pack(STATE)
    for length in range(len(data)):
        with pytest.raises(ProtocolError):
            archive.unpack(data[:length])
    with pytest.raises(ProtocolError):
        archive.unpack(np.append(data, np.uint8(0)))


@pytest.mark.parametrize(
    "table",
    [
        '[{"name": "x", "type": "|O", "shape": []}]',
        '[{"name": "x", "type": ",i8", "shape": [0]}]',
        '[{"name": "x", "type": "01i8", "shape": []}]',
        '[{"name": "x", "type": 5, "shape": [0]}]',
        '[{"name": "x", "type": "<f8", "shape": [-1]}]',
        '[{"name": "x", "type": "<f8", "shape": [1000000000000]}]',
        '[{"name": "../x", "type": "|u1", "shape": [0]}]',
        '[{"name": "x", "type": "|u1", "shape": [0]}, {"name": "x", "type": "|u1", "shape": [0]}]',
        '[{"name": "x", "type": "|u1", "shape": "0"}]',
        '[{"name": "x", "shape": [0]}]',
        '{"name": "x"}',
        "[1]",
        "nonsense",
        "[" * 100_000,
    ],
)
def test_other_tables_are_refused(table: str) -> None:
    data = struct.pack("<Q", len(table)) + table.encode()
    with pytest.raises(ProtocolError):
        archive.unpack(received(data))


@pytest.mark.parametrize(
    ("state", "kind", "text"),
    [
        ({"": 1}, ArgumentError, "''"),
        ({"a//b": 1}, ArgumentError, "a//b"),
        ({"/a": 1}, ArgumentError, "/a"),
        ({"a/../b": 1}, ArgumentError, "a/../b"),
        ({"a b": 1}, ArgumentError, "a b"),
        ({3: 1}, ArgumentError, "3"),
        ({"a": 1, "a/b": 2}, ArgumentError, "'a/b' lies below"),
        ({"a": object()}, ArgumentTypeError, "'a' has dtype object"),
        ({"a": "text"}, ArgumentTypeError, "'a' has dtype <U4"),
        ({"a": np.longdouble(1)}, ArgumentTypeError, "'a' has dtype"),
    ],
)
def test_what_is_no_learner_state_is_refused(state: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        archive.pack(state)


def test_a_learner_state_that_no_message_holds_is_refused_unread() -> None:
    """Nobody ever writes to its pages, nor reads them."""
    with pytest.raises(ShapeError, match=r"a learner state of \d{10} bytes: at most 2147483647"):
        archive.pack({"weights": np.zeros((1 << 31) - 1, np.uint8)})
