"""Arrays in the memory of a device, where that is the host's: what goes in, what comes out.

The same with PyTorch, CuPy and JAX on real GPUs is tests/device/test_arrays.py.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import libsumtree as st
from libsumtree.errors import (
    ArgumentTypeError,
    ClosedTreeError,
    DeviceArrayError,
    EmptyTreeError,
    ExponentError,
    IndexOutOfRangeError,
    MassError,
    NotANumberError,
    OutOfMemoryError,
    ShapeError,
    TargetError,
)

pytestmark = pytest.mark.gpu_on_host

CAPACITY = 1000


class Array:
    """An array of a library that is not NumPy, in the memory that stands in for a device's."""

    def __init__(self, values: Any, where: tuple[int, int] = (1, 0)) -> None:
        self.values = np.asarray(values)
        self.where = where

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def address(self) -> int:
        return self.values.ctypes.data

    def __getitem__(self, index: Any) -> Any:
        return self.values[index]

    def item(self) -> Any:
        return self.values.item()

    def __array_namespace__(self) -> Any:
        return xp

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.where

    def __dlpack__(self, *, stream: Any, max_version: Any = None) -> Any:
        assert stream is None
        return self.values.__dlpack__(max_version=max_version)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("a trip through NumPy")


class OldArray(Array):
    """The same from before DLPack had versions."""

    def __dlpack__(self, *, stream: Any) -> Any:  # type: ignore[override]
        return self.values.__dlpack__()


def from_dlpack(exporter: Any) -> Array:
    return Array(np.from_dlpack(exporter))


def full_like(array: Array, value: float, dtype: Any) -> Array:
    return Array(np.full(array.shape, value, dtype))


xp = ModuleType("xp")
xp.from_dlpack = from_dlpack  # type: ignore[attr-defined]
xp.full_like = full_like  # type: ignore[attr-defined]
xp.float64 = np.float64  # type: ignore[attr-defined]


def pair(kind: Any = st.PriorityTree, capacity: int = CAPACITY) -> tuple[Any, Any]:
    """Make a tree on the device and one on the host, alike."""
    seed = {"seed": 5} if kind is st.PriorityTree else {}
    trees = kind(capacity, backend="gpu", **seed), kind(capacity, backend="cpu", **seed)
    masses = np.random.default_rng(1).random(capacity)
    for tree in trees:
        tree[:] = masses
    return trees


def same(tree: Any, other: Any) -> None:
    planes = {st.SumTree: ["sum"], st.MinTree: ["min"], st.PriorityTree: ["sum", "min", "max"]}
    for plane in planes[type(tree)]:
        assert tree.nodes(plane).tobytes() == other.nodes(plane).tobytes()


# ---- what goes in and comes out --------------------------------------------------------


@pytest.mark.parametrize("make", [Array, OldArray])
@pytest.mark.parametrize("kind", [st.SumTree, st.MinTree, st.PriorityTree])
@pytest.mark.parametrize("shape", [(), (1,), (0,), (7,), (2, 3, 2), (5000,)])
def test_the_same_bits_as_on_the_host(make: Any, kind: Any, shape: tuple[int, ...]) -> None:
    tree, other = pair(kind)
    rng = np.random.default_rng(2)
    indices, masses = rng.integers(0, CAPACITY, shape), rng.random(shape)
    tree.update(make(indices), make(masses))
    other.update(indices, masses)
    same(tree, other)
    read = tree[make(indices)]
    assert isinstance(read, Array)
    assert read.values.dtype == np.float64
    assert read.shape == shape
    assert read.values.tobytes() == other[indices].tobytes()
    tree[make(indices)] = make(masses * 0.5)
    other[indices] = masses * 0.5
    same(tree, other)
    if kind is st.MinTree:
        return
    targets = masses * other.total
    for side in ("right", "left"):
        found = tree.find(make(targets), side)
        assert isinstance(found, Array)
        assert found.values.dtype == np.int64
        assert found.shape == shape
        assert found.values.tobytes() == np.asarray(other.find(targets, side)).tobytes()


def test_arguments_are_not_written_to() -> None:
    tree, _ = pair()
    arrays = [np.array([3, 3, 5]), np.array([-0.0, 2.0, 1.0])]
    before = [array.tobytes() for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    tree.update(Array(arrays[0]), Array(arrays[1]))
    found, read = tree.find(Array(arrays[1])), tree[Array(arrays[0])]
    found.values[:], read.values[:] = 0, 0.0
    assert [array.tobytes() for array in arrays] == before
    assert tree[[3, 5]].tolist() == [2.0, 1.0]


def test_one_mass_for_all() -> None:
    tree, other = pair()
    indices = np.array([[1, 2], [3, 1]])
    for mass in (2.5, 3, np.float32(0.5)):
        tree.update(Array(indices), mass)
        other.update(indices, mass)
        same(tree, other)
    tree.update(Array(indices), Array(4.0))
    other.update(indices, 4.0)
    same(tree, other)


@pytest.mark.parametrize("stratified", [True, False])
@pytest.mark.parametrize("n", [0, 1, 300, 5000])
def test_draws_stay_on_the_device(n: int, stratified: bool) -> None:
    tree, other = pair()
    for _ in range(3):
        drawn = tree.sample(n, 0.7, stratified, xp=xp)
        expected = other.sample(n, 0.7, stratified)
        assert all(isinstance(array, Array) for array in drawn)
        assert drawn.indices.values.tobytes() == expected.indices.tobytes()
        assert drawn.masses.values.tobytes() == expected.masses.tobytes()
        assert np.allclose(drawn.weights.values, expected.weights, rtol=1e-15, atol=0)
    assert str(tree.rng_state) == str(other.rng_state)


def test_draws_fill_device_arrays() -> None:
    tree, other = pair()
    out = st.TreeSample(*(Array(np.zeros(9, dtype)) for dtype in ("i8", "f8", "f8")))
    addresses = [array.address for array in out]
    assert tree.sample(9, out=out) is out
    assert [array.address for array in out] == addresses
    assert out.indices.values.tolist() == other.sample(9).indices.tolist()


def test_host_arrays_go_in_and_come_out_as_ever() -> None:
    tree, _ = pair()
    assert isinstance(tree[np.array([1])], np.ndarray)
    assert isinstance(tree.find(np.array([0.5])), np.ndarray)
    assert isinstance(tree.sample(3).weights, np.ndarray)
    assert type(tree[3]) is float


# ---- memory ----------------------------------------------------------------------------


def test_results_are_not_copied_and_live_on_their_own() -> None:
    tree, other = pair()
    indices = np.arange(100)
    kept = [tree[Array(indices + k)] for k in range(20)]
    assert len({array.address for array in kept}) == 20
    drawn = tree.sample(100, xp=xp)
    tree.close()
    del tree
    gc.collect()
    for k, array in enumerate(kept):
        assert array.values.tobytes() == other[indices + k].tobytes()
    assert drawn.indices.values.tolist() == other.sample(100).indices.tolist()


def test_memory_is_used_again_once_nobody_holds_it() -> None:
    tree, _ = pair()
    first = tree[Array(np.arange(100))]
    address, view = first.address, first.values[5:]
    del first
    assert tree[Array(np.arange(100))].address != address
    del view
    seen = {tree[Array(np.arange(100))].address for _ in range(10)}
    assert address in seen
    assert len(seen) <= 2


@pytest.mark.parametrize(
    ("stream", "again"),
    [(None, True), (0, True), (1, True), (2, False), (2**47 + 8, False), (-1, False)],
)
def test_memory_that_another_stream_may_read_is_not_used_again(stream: Any, again: bool) -> None:
    """Its library may free an array while its own stream still has work on it."""
    tree, _ = pair()
    indices = Array(np.arange(100))
    spare = [tree[indices] for _ in range(3)]
    del spare
    result = tree._device_get(tree._view(indices, "indices", "int64"))
    address = np.from_dlpack(result).ctypes.data
    result.__dlpack__(stream=stream)
    del result
    assert (tree[indices].address == address) == again


def test_a_result_describes_itself() -> None:
    tree, _ = pair()
    result = tree._device_get(tree._view(Array(np.zeros((2, 3), int)), "indices", "int64"))
    assert (result.shape, result.dtype) == ((2, 3), "float64")
    assert tuple(result.__dlpack_device__()) == (1, 0)
    assert not hasattr(result, "__cuda_array_interface__")
    assert np.from_dlpack(result).flags.writeable


def test_memory_that_runs_out_leaves_all_trees_usable() -> None:
    tree, other = pair()
    with pytest.raises(OutOfMemoryError, match=f"n is {2**45}: the memory cannot hold"):
        tree.sample(2**45, xp=xp)
    with pytest.raises(OutOfMemoryError, match="n is "):
        tree.sample(2**62, xp=xp)
    with pytest.raises(OutOfMemoryError, match="of device 0, has left"):
        st.PriorityTree(2**40, backend="gpu")
    same(tree, other)
    assert tree.sample(9, xp=xp).indices.values.tolist() == other.sample(9).indices.tolist()


# ---- what is wrong ---------------------------------------------------------------------

GOOD: dict[str, Any] = {
    "indices": np.array([1, 2, 3, 4]),
    "masses": np.ones(4),
    "targets": np.ones(4),
}
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "indices": lambda tree, array: tree.update(array, Array(GOOD["masses"])),
    "masses": lambda tree, array: tree.update(Array(GOOD["indices"]), array),
    "targets": lambda tree, array: tree.find(array),
}


def refused(name: str, array: Any, error: type[Exception], said: str) -> None:
    tree, other = pair()
    with pytest.raises(error, match=said):
        CALLS[name](tree, array)
    if name == "indices":
        with pytest.raises(error, match=said):
            tree[array]
    same(tree, other)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    ("where", "said"),
    [
        ((2, 0), "on CUDA device 0"),
        ((2, 3), "on CUDA device 3"),
        ((13, 1), "on CUDA device 1"),
        ((10, 2), "on a device of DLPack type 10, number 2"),
    ],
)
def test_another_device_is_named(name: str, where: tuple[int, int], said: str) -> None:
    refused(name, Array(GOOD[name], where), DeviceArrayError, f"{name} is {said}: the tree is ")


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", ["i4", "u8", "i2", "f4", "f2", "?", "c8", "c16", "i8", "f8"])
def test_another_dtype_is_named(name: str, dtype: str) -> None:
    right = "int64" if name == "indices" else "float64"
    array = GOOD[name].astype(dtype)
    if array.dtype == right:
        CALLS[name](pair()[0], Array(array))
        return
    said = f"{name} has dtype {array.dtype}: a device array must have dtype {right}"
    refused(name, Array(array), ArgumentTypeError, said)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    "spread",
    [
        lambda array: np.repeat(array, 2)[::2],
        lambda array: array[::-1],
        lambda array: array.reshape(2, 2).T,
        lambda array: np.broadcast_to(array[:1], 4),
    ],
)
def test_what_is_not_contiguous(name: str, spread: Callable[[np.ndarray], np.ndarray]) -> None:
    array = spread(GOOD[name])
    assert not array.flags.c_contiguous
    refused(name, Array(array), DeviceArrayError, f"{name} is not contiguous")


@pytest.mark.parametrize("shape", [(1, 4), (4, 1), (2, 2)])
def test_strides_of_axes_of_length_1_do_not_matter(shape: tuple[int, ...]) -> None:
    tree, other = pair()
    indices = np.array([1, 2, 3, 4]).reshape(shape)
    tree.update(Array(np.asfortranarray(indices) if 1 in shape else indices), Array(indices * 1.0))
    other.update(indices, indices * 1.0)
    same(tree, other)


def test_strides_of_an_empty_array_do_not_matter() -> None:
    tree, other = pair()
    indices = np.empty((0, 6), int)[:, ::2]
    assert tree[Array(indices)].shape == (0, 3)
    tree.update(Array(indices), Array(indices * 1.0))
    same(tree, other)


@pytest.mark.parametrize("host", [np.ones(4), [1.0] * 4, (1.0, 1.0, 1.0, 1.0)])
def test_a_host_array_beside_a_device_array(host: Any) -> None:
    refused("masses", host, DeviceArrayError, "masses is in host memory beside")


@pytest.mark.parametrize("host", [np.arange(4), [0, 1, 2, 3], 3, range(4)])
def test_host_indices_beside_device_masses(host: Any) -> None:
    tree, other = pair()
    with pytest.raises(DeviceArrayError, match="indices is in host memory beside"):
        tree.update(host, Array(np.ones(4)))
    same(tree, other)


def test_shapes_must_be_equal() -> None:
    for shape in [(3,), (2, 2), (4, 1), (0,)]:
        refused("masses", Array(np.ones(shape)), ShapeError, r"masses has shape .* \(4,\) of ind")


def test_a_slice_takes_host_arrays() -> None:
    tree, other = pair()
    with pytest.raises(DeviceArrayError, match="a slice takes host arrays"):
        tree[:] = Array(np.ones(CAPACITY))
    same(tree, other)


class Unexported(Array):
    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("it requires a gradient")


@pytest.mark.parametrize("name", CALLS)
def test_an_array_that_its_library_does_not_export(name: str) -> None:
    said = f"{name} cannot be exported by DLPack: it requires a gradient"
    refused(name, Unexported(GOOD[name]), DeviceArrayError, said)


BAD_MASSES = [(-1.0, "-1.0"), (math.nan, "nan"), (math.inf, "inf"), (2.0**961, "1.94")]


@pytest.mark.parametrize(("value", "said"), BAD_MASSES)
@pytest.mark.parametrize("place", [0, 3])
def test_a_bad_mass_is_named(value: float, said: str, place: int) -> None:
    masses = np.ones(4)
    masses[place] = value
    refused("masses", Array(masses), MassError, rf"masses\[{place}\] is {said}.*: a mass must")
    where = f"{place // 2}, {place % 2}"
    tree, other = pair()
    with pytest.raises(MassError, match=rf"masses\[{where}\] is {said}"):
        tree.update(Array([[1, 2], [3, 4]]), Array(masses.reshape(2, 2)))
    with pytest.raises(MassError, match=f"masses is {said}"):
        tree.update(Array([1, 2]), value)
    same(tree, other)


def test_a_bad_value_of_a_min_tree_is_named() -> None:
    tree, other = pair(st.MinTree)
    with pytest.raises(NotANumberError, match=r"masses\[1\] is nan"):
        tree.update(Array([1, 2]), Array([1.0, math.nan]))
    tree.update(Array([1, 2]), Array([-1.0, math.inf]))
    other.update([1, 2], [-1.0, math.inf])
    same(tree, other)


@pytest.mark.parametrize("value", [-1, CAPACITY, 2**62, -(2**63)])
def test_a_bad_index_is_named(value: int) -> None:
    said = rf"indices\[2\] is {value}: an index must be .*capacity {CAPACITY}"
    refused("indices", Array([1, 2, value, -5]), IndexOutOfRangeError, said)
    tree, _ = pair()
    with pytest.raises(IndexOutOfRangeError, match=f"indices is {value}: "):
        tree[Array(value)]


def test_a_bad_target_is_named() -> None:
    tree, _ = pair()
    for value in (-0.5, math.nan, tree.total * 2):
        with pytest.raises(TargetError, match=rf"targets\[1\] is .*: a target must .*{tree.total}"):
            tree.find(Array([0.0, value]))
    with pytest.raises(EmptyTreeError):
        st.SumTree(4, backend="gpu").find(Array([0.0]))


def test_a_bad_draw_is_named() -> None:
    tree, other = pair()
    with pytest.raises(ExponentError, match=r"beta is 1\.5"):
        tree.sample(4, 1.5, xp=xp)
    with pytest.raises(EmptyTreeError):
        st.PriorityTree(4, backend="gpu", seed=0).sample(4, xp=xp)
    for field, array, error, said in [
        (0, Array(np.zeros(4, "i4")), ArgumentTypeError, "out.indices has dtype int32"),
        (1, Array(np.zeros(3)), ShapeError, r"out.masses has shape \(3,\): it must be \(4,\)"),
        (2, Array(np.zeros(8)[::2]), DeviceArrayError, "out.weights is not contiguous"),
        (2, np.zeros(4), DeviceArrayError, "out.weights is in host memory beside"),
        (1, Array(np.zeros(4), (2, 1)), DeviceArrayError, "out.masses is on CUDA device 1"),
    ]:
        out = [Array(np.zeros(4, dtype)) for dtype in ("i8", "f8", "f8")]
        out[field] = array
        with pytest.raises(error, match=said):
            tree.sample(4, out=st.TreeSample(*out))
    frozen = np.zeros(4)
    frozen.flags.writeable = False
    out = [Array(np.zeros(4, "i8")), Array(np.zeros(4)), Array(frozen)]
    with pytest.raises(DeviceArrayError, match="out.weights cannot be written to"):
        tree.sample(4, out=st.TreeSample(*out))
    assert tree.sample(9).indices.tolist() == other.sample(9).indices.tolist()


def test_a_closed_tree_says_so() -> None:
    tree, _ = pair()
    tree.close()
    for name, call in CALLS.items():
        with pytest.raises(ClosedTreeError):
            call(tree, Array(GOOD[name]))
    with pytest.raises(ClosedTreeError):
        tree[Array([1])]
    with pytest.raises(ClosedTreeError):
        tree.sample(3, xp=xp)
