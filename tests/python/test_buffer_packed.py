"""Batches as messages hold them: the buffer is that of `add`, or nothing has changed."""

from __future__ import annotations

import signal
from typing import Any

import numpy as np
import pytest

import libsumtree as st
from libsumtree.errors import RangeError

RECORD = np.dtype([("number", "<i8"), ("reward", "<f4")])
CAPACITY = 64
Buffer = st.PrioritizedReplayBuffer


def message_of(rows: Any, priorities: Any, offset: int = 64) -> Any:
    """Pack a batch behind `offset` bytes of something else."""
    head = np.full(offset, 255, np.uint8)
    return np.concatenate([head, priorities.view(np.uint8), rows.view(np.uint8)])


def batch(seed: int, count: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    rows = np.zeros(count, RECORD)
    rows["number"] = rng.integers(0, 1 << 60, count)
    rows["reward"] = rng.random(count)
    return rows, rng.random(count) * rng.integers(0, 2, count)


def all_of(buffer: Buffer) -> list[Any]:
    kept = range(buffer.inserted - len(buffer), buffer.inserted)
    masses = buffer.tree[:].tobytes()
    return [buffer.inserted, len(buffer), masses, buffer.tree.total, buffer[list(kept)].tobytes()]


@pytest.mark.parametrize("offset", [0, 64, 13])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_packed_is_what_add_makes(alpha: float, offset: int) -> None:
    packed, plain = (Buffer(CAPACITY, RECORD, alpha, seed=0) for _ in range(2))
    taken = 0
    for seed in range(60):
        rows, priorities = batch(seed, 1 + seed % 17)
        done = packed.append_packed(message_of(rows, priorities, offset), offset, len(rows))
        if not done:
            packed.add(rows, priorities)
        taken += done
        plain.add(rows, priorities)
        assert all_of(packed) == all_of(plain)
        packed.tree.validate()
    assert 40 < taken < 60


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0, 1e300])
def test_a_bad_priority_changes_nothing(bad: float) -> None:
    buffer = Buffer(CAPACITY, RECORD, 2.0, seed=0)
    for seed in range(3):
        buffer.add(*batch(seed, 30))
    before = all_of(buffer)
    rows, priorities = batch(9, 10)
    for place in (0, 4, 9):
        wrong = priorities.copy()
        wrong[place] = bad
        assert not buffer.append_packed(message_of(rows, wrong), 64, 10)
        assert all_of(buffer) == before
    assert buffer.append_packed(message_of(rows, priorities), 64, 10)


def test_what_has_another_way_changes_nothing() -> None:
    message = message_of(*batch(0, 30))
    wraps, open_intake = (Buffer(CAPACITY, RECORD, seed=0) for _ in range(2))
    aging = Buffer(CAPACITY, RECORD, seed=0, max_age=40)
    wraps.add(*batch(1, 60))
    aging.add(*batch(1, 10))
    open_intake.begin_add(3)
    for buffer in (wraps, open_intake, aging):
        before = all_of(buffer)
        assert not buffer.append_packed(message, 64, 30)
        assert not buffer.append_packed(message, 64, 0)
        assert all_of(buffer) == before
    long = batch(2, 1025)
    assert not Buffer(4096, RECORD).append_packed(message_of(*long), 64, 1025)


def test_an_open_snapshot_keeps_what_it_was_taken_of() -> None:
    buffer = Buffer(CAPACITY, RECORD, seed=0)
    rows = batch(1, CAPACITY)
    buffer.add(*rows)
    with buffer.snapshot() as snapshot:
        assert buffer.append_packed(message_of(*batch(2, 30)), 64, 30)
        kept = np.concatenate([block.copy() for block in snapshot.rows.blocks()])
    assert kept.tobytes() == rows[0].tobytes()
    assert buffer[[CAPACITY]].tobytes() == batch(2, 30)[0][:1].tobytes()


@pytest.mark.parametrize(
    ("offset", "count"), [(65, 10), (-1, 10), (64, 11), (1 << 62, 10), ((1 << 63) - 1, 10)]
)
def test_no_byte_beyond_a_message_is_read(offset: int, count: int) -> None:
    buffer = Buffer(CAPACITY, RECORD, seed=0)
    with pytest.raises(RangeError):
        buffer.append_packed(message_of(*batch(0, 10)), offset, count)
    assert buffer.inserted == 0
    assert buffer.tree.total == 0.0


class InterruptError(Exception):
    pass


def test_an_exception_out_of_a_signal_handler_leaves_a_sound_buffer() -> None:
    def interrupt(*_: object) -> None:
        raise InterruptError

    def add_until_interrupted(seconds: float) -> None:
        rows = np.zeros(16, RECORD)
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            while True:
                rows["number"] = buffer.inserted + np.arange(16)
                assert buffer.append_packed(message_of(rows, np.ones(16)), 64, 16)
        except InterruptError:
            pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    before = signal.signal(signal.SIGALRM, interrupt)
    rng = np.random.default_rng(1)
    try:
        for _ in range(400):
            buffer = Buffer(CAPACITY, RECORD, seed=0)
            add_until_interrupted(rng.uniform(2e-4, 1e-3))
            held = np.arange(buffer.inserted - len(buffer), buffer.inserted)
            free = np.ones(CAPACITY, bool)
            free[held % CAPACITY] = False
            assert not buffer.tree[:][free].any()
            assert buffer[held]["number"].tolist() == held.tolist()
    finally:
        signal.signal(signal.SIGALRM, before)
