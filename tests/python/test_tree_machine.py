"""The three trees against `libsumtree.reference`, step by step and bit by bit."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import assume, settings
from hypothesis import strategies as some
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import libsumtree as st
from libsumtree.errors import (
    EmptyTreeError,
    ExponentError,
    IndexOutOfRangeError,
    MassError,
    ShapeError,
    SumTreeError,
    TargetError,
)

CAPACITIES = [1, 2, 3, 5, 1000, 2**16]
PLANES = {"SumTree": ["sum"], "MinTree": ["min"], "PriorityTree": ["sum", "min", "max"]}
LONGEST = 48

MASSES = some.one_of(
    some.sampled_from([0.0, -0.0, 5e-324, 2.2250738585072014e-308, 0.1, 1.0, 2.0**900, 2.0**960]),
    some.floats(0, 2.0**960),
    some.floats(0, 1),
)
ANY_NUMBER = some.one_of(MASSES, some.floats(allow_nan=False))
BAD_MASSES = some.sampled_from([-5e-324, -1.0, math.nan, math.inf, -math.inf, 2.0**960 * 1.1])
SIDES = some.sampled_from(["right", "left"])
SEEDS = some.integers(0, 2**128)


def same(left: np.ndarray, right: np.ndarray) -> bool:
    """Tell whether two arrays are the same in shape, dtype and every bit."""
    return (
        left.shape == right.shape
        and left.dtype == right.dtype
        and left.tobytes() == right.tobytes()
    )


def same_number(left: float, right: float) -> bool:
    return (
        type(left) is type(right) is float
        and np.float64(left).tobytes() == np.float64(right).tobytes()
    )


def within_ulps(left: np.ndarray, right: np.ndarray, ulps: int) -> bool:
    """Tell whether positive doubles are at most so many representable numbers apart."""
    return bool(np.all(np.abs(left.view(np.int64) - right.view(np.int64)) <= ulps))


class TreeMachine(RuleBasedStateMachine):
    """Every operation is done to both; after each, all nodes of all planes are compared."""

    kind: ClassVar[str]
    capacity: ClassVar[int]

    @initialize(seed=SEEDS)
    def make(self, seed: int) -> None:
        arguments = {"seed": seed} if self.kind == "PriorityTree" else {}
        self.tree: Any = getattr(st, self.kind)(self.capacity, **arguments)
        self.reference: Any = getattr(st.reference, self.kind)(self.capacity, **arguments)

    # ---- what the rules draw -----------------------------------------------------------

    def number(self) -> Any:
        return ANY_NUMBER if self.kind == "MinTree" else MASSES

    def batch(self, data: some.DataObject, shortest: int = 1) -> np.ndarray:
        """Draw indices, the ends of the tree among them, and repeat one of them."""
        last = self.capacity - 1
        index = some.one_of(some.integers(0, last), some.sampled_from([0, last]))
        indices = data.draw(some.lists(index, min_size=shortest, max_size=LONGEST))
        again = data.draw(some.sampled_from(indices))
        return np.array([*indices, again])

    def masses(self, data: some.DataObject, count: int) -> np.ndarray:
        few = data.draw(some.lists(self.number(), min_size=1, max_size=max(1, min(count, 12))))
        return np.resize(np.array(few), count)

    def span(self, data: some.DataObject) -> tuple[int, int]:
        start = data.draw(some.integers(0, self.capacity))
        longest = self.capacity if self.capacity <= 1000 else LONGEST
        return start, data.draw(some.integers(start, min(self.capacity, start + longest)))

    def both(self, change: str, *arguments: Any) -> None:
        getattr(self.tree, change)(*arguments)
        getattr(self.reference, change)(*arguments)

    def both_refuse(self, error: type[SumTreeError], method: str, *arguments: Any) -> None:
        for tree in (self.tree, self.reference):
            with pytest.raises(error):
                getattr(tree, method)(*arguments)

    # ---- updates -----------------------------------------------------------------------

    @rule(data=some.data())
    def update(self, data: some.DataObject) -> None:
        indices = self.batch(data)
        self.both("update", indices, self.masses(data, len(indices)))

    @rule(data=some.data())
    def update_with_one_mass(self, data: some.DataObject) -> None:
        self.both("update", self.batch(data), data.draw(self.number()))

    @rule(data=some.data())
    def update_one(self, data: some.DataObject) -> None:
        self.both("update", int(self.batch(data)[0]), data.draw(self.number()))

    @rule(data=some.data(), rows=some.integers(1, 3))
    def update_with_axes(self, data: some.DataObject, rows: int) -> None:
        indices = np.resize(self.batch(data), (rows, 2, 3))
        self.both("update", indices, self.masses(data, indices.size).reshape(indices.shape))

    @rule(data=some.data(), scalar=some.booleans())
    def update_slice(self, data: some.DataObject, scalar: bool) -> None:
        start, stop = self.span(data)
        masses = data.draw(self.number()) if scalar else self.masses(data, stop - start)
        self.both("__setitem__", slice(start, stop), masses)

    @rule(data=some.data(), step=some.sampled_from([-3, -1, 2, 7]))
    def update_slice_with_step(self, data: some.DataObject, step: int) -> None:
        start, stop = self.span(data)
        leaves = slice(start, stop, step) if step > 0 else slice(stop, start, step)
        count = len(range(*leaves.indices(self.capacity)))
        self.both("__setitem__", leaves, self.masses(data, count))

    @rule()
    def update_nothing(self) -> None:
        self.both("update", [], [])
        self.both("__setitem__", slice(0, 0), 1.0)

    @rule(data=some.data())
    def fail_to_update(self, data: some.DataObject) -> None:
        indices = self.batch(data)
        masses = self.masses(data, len(indices))
        position = data.draw(some.integers(0, len(indices) - 1))
        beyond = indices.copy()
        beyond[position] = data.draw(some.sampled_from([-1, self.capacity, 2**40, -(2**63)]))
        self.both_refuse(IndexOutOfRangeError, "update", beyond, masses)
        bad = masses.copy()
        bad[position] = math.nan if self.kind == "MinTree" else data.draw(BAD_MASSES)
        self.both_refuse(MassError, "update", indices, bad)
        self.both_refuse(MassError, "update", indices, bad[position])
        self.both_refuse(ShapeError, "update", indices, masses[1:])
        self.both_refuse(MassError, "__setitem__", slice(0, self.capacity), bad[position])

    # ---- reading -----------------------------------------------------------------------

    @rule(data=some.data())
    def read(self, data: some.DataObject) -> None:
        indices = self.batch(data)
        assert same(self.tree[indices], self.reference[indices])
        assert same_number(self.tree[int(indices[0])], self.reference[int(indices[0])])
        start, stop = self.span(data)
        assert same(self.tree[start:stop], self.reference[start:stop])
        assert same(self.tree[stop:start:-2], self.reference[stop:start:-2])

    @rule(data=some.data())
    def reduce(self, data: some.DataObject) -> None:
        start = data.draw(some.integers(0, self.capacity))
        stop = data.draw(some.integers(start, self.capacity))
        method = "min" if self.kind == "MinTree" else "sum"
        for bounds in [(start, stop), (0, stop), (start,), (), (start, start)]:
            actual = getattr(self.tree, method)(*bounds)
            assert same_number(actual, getattr(self.reference, method)(*bounds))

    # ---- descents ----------------------------------------------------------------------

    def targets(self, data: some.DataObject) -> np.ndarray:
        """Draw targets: both ends, sums of leading leaves and their neighbours, and others."""
        total = self.reference.total
        stops = data.draw(some.lists(some.integers(0, self.capacity), max_size=6))
        sums = [self.reference.sum(0, stop) for stop in stops]
        near = [math.nextafter(part, toward) for part in sums for toward in (0.0, math.inf)]
        fractions = data.draw(some.lists(some.floats(0, 1), max_size=20))
        wanted = [0.0, -0.0, total, math.nextafter(total, 0.0), *sums, *near]
        wanted += [fraction * total for fraction in fractions]
        return np.minimum(np.array(wanted), total)

    @precondition(lambda self: self.kind != "MinTree" and self.reference.total > 0)
    @rule(data=some.data(), side=SIDES)
    def find(self, data: some.DataObject, side: str) -> None:
        targets = self.targets(data)
        indices = self.tree.find(targets, side)
        assert same(indices, self.reference.find(targets, side))
        assert np.all(self.reference[indices] > 0)
        assert self.tree.find(float(targets[2]), side) == indices[2]
        assert same(self.tree.find(targets.reshape(1, -1, 1), side), indices.reshape(1, -1, 1))

    @precondition(lambda self: self.kind != "MinTree")
    @rule(side=SIDES, data=some.data())
    def fail_to_find(self, side: str, data: some.DataObject) -> None:
        assert self.tree.find([], side).shape == (0,)
        total = self.reference.total
        if total == 0:
            self.both_refuse(EmptyTreeError, "find", 0.0, side)
            return
        above = math.nextafter(total, math.inf)
        bad = data.draw(some.sampled_from([-5e-324, -1.0, math.nan, math.inf, above]))
        self.both_refuse(TargetError, "find", [0.0, bad], side)
        self.both_refuse(TargetError, "find", bad, side)

    # ---- draws -------------------------------------------------------------------------

    @precondition(lambda self: self.kind == "PriorityTree" and self.reference.total > 0)
    @rule(n=some.integers(0, 70), beta=some.floats(0, 1), stratified=some.booleans())
    def sample(self, n: int, beta: float, stratified: bool) -> None:
        actual = self.tree.sample(n, beta, stratified)
        expected = self.reference.sample(n, beta, stratified)
        assert same(actual.indices, expected.indices)
        assert same(actual.masses, expected.masses)
        assert within_ulps(actual.weights, expected.weights, 4)
        assert np.all(actual.masses > 0)
        assert np.all(actual.weights <= 1)

    @precondition(lambda self: self.kind == "PriorityTree")
    @rule(beta=some.sampled_from([-1e-9, 1.0000001, math.nan, math.inf]))
    def fail_to_sample(self, beta: float) -> None:
        self.both_refuse(ExponentError, "sample", 3, beta)
        if self.reference.total == 0:
            self.both_refuse(EmptyTreeError, "sample", 3)
        assert self.tree.sample(0).indices.shape == (0,)

    @precondition(lambda self: self.kind == "PriorityTree")
    @rule(seed=SEEDS, draws=some.integers(0, 9))
    def replace_the_rng(self, seed: int, draws: int) -> None:
        generator = np.random.Generator(np.random.Philox(seed))
        generator.random(draws)
        self.tree.rng_state = generator.bit_generator.state
        self.reference.rng_state = generator.bit_generator.state

    # ---- copies ------------------------------------------------------------------------

    @rule(protocol=some.integers(2, pickle.HIGHEST_PROTOCOL))
    def pickle(self, protocol: int) -> None:
        self.tree = pickle.loads(pickle.dumps(self.tree, protocol))

    @rule(data=some.data())
    def copy(self, data: some.DataObject) -> None:
        """A copy shares nothing: changing it changes nothing here."""
        assume(self.capacity > 1)
        other = copy.deepcopy(self.tree)
        other.update(self.batch(data), 3.25)
        other[0] = 1.75
        if self.kind == "PriorityTree":
            other.sample(5)

    # ---- after every step --------------------------------------------------------------

    @invariant()
    def same_bits(self) -> None:
        if not hasattr(self, "tree"):
            return
        for plane in PLANES[self.kind]:
            assert same(self.tree.nodes(plane), self.reference.nodes(plane))

    @invariant()
    def sound(self) -> None:
        if not hasattr(self, "tree"):
            return
        self.tree.validate()
        self.reference.validate()
        assert len(self.tree) == self.tree.capacity == self.capacity
        if self.kind == "MinTree":
            assert same_number(self.tree.min(), self.reference.min())
        else:
            assert same_number(self.tree.total, self.reference.total)
        if self.kind == "PriorityTree":
            assert same_number(self.tree.min, self.reference.min)
            assert same_number(self.tree.max, self.reference.max)

    @invariant()
    def same_rng(self) -> None:
        if not hasattr(self, "tree") or self.kind != "PriorityTree":
            return
        ours, numpys = self.tree.rng_state, self.reference.rng_state
        assert ours.keys() == numpys.keys()
        assert ours["state"]["key"].tolist() == numpys["state"]["key"].tolist()
        assert ours["state"]["counter"].tolist() == numpys["state"]["counter"].tolist()
        assert ours["buffer_pos"] == numpys["buffer_pos"]
        if ours["buffer_pos"] < 4:
            assert ours["buffer"].tolist() == numpys["buffer"].tolist()


@pytest.mark.parametrize("capacity", CAPACITIES)
@pytest.mark.parametrize("kind", PLANES)
def test_matches_the_reference(kind: str, capacity: int) -> None:
    machine = type(f"{kind}{capacity}", (TreeMachine,), {"kind": kind, "capacity": capacity})
    run_state_machine_as_test(machine, settings=settings(max_examples=30, stateful_step_count=30))
