"""Where the trees of `libsumtree.compat` differ from their namesakes: docs/compat.md."""

from __future__ import annotations

import operator
import pickle
import subprocess
import sys

import numpy as np
import pytest

from libsumtree import errors
from libsumtree.compat import baselines, tianshou, torchrl

TORCHRL = [getattr(torchrl, name) for name in torchrl.__all__]
TORCHRL_SUMS = [torchrl.SumSegmentTreeFp32, torchrl.SumSegmentTreeFp64]


def leaves(tree: baselines.SegmentTree) -> list[float]:
    return [tree[i] for i in range(tree.capacity)]


def summed(masses: list[float]) -> baselines.SumSegmentTree:
    tree = baselines.SumSegmentTree(len(masses))
    tree[np.arange(len(masses))] = np.array(masses)
    return tree


# ---- Baselines ----


@pytest.mark.parametrize("capacity", [1, 2, 3, 13, 100])
def test_any_capacity_will_do(capacity: int) -> None:
    tree = summed([1.0] * capacity)
    assert tree.sum() == capacity
    found = [tree.find_prefixsum_idx(float(i)) for i in range(capacity)]
    assert found == list(range(capacity))
    assert tree.find_prefixsum_idx(float(capacity)) == capacity - 1


@pytest.mark.parametrize("capacity", [0, -4])
def test_no_capacity_is_refused_as_an_assertion(capacity: int) -> None:
    with pytest.raises(AssertionError, match=f"capacity is {capacity}"):
        baselines.SumSegmentTree(capacity)
    with pytest.raises(errors.CapacityError):
        baselines.MinSegmentTree(capacity)


@pytest.mark.parametrize("index", [-1, 4, 2**70])
def test_an_index_outside_is_refused_when_written_too(index: int) -> None:
    tree = summed([1.0, 2.0, 3.0, 4.0])
    for access in (lambda: tree[index], lambda: operator.setitem(tree, index, 1.0)):
        with pytest.raises(AssertionError, match=f"^idx is {index}"):
            access()
        with pytest.raises(errors.IndexOutOfRangeError):
            access()
    assert leaves(tree) == [1.0, 2.0, 3.0, 4.0]


def test_one_bad_mass_changes_nothing_and_is_named() -> None:
    tree = summed([1.0, 2.0, 3.0])
    with pytest.raises(errors.MassError, match=r"masses\[1\] is nan"):
        tree[np.array([0, 1])] = np.array([5.0, np.nan])
    with pytest.raises(errors.MassError):
        tree[0] = -1.0
    assert leaves(tree) == [1.0, 2.0, 3.0]


def test_an_empty_range_is_neutral() -> None:
    tree, smallest = summed([1.0, 2.0]), baselines.MinSegmentTree(2)
    assert [tree.sum(0, 0), tree.sum(1, 1), tree.sum(2, 1), tree.sum(2)] == [0.0] * 4
    assert smallest.min(1, 1) == np.inf


@pytest.mark.parametrize("bounds", [(0, 3), (-1, 2), (0, -3), (3, None)])
def test_a_range_outside_is_refused(bounds: tuple[int, int | None]) -> None:
    with pytest.raises(errors.RangeError, match=f"start is {bounds[0]} and end is"):
        summed([1.0, 2.0]).sum(*bounds)


def test_the_total_and_a_little_more_find_the_last_mass() -> None:
    tree = summed([1.0, 0.0, 2.0, 0.0])
    assert tree.find_prefixsum_idx(3.0) == 2
    assert tree.find_prefixsum_idx(3.0 + 9e-6) == 2
    np.testing.assert_array_equal(tree.find_prefixsum_idx(np.array([0.5, 3.0 + 9e-6])), [0, 2])
    with pytest.raises(errors.TargetError, match=r"^prefixsum is 3.1"):
        tree.find_prefixsum_idx(3.1)
    with pytest.raises(AssertionError, match=r"^prefixsum\[1\] is 3.1"):
        tree.find_prefixsum_idx(np.array([3.0 + 9e-6, 3.1]))
    with pytest.raises(AssertionError, match=r"^prefixsum\[0\] is nan"):
        tree.find_prefixsum_idx(np.array([np.nan]))


def test_an_empty_tree_gives_no_leaf() -> None:
    with pytest.raises(errors.EmptyTreeError):
        baselines.SumSegmentTree(4).find_prefixsum_idx(0.0)


def test_operations() -> None:
    largest = baselines.SegmentTree(5, max, float("-inf"))
    assert largest.reduce() == -np.inf
    largest[3], largest[1] = -2.0, 7.0
    assert [largest.reduce(), largest.reduce(2), largest[3]] == [7.0, -2.0, -2.0]
    assert baselines.SegmentTree(2, "min").neutral_element == np.inf
    with pytest.raises(errors.ArgumentError, match="operation is"):
        baselines.SegmentTree(2, operator.mul, 1.0)
    with pytest.raises(errors.ArgumentError, match="neutral_element is 1.0"):
        baselines.SegmentTree(2, operator.add, 1.0)
    with pytest.raises(errors.ArgumentError, match="operation is"):
        baselines.SegmentTree(2, [], 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["sum", "min", "max"])
def test_states_and_pickles(kind: str) -> None:
    tree, other = baselines.SegmentTree(3, kind), baselines.SegmentTree(3, kind)
    tree[1] = 4.0
    other.set_state(tree.get_state())
    again = pickle.loads(pickle.dumps(tree))
    assert leaves(other) == leaves(tree) == leaves(again)
    np.testing.assert_array_equal(again.value, tree.value)
    assert tree.value[1] == tree.reduce()
    with pytest.raises(errors.ArgumentError, match="capacity 3: this tree has 4"):
        baselines.SegmentTree(4, kind).set_state(tree.get_state())


def test_iteration_ends() -> None:
    assert list(summed([1.0, 2.0])) == [1.0, 2.0]


# ---- Tianshou ----


def test_tianshou_leaves_its_arguments_alone() -> None:
    tree = tianshou.SegmentTree(4)
    tree[np.arange(4)] = np.array([1.0, 0.0, 2.0, 3.0])
    targets = np.array([0.0, 1.0, 1.5, 5.0], dtype=np.float32)
    np.testing.assert_array_equal(tree.get_prefix_sum_idx(targets), [0, 0, 2, 3])
    assert targets.tolist() == [0.0, 1.0, 1.5, 5.0]


def test_tianshou_never_finds_a_mass_of_zero() -> None:
    tree = tianshou.SegmentTree(4)
    tree[2] = 1.0
    assert tree.get_prefix_sum_idx(0.0) == 2


def test_tianshou_refuses_the_total() -> None:
    tree = tianshou.SegmentTree(3)
    tree[0] = 2.0
    with pytest.raises(AssertionError, match=r"^value\[1\] is the total"):
        tree.get_prefix_sum_idx(np.array([1.0, 2.0]))
    with pytest.raises(errors.TargetError, match=r"^value is -1"):
        tree.get_prefix_sum_idx(-1.0)
    with pytest.raises(errors.EmptyTreeError):
        tianshou.SegmentTree(3).get_prefix_sum_idx(0.0)


@pytest.mark.parametrize("index", [-1, 3])
def test_tianshou_refuses_to_read_outside(index: int) -> None:
    with pytest.raises(AssertionError, match=f"^index is {index}"):
        tianshou.SegmentTree(3)[index]
    with pytest.raises(AssertionError, match="^size is 0"):
        tianshou.SegmentTree(0)


def test_tianshou_takes_numpy_integers_empty_arrays_and_any_shape() -> None:
    tree = tianshou.SegmentTree(4)
    tree[np.int64(1)] = 2.0
    tree[np.array([], dtype=int)] = np.array([])
    tree[np.array([[0, 2], [3, 3]])] = np.array([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(tree[np.arange(4)], [1.0, 2.0, 2.0, 4.0])


# ---- TorchRL ----


@pytest.mark.parametrize("make", TORCHRL)
def test_torchrl_checks_what_it_is_given(make: type) -> None:
    tree = make(3)
    tree[[0, 1, 2]] = [1.0, 2.0, 3.0]
    for index in (-1, 3, np.array([0, 3])):
        with pytest.raises(errors.IndexOutOfRangeError, match="^index"):
            tree[index]
        with pytest.raises(errors.IndexOutOfRangeError, match="^index"):
            tree.update(index, 1.0)
    with pytest.raises(errors.ArgumentTypeError):
        tree[np.array([0.5])]
    with pytest.raises(errors.ShapeError):
        tree.update(np.array([0, 1]), np.array([1.0, 2.0, 3.0]))
    with pytest.raises(errors.MassError):
        tree.update(np.array([0, 1]), np.array([7.0, np.nan]))
    with pytest.raises(errors.RangeError, match="left is 1 and right is 4"):
        tree.query(np.array([0, 1]), np.array([4, 4]))
    with pytest.raises(errors.ShapeError, match="^right"):
        tree.query(np.array([0, 1]), np.array([2, 2, 2]))
    with pytest.raises(errors.CapacityError, match="size is 0"):
        make(0)
    assert tree[[0, 1, 2]].tolist() == [1.0, 2.0, 3.0]
    assert list(tree) == [1.0, 2.0, 3.0]


def test_torchrl_minima_of_nothing_are_infinite() -> None:
    tree = torchrl.MinSegmentTreeFp32(3)
    assert tree.identity_element == tree.query(0, 3) == tree[0] == np.inf
    tree[1] = np.inf
    assert tree.query(0, 3) == np.inf


@pytest.mark.parametrize("make", TORCHRL_SUMS)
def test_torchrl_never_finds_a_mass_of_zero(make: type) -> None:
    tree = make(6)
    assert tree.scan_lower_bound(1.0) == 6
    with pytest.raises(errors.EmptyTreeError):
        tree.scan_lower_bound(0.0)
    tree[np.array([1, 3])] = np.array([1.0, 2.0])
    np.testing.assert_array_equal(tree.scan_lower_bound(np.array([0.0, 3.0, 3.5])), [1, 3, 6])
    for wrong in (-0.5, np.nan):
        with pytest.raises(errors.TargetError, match=rf"^value\[1\] is {wrong}"):
            tree.scan_lower_bound(np.array([9.0, wrong]))


def test_torchrl_fp32_rounds_what_goes_in_and_out_and_adds_exactly() -> None:
    tree, count = torchrl.SumSegmentTreeFp32(4095), 4095
    tree.update(np.arange(count), 1.0 + 0.99 * 2.0**-24)
    assert tree.query(0, count) == 4095.0, "the sum of what float32 does not hold is one ulp more"
    tree.update(np.arange(count), 0.1)
    assert tree[5] == float(np.float32(0.1))
    assert tree[np.array([5])].dtype == np.float32
    total = tree.query(0, count)
    assert total == float(np.float32(float(np.float32(0.1)) * count))
    assert tree.scan_lower_bound(total) == count - 1
    assert (
        tree.scan_lower_bound(float(np.nextafter(np.float32(total), np.float32(np.inf)))) == count
    )


def test_a_total_that_float32_rounds_up_is_still_inside() -> None:
    tree = torchrl.SumSegmentTreeFp32(2)
    tree.update(np.array([0, 1]), np.array([1.0, 2.0**-24 + 2.0**-40]))
    assert tree.query(0, 2) > 1.0 + 2.0**-24 + 2.0**-40
    assert tree.scan_lower_bound(tree.query(0, 2)) == 1


@pytest.mark.parametrize("make", TORCHRL)
def test_torchrl_pickles(make: type) -> None:
    tree = make(5)
    tree.update(np.arange(4), np.array([0.1, 0.2, 0.3, 0.4]))
    again = pickle.loads(pickle.dumps(tree))
    assert type(again) is make
    np.testing.assert_array_equal(again[np.arange(5)], tree[np.arange(5)])
    assert again.query(0, 5) == tree.query(0, 5)


def test_import_needs_numpy_alone() -> None:
    program = (
        "import sys\n"
        "for name in ('torch', 'torchrl', 'tianshou', 'cpprb', 'gymnasium', 'h5py'):\n"
        "    sys.modules[name] = None\n"
        "from libsumtree.compat import baselines, cpprb, tianshou, torchrl\n"
        "tree = torchrl.SumSegmentTreeFp32(2)\n"
        "tree[[0, 1]] = [1, 2]\n"
        "print(tree.query(0, 2), tianshou.SegmentTree(1).reduce())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "3.0 0.0\n"
