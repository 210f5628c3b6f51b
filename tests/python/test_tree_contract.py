"""The contract clause by clause, and what went wrong in other sum trees."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest

import libsumtree as st
from libsumtree.errors import (
    EmptyTreeError,
    IndexOutOfRangeError,
    KindError,
    MassError,
    RangeError,
    TargetError,
)
from libsumtree.vectors import at_vector_level, vector_levels

SUMMED = [st.SumTree, st.PriorityTree]
TREES = [st.SumTree, st.MinTree, st.PriorityTree]


def tree_with(kind: Any, masses: Any) -> Any:
    tree = kind(len(masses))
    tree[:] = masses
    return tree


# ---- what went wrong elsewhere ---------------------------------------------------------


@pytest.mark.parametrize("kind", SUMMED)
def test_sum_holds_the_newest_leaf(kind: Any) -> None:
    # Elsewhere `stop` was taken as the last leaf: sum(0, size-1) then dropped the newest one.
    tree = tree_with(kind, [1.0, 2.0, 4.0])
    assert tree.sum(0, 3) == tree.sum() == tree.sum(0) == tree.total == 7.0
    assert tree.sum(0, 2) == 3.0
    assert tree.sum(2) == 4.0
    assert tree.sum(1, 1) == 0.0
    assert tree.sum(3, 3) == 0.0


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("kind", SUMMED)
def test_a_target_at_the_total_lands_on_the_last_positive_leaf(kind: Any, side: Any) -> None:
    tree = tree_with(kind, [0.0, 1.0, 2.0, 0.0, 0.0])
    assert tree.find(tree.total, side) == 2
    assert tree.find(0.0, side) == 1
    # 0.1 added three times is more than 0.3: rounding must not lead past the leaves either.
    tree = tree_with(kind, [0.1, 0.1, 0.1])
    assert tree.find(tree.total, side) == 2


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("kind", SUMMED)
@pytest.mark.parametrize("capacity", [1, 2, 3, 5, 33])
def test_an_only_leaf_is_always_found(kind: Any, side: Any, capacity: int) -> None:
    for leaf in range(capacity):
        for mass in (5e-324, 0.3, 2.0**960):
            tree = kind(capacity)
            tree[leaf] = mass
            found = tree.find([0.0, -0.0, mass / 2, math.nextafter(mass, 0), mass], side)
            assert found.tolist() == [leaf] * 5


def test_which_side_takes_a_boundary() -> None:
    tree = tree_with(st.SumTree, [0.0, 1.0, 2.0, 0.0, 0.0, 3.0, 0.0])
    targets = [0.0, 0.5, 1.0, 2.5, 3.0, 4.0, 6.0]
    for level in vector_levels(tree.backend):
        with at_vector_level(tree.backend, level):
            assert tree.find(targets, "right").tolist() == [1, 1, 2, 2, 5, 5, 5]
            assert tree.find(targets, "left").tolist() == [1, 1, 1, 2, 2, 5, 5]
            assert [tree.find(t) for t in targets] == [1, 1, 2, 2, 5, 5, 5]
            assert [tree.find(t, "left") for t in targets] == [1, 1, 1, 2, 2, 5, 5]


@pytest.mark.parametrize("kind", SUMMED)
def test_integer_masses_agree_with_cumsum(kind: Any) -> None:
    masses = np.random.default_rng(5).integers(0, 9, 1000).astype(float)
    tree = tree_with(kind, masses)
    sums = np.cumsum(masses)
    targets = np.random.default_rng(6).integers(0, int(sums[-1]), 4000).astype(float)
    assert np.array_equal(tree.find(targets), np.searchsorted(sums, targets, "right"))
    above = targets + 1
    assert np.array_equal(tree.find(above, "left"), np.searchsorted(sums, above, "left"))


@pytest.mark.parametrize("kind", SUMMED)
@pytest.mark.parametrize("count", [4, 7, 8, 17, 100, 3000])
def test_every_node_is_the_sum_of_its_children(kind: Any, count: int) -> None:
    rng = np.random.default_rng(count)
    tree, leaves = kind(50_000), np.zeros(2**16)
    for _ in range(3):
        indices, masses = rng.integers(0, 50_000, count), rng.random(count)
        indices[1::3] = indices[: count - 1 : 3] ^ 1  # siblings
        indices[2::5] = indices[: count - 2 : 5]
        tree.update(indices, masses)
        for index, mass in zip(indices, masses, strict=True):
            leaves[index] = mass
        levels = [leaves]
        while len(levels[-1]) > 1:
            levels.append(levels[-1][::2] + levels[-1][1::2])
        assert np.array_equal(tree.nodes("sum")[1:], np.concatenate(levels[::-1]))


@pytest.mark.parametrize("kind", [st.SumTree, st.PriorityTree])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_updates_do_not_drift(kind: Any, count: int) -> None:
    # A tree that adds differences keeps 1e16 - 1e16's rounding for ever.
    tree = tree_with(kind, [0.1] * 7)
    fresh = tree.nodes("sum").tobytes()
    leaves = np.resize([3, 4], count)
    for mass in (1e16, 2.0**960, 5e-324, 0.7):
        tree[leaves] = mass
        tree[leaves] = 0.1
        assert tree.nodes("sum").tobytes() == fresh


@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize("capacity", [5, 1000])
@pytest.mark.parametrize("repeats", [2, 4000])
def test_the_last_of_equal_indices_wins(kind: Any, capacity: int, repeats: int) -> None:
    # Where duplicates race, or each adds its own difference, the root is not the sum of the leaves.
    tree = kind(capacity)
    indices = np.resize([3, 1, 3], 3 * repeats)
    masses = np.arange(1.0, len(indices) + 1)
    tree.update(indices, masses)
    assert tree[3] == len(indices)
    assert tree[1] == len(indices) - 1
    tree.validate()


def test_a_min_tree_refuses_nan_and_counts_zero() -> None:
    # fmin swallows NaN; and elsewhere an empty leaf's 0 became the minimum.
    tree = st.MinTree(5)
    assert tree.min() == math.inf
    tree[1] = 3.0
    assert tree.min() == 3.0
    with pytest.raises(MassError):
        tree[1] = math.nan
    assert tree.min() == 3.0
    tree[4] = 0.0
    assert tree.min() == 0.0
    assert tree.min(0, 4) == 3.0
    tree[0] = -math.inf
    assert tree.min() == -math.inf
    assert tree.min(1) == 0.0
    assert tree.min(2, 2) == math.inf


def test_min_and_max_are_of_the_positive_masses_held_now() -> None:
    tree = st.PriorityTree(6)
    assert (tree.min, tree.max) == (math.inf, 0.0)
    tree.update([0, 2, 5], [7.0, 0.5, 3.0])
    assert (tree.min, tree.max) == (0.5, 7.0)
    tree.update([0, 2], 0.0)
    assert (tree.min, tree.max) == (3.0, 3.0)
    tree[5] = -0.0
    assert (tree.min, tree.max, tree.total) == (math.inf, 0.0, 0.0)
    assert not math.copysign(1, tree[5]) < 0


@pytest.mark.parametrize("kind", TREES)
def test_a_negative_index_never_writes(kind: Any) -> None:
    tree = kind(5)
    tree[:] = 1.0
    planes = {p: tree.nodes(p).tobytes() for p in ("sum", "min", "max") if has_plane(tree, p)}
    for index in (-1, -5, -6, 5, 7, 8, -(2**63), 2**63 - 1):
        for change in (lambda i=index: tree.update(i, 2.0), lambda i=index: tree.update([0, i], 2)):
            with pytest.raises(IndexOutOfRangeError, match=str(index)):
                change()
        with pytest.raises(IndexOutOfRangeError, match=str(index)):
            tree[index]
    assert {p: tree.nodes(p).tobytes() for p in planes} == planes


def has_plane(tree: Any, plane: Any) -> bool:
    try:
        tree.nodes(plane)
    except KindError:
        return False
    return True


@pytest.mark.parametrize("kind", TREES)
def test_a_power_of_two_is_not_doubled(kind: Any) -> None:
    for capacity, padded in [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (1024, 1024), (1025, 2048)]:
        tree = kind(capacity)
        assert tree.padded_capacity == padded
        assert (len(tree), tree.capacity) == (capacity, capacity)


def test_iteration_ends_at_the_capacity() -> None:
    assert list(tree_with(st.SumTree, [1.0, 2.0, 3.0])) == [1.0, 2.0, 3.0]


# ---- masses ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SUMMED)
def test_domain_of_masses(kind: Any) -> None:
    tree = kind(3)
    tree[:] = [2.0**960, 5e-324, -0.0]
    assert tree[:].tobytes() == np.array([2.0**960, 5e-324, 0.0]).tobytes()
    before = tree.nodes("sum").tobytes()
    for bad in (-5e-324, math.nan, math.inf, -math.inf, math.nextafter(2.0**960, math.inf)):
        for change in (
            lambda b=bad: tree.update([0, 1], [1.0, b]),
            lambda b=bad: tree.update(1, b),
            lambda b=bad: tree.__setitem__(slice(None), b),
            lambda b=bad: tree.__setitem__(slice(0, 2), [1.0, b]),
        ):
            with pytest.raises(MassError):
                change()
    assert tree.nodes("sum").tobytes() == before


def test_huge_masses_do_not_overflow() -> None:
    tree = st.SumTree(2**16)
    tree[:] = st.MAX_MASS
    assert tree.total == 2.0**976
    assert math.isfinite(st.MAX_MASS * st.MAX_CAPACITY)


# ---- sums of ranges --------------------------------------------------------------------


def masked(tree: Any, start: int, stop: int, unset: float) -> Any:
    """Make the same tree with the leaves outside [start, stop) unset."""
    other = type(tree)(len(tree))
    masses = tree[:]
    masses[:start] = unset
    masses[stop:] = unset
    other[:] = masses
    return other


@pytest.mark.parametrize("capacity", [1, 2, 3, 5, 16, 21])
def test_ranges_are_roots_of_masked_trees(capacity: int) -> None:
    rng = np.random.default_rng(capacity)
    masses = rng.random(capacity) * 10.0 ** rng.integers(-9, 9, capacity)
    sums = tree_with(st.SumTree, masses)
    priorities = tree_with(st.PriorityTree, masses)
    mins = tree_with(st.MinTree, masses - masses.mean())
    for start in range(capacity + 1):
        for stop in range(start, capacity + 1):
            expected = masked(sums, start, stop, 0.0).total
            assert sums.sum(start, stop) == priorities.sum(start, stop) == expected
            assert mins.min(start, stop) == masked(mins, start, stop, math.inf).min()


@pytest.mark.parametrize(
    ("start", "stop"), [(-1, 2), (3, 2), (0, 6), (6, 6), (6, None), (-(2**70), 2**70), (0, -1)]
)
def test_bad_ranges(start: int, stop: int | None) -> None:
    for reduce in (st.SumTree(5).sum, st.PriorityTree(5).sum, st.MinTree(5).min):
        with pytest.raises(RangeError, match=f"start is {start} and stop is .*: a range must"):
            reduce(start, stop)


# ---- descents --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SUMMED)
def test_errors_of_find(kind: Any) -> None:
    tree = kind(4)
    with pytest.raises(EmptyTreeError, match="no positive mass"):
        tree.find(0.0)
    assert tree.find([]).shape == (0,)
    tree[1] = 2.0
    for bad in (-5e-324, 2.0000000000000004, math.nan, math.inf, -math.inf):
        with pytest.raises(TargetError, match=r"targets\[1\] is .*total \(2\.0\)"):
            tree.find([0.0, bad])
        with pytest.raises(TargetError, match=r"targets is .*total \(2\.0\)"):
            tree.find(bad)


def test_a_longer_batch_than_any_block_is_found_alike() -> None:
    rng = np.random.default_rng(8)
    tree = tree_with(st.SumTree, rng.random(1000) * rng.integers(0, 2, 1000))
    targets = rng.random(10_000) * tree.total
    one_by_one = [tree.find(target) for target in targets.tolist()]
    assert tree.find(targets).tolist() == one_by_one


# ---- copies ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_carries_the_leaves(kind: Any, protocol: int) -> None:
    tree = tree_with(kind, [0.5, 0.0, 5e-324, 2.0**960, 7.25])
    again = pickle.loads(pickle.dumps(tree, protocol))
    assert type(again) is kind
    assert len(again) == 5
    assert again[:].tobytes() == tree[:].tobytes()
    again.validate()
    again[0] = 9.0
    assert tree[0] == 0.5


def test_pickle_carries_the_draws_and_the_backend_asked_for(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = st.PriorityTree(5, seed=[1, 2], backend=backend)
    tree[:] = [1.0, 2.0, 3.0, 4.0, 5.0]
    tree.sample(7)
    auto = pickle.dumps(st.SumTree(3))
    dumped = pickle.dumps(tree)
    expected = tree.sample(100)
    again, copied = pickle.loads(dumped), copy.copy(pickle.loads(dumped))
    for other in (again, copied):
        drawn = other.sample(100)
        assert drawn.indices.tolist() == expected.indices.tolist()
        assert other.seed.entropy == [1, 2]
        assert other.backend == backend
    # What was asked for as "auto" is decided anew where it is loaded.
    monkeypatch.setenv("LIBSUMTREE_BACKEND", "no such backend")
    assert pickle.loads(dumped).backend == backend
    with pytest.raises(st.errors.BackendError, match="LIBSUMTREE_BACKEND"):
        pickle.loads(auto)


def test_nodes_is_a_copy() -> None:
    tree = tree_with(st.SumTree, [1.0, 2.0, 4.0])
    nodes = tree.nodes("sum")
    assert nodes.tolist() == [0.0, 7.0, 3.0, 4.0, 1.0, 2.0, 4.0, 0.0]
    nodes[:] = 9.0
    leaves = tree[:]
    leaves[:] = 9.0
    assert tree.total == 7.0
    tree.validate()
