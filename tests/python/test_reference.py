"""The oracle itself, against what is plain without it: brute force, cumsum and worked examples."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

import libsumtree
from libsumtree import errors, reference

MASSES = some.lists(some.floats(0, 2.0**960), min_size=1, max_size=20)
TREES = [reference.SumTree, reference.MinTree, reference.PriorityTree]


def tree_with(kind: Any, masses: Any) -> Any:
    tree = kind(len(masses))
    tree[:] = masses
    return tree


def dense(kind: str, leaves: list[float]) -> list[float]:
    """Give nodes 1 .. 2P-1 of one reduction, made from the bottom up."""
    padded = 1
    while padded < len(leaves):
        padded *= 2
    unset = math.inf if kind == "min" else 0.0
    nodes = [0.0] * padded + leaves + [unset] * (padded - len(leaves))
    for i in range(padded - 1, 0, -1):
        left, right = nodes[2 * i], nodes[2 * i + 1]
        nodes[i] = left + right if kind == "sum" else (min if kind == "min" else max)(left, right)
    return nodes


@given(MASSES)
def test_nodes_by_brute_force(masses: list[float]) -> None:
    tree = tree_with(reference.PriorityTree, masses)
    positive = [mass if mass > 0 else math.inf for mass in masses]
    assert tree.nodes("sum").tolist() == dense("sum", masses)
    assert tree.nodes("max").tolist() == dense("max", masses)
    assert tree.nodes("min").tolist() == dense("min", positive)
    assert tree_with(reference.SumTree, masses).nodes("sum").tolist() == dense("sum", masses)
    assert tree_with(reference.MinTree, masses).nodes("min").tolist() == dense("min", masses)
    tree.validate()


@given(MASSES, some.data())
def test_ranges_by_brute_force(masses: list[float], data: some.DataObject) -> None:
    start = data.draw(some.integers(0, len(masses)))
    stop = data.draw(some.integers(start, len(masses)))
    inside = [start <= i < stop for i in range(len(masses))]
    kept = [mass if keep else 0.0 for mass, keep in zip(masses, inside, strict=True)]
    assert tree_with(reference.SumTree, masses).sum(start, stop) == dense("sum", kept)[1]
    expected = min(masses[start:stop], default=math.inf)
    assert tree_with(reference.MinTree, masses).min(start, stop) == expected


@given(some.lists(some.integers(0, 9), min_size=1, max_size=40), some.data())
def test_descents_by_cumsum(masses: list[int], data: some.DataObject) -> None:
    total = sum(masses)
    tree = tree_with(reference.SumTree, masses)
    if total == 0:
        with pytest.raises(errors.EmptyTreeError):
            tree.find(0.0)
        return
    target = data.draw(some.one_of(some.integers(0, total), some.floats(0, total)))
    sums = np.cumsum(masses)
    last = max(i for i, mass in enumerate(masses) if mass > 0)
    first = min(i for i, mass in enumerate(masses) if mass > 0)
    exact = all(Fraction(float(target) - s) == Fraction(target) - s for s in range(total))
    if exact:
        right = int(np.searchsorted(sums, target, "right"))
        left = int(np.searchsorted(sums, target, "left"))
        assert tree.find(target) == min(right, last)
        assert tree.find(target, "left") == max(left, first)


def test_a_worked_example_of_rounding() -> None:
    """The rule, not a running sum: they differ in the last place, and the rule is the contract."""
    tree = tree_with(reference.SumTree, [0.1, 0.2, 0.3, 0.4])
    assert tree.nodes("sum").tolist()[1:4] == [1.0, 0.1 + 0.2, 0.3 + 0.4]
    running = 0.1 + 0.2 + 0.3
    assert tree.find(math.nextafter(running, 0.0), "left") == 2
    assert running - (0.1 + 0.2) > 0.3
    assert tree.find(running, "left") == 3
    assert np.searchsorted(np.cumsum(tree[:]), running, "left") == 2


@pytest.mark.parametrize("kind", TREES)
def test_failing_updates_change_nothing(kind: Any) -> None:
    tree = tree_with(kind, [1.0, 2.0, 3.0])
    for indices, masses, error in [
        ([0, 3], [5.0, 5.0], errors.IndexOutOfRangeError),
        ([0, -1], [5.0, 5.0], errors.IndexOutOfRangeError),
        ([0, 1], [5.0, math.nan], errors.MassError),
        ([0, 1], [5.0], errors.ShapeError),
        ([0.0], [5.0], errors.ArgumentTypeError),
    ]:
        with pytest.raises(error):
            tree.update(indices, masses)
        assert tree[:].tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("kind", TREES)
def test_corruption_is_found(kind: Any) -> None:
    tree = tree_with(kind, [1.0, 2.0, 3.0, 4.0, 5.0])
    for name, plane in tree._planes.items():
        for node in range(1, tree.padded_capacity):
            right = plane.nodes.get(node)
            plane.nodes[node] = 17.0
            with pytest.raises(errors.CorruptTreeError, match=f"plane '{name}'"):
                tree.validate()
            if right is None:
                del plane.nodes[node]
            else:
                plane.nodes[node] = right
        tree.validate()


def test_sizes() -> None:
    for capacity, padded in [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (2**40, 2**40)]:
        tree = reference.SumTree(capacity)
        assert (len(tree), tree.padded_capacity) == (capacity, padded)
    tree[2**40 - 1] = 2.0
    assert tree.find(2.0) == 2**40 - 1
    assert tree.sum(2**39) == 2.0


def test_errors_are_the_librarys() -> None:
    tree = reference.PriorityTree(3, seed=1)
    with pytest.raises(errors.EmptyTreeError):
        tree.sample(1)
    with pytest.raises(errors.ExponentError, match="beta is 2"):
        tree.sample(1, beta=2)
    with pytest.raises(errors.ArgumentError, match="n is -1"):
        tree.sample(-1)
    with pytest.raises(errors.ArgumentError, match="side is 'up'"):
        tree.find(0.0, "up")
    with pytest.raises(errors.ArgumentError, match="plane is 'up'"):
        tree.nodes("up")
    with pytest.raises(errors.KindError):
        reference.MinTree(3).nodes("sum")
    with pytest.raises(errors.RangeError):
        tree.sum(2, 1)
    tree[1] = 1.0
    for bad in (-1.0, 1.5, math.nan):
        with pytest.raises(errors.TargetError, match=rf"targets\[1\] is {bad}"):
            tree.find([0.0, bad])


# ---- errors: the oracle refuses what the trees refuse, in the same words ----


def drawn_from(module: Any) -> Any:
    tree = module.PriorityTree(5, seed=0)
    tree.update([0, 1, 2], [1.0, 2.0, 3.0])
    return tree


def set_slice(tree: Any, step: int, masses: list[float]) -> None:
    tree[0:5:step] = masses


REFUSED: dict[str, Callable[[Any], Any]] = {
    "capacity": lambda st: st.SumTree(0),
    "index": lambda st: st.SumTree(5).update([0, 7], [1.0, 1.0]),
    "one index": lambda st: st.SumTree(5)[9],
    "negative index": lambda st: st.MinTree(5)[np.array([[0, -1]])],
    "huge index": lambda st: st.SumTree(5)[2**70],
    "huge index of an array": lambda st: st.SumTree(5)[np.array([2**63 + 5], np.uint64)],
    "mass": lambda st: st.SumTree(5).update([0, 1], [1.0, -1.0]),
    "value": lambda st: st.MinTree(5).update([0, 1], math.nan),
    "shape": lambda st: st.SumTree(5).update([0, 1], [1.0, 2.0, 3.0]),
    "shape of a slice": lambda st: set_slice(st.SumTree(5), 1, [1.0, 2.0]),
    "shape of a slice with a step": lambda st: set_slice(st.SumTree(5), 2, [1.0, 2.0]),
    "mass of a slice": lambda st: set_slice(st.SumTree(5), 2, [1.0, 2.0, -3.0]),
    "range": lambda st: st.SumTree(5).sum(3, 2),
    "nothing to find": lambda st: st.SumTree(5).find(0.0),
    "target": lambda st: drawn_from(st).find([1.0, 9.0]),
    "target that is no number": lambda st: drawn_from(st).find(math.nan),
    "side": lambda st: drawn_from(st).find(1.0, "middle"),
    "side that is no text": lambda st: drawn_from(st).find(1.0, ["right"]),
    "nothing to draw": lambda st: st.PriorityTree(5).sample(3),
    "nothing to draw once": lambda st: st.PriorityTree(5).sample(3, replace=False),
    "beta": lambda st: drawn_from(st).sample(1, beta=1.5),
    "beta that is no number": lambda st: drawn_from(st).sample(1, math.nan, replace=False),
    "more draws than leaves": lambda st: drawn_from(st).sample(9, replace=False),
    "more draws than masses": lambda st: drawn_from(st).sample(4, replace=False),
    "strata": lambda st: drawn_from(st).sample(1, stratified=True, replace=False),
    "plane": lambda st: st.SumTree(5).nodes("mean"),
    "plane of another kind": lambda st: st.SumTree(5).nodes("max"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_errors_have_the_same_words(fault: str) -> None:
    said = []
    for module in (libsumtree, reference):
        with pytest.raises(errors.SumTreeError) as caught:
            REFUSED[fault](module)
        said.append((type(caught.value), str(caught.value)))
    assert said[0] == said[1]
