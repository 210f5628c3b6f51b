"""What callers may pass: every form of an array goes in unharmed, everything else is refused."""

from __future__ import annotations

import fractions
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import libsumtree as st
from libsumtree.arguments import as_doubles, as_indices
from libsumtree.errors import (
    ArgumentError,
    ArgumentTypeError,
    CapacityError,
    IndexOutOfRangeError,
    KindError,
    MassError,
    ShapeError,
    SumTreeError,
    TargetError,
)

INTEGERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", ">i2", ">i4", ">i8", ">u8", "q", "Q"]
REALS = ["f2", "f4", "f8", "g", ">f4", ">f8", *INTEGERS]


def misaligned(array: np.ndarray) -> np.ndarray:
    memory = np.zeros(array.nbytes + 1, np.uint8)[1:]
    other = memory.view(array.dtype).reshape(array.shape)
    other[...] = array
    assert not other.flags.aligned
    return other


def read_only(array: np.ndarray) -> np.ndarray:
    other = array.copy()
    other.flags.writeable = False
    return other


def strided(array: np.ndarray) -> np.ndarray:
    other = np.zeros((*array.shape[:-1], 3 * array.shape[-1]), array.dtype)[..., ::3]
    other[...] = array
    return other


class Array(np.ndarray):
    """A subclass of NumPy's array."""


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "plain": np.copy,
    "read-only": read_only,
    "strided": strided,
    "reversed": lambda array: array[..., ::-1].copy()[..., ::-1],
    "Fortran": np.asfortranarray,
    "transposed": lambda array: array.T.copy().T,
    "misaligned": misaligned,
    "byte-swapped": lambda array: array.astype(array.dtype.newbyteorder()),
    "subclass": lambda array: array.view(Array),
    "read-only, misaligned": lambda array: read_only_view(misaligned(array)),
}


def read_only_view(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


@pytest.fixture
def tree() -> st.SumTree:
    tree = st.SumTree(10)
    tree[:] = np.arange(10.0)
    return tree


# ---- what is taken ---------------------------------------------------------------------


@pytest.mark.parametrize("dtype", INTEGERS)
def test_every_integer_dtype_is_an_index(tree: st.SumTree, dtype: str) -> None:
    indices = np.array([9, 0, 3], dtype)
    assert tree[indices].tolist() == [9.0, 0.0, 3.0]
    tree.update(indices, [7.0, 8.0, 9.0])
    assert tree[indices].tolist() == [7.0, 8.0, 9.0]
    assert tree[indices[1]] == 8.0
    assert tree[np.array(3, dtype)] == 9.0


@pytest.mark.parametrize("dtype", REALS)
def test_every_real_dtype_is_a_mass_and_a_target(tree: st.SumTree, dtype: str) -> None:
    masses = np.array([2, 0, 5], dtype)
    tree[:] = 0.0
    tree.update([1, 2, 3], masses)
    assert tree[[1, 2, 3]].tolist() == [2.0, 0.0, 5.0]
    tree.update([4, 5], masses[0])
    assert tree[[4, 5]].tolist() == [2.0, 2.0]
    assert tree.find(masses).tolist() == [3, 1, 3]
    assert tree.find(masses[0]) == 3


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(6,), (2, 3), (1, 3, 2)])
def test_any_layout_gives_the_same(layout: str, shape: tuple[int, ...]) -> None:
    indices = np.array([5, 0, 7, 5, 9, 1]).reshape(shape)
    masses = np.array([1.5, 0.0, 2.5, 0.1, 5e-324, 3.0]).reshape(shape)
    plain, other = st.PriorityTree(10), st.PriorityTree(10)
    plain.update(indices, masses)
    given = LAYOUTS[layout](indices), LAYOUTS[layout](masses)
    before = [array.tobytes() for array in given]
    other.update(*given)
    assert other.nodes("sum").tobytes() == plain.nodes("sum").tobytes()
    assert np.array_equal(other[given[0]], plain[indices])
    assert np.array_equal(other.find(given[1]), plain.find(masses))
    other[2:8] = LAYOUTS[layout](masses.ravel())
    assert other[2:8].tolist() == masses.ravel().tolist()
    assert [array.tobytes() for array in given] == before


def test_the_library_gets_aligned_arrays() -> None:
    assert as_indices(misaligned(np.arange(5)), 10).flags.aligned
    assert as_doubles(misaligned(np.arange(5.0)), "masses").flags.aligned
    assert as_indices(misaligned(np.array(5)), 10).flags.aligned


def test_plain_arrays_are_not_copied() -> None:
    indices, masses = np.arange(5), np.arange(5.0)
    assert as_indices(indices, 10) is indices
    assert as_doubles(masses, "masses") is masses


def test_arrays_of_the_caller_are_never_written(tree: st.SumTree) -> None:
    # Elsewhere the batch itself became the targets' scratch space, and results were views of it.
    indices, masses = np.array([1, 1, 2]), np.array([3.0, -0.0, 1.0])
    targets = np.array([0.0, 1.0, 2.0])
    tree.update(indices, masses)
    found, read = tree.find(targets), tree[indices]
    found[:], read[:] = 0, 0.0
    tree[0:3] = masses
    with pytest.raises(MassError):
        tree.update(indices, -masses)
    assert indices.tolist() == [1, 1, 2]
    assert masses.tobytes() == np.array([3.0, -0.0, 1.0]).tobytes()
    assert targets.tolist() == [0.0, 1.0, 2.0]
    assert not any(np.shares_memory(array, tree[:]) for array in (indices, masses))


@pytest.mark.parametrize("empty", [[], (), [[]], np.empty(0, np.int32), np.empty((0, 3), np.int64)])
def test_empty_batches_do_nothing(tree: st.SumTree, empty: Any) -> None:
    before = tree.nodes("sum").tobytes()
    shape = np.shape(empty)
    assert tree[empty].shape == shape
    assert tree[empty].dtype == np.float64
    tree.update(empty, np.empty(shape))
    tree.update(empty, 1.0)
    tree[empty] = 2.0
    tree[3:3] = 1.0
    tree[5:2] = []
    assert tree.find(np.empty(shape)).shape == shape
    assert tree.find(np.empty(shape)).dtype == np.int64
    assert tree.nodes("sum").tobytes() == before


@pytest.mark.parametrize("scalar", [3, np.int64(3), np.uint8(3), np.int16(3)])
def test_one_index_gives_a_python_float(tree: st.SumTree, scalar: Any) -> None:
    assert type(tree[scalar]) is float
    tree[scalar] = 2.5
    assert tree[scalar] == 2.5


@pytest.mark.parametrize("scalar", [3, 3.0, np.float64(3), np.float32(3), np.int8(3)])
def test_one_target_gives_a_python_int(tree: st.SumTree, scalar: Any) -> None:
    assert type(tree.find(scalar)) is int


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (1, 1, 1), (0, 4)])
def test_results_have_the_shape_that_was_asked_for(tree: st.SumTree, shape: Any) -> None:
    masses = tree[np.zeros(shape, int)]
    indices = tree.find(np.zeros(shape))
    assert isinstance(masses, np.ndarray)
    assert isinstance(indices, np.ndarray)
    assert (masses.shape, masses.dtype) == (shape, np.float64)
    assert (indices.shape, indices.dtype) == (shape, np.int64)


def test_python_integers_of_any_size(tree: st.SumTree) -> None:
    tree.update([np.uint64(1), 2], [2**62, 2**900])
    assert tree[[1, 2]].tolist() == [2.0**62, 2.0**900]
    tree.update([1, 2], [fractions.Fraction(1, 4), 2**200])
    assert tree[[1, 2]].tolist() == [0.25, 2.0**200]


# ---- indices out of range --------------------------------------------------------------

BEYOND: list[tuple[Any, str, int]] = [
    (-1, "indices", -1),
    (10, "indices", 10),
    (np.int8(-128), "indices", -128),
    (np.array(11), "indices", 11),
    (2**63, "indices", 2**63),
    (2**64, "indices", 2**64),
    (-(2**63), "indices", -(2**63)),
    (-(2**200), "indices", -(2**200)),
    ([0, 10], "indices[1]", 10),
    ([[0, 1], [-7, 99]], "indices[1, 0]", -7),
    ([0, 2**63], "indices[1]", 2**63),
    ([0, 2**70, -1], "indices[1]", 2**70),
    ([-1, 2**70], "indices[0]", -1),
    ([2**63, -1], "indices[0]", 2**63),
    (np.array([0, 2**63 + 5], np.uint64), "indices[1]", 2**63 + 5),
    (np.array([[0], [2**64 - 1]], np.uint64), "indices[1, 0]", 2**64 - 1),
    (np.array([0, 10], ">i4"), "indices[1]", 10),
    (np.array([0, -3], "i2")[::-1], "indices[0]", -3),
]


@pytest.mark.parametrize(("indices", "where", "value"), BEYOND)
@pytest.mark.parametrize("kind", [st.SumTree, st.MinTree, st.PriorityTree])
def test_an_index_out_of_range_is_named(kind: Any, indices: Any, where: str, value: int) -> None:
    tree = kind(10)
    tree[:] = 1.0
    before = tree[:].tobytes()
    named = re.escape(f"{where} is {value}: an index must be in 0 .. ") + r"(9|.*\(capacity 10\))$"
    for call in (
        lambda: tree[indices],
        lambda: tree.update(indices, 2.0),
        lambda: tree.update(indices, np.full(np.shape(indices), 2.0)),
        lambda: tree.__setitem__(indices, 2.0),
    ):
        with pytest.raises(IndexOutOfRangeError, match=named):
            call()
    assert tree[:].tobytes() == before


def test_the_first_bad_index_of_unsigned_ones_is_named(tree: st.SumTree) -> None:
    with pytest.raises(IndexOutOfRangeError, match=r"indices\[0\] is 10:"):
        tree[np.array([10, 2**63], np.uint64)]


# ---- masses and targets out of range ---------------------------------------------------

HUGE = np.finfo(np.longdouble).max


@pytest.mark.parametrize(
    ("masses", "where", "value"),
    [
        (-1, "masses", "-1.0"),
        ([1.0, -2.5], "masses[1]", "-2.5"),
        ([[1.0], [math.nan]], "masses[1, 0]", "nan"),
        (math.inf, "masses", "inf"),
        ([0, 10**400], "masses[1]", "inf"),
        ([0, -(10**400)], "masses[1]", "-inf"),
        (np.array([0, HUGE]), "masses[1]", "inf"),
        (np.array([-1, 0], np.int8), "masses[0]", "-1.0"),
        (np.array([0, 1e300], ">f8"), "masses[1]", "1e+300"),
    ],
)
def test_a_bad_mass_is_named(tree: st.SumTree, masses: Any, where: str, value: str) -> None:
    indices = np.zeros(np.shape(masses), int)
    text = re.escape(f"{where} is {value}: a mass must be a number in 0 .. 2^960")
    before = tree.nodes("sum").tobytes()
    with pytest.raises(MassError, match=text):
        tree.update(indices, masses)
    with pytest.raises(
        TargetError, match=re.escape(f"targets{where[6:]} is {value}: a target must")
    ):
        tree.find(masses)
    assert tree.nodes("sum").tobytes() == before


def test_an_index_is_named_before_a_mass(tree: st.SumTree) -> None:
    with pytest.raises(IndexOutOfRangeError):
        tree.update([0, 10], [math.nan, 1.0])


# ---- what is refused -------------------------------------------------------------------

NOT_INDICES: list[Any] = [
    1.0,
    [1.0, 2.0],
    np.array([]),
    True,
    [True, False],
    np.array([True]),
    np.True_,
    "1",
    ["a"],
    b"1",
    None,
    [None],
    1j,
    np.array([1, 2], object),
    np.array(["2026-01-01"], "M8[D]"),
    np.array([5], "m8[s]"),
    np.zeros(2, [("a", "i8")]),
    {},
    {1: 2},
    object(),
    [2**70, 0.5],
    [2**70, True],
]


@pytest.mark.parametrize("indices", NOT_INDICES, ids=repr)
def test_what_is_no_index(tree: st.SumTree, indices: Any) -> None:
    before = tree.nodes("sum").tobytes()
    for call in (lambda: tree[indices], lambda: tree.update(indices, 1.0)):
        with pytest.raises(
            ArgumentTypeError, match="indices has dtype .*: it must be of an integer"
        ):
            call()
    assert tree.nodes("sum").tobytes() == before


NOT_REAL: list[Any] = [
    True,
    [True, False],
    np.True_,
    "1",
    ["a"],
    b"1",
    None,
    [None],
    1j,
    [1.0, 2j],
    np.array([1.0], object),
    np.array(["2026-01-01"], "M8[D]"),
    np.zeros(2, [("a", "f8")]),
    {},
    object(),
    [10**400, None],
    [10**400, True],
]


@pytest.mark.parametrize("masses", NOT_REAL, ids=repr)
def test_what_is_no_mass_and_no_target(tree: st.SumTree, masses: Any) -> None:
    before = tree.nodes("sum").tobytes()
    indices = np.zeros(np.shape(masses), int)
    with pytest.raises(ArgumentTypeError, match="masses has dtype .*: it must be real numbers"):
        tree.update(indices, masses)
    with pytest.raises(ArgumentTypeError, match="masses has dtype .*: it must be real numbers"):
        tree[0:1] = masses
    with pytest.raises(ArgumentTypeError, match="targets has dtype .*: it must be real numbers"):
        tree.find(masses)
    assert tree.nodes("sum").tobytes() == before


def test_a_bool_among_numbers_is_refused(tree: st.SumTree) -> None:
    with pytest.raises(ArgumentTypeError):
        tree[[True, 5]]
    with pytest.raises(ArgumentTypeError):
        tree.update([0, 1], [True, 1.0])


@pytest.mark.parametrize("ragged", [[[1], [1, 2]], [[1, 2], 3]])
def test_ragged_sequences_are_refused(tree: st.SumTree, ragged: Any) -> None:
    for call in (
        lambda: tree[ragged],
        lambda: tree.update(ragged, 1.0),
        lambda: tree.update([0, 1], ragged),
        lambda: tree.find(ragged),
    ):
        with pytest.raises(SumTreeError, match="indices|masses|targets"):
            call()


@pytest.mark.parametrize(
    ("indices", "masses"),
    [([1, 2], [1.0]), ([1, 2], [[1.0, 2.0]]), (1, [1.0]), ([1], [[1.0]]), ([], [1.0]), ([1], [])],
)
def test_shapes_must_be_equal(tree: st.SumTree, indices: Any, masses: Any) -> None:
    before = tree.nodes("sum").tobytes()
    shapes = f"masses has shape {np.shape(masses)}: .* {np.shape(indices)} of indices"
    with pytest.raises(ShapeError, match=re.sub(r"([()])", r"\\\1", shapes)):
        tree.update(indices, masses)
    assert tree.nodes("sum").tobytes() == before


def test_shapes_of_slices_must_be_equal(tree: st.SumTree) -> None:
    with pytest.raises(ShapeError, match=r"masses has shape \(2,\): .* \(3,\) of the slice"):
        tree[0:3] = [1.0, 2.0]
    with pytest.raises(ShapeError):
        tree[0:6:2] = [1.0, 2.0]
    with pytest.raises(ShapeError):
        tree[5:2] = [1.0]


def test_slices_are_pythons(tree: st.SumTree) -> None:
    expected = list(map(float, range(10)))
    for start in (None, 0, 3, -3, 12, -20):
        for stop in (None, 0, 7, -1, 12, -20):
            for step in (None, 1, 2, -1, -4):
                leaves = slice(start, stop, step)
                assert tree[leaves].tolist() == expected[leaves]
    with pytest.raises(ArgumentError, match="zero"):
        tree[::0]
    with pytest.raises(ArgumentError, match="zero"):
        tree[::0] = 1.0
    with pytest.raises(ArgumentTypeError, match="slice"):
        tree["a":]  # type: ignore[misc]


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 1


@pytest.mark.parametrize("value", [nested(800), [[]] * 10**6], ids=["deep", "long"])
def test_what_is_shown_of_a_value_is_short(value: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="capacity is .{0,200} of type list"):
        st.SumTree(value)


# ---- single numbers --------------------------------------------------------------------


@pytest.mark.parametrize("kind", [st.SumTree, st.MinTree, st.PriorityTree])
def test_capacities(kind: Any) -> None:
    for capacity in (3, np.int8(3), np.uint64(3), np.array(3)):
        tree = kind(capacity)
        assert tree.capacity == 3
        assert type(tree.capacity) is int
    for bad in (0, -1, 2**40 + 1, 2**64, -(2**64)):
        with pytest.raises(CapacityError, match=rf"capacity is {bad}: a capacity must be in 1 "):
            kind(bad)
        with pytest.raises(CapacityError, match=f"capacity is {bad}: "):
            getattr(st.reference, kind.__name__)(bad)
    for other in (3.0, True, "3", None, [3], np.array([3]), np.True_, 3j):
        with pytest.raises(ArgumentTypeError, match="capacity is .*: it must be an integer"):
            kind(other)


@pytest.mark.parametrize("bound", [1.0, True, "1", [1], math.nan])
def test_bounds_are_integers(tree: st.SumTree, bound: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="start is .*: it must be an integer"):
        tree.sum(bound)
    with pytest.raises(ArgumentTypeError, match="stop is .*: it must be an integer"):
        tree.sum(0, bound)
    assert tree.sum(np.int16(2), np.uint8(4)) == 5.0


@pytest.mark.parametrize("n", [2**62, 2**63, 2**100])
def test_more_draws_than_memory(n: int) -> None:
    tree = st.PriorityTree(4, seed=1)
    tree[0] = 1.0
    with pytest.raises(SumTreeError, match=f"n is {n}"):
        tree.sample(n)


def test_choices(tree: st.SumTree) -> None:
    for side in ("middle", None, 0, "RIGHT"):
        with pytest.raises(ArgumentError, match="side is .*: it must be one of 'right', 'left'"):
            tree.find(0.0, side)  # type: ignore[arg-type]
    for plane in ("product", None, 0):
        with pytest.raises(ArgumentError, match="plane is .*: .* one of 'sum', 'min', 'max'"):
            tree.nodes(plane)  # type: ignore[arg-type]
    for plane in ("min", "max"):
        with pytest.raises(KindError, match="kind of tree"):
            tree.nodes(plane)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "indices", [[np.array([True, False]), np.array([1, 2])], [np.array(True), 1]]
)
def test_a_bool_among_arrays_is_refused(indices: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="bool"):
        st.SumTree(4).update(indices, 1.0)


def test_a_masked_array_is_refused() -> None:
    masses = np.ma.array([1.0, 2.0], mask=[False, True])
    with pytest.raises(ArgumentTypeError, match="masses is a masked array"):
        st.SumTree(4).update([0, 1], masses)


@pytest.mark.parametrize("side", [["right"], None, 1])
def test_a_side_of_any_type_is_refused(side: Any) -> None:
    with pytest.raises(st.SumTreeError, match="side is"):
        st.SumTree(4).find(0.0, side)
