"""Snapshots: a buffer as of one instant, whatever is added while it is written; and chains."""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

import libsumtree as st
from libsumtree import checkpoint, snapshot
from libsumtree.errors import CapacityError, CheckpointCorruptError, CheckpointError

RECORD = np.dtype([("value", "<i8"), ("pad", "u1", 8)])
Buffer = st.PrioritizedReplayBuffer


def rows(first: int, count: int) -> np.ndarray:
    made = np.zeros(count, RECORD)
    made["value"] = np.arange(first, first + count)
    return made


def add(buffer: Buffer, count: int) -> None:
    """Add transitions whose values are their numbers."""
    first = buffer.inserted
    buffer.add(rows(first, count), 1.0 + np.arange(first, first + count) % 7)


def held(buffer: Buffer) -> tuple[list[int], list[float], int, int]:
    """Give the values and masses of a buffer, oldest first, its cursor and its samples."""
    numbers = np.arange(buffer.inserted - len(buffer), buffer.inserted)
    values = buffer._storage["value"][numbers % buffer.capacity]
    masses = buffer.tree[numbers % buffer.capacity]
    return values.tolist(), masses.tolist(), buffer.inserted, buffer.sampled


def stored(path: Path, **options: Any) -> tuple[list[int], list[float], int, int]:
    with checkpoint.read_chain(path) as chain:
        return held(Buffer.from_checkpoint(chain, **options))


# ---- one instant ----


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    capacity=some.integers(1, 30),
    before=some.integers(0, 70),
    batches=some.lists(some.integers(0, 40), max_size=12),
    block=some.integers(1, 9),
    ahead=some.integers(1, 5),
    cleared=some.booleans(),
)
def test_the_rows_of_an_instant_outlive_what_is_added_while_they_are_read(
    capacity: int,
    before: int,
    batches: list[int],
    block: int,
    ahead: int,
    cleared: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshot, "BLOCK_BYTES", block * RECORD.itemsize)
    monkeypatch.setattr(snapshot, "AHEAD_BYTES", ahead * RECORD.itemsize)
    buffer = Buffer(capacity, RECORD, seed=0)
    add(buffer, before)
    values = held(buffer)[0]
    taken = buffer.snapshot()
    blocks = taken.rows.blocks()
    read: list[int] = []
    for turn, batch in enumerate(batches):
        add(buffer, batch)
        if cleared and turn == 2:
            buffer.clear()
        read += next(blocks, np.zeros(0, RECORD))["value"].tolist()
    read += [value for part in blocks for value in part["value"].tolist()]
    assert read == values


def test_an_abandoned_intake_and_one_that_is_open_leave_the_snapshot_alone() -> None:
    buffer = Buffer(8, RECORD, seed=0)
    add(buffer, 8)
    taken = buffer.snapshot()
    buffer.begin_add(3).abandon()
    intake = buffer.begin_add(5)
    for segment in intake.segments:
        segment["value"] = -1
    assert [v for part in taken.rows.blocks() for v in part["value"].tolist()] == list(range(8))


@pytest.mark.parametrize("aside_rows", [1, 50, 100_000])
def test_a_save_under_load_is_of_one_instant(
    aside_rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread writes, slowly, while this one fills the ring many times over."""
    monkeypatch.setattr(snapshot, "BLOCK_BYTES", 1 << 13)
    monkeypatch.setattr(snapshot, "AHEAD_BYTES", 1 << 10)
    buffer = Buffer(20_000, RECORD, seed=0)
    add(buffer, 33_333)
    buffer.sample(5)
    expected = held(buffer)
    taken = buffer.snapshot(aside_bytes=aside_rows * RECORD.itemsize)
    writer = threading.Thread(target=taken.write, args=(tmp_path / "b.h5",))
    writer.start()
    added = 0
    while writer.is_alive() or added == 0:
        add(buffer, 999)
        added += 999
        buffer.update_priorities(buffer.sample(50).ids, 9.0)
    assert stored(tmp_path / "b.h5") == expected
    assert buffer._snapshots == [] or not buffer._snapshots[0].open


def test_what_stands_aside_is_bounded_while_a_thread_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshot, "BLOCK_BYTES", 10 * RECORD.itemsize)
    monkeypatch.setattr(snapshot, "AHEAD_BYTES", 30 * RECORD.itemsize)
    buffer = Buffer(1000, RECORD, seed=0)
    add(buffer, 1000)
    taken = buffer.snapshot(aside_bytes=100 * RECORD.itemsize)
    most, lengths = 0, []

    def slow() -> None:
        nonlocal most
        for part in taken.rows.blocks():
            with taken.rows._condition:
                most = max(most, sum(map(len, taken.rows._aside)))
            lengths.append(len(part))
            time.sleep(0.0005)

    writer = threading.Thread(target=slow)
    writer.start()
    while not taken.rows._being_written:
        time.sleep(0.001)
    for _ in range(20):
        add(buffer, 90)
    writer.join()
    assert 0 < most <= 100
    assert sum(lengths) == 1000
    assert max(lengths) <= 30


def test_a_writer_that_hangs_is_given_up_and_intake_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshot, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(snapshot, "BLOCK_BYTES", RECORD.itemsize)
    buffer = Buffer(50, RECORD, seed=0)
    add(buffer, 50)
    taken = buffer.snapshot(aside_bytes=10 * RECORD.itemsize)
    blocks = taken.rows.blocks()
    next(blocks)
    add(buffer, 30)
    add(buffer, 300)
    assert held(buffer)[0] == list(range(330, 380))
    with pytest.raises(CheckpointError, match="given up"):
        list(blocks)


def test_closing_lets_those_go_on_who_wait() -> None:
    buffer = Buffer(50, RECORD, seed=0)
    add(buffer, 50)
    taken = buffer.snapshot(aside_bytes=RECORD.itemsize)
    taken.rows._being_written = True
    waiting = threading.Thread(target=add, args=(buffer, 40))
    waiting.start()
    time.sleep(0.05)
    assert waiting.is_alive()
    taken.close()
    waiting.join(5.0)
    assert not waiting.is_alive()


def test_a_forked_child_does_not_wait_for_its_parents_writer() -> None:
    buffer = Buffer(50, RECORD, seed=0)
    add(buffer, 50)
    taken = buffer.snapshot(aside_bytes=RECORD.itemsize)
    taken.rows._being_written = True
    with taken.rows._condition:
        child = os.fork()
        if child == 0:
            add(buffer, 120)
            taken.close()
            os._exit(0 if len(buffer) == 50 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_snapshot_is_written_once(tmp_path: Path) -> None:
    buffer = Buffer(5, RECORD, seed=0)
    taken = buffer.snapshot()
    taken.write(tmp_path / "b.h5")
    with pytest.raises(CheckpointError, match="closed, or written"):
        taken.write(tmp_path / "b.h5")
    with pytest.raises(CheckpointError, match="is a folder"):
        buffer.snapshot().write(tmp_path)
    add(buffer, 20)
    assert buffer._snapshots == []


# ---- chains ----

STEP = some.tuples(
    some.sampled_from(["add", "add", "update", "draw", "clear"]), some.integers(0, 25)
)


def step(buffer: Buffer, what: str, count: int) -> None:
    if what == "add":
        add(buffer, count)
    elif what == "clear":
        if count == 0:
            buffer.clear()
    elif len(buffer):
        drawn = buffer.sample(count)
        if what == "update":
            buffer.update_priorities(drawn.ids, np.arange(count) % 3)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    capacity=some.integers(1, 40),
    rounds=some.lists(some.lists(STEP, max_size=4), min_size=1, max_size=5),
)
def test_every_link_of_a_chain_is_the_buffer_of_its_moment(
    capacity: int, rounds: list[list[tuple[str, int]]], tmp_path: Path
) -> None:
    for old in tmp_path.iterdir():
        old.unlink()
    buffer, base = Buffer(capacity, RECORD, seed=3), None
    expected = []
    for at, steps in enumerate(rounds):
        for what, count in steps:
            step(buffer, what, count)
        base = buffer.snapshot(base).write(tmp_path / f"{at}.h5")
        expected.append(held(buffer))
    for at, state in enumerate(expected):
        assert stored(tmp_path / f"{at}.h5") == state


def chain_of(folder: Path, links: int = 4) -> Buffer:
    """Write a full file 0.h5 and the incremental files 1.h5, 2.h5 ...; return the buffer."""
    buffer, base = Buffer(1000, RECORD, seed=1), None
    add(buffer, 1300)
    for at in range(links):
        taken = buffer.snapshot(base)
        assert taken.incremental == (at > 0)
        base = taken.write(folder / f"{at}.h5")
        if at < links - 1:
            add(buffer, 10)
            buffer.update_priorities(buffer.sample(20).ids, float(at))
    return buffer


def test_a_chain_draws_as_the_buffer_does(tmp_path: Path) -> None:
    buffer = chain_of(tmp_path)
    loaded = Buffer.load(tmp_path / "3.h5")
    for _ in range(5):
        one, other = buffer.sample(40), loaded.sample(40)
        assert one.indices.tolist() == other.indices.tolist()
        assert one.weights.tolist() == other.weights.tolist()
        assert one.transitions.tobytes() == other.transitions.tobytes()
    assert loaded.epoch == 1
    assert loaded.update_priorities(one.ids, 1.0) == 0


def test_an_incremental_file_holds_what_changed(tmp_path: Path) -> None:
    chain_of(tmp_path, 2)
    with checkpoint.read(tmp_path / "1.h5") as link:
        assert link.header.parent == checkpoint.read_header(tmp_path / "0.h5").digest
        assert link.datasets["transitions"].shape == (10,)
        assert link.datasets["tree/masses"].shape == (10,)
        assert 0 < len(link.datasets["changed/numbers"].read()) <= 20


def test_a_full_file_is_written_where_little_is_the_same(tmp_path: Path) -> None:
    buffer = Buffer(100, RECORD, seed=0)
    add(buffer, 100)
    base = buffer.snapshot().write(tmp_path / "0.h5")
    add(buffer, 50)
    assert buffer.snapshot(base).incremental
    add(buffer, 1)
    assert not buffer.snapshot(base).incremental
    other = Buffer.load(tmp_path / "0.h5")
    assert not other.snapshot(base).incremental, "the epoch is another"
    add(buffer, 500)
    assert not buffer.snapshot(base).incremental


def test_many_changed_masses_are_written_whole(tmp_path: Path) -> None:
    buffer = Buffer(100, RECORD, seed=0)
    add(buffer, 100)
    base = buffer.snapshot().write(tmp_path / "0.h5")
    buffer.update_priorities(np.arange(100), 1000.0 + np.arange(100))
    add(buffer, 3)
    buffer.snapshot(base).write(tmp_path / "1.h5")
    with checkpoint.read(tmp_path / "1.h5") as link:
        assert link.datasets["transitions"].shape == (3,)
        assert link.datasets["tree/masses"].shape == (100,)
        assert "changed/numbers" not in link.datasets
    assert stored(tmp_path / "1.h5") == held(buffer)


@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped", "header", "replaced"])
def test_a_missing_or_damaged_link_is_detected(damage: str, tmp_path: Path) -> None:
    chain_of(tmp_path)
    link = tmp_path / "1.h5"
    content = link.read_bytes()
    if damage == "missing":
        link.unlink()
    elif damage == "replaced":
        Buffer(3, RECORD).save(link)
    else:
        place = 300 if damage == "header" else len(content) - 1
        cut = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        link.write_bytes(content[: len(content) // 2] if damage == "truncated" else cut)
    for at in (2, 3):
        with pytest.raises(CheckpointCorruptError, match=r"2\.h5 goes on from the one with sha256"):
            Buffer.load(tmp_path / f"{at}.h5")
    assert len(Buffer.load(tmp_path / "0.h5")) == 1000


def test_a_flip_anywhere_in_a_chain_is_refused(tmp_path: Path) -> None:
    chain_of(tmp_path, 3)
    generator = random.Random(6)
    files = sorted(tmp_path.iterdir())
    for _ in range(150):
        path = generator.choice(files)
        content = path.read_bytes()
        place = generator.randrange(len(content))
        flipped = content[place] ^ 1 << generator.randrange(8)
        path.write_bytes(content[:place] + bytes([flipped]) + content[place + 1 :])
        with pytest.raises(CheckpointError):
            Buffer.load(tmp_path / "2.h5")
        path.write_bytes(content)
    Buffer.load(tmp_path / "2.h5")


def test_links_may_be_renamed_and_a_damaged_copy_beside_a_good_one_does_no_harm(
    tmp_path: Path,
) -> None:
    buffer = chain_of(tmp_path)
    (tmp_path / "0.h5").rename(tmp_path / "other name")
    content = (tmp_path / "1.h5").read_bytes()
    (tmp_path / "0 copy.h5").write_bytes(content[:-1])
    assert stored(tmp_path / "3.h5") == held(buffer)


def relink(path: Path, **changes: Any) -> None:
    """Write an incremental file anew, rightly sealed, with other contents."""
    with checkpoint.read(path) as link:
        attributes: dict[str, Any] = dict(link.attributes)
        datasets = {name: array.read() for name, array in link.datasets.items()}
        parent = link.header.parent
    for name, value in changes.items():
        key = name.replace("__", "/")
        target = datasets if key in datasets else attributes
        if value is None:
            del target[key]
        else:
            target[key] = value
    streams = {
        name: checkpoint.Stream(a.dtype, a.shape, lambda a=a: iter([a]))
        for name, a in datasets.items()
    }
    checkpoint.write(path, attributes, streams, parent=parent)


@pytest.mark.parametrize(
    "changes",
    [
        {"capacity": 1001},
        {"alpha": 0.5},
        {"alpha": None},
        {"alpha": np.array([0.6, 0.6])},
        {"max_age": np.array([])},
        {"cursor": 2**63 + 1320},
        {"cursor": 1319},
        {"size": 999},
        {"size": 1001},
        {"changed__numbers": None},
        {"changed__masses": None},
        {"changed__masses": np.ones(1)},
        {"changed__masses": np.full(1000, np.nan)},
        {"changed__numbers": np.arange(1000)},
        {"changed__numbers": np.arange(1000.0)},
        {"tree__masses": np.ones(9)},
        {"tree__masses": np.ones(11)},
        {"tree__masses": np.full(10, -1.0)},
        {"transitions": np.zeros(9, RECORD)},
        {"transitions": np.zeros(10, [("value", "<i8"), ("pad", "u1", 9)])},
        {"total": 1.0},
    ],
    ids=lambda changes: " ".join(f"{key}={value!r:.30}" for key, value in changes.items()),
)
def test_links_that_do_not_fit_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    chain_of(tmp_path, 2)
    relink(tmp_path / "1.h5")
    Buffer.load(tmp_path / "1.h5")
    relink(tmp_path / "1.h5", **changes)
    with pytest.raises(CheckpointCorruptError, match="does not hold a buffer"):
        Buffer.load(tmp_path / "1.h5")


# ---- another capacity ----


def test_a_larger_capacity_keeps_everything(tmp_path: Path) -> None:
    buffer = chain_of(tmp_path)
    larger = Buffer.load(tmp_path / "3.h5", capacity=1500)
    assert larger.capacity == 1500
    assert held(larger) == held(buffer)
    ids = np.arange(buffer.inserted - 1000, buffer.inserted)
    assert larger[ids]["value"].tolist() == ids.tolist()
    add(larger, 700)
    assert held(larger)[0] == list(range(larger.inserted - 1500, larger.inserted))


def test_a_smaller_capacity_keeps_the_newest_and_says_so(tmp_path: Path) -> None:
    buffer = chain_of(tmp_path)
    with pytest.warns(UserWarning, match="oldest 700 transitions were dropped"):
        smaller = Buffer.load(tmp_path / "3.h5", capacity=300)
    values, masses, cursor, sampled = held(buffer)
    assert held(smaller) == (values[-300:], masses[-300:], cursor, sampled)
    assert smaller.update_priorities(np.arange(cursor - 400, cursor), 1.0) == 100
    for capacity in (0, -1, 2**40 + 1):
        with pytest.raises(CapacityError, match="capacity is"):
            Buffer.load(tmp_path / "3.h5", capacity=capacity)


def test_a_capacity_that_holds_it_all_drops_nothing(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    buffer = Buffer(1000, RECORD, seed=1)
    add(buffer, 20)
    buffer.save(tmp_path / "b.h5")
    assert held(Buffer.load(tmp_path / "b.h5", capacity=20)) == held(buffer)
    assert len(recwarn) == 0


@pytest.mark.parametrize("other", ["cpu", "multicore"])
def test_any_backend_gets_the_same_masses_and_draws(other: str, tmp_path: Path) -> None:
    buffer = chain_of(tmp_path)
    loaded = Buffer.load(tmp_path / "3.h5", backend=other)
    assert loaded.tree.backend == other
    assert loaded.tree.nodes("sum").tobytes() == buffer.tree.nodes("sum").tobytes()
    assert loaded.sample(99).indices.tolist() == buffer.sample(99).indices.tolist()
