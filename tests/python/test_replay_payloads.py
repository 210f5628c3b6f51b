"""Long payloads: straight into the ring from a source that is prompt, beside it from any other.

What MPI does is made up here: no launcher lets the neighbours of a rank live that died on the same
host while its memory was read.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mpi4py")

from mpi4py import MPI

from libsumtree import PrioritizedReplayBuffer
from libsumtree.replay.intake import Announced, PayloadIntake, Purpose
from libsumtree.replay.messages import Flag
from libsumtree.replay.peers import Peer
from libsumtree.replay.receiving import leave

RECORD = np.dtype([("number", "<i8"), ("rest", "u1", 3000)])
COUNT = 10


class Payload:
    """A payload that is there, and what becomes of its receive."""

    def __init__(self, source: int, number: int, fate: str = "whole", count: int = COUNT) -> None:
        self.source = source
        self.rows = np.zeros(count, RECORD)
        self.rows["number"] = number
        self.nbytes = self.rows.nbytes
        self.fate = fate
        self.buffer: Any = None

    def receive(self, buffer: Any) -> Payload:
        if self.fate == "refused":
            raise MPI.Exception(MPI.ERR_OTHER)
        self.buffer = buffer
        return self

    def done(self, looks: int) -> bool:
        if self.fate == "fails":
            self.buffer[:5000] = 7  # a part has come
            raise MPI.Exception(MPI.ERR_OTHER)
        if self.fate == "whole":
            self.buffer[:] = self.rows.view(np.uint8)
        return self.fate == "whole"


class World:
    """A buffer, its intake, and the payloads that are there."""

    def __init__(self) -> None:
        self.ring = PrioritizedReplayBuffer(100, RECORD, 1.0, seed=0)
        self.there: dict[int, Payload] = {}
        self.said: list[str] = []
        self.intake = PayloadIntake(
            self,  # type: ignore[arg-type]
            lambda a: self.ring.begin_add(a.count),
            lambda a, rows: self.ring.append(rows, a.masses),
            lambda a, data, failure: self.said.append(failure),
        )

    def probe(self, source: int) -> Any:
        return self.there.pop(source, None)

    def come(self, payload: Payload) -> Payload:
        peer, count = Peer(payload.source, Flag.ACTOR), len(payload.rows)
        self.there[payload.source] = payload
        self.intake.announce(Announced(Purpose.ADD, peer, 1, payload.nbytes, count, np.ones(count)))
        self.intake.turn()
        return payload

    def in_place(self, payload: Payload) -> bool:
        return np.shares_memory(payload.buffer, self.ring._storage)

    def numbers(self) -> list[int]:
        slots = np.flatnonzero(self.ring.tree[:])
        return sorted({int(number) for number in self.ring._storage["number"][slots]})


def test_a_source_that_was_prompt_is_received_in_place() -> None:
    world = World()
    first, second, other = (world.come(Payload(*p)) for p in ((1, 1), (1, 2), (2, 3)))
    assert [world.in_place(p) for p in (first, second, other)] == [False, True, False]
    assert world.numbers() == [1, 2, 3]
    assert world.said == ["", "", ""]
    assert len(world.ring) == 3 * COUNT


def test_a_longer_payload_than_any_before_is_beside_the_ring() -> None:
    world = World()
    world.come(Payload(1, 1))
    assert not world.in_place(world.come(Payload(1, 2, count=2 * COUNT)))
    assert world.in_place(world.come(Payload(1, 3, count=2 * COUNT)))
    assert world.numbers() == [1, 2, 3]


@pytest.mark.parametrize("fate", ["fails", "refused"])
def test_a_receive_that_fails_leaves_empty_slots(fate: str) -> None:
    world = World()
    for number in (1, 2):
        world.come(Payload(1, number))
    world.come(Payload(1, 3, fate))
    assert "could not be received" in world.said[-1]
    assert not world.intake.ring_taken
    assert world.numbers() == [1, 2]
    assert world.ring.tree.total == 2 * COUNT
    assert not world.in_place(world.come(Payload(1, 4)))
    assert world.numbers() == [1, 2, 4]
    world.ring.tree.validate()


def test_nobody_waits_for_a_payload_that_is_under_way() -> None:
    world = World()
    slow = world.come(Payload(1, 1, "under way"))
    for number in (2, 3):
        world.come(Payload(2, number))
    assert world.numbers() == [2, 3]
    slow.fate = "whole"
    world.intake.turn()
    assert world.numbers() == [1, 2, 3]
    assert not world.in_place(world.come(Payload(1, 4)))


class Transfer:
    """A request that has not ended, or whose transfer has failed."""

    def __init__(self, fails: bool) -> None:
        self.fails = fails
        self.ended = False

    def Test(self) -> bool:  # noqa: N802 - MPI's name
        if self.fails:
            raise MPI.Exception(MPI.ERR_OTHER)
        return self.ended


def test_what_was_given_up_stays_though_another_transfer_fails() -> None:
    """MPI writes to the second buffer until its request has ended."""
    failing, going = Transfer(fails=False), Transfer(fails=False)
    buffers = [np.zeros(8, np.uint8) for _ in range(2)]
    kept = [weakref.ref(each) for each in buffers]
    leave(failing, buffers[0])  # type: ignore[arg-type]
    failing.fails = True
    leave(going, buffers[1])  # type: ignore[arg-type]
    del buffers
    gc.collect()
    assert [each() is None for each in kept] == [True, False]
    going.ended = True
    last = Transfer(fails=False)
    last.ended = True
    leave(last, None)  # type: ignore[arg-type]
    gc.collect()
    assert kept[1]() is None
