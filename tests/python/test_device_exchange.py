"""Arrays of a library that has DLPack's C functions, as PyTorch has, where the host is the device.

The same with PyTorch itself on real GPUs is tests/device/test_arrays.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import libsumtree as st
from libsumtree.errors import (
    ArgumentError,
    ArgumentTypeError,
    ClosedTreeError,
    DeviceArrayError,
    ExponentError,
    IndexOutOfRangeError,
    MassError,
    ShapeError,
)

pytestmark = pytest.mark.gpu_on_host

CODES = {"i": 0, "u": 1, "f": 2}
LETTERS = {(0, 64): np.int64, (2, 64): np.float64}


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("axes", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    pass


Managed._fields_ = (
    ("version", ctypes.c_uint32 * 2),
    ("context", ctypes.c_void_p),
    ("deleter", ctypes.CFUNCTYPE(None, ctypes.POINTER(Managed))),
    ("flags", ctypes.c_uint64),
    ("tensor", DLTensor),
)
Borrow = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))
Import = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Managed), ctypes.POINTER(ctypes.c_void_p))
Stream = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
)


class Functions(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("older", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("owning_of", ctypes.c_void_p),
        ("to_object", Import),
        ("borrowed_of", Borrow),
        ("current_stream", Stream),
    )


class Tensor:
    """An array of the library."""

    stream = 0
    asked = 0  # how often Python's functions of DLPack were called
    where = (1, 0)

    def __init__(self, values: Any, managed: Any = None, byte_offset: int = 0) -> None:
        self.values = np.asarray(values)
        self.byte_offset = byte_offset
        self._managed = managed
        self._numbers = [(ctypes.c_int64 * max(self.values.ndim, 1))() for _ in range(2)]
        for axis in range(self.values.ndim):
            self._numbers[0][axis] = self.values.shape[axis]
            self._numbers[1][axis] = self.values.strides[axis] // self.values.itemsize

    def __del__(self) -> None:
        if self._managed is not None:
            self._managed.contents.deleter(self._managed)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def __getitem__(self, index: Any) -> Any:
        return self.values[index]

    def item(self) -> Any:
        return self.values.item()

    def __array_namespace__(self) -> Any:
        return xp

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.where

    def __dlpack__(self, *, stream: Any, max_version: Any = None) -> Any:
        Tensor.asked += 1
        return self.values.__dlpack__(max_version=max_version)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("a trip through NumPy")


@Borrow
def borrow(array: Any, tensor: Any) -> int:
    filled = tensor.contents
    filled.data = array.values.ctypes.data - array.byte_offset
    filled.byte_offset = array.byte_offset
    filled.device_type, filled.device = array.where
    filled.axes = array.values.ndim
    filled.code, filled.bits = CODES[array.values.dtype.kind], 8 * array.values.itemsize
    filled.lanes = 1
    filled.shape, filled.strides = array._numbers
    return 0


@Import
def to_object(managed: Any, made: Any) -> int:
    tensor = managed.contents.tensor
    shape = tensor.shape[: tensor.axes]
    dtype = LETTERS[tensor.code, tensor.bits]
    count = int(np.prod(shape))
    memory = (ctypes.c_char * (8 * count)).from_address(tensor.data)
    copied = ctypes.pointer(Managed.from_address(ctypes.addressof(managed.contents)))
    array = Tensor(np.frombuffer(memory, dtype).reshape(shape), copied)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(array))
    made[0] = id(array)
    return 0


@Stream
def current_stream(_kind: int, _device: int, stream: Any) -> int:
    stream[0] = Tensor.stream
    return 0


def capsule_of(functions: Functions) -> Any:
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return make(ctypes.addressof(functions), b"dlpack_exchange_api", None)


OLDER = Functions((1, 3), None, None, None, to_object, borrow, current_stream)
FUNCTIONS = Functions((2, 0), ctypes.addressof(OLDER))  # of a version to come, which has an older
Tensor.__dlpack_c_exchange_api__ = capsule_of(FUNCTIONS)  # type: ignore[attr-defined]


def from_dlpack(exporter: Any) -> Tensor:
    Tensor.asked += 1
    return Tensor(np.from_dlpack(exporter))


xp = ModuleType("xp")
xp.from_dlpack = from_dlpack  # type: ignore[attr-defined]
xp.Tensor = Tensor  # type: ignore[attr-defined]
xp.float64 = np.float64  # type: ignore[attr-defined]
xp.full_like = lambda array, value, dtype: Tensor(  # type: ignore[attr-defined]
    np.full(array.shape, value, dtype)
)


@pytest.fixture(autouse=True)
def _default_stream() -> Iterator[None]:
    Tensor.stream, Tensor.asked = 0, 0
    yield
    Tensor.stream = 0


def pair() -> tuple[st.PriorityTree, st.PriorityTree]:
    trees = [st.PriorityTree(1000, seed=5, backend=backend) for backend in ("gpu", "cpu")]
    masses = np.random.default_rng(1).random(1000)
    for tree in trees:
        tree[:] = masses
    return trees[0], trees[1]


def same(tree: st.PriorityTree, other: st.PriorityTree) -> None:
    for plane in ("sum", "min", "max"):
        assert tree.nodes(plane).tobytes() == other.nodes(plane).tobytes()  # type: ignore[arg-type]


@pytest.mark.parametrize("stream", [0, 1])
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (2, 3, 2), (5000,)])
def test_nothing_is_asked_in_python(shape: tuple[int, ...], stream: int) -> None:
    Tensor.stream = stream
    tree, other = pair()
    rng = np.random.default_rng(2)
    indices, masses = rng.integers(0, 1000, shape), rng.random(shape)
    tree.update(Tensor(indices), Tensor(masses))
    other.update(indices, masses)
    same(tree, other)
    read, found = tree[Tensor(indices)], tree.find(Tensor(masses), "left")
    assert type(read) is type(found) is Tensor
    assert (read.shape, found.shape) == (shape, shape)
    assert read.values.tobytes() == other[indices].tobytes()
    assert found.values.tobytes() == np.asarray(other.find(masses, "left")).tobytes()
    tree[Tensor(indices)] = Tensor(np.array(0.5))
    other[indices] = 0.5
    same(tree, other)
    assert Tensor.asked == 0


@pytest.mark.parametrize("n", [0, 1, 300])
def test_draws_are_not_asked_for_in_python(n: int) -> None:
    tree, other = pair()
    out = st.TreeSample(*(Tensor(np.zeros(n, dtype)) for dtype in ("i8", "f8", "f8")))
    draws = [
        (tree.sample(n, beta=0.7, xp=xp), other.sample(n, 0.7)),
        (tree.sample(n, 0.7, False, xp=xp), other.sample(n, 0.7, False)),
        (tree.sample(n, stratified=False, out=out), other.sample(n, stratified=False)),
        (tree.sample(n=n, xp=xp), other.sample(n=n)),
    ]
    for drawn, expected in draws:
        assert type(drawn) is st.TreeSample
        assert drawn.indices.values.tobytes() == expected.indices.tobytes()
        assert drawn.masses.values.tobytes() == expected.masses.tobytes()
        assert np.allclose(drawn.weights.values, expected.weights, rtol=1e-15, atol=0)
    assert draws[2][0] is out
    assert str(tree.rng_state) == str(other.rng_state)
    assert Tensor.asked == 0


def test_work_on_another_stream_goes_through_python() -> None:
    """There the library makes the default stream wait, and says which stream reads results."""
    Tensor.stream = 2**40
    tree, other = pair()
    tree.update(Tensor([1, 2]), Tensor([3.0, 4.0]))
    other.update([1, 2], [3.0, 4.0])
    same(tree, other)
    assert Tensor.asked == 2
    assert tree[Tensor([1])].values.tolist() == [3.0]
    assert Tensor.asked == 4
    drawn = tree.sample(9, xp=xp)
    assert Tensor.asked == 7
    assert drawn.indices.values.tolist() == other.sample(9).indices.tolist()
    assert str(tree.rng_state) == str(other.rng_state)


def test_an_offset_into_memory_counts() -> None:
    tree, other = pair()
    tree.update(Tensor([5, 6], byte_offset=64), Tensor([7.0, 8.0], byte_offset=8))
    other.update([5, 6], [7.0, 8.0])
    same(tree, other)


def test_memory_goes_back_with_the_array() -> None:
    tree, _ = pair()
    indices = Tensor(np.arange(100))
    first = tree[indices]
    address = first.values.ctypes.data
    second = tree[indices]
    assert second.values.ctypes.data != address
    del first
    assert tree[indices].values.ctypes.data == address
    tree.close()
    assert second.values.tobytes() == pair()[1][np.arange(100)].tobytes()


@pytest.mark.parametrize(
    ("indices", "masses", "error", "said"),
    [
        ([1, 1000], [1.0, 1.0], IndexOutOfRangeError, r"indices\[1\] is 1000: .*capacity 1000"),
        ([1, 2], [1.0, -1.0], MassError, r"masses\[1\] is -1\.0: a mass"),
        ([1, 2], [1.0], ShapeError, r"masses has shape \(1,\)"),
        (np.array([1, 2], np.int32), [1.0, 1.0], ArgumentTypeError, "indices has dtype int32"),
        ([1, 2], np.ones(2, np.float32), ArgumentTypeError, "masses has dtype float32"),
        (np.arange(4)[::2], [1.0, 1.0], DeviceArrayError, "indices is not contiguous"),
        ([1, 2], np.ones((2, 2)).T[0:1], DeviceArrayError, "masses is not contiguous|has shape"),
    ],
)
def test_what_is_wrong_is_named(
    indices: Any, masses: Any, error: type[Exception], said: str
) -> None:
    tree, other = pair()
    with pytest.raises(error, match=said):
        tree.update(Tensor(indices), Tensor(masses))
    same(tree, other)


def test_another_device_and_host_arrays_are_named() -> None:
    tree, other = pair()
    there = Tensor([1, 2])
    there.where = (2, 1)  # type: ignore[misc]
    with pytest.raises(DeviceArrayError, match="indices is on CUDA device 1"):
        tree.update(there, Tensor([1.0, 2.0]))
    with pytest.raises(DeviceArrayError, match="masses is in host memory beside"):
        tree.update(Tensor([1, 2]), np.ones(2))
    same(tree, other)


def test_a_bad_draw_is_named_and_draws_nothing() -> None:
    tree, other = pair()
    with pytest.raises(ExponentError, match=r"beta is 1\.5"):
        tree.sample(4, 1.5, xp=xp)
    one = Tensor(np.zeros(4))
    with pytest.raises(ArgumentError, match="share memory"):
        tree.sample(4, out=st.TreeSample(Tensor(np.zeros(4, "i8")), one, one))
    short = [Tensor(np.zeros(n, dtype)) for n, dtype in ((4, "i8"), (3, "f8"), (4, "f8"))]
    with pytest.raises(ShapeError, match=r"out.masses has shape \(3,\)"):
        tree.sample(4, out=st.TreeSample(*short))
    with pytest.raises(TypeError, match="unexpected keyword argument 'sx'"):
        tree.sample(4, sx=xp)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="multiple values for argument 'beta'"):
        tree.sample(4, 0.5, beta=0.5)  # type: ignore[misc]
    assert tree.sample(9, xp=xp).indices.values.tolist() == other.sample(9).indices.tolist()


def test_a_closed_tree_says_so() -> None:
    tree, _ = pair()
    tree.close()
    for use in (
        lambda: tree.update(Tensor([1]), Tensor([1.0])),
        lambda: tree[Tensor([1])],
        lambda: tree.find(Tensor([0.0])),
        lambda: tree.sample(4, xp=xp),
    ):
        with pytest.raises(ClosedTreeError):
            use()
