"""Transitions that are drawn no more: drawn often enough, or too old; a naive model beside it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from numpy.random import Generator, Philox

import libsumtree as st
from libsumtree import checkpoint
from libsumtree.errors import (
    ArgumentError,
    ArgumentTypeError,
    CheckpointCorruptError,
    CheckpointMismatchError,
    EmptyTreeError,
    PriorityError,
    StaleIdError,
    TooFewError,
)
from libsumtree.redistribution import redistribute

RECORD = np.dtype([("value", "<i8")])


def rows(count: int, first: int = 0) -> Any:
    made = np.zeros(count, RECORD)
    made["value"] = first + np.arange(count)
    return made


def buffer_of(count: int, capacity: int | None = None, **options: Any) -> Any:
    """Make a buffer that holds transitions 0, 1, 2, .. of mass 1."""
    made = st.PrioritizedReplayBuffer(
        capacity or count, RECORD, alpha=1.0, **{"seed": 0, **options}
    )
    made.add(rows(count), 1.0)
    return made


# ---- what is refused ----


@pytest.mark.parametrize("name", ["max_times_sampled", "max_age"])
def test_limits_are_positive_integers_or_none(name: str) -> None:
    for bad, error in [(0, ArgumentError), (-3, ArgumentError), (1.0, ArgumentTypeError)]:
        with pytest.raises(error, match=name):
            buffer_of(1, **{name: bad})
    with pytest.raises(ArgumentTypeError, match=name):
        buffer_of(1, **{name: True})
    assert getattr(buffer_of(1), name) is None
    assert getattr(buffer_of(1, **{name: np.int32(3)}), name) == 3


def test_a_buffer_all_of_whose_transitions_are_withdrawn_is_empty_to_draws() -> None:
    buffer = buffer_of(3, max_times_sampled=1)
    buffer.sample(3, replace=False)
    state = buffer.tree.rng_state
    with pytest.raises(EmptyTreeError):
        buffer.sample(1)
    assert buffer.tree.rng_state["state"]["counter"].tolist() == state["state"]["counter"].tolist()
    assert len(buffer) == 3
    assert buffer.sample(0).ids.shape == (0,)
    buffer.add(rows(1))
    assert buffer.tree[:].sum() == 1.0  # the default: none held is positive


def test_a_failing_draw_counts_nothing() -> None:
    buffer = buffer_of(3, capacity=5, max_times_sampled=2)
    for arguments in ({"n": 4}, {"n": 6}, {"n": 2, "stratified": True}, {"n": 2, "beta": 2.0}):
        with pytest.raises((TooFewError, ArgumentError, ValueError)):
            buffer.sample(**arguments, replace=False)
    assert (buffer.times_sampled([0, 1, 2]) == 0).all()
    assert buffer.sampled == 0


# ---- drawn often enough ----


def test_a_transition_is_withdrawn_when_it_was_drawn_so_many_times() -> None:
    buffer = buffer_of(4, max_times_sampled=3)
    for drawn in range(1, 4):
        assert sorted(buffer.sample(4, replace=False).ids.tolist()) == [0, 1, 2, 3]
        assert buffer.times_sampled([0, 1, 2, 3]).tolist() == [drawn] * 4
        assert (buffer.tree[:] > 0).tolist() == [drawn < 3] * 4
    assert buffer[[0, 1, 2, 3]]["value"].tolist() == [0, 1, 2, 3]


def test_twice_in_one_batch_counts_twice() -> None:
    buffer = buffer_of(1, max_times_sampled=3)
    assert buffer.sample(2).ids.tolist() == [0, 0]
    assert buffer.times_sampled(0) == 2
    assert buffer.sample(5).ids.tolist() == [0] * 5
    assert buffer.times_sampled(0) == 7
    with pytest.raises(EmptyTreeError):
        buffer.sample(1)


def test_a_priority_for_a_withdrawn_transition_is_checked_and_skipped() -> None:
    buffer = buffer_of(2, max_times_sampled=1)
    buffer.sample(2, replace=False)
    assert buffer.update_priorities([0, 1], [5.0, 7.0]) == 0
    assert buffer.tree.total == 0.0
    with pytest.raises(PriorityError):
        buffer.update_priorities([0, 1], [5.0, -7.0])
    buffer.add(rows(1, 2), 2.0)
    assert buffer.update_priorities([0, 1, 2], [5.0, 7.0, 9.0]) == 1
    assert buffer.tree[:].tolist() == [9.0, 0.0]


def test_counts_begin_anew_where_a_slot_is_taken() -> None:
    buffer = buffer_of(3, max_times_sampled=2)
    buffer.sample(3, replace=False)
    buffer.add(rows(2, 3), 1.0)
    assert buffer.times_sampled([2, 3, 4]).tolist() == [1, 0, 0]
    buffer.sample(3, replace=False)
    assert (buffer.tree[:] > 0).tolist() == [True, True, False]
    buffer.clear()
    buffer.add(rows(8, 5), 1.0)
    assert buffer.times_sampled([10, 11, 12]).tolist() == [0, 0, 0]
    with pytest.raises(StaleIdError):
        buffer.times_sampled([5, 12])


def test_nothing_is_counted_without_a_limit() -> None:
    buffer = buffer_of(3)
    buffer.sample(3)
    assert buffer.times_sampled([0, 1, 2]).tolist() == [0, 0, 0]
    assert buffer.times_sampled(0) == 0


def test_what_is_taken_is_counted_if_it_is_a_draw() -> None:
    buffer = buffer_of(4, max_times_sampled=2)
    buffer.take(np.array([1, 3, 3]), counts=False)
    assert buffer.times_sampled([0, 1, 2, 3]).tolist() == [0, 0, 0, 0]
    taken = buffer.take(np.array([1, 3, 3]))
    assert taken.masses.tolist() == [1.0, 1.0, 1.0]
    assert buffer.times_sampled([0, 1, 2, 3]).tolist() == [0, 1, 0, 2]
    assert buffer.tree[:].tolist() == [1.0, 1.0, 1.0, 0.0]


# ---- too old ----


def test_only_the_newest_are_drawn() -> None:
    buffer = buffer_of(10, capacity=8, max_age=3)
    assert (buffer.tree[:] > 0).tolist() == [True, True, False, False, False, False, False, True]
    assert set(buffer.sample(64).ids.tolist()) <= {7, 8, 9}
    assert buffer[[2, 3, 4]]["value"].tolist() == [2, 3, 4]
    assert buffer.update_priorities([2, 6, 7], 4.0) == 0
    assert buffer.update_priorities([1, 2, 7], 4.0) == 1
    assert buffer.tree.total == 4.0 + 1.0 + 1.0
    assert len(buffer) == 8


def test_the_default_mass_is_the_largest_before_any_grows_too_old() -> None:
    buffer = st.PrioritizedReplayBuffer(8, RECORD, alpha=1.0, max_age=2)
    buffer.add(rows(2), [9.0, 1.0])
    buffer.add(rows(1, 2))
    assert buffer.tree[:4].tolist() == [0.0, 1.0, 9.0, 0.0]


@pytest.mark.parametrize("max_age", [8, 9, 1000])
def test_an_age_that_none_reaches_changes_nothing(max_age: int) -> None:
    one, other = buffer_of(20, capacity=8, max_age=max_age), buffer_of(20, capacity=8)
    assert np.array_equal(one.tree.nodes("sum"), other.tree.nodes("sum"))
    assert np.array_equal(one.sample(32).ids, other.sample(32).ids)


# ---- checkpoints ----


def both_limits(count: int = 12) -> Any:
    buffer = buffer_of(count, capacity=10, max_times_sampled=3, max_age=6)
    for _ in range(3):
        buffer.sample(3)
    return buffer


def test_a_loaded_buffer_goes_on_with_its_limits(tmp_path: Path) -> None:
    buffer = both_limits()
    buffer.save(tmp_path / "replay.h5")
    loaded = st.PrioritizedReplayBuffer.load(tmp_path / "replay.h5")
    assert (loaded.max_times_sampled, loaded.max_age) == (3, 6)
    held = np.arange(2, 12)
    assert np.array_equal(loaded.times_sampled(held), buffer.times_sampled(held))
    assert buffer.times_sampled(held).sum() == 9
    for _ in range(3):
        assert np.array_equal(loaded.sample(2).indices, buffer.sample(2).indices)
        assert np.array_equal(loaded.tree[:], buffer.tree[:])
    for one in (loaded, buffer):
        one.add(rows(2, 12), 1.0)
    assert np.array_equal(loaded.tree[:], buffer.tree[:])


def test_counts_follow_to_another_capacity(tmp_path: Path) -> None:
    buffer = both_limits()
    buffer.save(tmp_path / "replay.h5")
    larger = st.PrioritizedReplayBuffer.load(tmp_path / "replay.h5", capacity=33)
    held = np.arange(2, 12)
    assert np.array_equal(larger.times_sampled(held), buffer.times_sampled(held))
    with pytest.warns(UserWarning, match="dropped"):
        smaller = st.PrioritizedReplayBuffer.load(tmp_path / "replay.h5", capacity=4)
    assert np.array_equal(smaller.times_sampled(held[-4:]), buffer.times_sampled(held[-4:]))


def test_an_incremental_file_holds_the_counts_of_all(tmp_path: Path) -> None:
    buffer = buffer_of(50, max_times_sampled=9)
    with buffer.snapshot() as snapshot:
        base = snapshot.write(tmp_path / "replay-000000000001.h5")
    buffer.sample(20)
    with buffer.snapshot(base) as snapshot:
        assert snapshot.incremental
        snapshot.write(tmp_path / "replay-000000000002.h5")
    loaded = st.PrioritizedReplayBuffer.load(tmp_path / "replay-000000000002.h5")
    held = np.arange(50)
    assert np.array_equal(loaded.times_sampled(held), buffer.times_sampled(held))
    assert loaded.times_sampled(held).sum() == 20


def test_a_buffer_without_limits_says_nothing_of_them(tmp_path: Path) -> None:
    buffer_of(3).save(tmp_path / "replay.h5")
    with h5py.File(tmp_path / "replay.h5") as file:
        assert "times_sampled" not in file
        assert not {"max_times_sampled", "max_age"} & set(file.attrs)
    assert st.PrioritizedReplayBuffer.load(tmp_path / "replay.h5").max_age is None


def rewritten(buffer: Any, path: Path, attributes: Any, datasets: Any) -> Path:
    """Write what a buffer would, with some parts replaced; None leaves a dataset out."""
    with buffer.snapshot() as snapshot:
        all_attributes = {**snapshot.attributes, **attributes}
        merged = {**snapshot.datasets(), **datasets}
        checkpoint.write(
            path, all_attributes, {name: part for name, part in merged.items() if part is not None}
        )
    return path


@pytest.mark.parametrize(
    ("attributes", "times"),
    [
        ({}, None),
        ({}, [np.zeros(9, np.int64)]),
        ({}, [np.zeros(10, np.float64)]),
        ({}, [np.full(10, -1)]),
        ({}, [np.full(10, 3)]),
        ({"max_times_sampled": 0}, [np.zeros(10, np.int64)]),
        ({"max_age": 1}, [np.zeros(10, np.int64)]),
        ({"max_age": "old"}, [np.zeros(10, np.int64)]),
    ],
)
def test_counts_and_limits_that_do_not_fit_are_refused(
    tmp_path: Path, attributes: Any, times: Any
) -> None:
    buffer = buffer_of(10, max_times_sampled=3)
    path = rewritten(buffer, tmp_path / "replay.h5", attributes, {"times_sampled": times})
    with pytest.raises(CheckpointCorruptError, match="does not hold a buffer"):
        st.PrioritizedReplayBuffer.load(path)


def test_redistribution_carries_counts_and_limits(tmp_path: Path) -> None:
    paths, counts = [], {}
    for shard in range(2):
        folder = tmp_path / str(shard)
        folder.mkdir()
        buffer = st.PrioritizedReplayBuffer(10, RECORD, 1.0, seed=shard, max_times_sampled=2)
        ids = buffer.add(rows(8, 100 * shard), 1.0)
        buffer.sample(10)
        counts |= dict(zip(buffer[ids]["value"], buffer.times_sampled(ids), strict=True))
        paths.append(folder / "replay.h5")
        buffer.save(paths[-1])
    made = redistribute(paths, 3, 10, seed=0).buffers
    found = {}
    for buffer in made:
        assert buffer.max_times_sampled == 2
        ids = buffer.next_id - len(buffer) + np.arange(len(buffer))
        found |= dict(zip(buffer[ids]["value"], buffer.times_sampled(ids), strict=True))
        withdrawn = buffer.times_sampled(ids) >= 2
        assert np.array_equal(buffer.probabilities(ids) == 0.0, withdrawn)
    assert found == counts
    other = st.PrioritizedReplayBuffer(10, RECORD, 1.0, max_times_sampled=3)
    other.save(paths[1])
    with pytest.raises(CheckpointMismatchError, match="max_times_sampled 3 where"):
        redistribute(paths, 3, 10)


# ---- a model ----


class Machine(RuleBasedStateMachine):
    """Counts and ages by id, in dictionaries; draws by NumPy."""

    @initialize(
        capacity=some.integers(1, 9),
        times=some.one_of(some.none(), some.integers(1, 4)),
        age=some.one_of(some.none(), some.integers(1, 11)),
        seed=some.integers(0, 99),
    )
    def begin(self, capacity: int, times: int | None, age: int | None, seed: int) -> None:
        self.capacity, self.times, self.age = capacity, times, age
        self.buffer = st.PrioritizedReplayBuffer(
            capacity, RECORD, 1.0, seed=seed, max_times_sampled=times, max_age=age
        )
        self.generator = Generator(Philox(np.random.SeedSequence(seed)))
        self.number = self.floor = self.epoch = 0
        self.mass: dict[int, float] = {}
        self.count: dict[int, int] = {}

    def withdrawn(self, number: int) -> bool:
        too_often = self.times is not None and self.count[number] >= self.times
        return too_often or (self.age is not None and number < self.number - self.age)

    def settle(self) -> None:
        oldest = max(self.floor, self.number - self.capacity)
        for number in [n for n in self.mass if n < oldest]:
            del self.mass[number], self.count[number]
        for number in self.mass:
            if self.withdrawn(number):
                self.mass[number] = 0.0

    @rule(masses=some.lists(some.integers(0, 9), max_size=14))
    def add(self, masses: list[int]) -> None:
        ids = self.buffer.add(rows(len(masses), self.number), [float(mass) for mass in masses])
        for mass, name in zip(masses, ids, strict=True):
            assert name & (1 << 40) - 1 == self.number
            self.mass[self.number], self.count[self.number] = float(mass), 0
            self.number += 1
        self.settle()

    @rule()
    def add_with_the_default(self) -> None:
        largest = max(self.mass.values(), default=0.0) or 1.0
        self.buffer.add(rows(1, self.number))
        self.mass[self.number], self.count[self.number] = largest, 0
        self.number += 1
        self.settle()

    @rule(data=some.data())
    def update(self, data: some.DataObject) -> None:
        numbers = data.draw(some.lists(some.integers(0, max(0, self.number - 1)), max_size=6))
        if self.number == 0 or self.epoch:
            return
        masses = data.draw(
            some.lists(some.integers(0, 9), min_size=len(numbers), max_size=len(numbers))
        )
        stale = self.buffer.update_priorities(numbers, np.array(masses, float))
        assert stale == sum(number not in self.mass for number in numbers)
        for number, mass in zip(numbers, masses, strict=True):
            if number in self.mass and not self.withdrawn(number):
                self.mass[number] = float(mass)

    @precondition(lambda self: any(self.mass.values()))
    @rule(n=some.integers(1, 6))
    def sample(self, n: int) -> None:
        leaves = np.zeros(self.capacity)
        for number, mass in self.mass.items():
            leaves[number % self.capacity] = mass
        targets = (np.arange(n) + self.generator.random(n)) / n * leaves.sum()
        slots = np.searchsorted(np.cumsum(leaves), targets, "right")
        drawn = self.buffer.sample(n)
        assert np.array_equal(drawn.indices, slots)
        for number in drawn.transitions["value"].tolist():
            self.count[number] += 1
        self.settle()

    @rule()
    def clear(self) -> None:
        self.buffer.clear()
        self.floor = self.number
        self.settle()

    @rule()
    def save_and_load(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.buffer.save(Path(folder) / "replay.h5")
            self.buffer = st.PrioritizedReplayBuffer.load(Path(folder) / "replay.h5")
        self.epoch += 1

    @invariant()
    def masses_and_counts_are_those_of_the_model(self) -> None:
        leaves = np.zeros(self.capacity)
        for number, mass in self.mass.items():
            leaves[number % self.capacity] = mass
        assert np.array_equal(self.buffer.tree[:], leaves)
        if self.epoch == 0 and self.mass and self.times is not None:
            numbers = np.array(list(self.mass))
            expected = [self.count[number] for number in self.mass]
            assert self.buffer.times_sampled(numbers).tolist() == expected


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=30)
