"""Arrays in the memory of a GPU: taken from any library that exports DLPack, and given back to it.

Nothing is copied, converted or brought to the host: int64 and float64, C-contiguous, on the tree's
own device. Libraries are asked to have the array ready for the default stream.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from . import _core
from .errors import ArgumentError, ArgumentTypeError, DeviceArrayError

Where: TypeAlias = tuple[int, int]
"""A DLPack device: its type, and its number."""

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
_NAMES = {CUDA: "CUDA device", CUDA_MANAGED: "CUDA device"}
_DEFAULT_STREAM = 1
_HOST_TYPES = (np.ndarray, list, tuple, float, int)


def is_device_array(values: object, own: Where) -> bool:
    """Tell whether an argument is an array in the memory of a device.

    Parameters
    ----------
    values : object
        Any argument.
    own : tuple of int
        The DLPack device of the tree, (0, 0) for one in host memory. Where it is the host itself,
        in tests, every array but NumPy's is one.
    """
    return _device_of(values, own) is not None


def host_tree_error(name: str, backend: str) -> DeviceArrayError:
    """Make the error for a device array that was given to a tree in host memory."""
    return DeviceArrayError(
        f"{name} is in the memory of a device, the tree on backend {backend!r} in that of the "
        "host: pass a host array, or make the tree with backend='gpu'"
    )


def view_of(
    values: Any, name: str, dtype: str, own: Where, *, writable: bool = False
) -> _core.DeviceView:
    """Take an array of the caller's library, without a copy.

    Parameters
    ----------
    values : array that exports ``__dlpack__``
    name : str
        Of the argument.
    dtype : {"int64", "float64"}
        What it must have.
    own : tuple of int
        The DLPack device of the tree.
    writable : bool
        Whether it is to be written to.

    Raises
    ------
    DeviceArrayError
        If it is on another device, not contiguous, or cannot be written to or exported.
    ArgumentTypeError
        If it has another dtype.
    """
    where = _device_of(values, own)
    if where is None:
        raise DeviceArrayError(
            f"{name} is in host memory beside arrays on a device: pass all from the tree's device"
        )
    if not _same_device(where, own):
        raise DeviceArrayError(f"{name} is {_name_of(where)}: the tree is {_name_of(own)}")
    view = _core.DeviceView(_capsule(values, name, where))
    if view.dtype != dtype:
        raise ArgumentTypeError(
            f"{name} has dtype {view.dtype}: a device array must have dtype {dtype} here, nothing "
            "is converted on a device"
        )
    if not view.is_contiguous:
        raise DeviceArrayError(f"{name} is not contiguous: make it so before the call")
    if writable and not (view.is_writable and _is_mutable(values)):
        raise DeviceArrayError(f"{name} cannot be written to")
    return view


def library_of(values: Any) -> Any:
    """Give the array library that a device array is of: a module, None if none is known."""
    if hasattr(values, "__array_namespace__"):
        return values.__array_namespace__()
    return sys.modules.get(type(values).__module__.partition(".")[0])


def hand_to(library: Any, array: _core.DeviceArray) -> Any:
    """Give a result to an array library, without a copy; as it is, if the library is None."""
    importer = _importer(library)
    return array if importer is None else importer(array)


def check_library(library: Any) -> None:
    """Refuse what is no array library.

    Raises
    ------
    ArgumentError
        If it has no ``from_dlpack``.
    """
    if _importer(library) is None:
        raise ArgumentError(
            f"xp is {library!r}: it must be an array library that has from_dlpack, such as torch, "
            "cupy or jax.numpy"
        )


def filled_like(indices: Any, mass: float) -> Any:
    """Make a device array of one mass for each of the indices, by the library of the indices."""
    library = library_of(indices)
    if not hasattr(library, "full_like") or not hasattr(library, "float64"):
        raise DeviceArrayError(
            "masses is one number, of which the library of indices cannot make an array: it has no "
            "full_like and float64; pass a device array"
        )
    return library.full_like(indices, mass, dtype=library.float64)


def element_of(values: Any, position: int) -> int | float:
    """Bring one element of a device array to the host."""
    shape = tuple(values.shape)
    element = values[tuple(map(int, np.unravel_index(position, shape)))] if shape else values
    number: int | float = element.item()
    return number


def _device_of(values: object, own: Where) -> Where | None:
    describe = getattr(type(values), "__dlpack_device__", None)
    if describe is None or isinstance(values, _HOST_TYPES):
        return None
    kind, number = map(int, describe(values))
    return None if kind in (CPU, CUDA_HOST) and own[0] != CPU else (kind, number)


def _same_device(where: Where, own: Where) -> bool:
    return where == own or (own[0] == CUDA and where[0] == CUDA_MANAGED)


def _name_of(where: Where) -> str:
    kind, number = where
    if kind == CPU:
        return "in host memory"
    return f"on {_NAMES.get(kind, f'a device of DLPack type {kind}, number')} {number}"


def _capsule(values: Any, name: str, where: Where) -> Any:
    """Export an array, with what the default stream must wait for before it."""
    stream = None if where[0] == CPU else _DEFAULT_STREAM
    try:
        try:
            return values.__dlpack__(stream=stream, max_version=(1, 0))
        except TypeError:
            return values.__dlpack__(stream=stream)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise DeviceArrayError(f"{name} cannot be exported by DLPack: {error}") from error


def _is_mutable(values: object) -> bool:
    """JAX's arrays never change, and their capsules do not say so."""
    return type(values).__module__.partition(".")[0] not in ("jax", "jaxlib")


def _importer(library: Any) -> Callable[[_core.DeviceArray], Any] | None:
    importer: Callable[[_core.DeviceArray], Any] | None = getattr(library, "from_dlpack", None)
    return importer
