"""The buffer against a naive model of it: a dict from slots to ids, records and masses."""

from __future__ import annotations

import copy
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from numpy.random import Generator, Philox, SeedSequence

import libsumtree as st
from libsumtree.errors import (
    ArgumentError,
    ArgumentTypeError,
    EmptyTreeError,
    IdError,
    PriorityError,
    ShapeError,
    StaleIdError,
)

RECORD = np.dtype([("value", "<i8"), ("copies", "<f4", (2,)), ("label", "U4")])
BITS = 40
PRIORITIES = some.one_of(
    some.sampled_from([0.0, -0.0, 5e-324, 1e-3, 1.0, 1.0, 2.0, 1e9]),
    some.floats(0, 100, allow_nan=False),
)
BAD_PRIORITIES = some.sampled_from([np.nan, np.inf, -np.inf, -1e-300, -1.0])


def records_of(values: np.ndarray) -> np.ndarray:
    rows = np.zeros(values.shape, RECORD)
    rows["value"] = values
    rows["copies"] = values[..., np.newaxis] % 1000
    rows["label"] = (values % 1000).astype("U4")
    return rows


@dataclass
class Model:
    capacity: int
    alpha: float
    epoch: int = 0
    number: int = 0
    slots: dict[int, tuple[int, int, float]] = field(default_factory=dict)  # slot: id, value, mass
    stale: set[int] = field(default_factory=set)

    def mass_of(self, priority: float) -> float:
        return float(priority) ** self.alpha if priority > 0 else 0.0

    def largest(self) -> float:
        return max((mass for _, _, mass in self.slots.values()), default=0.0) or 1.0

    def name_of(self, number: int) -> int:
        return self.epoch << BITS | number

    def retire(self, slot: int) -> None:
        if slot in self.slots:
            self.stale.add(self.slots.pop(slot)[0])

    def add(self, values: list[int], masses: list[float]) -> list[int]:
        names = []
        for value, mass in zip(values, masses, strict=True):
            self.retire(self.number % self.capacity)
            names.append(self.name_of(self.number))
            self.slots[self.number % self.capacity] = (names[-1], value, mass)
            self.number += 1
        return names

    def clear(self) -> None:
        for slot in list(self.slots):
            self.retire(slot)

    def leaves(self) -> np.ndarray:
        return np.array([self.slots.get(i, (0, 0, 0.0))[2] for i in range(self.capacity)])

    def live(self) -> dict[int, int]:
        return {name: slot for slot, (name, _, _) in self.slots.items()}


@dataclass
class Saved:
    model: Model
    draws: dict[str, Any]
    path: Path


class BufferMachine(RuleBasedStateMachine):
    capacity = 3

    @initialize(
        alpha=some.sampled_from([0.0, 0.5, 0.6, 1.0]),
        seed=some.integers(0, 2**70),
        beta=some.floats(0, 1),
    )
    def begin(self, alpha: float, seed: int, beta: float) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.model = Model(self.capacity, alpha)
        self.beta = beta
        self.buffer = st.PrioritizedReplayBuffer(
            self.capacity, RECORD, alpha=alpha, beta=beta, seed=seed
        )
        self.draws = Generator(Philox(SeedSequence(seed)))
        self.intake: Any = None
        self.intake_count = 0
        self.intake_mass = 1.0
        self.saved: Saved | None = None
        self.issued: set[int] = set()
        self.values = 0
        self.highest_epoch = 0

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()

    def fresh(self, count: int) -> np.ndarray:
        self.values += count
        return np.arange(self.values - count, self.values)

    def note(self, names: Any, expected: list[int]) -> None:
        assert np.ravel(names).tolist() == expected
        assert self.issued.isdisjoint(expected), "an id was issued twice"
        self.issued.update(expected)

    def masses(self, priorities: Any, count: int) -> list[float]:
        flat = np.broadcast_to(np.ravel(priorities), count)
        return [self.model.mass_of(priority) for priority in flat]

    # ---- adding ----

    @precondition(lambda self: self.intake is None)
    @rule(data=some.data(), relative=some.sampled_from([0, 1, 2, 3, 4, 5, 7, 9]))
    def add(self, data: Any, relative: int) -> None:
        count = relative if self.capacity < 9 else relative * 25
        shape: tuple[int, ...] = data.draw(
            some.sampled_from(
                [(count,), (1, count), (count, 1)] + [(2, count // 2)] * (not count % 2)
            )
        )
        count = int(np.prod(shape))
        how = data.draw(some.sampled_from(["none", "scalar", "array"]))
        priorities: Any = None
        masses = [self.model.largest()] * count
        if how == "scalar":
            priorities = data.draw(PRIORITIES)
            masses = self.masses(priorities, count)
        if how == "array":
            some_of_them = data.draw(some.lists(PRIORITIES, min_size=1, max_size=9))
            priorities = np.resize(some_of_them, shape)
            masses = self.masses(priorities, count)
        values = self.fresh(count)
        names = self.buffer.add(records_of(values.reshape(shape)), priorities)
        assert names.shape == shape
        assert names.dtype == np.int64
        self.note(names, self.model.add(values.tolist(), masses))

    @precondition(lambda self: self.intake is None)
    @rule(priority=some.none() | PRIORITIES)
    def add_one(self, priority: float | None) -> None:
        mass = self.model.largest() if priority is None else self.model.mass_of(priority)
        value = self.fresh(1)
        name = self.buffer.add(records_of(value)[0], priority)
        assert type(name) is int
        self.note(name, self.model.add(value.tolist(), [mass]))

    @rule(
        good=some.lists(PRIORITIES, max_size=3),
        bad=BAD_PRIORITIES,
        after=some.lists(PRIORITIES | BAD_PRIORITIES, max_size=3),
    )
    def add_with_a_bad_priority(self, good: list[float], bad: float, after: list[float]) -> None:
        priorities = np.array([*good, bad, *after])
        rows = records_of(np.zeros(len(priorities), np.int64))
        with pytest.raises(PriorityError, match=rf"^priorities\[{len(good)}\] is {bad}:"):
            self.buffer.add(rows, priorities)
        with pytest.raises(ShapeError):
            self.buffer.add(rows, np.ones(len(rows) + 1))
        with pytest.raises(ArgumentTypeError):
            self.buffer.add(np.zeros(2))

    # ---- an intake ----

    @precondition(lambda self: self.intake is None)
    @rule(relative=some.sampled_from([0, 1, 2, 3, 5, 8]))
    def begin_add(self, relative: int) -> None:
        count = relative if self.capacity < 9 else relative * 25
        self.intake_count, self.intake_mass = count, self.model.largest()
        self.intake = self.buffer.begin_add(count)
        kept = min(count, self.capacity)
        for number in range(self.model.number + count - kept, self.model.number + count):
            self.model.retire(number % self.capacity)
        assert sum(map(len, self.intake.segments)) == kept
        assert 1 <= len(self.intake.segments) <= 2

    @precondition(lambda self: self.intake is not None)
    @rule()
    def only_one_intake_is_open(self) -> None:
        with pytest.raises(ArgumentError, match="intake"):
            self.buffer.begin_add(1)
        with pytest.raises(ArgumentError, match="intake"):
            self.buffer.add(records_of(np.zeros(1, np.int64)))

    @precondition(lambda self: self.intake is not None)
    @rule(priority=some.none() | PRIORITIES)
    def commit(self, priority: float | None) -> None:
        mass = self.intake_mass if priority is None else self.model.mass_of(priority)
        count, values = self.intake_count, self.fresh(self.intake_count)
        rows = records_of(values[count - min(count, self.capacity) :])
        for segment in self.intake.segments:
            segment[...] = rows[: len(segment)]
            rows = rows[len(segment) :]
        with pytest.raises(PriorityError):
            self.intake.commit(np.nan)
        self.note(self.intake.commit(priority), self.model.add(values.tolist(), [mass] * count))
        self.closed()

    @precondition(lambda self: self.intake is not None)
    @rule()
    def abandon(self) -> None:
        segments = self.intake.segments
        for segment in segments:
            segment[...] = records_of(np.full(len(segment), 7))
        self.intake.abandon()
        assert not any(segment.view(np.uint8).any() for segment in segments)
        self.closed()

    def closed(self) -> None:
        for again in (self.intake.commit, self.intake.abandon):
            with pytest.raises(ArgumentError, match="committed or abandoned"):
                again()
        self.intake = None

    # ---- priorities ----

    def names(self, data: Any, most: int) -> list[int]:
        known = sorted(self.issued)
        return data.draw(some.lists(some.sampled_from(known), max_size=most)) if known else []

    @rule(data=some.data())
    def update_priorities(self, data: Any) -> None:
        names = self.names(data, 12)
        names += names[: data.draw(some.integers(0, 3))]
        priorities: Any = data.draw(PRIORITIES)
        if data.draw(some.booleans()):
            priorities = data.draw(some.lists(PRIORITIES, min_size=len(names), max_size=len(names)))
        given = np.array(names, np.int64)
        stale = self.buffer.update_priorities(given, priorities)
        live = self.model.live()
        assert stale == sum(name not in live for name in names)
        for name, mass in zip(names, self.masses(priorities, len(names)), strict=True):
            if name in live:
                _, value, _ = self.model.slots[live[name]]
                self.model.slots[live[name]] = (name, value, mass)

    @rule(data=some.data(), bad=BAD_PRIORITIES)
    def update_with_a_bad_priority(self, data: Any, bad: float) -> None:
        names = self.names(data, 4)
        assume(names)
        place = data.draw(some.integers(0, len(names) - 1))
        priorities = np.full(len(names), 3.25)
        priorities[place:] = bad
        with pytest.raises(PriorityError, match=rf"^priorities\[{place}\] is {bad}:"):
            self.buffer.update_priorities(names, priorities)
        with pytest.raises(ShapeError):
            self.buffer.update_priorities(names, np.ones(len(names) + 1))

    @rule(data=some.data(), beyond=some.integers(0, 3))
    def update_an_id_never_issued(self, data: Any, beyond: int) -> None:
        names = self.names(data, 3)
        never = data.draw(
            some.sampled_from(
                [self.buffer.next_id + beyond, -1 - beyond, self.model.epoch + 1 << BITS]
            )
        )
        for use in (lambda ids: self.buffer.update_priorities(ids, 3.25), self.buffer.__getitem__):
            with pytest.raises(IdError, match=rf"^ids\[{len(names)}\] is {never}:"):
                use([*names, never])

    @rule()
    def clear(self) -> None:
        self.buffer.clear()
        self.model.clear()

    # ---- drawing ----

    @rule(n=some.integers(0, 40), beta=some.none() | some.floats(0, 1), stratified=some.booleans())
    def sample(self, n: int, beta: float | None, stratified: bool) -> None:
        leaves = self.buffer.tree[:]
        if n and not leaves.any():
            before = self.buffer.tree.rng_state["state"]["counter"].tolist()
            with pytest.raises(EmptyTreeError):
                self.buffer.sample(n)
            assert self.buffer.tree.rng_state["state"]["counter"].tolist() == before
            return
        drawn = self.buffer.sample(n, beta, stratified)
        uniforms = self.draws.random(n)
        if n == 0:
            return
        total = self.buffer.tree.total
        targets = ((np.arange(n) + uniforms) / n if stratified else uniforms) * total
        targets = np.minimum(targets, np.nextafter(total, 0))
        assert drawn.indices.tolist() == self.buffer.tree.find(targets).tolist()
        held = [self.model.slots[slot] for slot in drawn.indices.tolist()]
        assert drawn.ids.tolist() == [name for name, _, _ in held]
        assert drawn.masses.tolist() == leaves[drawn.indices].tolist()
        assert np.array_equal(drawn.transitions, records_of(np.array([v for _, v, _ in held])))
        smallest = leaves[leaves > 0].min()
        expected = (smallest / drawn.masses) ** (self.beta if beta is None else beta)
        np.testing.assert_array_max_ulp(drawn.weights, expected, 4)
        drawn.transitions["value"] = -1

    @rule(bad=some.sampled_from([-1e-9, 1.0000001, np.nan, np.inf]))
    def sample_with_a_bad_beta(self, bad: float) -> None:
        with pytest.raises(st.errors.ExponentError, match="beta"):
            self.buffer.sample(1, beta=bad)

    # ---- files ----

    @rule()
    def save(self) -> None:
        path = Path(self.folder.name) / "buffer.h5"
        self.buffer.save(path)
        state = copy.deepcopy(self.draws.bit_generator.state)
        self.saved = Saved(copy.deepcopy(self.model), state, path)

    @precondition(lambda self: self.saved is not None)
    @rule(data=some.data())
    def load(self, data: Any) -> None:
        assert self.saved is not None
        first, second = (st.PrioritizedReplayBuffer.load(self.saved.path) for _ in range(2))
        assert self.highest_epoch < first.epoch < second.epoch
        self.highest_epoch = second.epoch
        values = self.fresh(2)
        self.issued.update(first.add(records_of(values)).tolist())
        self.buffer, self.model = second, copy.deepcopy(self.saved.model)
        self.model.epoch = second.epoch
        self.draws.bit_generator.state = copy.deepcopy(self.saved.draws)
        self.intake = None

    # ---- what always holds ----

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "buffer"):
            return
        model, buffer = self.model, self.buffer
        leaves = model.leaves()
        np.testing.assert_array_max_ulp(buffer.tree[:], leaves, 4)
        buffer.tree.validate()
        positive = buffer.tree[:][leaves > 0]
        assert buffer.tree.max == (positive.max() if positive.size else 0.0)
        assert buffer.tree.min == (positive.min() if positive.size else np.inf)
        assert len(buffer) == len(model.slots)
        assert buffer.inserted == model.number
        assert buffer.next_id == model.name_of(model.number)
        names = list(model.live())
        expected = records_of(np.array([value for _, value, _ in model.slots.values()], np.int64))
        assert np.array_equal(buffer[names], expected)
        for name in list(self.issued.difference(names))[:2]:
            with pytest.raises(StaleIdError, match=str(name)):
                buffer[[*names, name]]


def machine(number_of_slots: int) -> Any:
    class Sized(BufferMachine):
        capacity = number_of_slots

    Sized.TestCase.settings = settings(
        max_examples=40, stateful_step_count=25, deadline=None, print_blob=False
    )
    return Sized.TestCase


TestCapacity1 = machine(1)
TestCapacity2 = machine(2)
TestCapacity3 = machine(3)
TestCapacity5 = machine(5)
TestCapacity8 = machine(8)
TestCapacity100 = machine(100)
