"""Clients that break the protocol: they speak raw MPI, and check every answer themselves."""

from __future__ import annotations

import os
import struct
import time
from typing import Any

import numpy as np
from content import RECORD, batch
from mpi4py import MPI

from libsumtree.records import dtype_to_text
from libsumtree.replay.messages import (
    CONTROL_TAG,
    PAYLOAD_TAG,
    Code,
    Flag,
    Kind,
    Message,
    decode,
)
from libsumtree.replay.terms import Terms

ITEM = RECORD.itemsize


class Raw:
    """A client without manners."""

    def __init__(self, comm: MPI.Intracomm, role: int = Flag.ACTOR, rank: int = 0) -> None:
        self.comm = comm
        self.role = role
        self.rank = rank
        self.sequence = 0
        self.kept: list[Any] = []

    def send(self, data: Any, tag: int = CONTROL_TAG) -> None:
        view = np.frombuffer(bytes(data), np.uint8)
        self.kept.append((view, self.comm.Isend([view, MPI.BYTE], self.rank, tag)))

    def message(self, kind: Kind, *body: Any, **fields: Any) -> None:
        self.sequence += 1
        self.send(Message(kind, sequence=self.sequence, **fields).encode(*body))

    def receive(self) -> Message:
        status = MPI.Status()
        deadline = time.monotonic() + 20.0
        while not self.comm.Iprobe(self.rank, CONTROL_TAG, status):
            assert time.monotonic() < deadline, "no answer"
            time.sleep(0.001)
        data = np.empty(status.Get_count(MPI.BYTE), np.uint8)
        self.comm.Recv([data, MPI.BYTE], self.rank, CONTROL_TAG)
        return decode(data, self.rank)

    def expect(self, kind: Kind, code: Code, text: str = "") -> Message:
        answer = self.receive()
        assert (answer.kind, answer.code) == (kind, code), (answer, answer.text)
        assert text in answer.text, answer.text
        return answer

    def hello(self, dtype: str = dtype_to_text(RECORD)) -> Terms:
        self.message(Kind.HELLO, dtype.encode(), flags=self.role)
        return Terms.from_json(self.expect(Kind.WELCOME, Code.OK).text)

    def bye(self) -> None:
        self.message(Kind.BYE)
        self.expect(Kind.GOODBYE, Code.OK)
        for _, request in self.kept:
            request.Wait()

    def add(self, records: Any, priorities: Any = None, **fields: Any) -> None:
        """Announce and send records, with any field of the header set otherwise."""
        data = records.tobytes()
        values = {"count": len(records), "itemsize": ITEM, "payload": len(data)}
        values |= {"flags": Flag.DEFAULT if priorities is None else Flag.NONE, **fields}
        body = () if priorities is None else (np.asarray(priorities, "<f8").tobytes(),)
        self.message(Kind.ADD, *body, **values)
        self.send(data, PAYLOAD_TAG)

    def in_step(self, seed: int) -> None:
        """A good batch after a bad one is taken whole: nothing is left over from the bad one."""
        self.add(*batch(seed, 10))
        self.expect(Kind.ACK, Code.OK)


def hostile_adds(comm: MPI.Intracomm, clients: MPI.Intracomm) -> None:
    raw = Raw(comm)
    raw.hello()
    records, priorities = batch(99, 10)
    raw.in_step(0)
    for value in (np.nan, np.inf, -1.0):
        bad = priorities.copy()
        bad[7] = value
        raw.add(records, bad)
        raw.expect(Kind.ACK, Code.PRIORITY, "7")
    raw.in_step(1)
    for fields, code in (
        ({"itemsize": ITEM + 1}, Code.DTYPE),
        ({"itemsize": 0}, Code.DTYPE),
        ({"count": 0}, Code.SHAPE),
        ({"count": 9}, Code.SHAPE),
        ({"count": 101}, Code.SHAPE),
        ({"count": 2**62}, Code.SHAPE),
        ({"payload": 10 * ITEM - 1}, Code.SHAPE),
    ):
        raw.add(records, **fields)
        raw.expect(Kind.ACK, code)
    raw.in_step(2)
    for wrong in (records[:9], np.concatenate([records, records]), np.zeros(5000, RECORD)):
        raw.add(wrong, count=10, payload=10 * ITEM)
        raw.expect(Kind.ACK, Code.PAYLOAD, "where 280 were announced")
    raw.in_step(3)
    raw.bye()


def packed(seed: int) -> tuple[bytes, ...]:
    """Return the body of an ADD that has its transitions in it."""
    records, priorities = batch(seed, 10)
    return priorities.tobytes(), records.tobytes()


def hostile_inline(comm: MPI.Intracomm, clients: MPI.Intracomm) -> None:
    """Bad batches right between good ones, all there before the first is answered."""
    raw = Raw(comm)
    raw.hello()
    fields = {"count": 10, "itemsize": ITEM, "payload": 10 * ITEM, "flags": Flag.INLINE}
    priorities, records = packed(99)
    spoiled = np.frombuffer(priorities, "<f8").copy()
    for seed, (value, code) in enumerate(
        [(np.nan, Code.PRIORITY), (-1.0, Code.PRIORITY), (np.inf, Code.PRIORITY), (0.5, Code.DTYPE)]
    ):
        spoiled[7] = value
        wrong = fields if code is Code.PRIORITY else {"count": 20, "itemsize": ITEM // 2}
        raw.message(Kind.ADD, *packed(2 * seed), **fields)
        body = spoiled.tobytes() if code is Code.PRIORITY else bytes(8 * 20)
        raw.message(Kind.ADD, body, records, **{**fields, **wrong})
        raw.message(Kind.ADD, *packed(2 * seed + 1), **fields)
        answers = [raw.receive() for _ in range(2)]
        while not any(a.sequence == raw.sequence for a in answers):
            answers.append(raw.receive())
        refused = [a for a in answers if a.code is not Code.OK]
        assert [(a.code, a.sequence) for a in refused] == [(code, raw.sequence - 1)], answers
        assert code is Code.DTYPE or "7" in refused[0].text
    raw.bye()


def hostile_inline_credits(comm: MPI.Intracomm, clients: MPI.Intracomm) -> None:
    """Batches beyond the credits are refused, while the rate limiter holds answers back."""
    raw = Raw(comm)
    raw.hello()
    for seed in range(12):
        raw.message(
            Kind.ADD, *packed(seed), count=10, itemsize=ITEM, payload=10 * ITEM, flags=Flag.INLINE
        )
    codes = [raw.receive().code for _ in range(6)]
    assert codes.count(Code.CREDIT) >= 5, codes
    raw.message(Kind.BYE)
    while raw.receive().kind is not Kind.GOODBYE:
        pass
    for _, request in raw.kept:
        request.Wait()


def hostile_messages(comm: MPI.Intracomm, clients: MPI.Intracomm) -> None:
    raw = Raw(comm)
    raw.message(Kind.SAMPLE, count=1)
    raw.expect(Kind.REPLY, Code.UNKNOWN_CLIENT)
    good = Message(Kind.ADD, count=1, itemsize=ITEM, payload=ITEM, flags=Flag.DEFAULT).encode()
    wrong = [
        b"",
        good[:63],
        b"BAD!" + good[4:],
        good[:4] + struct.pack("<H", 2) + good[6:],
        good[:6] + struct.pack("<H", 999) + good[8:],
        good + b"\0",
        Message(Kind.ADD, count=2**60, itemsize=ITEM).encode(bytes(8)),
        Message(Kind.ADD, count=-1, itemsize=ITEM, flags=Flag.DEFAULT).encode(),
        Message(Kind.BYE, payload=-1).encode(),
        Message(Kind.UPDATE, count=2).encode(bytes(31)),
        Message(Kind.HELLO, flags=Flag.ACTOR).encode(bytes(70_000)),
        good + bytes(4_000_000),
    ]
    for data in wrong:
        raw.hello()
        raw.in_step(0)
        raw.send(data)
        raw.expect(Kind.REFUSED, Code.PROTOCOL)
        raw.add(*batch(98, 10))
        raw.expect(Kind.ACK, Code.PROTOCOL, "after a message out of protocol")
    raw.hello()
    raw.in_step(1)
    raw.send(bytes(123_456), PAYLOAD_TAG)
    raw.expect(Kind.REFUSED, Code.PAYLOAD, "that nothing announced")
    raw.in_step(2)
    raw.message(Kind.WELCOME)
    raw.expect(Kind.REFUSED, Code.PROTOCOL)
    raw.bye()


def hostile_hello(comm: MPI.Intracomm, clients: MPI.Intracomm) -> None:
    raw = Raw(comm)
    for text in (
        "",
        "{}",
        "[" * 60_000,
        '[["x", "|O"]]',
        '[["x", "<f8"]]',
        '[["x", "<f4", [1000000000000, 1000000000000]]]',
        '[["x", "<f4", [1000000000]]]',
        "__import__('os')",
    ):
        raw.message(Kind.HELLO, text.encode(), flags=Flag.ACTOR)
        raw.expect(Kind.REFUSED, Code.DTYPE)
    for flags in (Flag.NONE, Flag.ACTOR | Flag.LEARNER):
        raw.message(Kind.HELLO, b"[]", flags=flags)
        raw.expect(Kind.REFUSED, Code.ROLE)
    raw.hello()
    raw.bye()


def hostile_credits(comm: MPI.Intracomm, clients: MPI.Intracomm) -> None:
    """Batches beyond the credits are refused, and what was within them is not harmed."""
    raw = Raw(comm)
    credits = raw.hello().actor_credits
    for _ in range(credits + 2):
        raw.message(Kind.ADD, count=10, itemsize=ITEM, payload=10 * ITEM, flags=Flag.DEFAULT)
    for _ in range(2):
        raw.expect(Kind.ACK, Code.CREDIT)
    for seed in range(credits + 2):
        raw.send(batch(seed, 10)[0].tobytes(), PAYLOAD_TAG)
    for _ in range(credits):
        raw.expect(Kind.ACK, Code.OK)
    raw.bye()


def hostile_learner(comm: MPI.Intracomm, clients: MPI.Intracomm) -> None:
    raw = Raw(comm, Flag.LEARNER)
    credits = raw.hello().sample_credits
    records, priorities = batch(0, 10)
    raw.add(records, priorities)
    raw.expect(Kind.ACK, Code.ROLE)
    raw.message(Kind.UPDATE, struct.pack("<qd", 12345, 1.0), count=1)
    raw.expect(Kind.UPDATED, Code.ID)
    raw.message(Kind.UPDATE, struct.pack("<qd", 0, np.nan), count=1)
    assert raw.receive().code in (Code.ID, Code.PRIORITY)
    raw.message(Kind.SAMPLE, count=5, real=1.5)
    raw.expect(Kind.REPLY, Code.EXPONENT)
    raw.message(Kind.SAMPLE, count=5, real=float("nan"))
    raw.expect(Kind.REPLY, Code.EXPONENT)
    raw.message(Kind.SAMPLE, count=101, flags=Flag.DEFAULT)
    raw.expect(Kind.REPLY, Code.SHAPE)
    for _ in range(credits + 1):
        raw.message(Kind.SAMPLE, count=5, flags=Flag.DEFAULT)
    raw.expect(Kind.REPLY, Code.CREDIT)
    raw.message(Kind.CHECKPOINT, payload=8)
    raw.send(bytes(8), PAYLOAD_TAG)
    raw.expect(Kind.CHECKPOINTED, Code.CHECKPOINT)
    raw.bye()


# ---- mutations ----


def _templates(role: int) -> list[bytes]:
    """Return a message of every kind, as well as a client can make it, and each refused, too."""
    add = {"count": 2, "itemsize": ITEM, "payload": 2 * ITEM}
    rows = batch(5, 2)[0].tobytes()
    hello = dtype_to_text(RECORD).encode()
    made = [
        Message(Kind.HELLO, flags=role).encode(hello),
        Message(Kind.ADD, flags=Flag.DEFAULT, **add).encode(),
        Message(Kind.ADD, flags=Flag.DEFAULT | Flag.INLINE, **add).encode(rows),
        Message(Kind.ADD, flags=Flag.INLINE, **add).encode(struct.pack("<2d", 1.0, 2.0), rows),
        Message(Kind.SAMPLE, count=3, flags=Flag.DEFAULT).encode(),
        Message(Kind.SAMPLE, count=3, real=0.5).encode(),
        Message(Kind.UPDATE, count=1).encode(struct.pack("<qd", 0, 1.0)),
        Message(Kind.DRAW, count=2, value=2, real=3.0).encode(struct.pack("<q2d", 0, 1.0, 2.0)),
        Message(Kind.CHECKPOINT, payload=8).encode(),
        Message(Kind.LIMIT).encode(b'{"min_size_to_sample": 1}'),
        Message(Kind.ASK).encode(),
    ]
    refused = [Message(kind, count=1, code=code).encode(b"no") for kind in Kind for code in Code]
    return [*made, *made, *refused]


def _mutated(generator: np.random.Generator, templates: list[bytes]) -> bytes:
    data = bytearray(templates[generator.integers(len(templates))])
    for _ in range(generator.integers(3)):
        field = int(generator.choice((6, 8, 12, 16, 24, 32, 40, 48, 56)))
        value = int(generator.choice((0, 1, -1, 2, 28, 255, 2**31, 2**62)))
        data[field : field + 8] = struct.pack("<q", value)
    how = generator.integers(6)
    if how == 0:
        data = data[: generator.integers(len(data) + 1)]
    elif how == 1:
        data += bytes(int(generator.integers(1, 100)))
    elif how == 2:
        data[generator.integers(len(data))] = generator.integers(256)
    return bytes(data)


def _ends(data: bytes) -> bool:
    """Whether it is a message by which a client ends its own part or, as a learner, the service."""
    return data[6:8] in (struct.pack("<H", Kind.STOP), struct.pack("<H", Kind.BYE))


def _drain(raw: Raw) -> list[bytes]:
    """Take all that came."""
    status, taken = MPI.Status(), []
    while raw.comm.Iprobe(0, MPI.ANY_TAG, status):
        data = np.empty(status.Get_count(MPI.BYTE), np.uint8)
        raw.comm.Recv([data, MPI.BYTE], 0, status.Get_tag())
        if status.Get_tag() == CONTROL_TAG:
            taken.append(data.tobytes())
    raw.kept = [(view, request) for view, request in raw.kept if not request.Test()]
    return taken


def hostile_mutations(comm: MPI.Intracomm, clients: MPI.Intracomm) -> None:
    """Thousands of messages that are nearly right, of an actor and a learner; then a good one."""
    generator = np.random.default_rng(int(os.environ.get("MUTATIONS_SEED", "0")))
    answers = 0
    for role in (Flag.ACTOR, Flag.LEARNER):
        raw, templates = Raw(comm, role), _templates(role)
        for number in range(2000):
            if number % 50 == 0:
                raw.send(templates[0])
            data = _mutated(generator, templates)
            if not _ends(data):
                raw.send(data)
            if generator.integers(4) == 0:
                raw.send(bytes(int(generator.choice((1, ITEM, 2 * ITEM, 300)))), PAYLOAD_TAG)
            answers += len(_drain(raw))
        last = 1_000_000 + role
        raw.send(Message(Kind.HELLO, last, flags=role).encode(dtype_to_text(RECORD).encode()))
        deadline = time.monotonic() + 30.0
        came: list[Message] = []
        while not any((m.kind, m.sequence, m.code) == (Kind.WELCOME, last, Code.OK) for m in came):
            assert time.monotonic() < deadline, "no answer to a good HELLO"
            came += [decode(np.frombuffer(data, np.uint8), 0) for data in _drain(raw)]
    assert answers > 1000
    raw = Raw(comm)
    raw.hello()
    raw.in_step(0)
    raw.bye()
