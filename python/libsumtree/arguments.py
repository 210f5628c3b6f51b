"""What callers may pass, and what the C library takes: plain int64 and float64 arrays.

An array that is C-contiguous and aligned already passes through untouched; anything else is
converted into a new array. Callers' arrays are never written to.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Collection
from numbers import Integral, Real
from operator import index as to_index
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _core
from .errors import (
    ArgumentError,
    ArgumentTypeError,
    CapacityError,
    ExponentError,
    IndexOutOfRangeError,
    RangeError,
    ShapeError,
)

Indices: TypeAlias = NDArray[np.int64]
Doubles: TypeAlias = NDArray[np.float64]

MAX_CAPACITY: int = _core.MAX_CAPACITY

_INT64 = np.dtype(np.int64)
_FLOAT64 = np.dtype(np.float64)
_INT64_MAX = np.iinfo(np.int64).max


def is_scalar(value: object) -> bool:
    """Tell whether a result for `value` is a Python number rather than an array."""
    return not isinstance(value, np.ndarray) and np.ndim(value) == 0  # type: ignore[arg-type]


def place(name: str, position: int, shape: tuple[int, ...]) -> str:
    """Name one element of an argument as the caller would: ``masses[1, 2]``, or ``mass`` alone."""
    if not shape:
        return name
    where = np.unravel_index(position, shape)
    return f"{name}[{', '.join(str(int(axis)) for axis in where)}]"


def out_of_range(where: str, value: int, capacity: int) -> IndexOutOfRangeError:
    """Make the error for an index outside 0 .. capacity-1."""
    return IndexOutOfRangeError(
        f"{where} is {value}: an index must be in 0 .. capacity-1 (capacity {capacity})"
    )


def as_indices(indices: ArrayLike, capacity: int, name: str = "indices") -> Indices:
    """Convert indices to C-contiguous int64 of the same shape.

    Raises
    ------
    ArgumentTypeError
        If they are not of an integer dtype.
    IndexOutOfRangeError
        If one does not fit int64. Whether it is below the capacity is the tree's to check.
    """
    if type(indices) is np.ndarray and indices.dtype is _INT64 and _is_plain(indices):
        return indices
    array = _as_array(indices, name)
    if not isinstance(indices, np.ndarray):
        array = _integers_of_sequence(array, indices, capacity, name)
    if array.dtype.kind not in "iu":
        raise ArgumentTypeError(f"{name} has dtype {array.dtype}: it must be of an integer dtype")
    if array.dtype.kind == "u" and array.size and int(array.max()) > _INT64_MAX:
        position = int(np.argmax(array.ravel() >= capacity))
        where = place(name, position, array.shape)
        raise out_of_range(where, int(array.ravel()[position]), capacity)
    return _plain(array, _INT64)


def as_doubles(values: ArrayLike, name: str) -> Doubles:
    """Convert real numbers to C-contiguous float64 of the same shape.

    Raises
    ------
    ArgumentTypeError
        If they are not real numbers: bool, complex, object and text are refused.
    """
    if type(values) is np.ndarray and values.dtype is _FLOAT64 and _is_plain(values):
        return values
    array = _as_array(values, name)
    if array.dtype.kind == "O" and not isinstance(values, np.ndarray):
        array = _doubles_of_objects(array)
    if array.dtype.kind not in "fiu":
        raise ArgumentTypeError(f"{name} has dtype {array.dtype}: it must be real numbers")
    with np.errstate(over="ignore"):
        return _plain(array, _FLOAT64)


def check_same_shape(
    shape: tuple[int, ...], other: tuple[int, ...], names: tuple[str, str]
) -> None:
    """Refuse values of a shape `other` that are neither one number nor one for each of `shape`."""
    if other and other != shape:
        raise ShapeError(
            f"{names[1]} has shape {other}: it must be one number or have the shape {shape} of "
            f"{names[0]}"
        )


def as_integer(value: Any, name: str) -> int:
    """Take any integer but bool as a Python int.

    Raises
    ------
    ArgumentTypeError
        If it is not an integer.
    """
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        return to_index(value)
    except TypeError:
        raise ArgumentTypeError(
            f"{name} is {short(value)} of type {type(value).__name__}: it must be an integer"
        ) from None


def as_count(value: Any, name: str) -> int:
    """Take an integer >= 0."""
    count = as_integer(value, name)
    if count < 0:
        raise ArgumentError(f"{name} is {count}: it must be >= 0")
    return count


def as_capacity(value: Any) -> int:
    """Take the number of leaves of a tree, in 1 .. 2**40."""
    capacity = as_integer(value, "capacity")
    if not 1 <= capacity <= MAX_CAPACITY:
        raise CapacityError(f"capacity is {capacity}: a capacity must be in 1 .. 2^40")
    return capacity


def as_choice(value: Any, choices: Collection[str], name: str) -> str:
    """Take one of several names."""
    if not isinstance(value, str) or value not in choices:
        known = ", ".join(map(repr, choices))
        raise ArgumentError(f"{name} is {value!r}: it must be one of {known}")
    return value


def as_real(value: Any, name: str) -> float:
    """Take one real number but bool as a float."""
    array = as_doubles(value, name)
    if array.ndim:
        raise ShapeError(f"{name} has shape {array.shape}: it must be one number")
    return float(array)


def as_alpha(value: Any) -> float:
    """Take an exponent of priorities: finite, >= 0."""
    alpha = as_real(value, "alpha")
    if not 0.0 <= alpha < math.inf:
        raise ExponentError(f"alpha is {alpha}: it must be finite and >= 0")
    return alpha


def as_beta(value: Any) -> float:
    """Take an exponent of weights, in 0 .. 1."""
    beta = as_real(value, "beta")
    if not 0.0 <= beta <= 1.0:
        raise ExponentError(f"beta is {beta}: it must be in 0 .. 1")
    return beta


def as_range(start: Any, stop: Any, capacity: int) -> tuple[int, int]:
    """Take a range with 0 <= start <= stop <= capacity; stop None means capacity."""
    first = as_integer(start, "start")
    last = capacity if stop is None else as_integer(stop, "stop")
    if not 0 <= first <= last <= capacity:
        raise RangeError(
            f"start is {first} and stop is {last}: a range must satisfy 0 <= start <= stop <= "
            f"capacity (capacity {capacity})"
        )
    return first, last


def as_steps(leaves: slice, capacity: int) -> tuple[int, int, int]:
    """Take a slice of the leaves as start, stop and step of a range."""
    try:
        return leaves.indices(capacity)
    except TypeError as error:
        raise ArgumentTypeError(f"{leaves}: {error}") from None
    except ValueError as error:
        raise ArgumentError(f"{leaves}: {error}") from None


def _is_plain(array: NDArray[Any]) -> bool:
    flags = array.flags
    return flags.c_contiguous and flags.aligned


def _plain(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.require(array, dtype, ["C", "ALIGNED"]).reshape(array.shape)


def _as_array(values: ArrayLike, name: str) -> NDArray[Any]:
    """Make an array of what NumPy can; a bool among numbers is refused, not promoted."""
    if isinstance(values, np.ma.MaskedArray):
        raise ArgumentTypeError(f"{name} is a masked array: give its values without a mask")
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ArgumentTypeError(f"{name} cannot be made an array: {error}") from None
    if array.dtype.kind in "iuf" and _holds_bool(values):
        raise ArgumentTypeError(f"{name} holds a bool: it must be numbers")
    return array


def _holds_bool(values: Any) -> bool:
    if isinstance(values, list | tuple):
        return any(map(_holds_bool, values))
    if isinstance(values, np.ndarray):
        return bool(values.dtype.kind == "b")
    return isinstance(values, bool | np.bool_)


def _integers_of_sequence(
    array: NDArray[Any], values: ArrayLike, capacity: int, name: str
) -> NDArray[Any]:
    """Give a sequence of integers an integer dtype, where NumPy has none: empty ones, huge ones."""
    if array.size == 0 and array.dtype.kind == "f":
        return array.astype(_INT64)
    if array.dtype.kind not in "fO":
        return array
    exact = np.asarray(values, dtype=object)
    if not all(_is_number(value, Integral) for value in exact.flat):
        return array
    for position, value in enumerate(exact.flat):
        if not 0 <= value < capacity:
            raise out_of_range(place(name, position, exact.shape), value, capacity)
    return exact.astype(_INT64)


def _doubles_of_objects(array: NDArray[Any]) -> NDArray[Any]:
    """Convert numbers too large for any integer dtype; above the largest double they are inf."""
    if not all(_is_number(value, Real) for value in array.flat):
        return array
    return np.array(list(map(_nearest_double, array.flat)), dtype=_FLOAT64).reshape(array.shape)


def _is_number(value: object, abstract: type) -> bool:
    return isinstance(value, abstract) and not isinstance(value, (bool, np.bool_))


def _nearest_double(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def short(value: object) -> str:
    """Return the beginning of what `repr` gives, whatever the depth and length of a value."""
    shown = reprlib.Repr()
    shown.maxstring = shown.maxlong = shown.maxother = 80
    return shown.repr(value)
