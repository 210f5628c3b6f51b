"""What all trees share: leaves, their update, their reading, and the end of their memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, ClassVar, Literal, NoReturn, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from . import _core
from . import device_arrays as on_device
from .arguments import (
    Doubles,
    as_capacity,
    as_choice,
    as_doubles,
    as_indices,
    as_steps,
    check_same_shape,
    is_scalar,
)
from .backends import AUTO, open_backend, resolve
from .devices import choose_device
from .errors import (
    CorruptTreeError,
    DeviceArrayError,
    OutOfMemoryError,
)
from .failures import raise_failure

Plane: TypeAlias = Literal["sum", "min", "max"]

SUM, MIN, PRIORITY = range(3)
_PLANES: dict[str, int] = {"sum": 0, "min": 1, "max": 2}
_Method = TypeVar("_Method", bound=Callable[..., Any])


def fast(operation: str, result: type = tuple) -> Callable[[_Method], _Method]:
    """Have the binding try the common case of a method, plain arrays and numbers, before it runs.

    What an attempt does not succeed in has changed nothing, and the method does it from the start:
    it is the contract, and reports what is wrong.
    """

    def decorate(method: _Method) -> _Method:
        quick = _core.fast_method(operation, method, result)
        update_wrapper(quick, method)
        return quick

    return decorate


class Tree(_core.Tree):
    """What all trees share: leaves, their update, their reading. Use one of its subclasses.

    Any number of threads may read, or one may write; others wait with the GIL released. As a
    context manager a tree is closed at the end.
    """

    _KIND: ClassVar[int]

    def __init__(self, capacity: int, *, backend: str = AUTO, device: int | None = None) -> None:
        self._capacity = as_capacity(capacity)
        self._requested = backend, device
        self._name = resolve(backend, self._capacity)
        library = open_backend(self._name)
        chosen = choose_device(library, device)
        try:
            super().__init__(library, self._capacity, self._KIND, -1 if chosen is None else chosen)
        except _core.Failure as failure:
            if failure.args[0] != "MEMORY":
                raise_failure(failure)
            limit = "control group included, has" if chosen is None else f"of device {chosen}, has"
            raise OutOfMemoryError(
                f"a {type(self).__name__} of capacity {self._capacity} takes "
                f"{library.bytes(self._capacity, self._KIND)} bytes: more than the memory limit, "
                f"{limit} left"
            ) from None

    @property
    def capacity(self) -> int:
        """The number of leaves."""
        return self._capacity

    @property
    def padded_capacity(self) -> int:
        """The next power of two: the width of the leaf level."""
        return self._padded_capacity

    @property
    def backend(self) -> str:
        """The backend that runs: ``"cpu"``, ``"multicore"`` or ``"gpu"``."""
        return self._name

    @property
    def device(self) -> int | None:
        """The GPU that holds the tree; None for backends whose trees are in host memory."""
        return None if self._device < 0 else self._device

    @property
    def closed(self) -> bool:
        """Whether the tree was closed."""
        return self._is_closed

    def close(self) -> None:
        """Free the memory now, after the calls of other threads have ended. Twice is no harm.

        Any other use of a closed tree than to look at its capacity, backend and device raises
        `ClosedTreeError`. Arrays that it gave stay valid.
        """
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self._capacity

    def __repr__(self) -> str:
        device = "" if self.device is None else f", device={self.device}"
        closed = ", closed" if self.closed else ""
        return f"{type(self).__name__}({self._capacity}, backend={self._name!r}{device}{closed})"

    @fast("update")
    def update(self, indices: ArrayLike, masses: ArrayLike) -> None:
        """Set leaves and recompute their ancestors.

        The batch is checked whole first: after an error nothing has changed. Of equal indices the
        last wins.

        Parameters
        ----------
        indices : array_like of integers, any shape
            Leaves, each in 0 .. capacity-1. Or an int64 array on the tree's device, of any library
            that exports DLPack.
        masses : array_like of real numbers, the shape of `indices`, or one number for all
            Each in 0 .. 2**960; -0.0 is stored as 0.0. In a `MinTree`: any number but NaN. Float64
            on the tree's device where `indices` is there.

        Raises
        ------
        IndexOutOfRangeError, MassError
            Naming the first bad position and its value.
        ArgumentTypeError, ShapeError
            If the dtypes or shapes do not fit.
        DeviceArrayError
            If a device array is on another device, not contiguous, or mixed with a host array.

        Notes
        -----
        O(k log n) for k leaves of n, and never more than O(k + n): the ancestors of one level do
        not depend on each other, so each level is recomputed once, and as a whole where the batch
        touches a fair part of it.
        """
        if self._takes_device_arrays(indices=indices, masses=masses):
            self._update_on_device(indices, masses)
            return
        indices = as_indices(indices, self._capacity)
        masses = as_doubles(masses, "masses")
        check_same_shape(indices.shape, masses.shape, ("indices", "masses"))
        try:
            self._update(indices, masses)
        except _core.Failure as failure:
            self._raise(failure, indices=indices, masses=masses)

    @fast("get")
    def __getitem__(self, indices: ArrayLike | slice) -> Any:
        """Read leaves. O(k).

        Parameters
        ----------
        indices : array_like of integers, any shape, or slice
            As for `update`.

        Returns
        -------
        float, or array of float64 of the shape of `indices`, of their library and on their device

        Raises
        ------
        IndexOutOfRangeError
            Naming the first bad position and its value.
        ArgumentTypeError, DeviceArrayError
            As for `update`.
        ArgumentError
            If the step of a slice is 0.
        """
        if isinstance(indices, slice):
            return self._get_slice(indices)
        if self._takes_device_arrays(indices=indices):
            return self._get_on_device(indices)
        array = as_indices(indices, self._capacity)
        masses = np.empty(array.shape, dtype=np.float64)
        try:
            self._get(array, masses)
        except _core.Failure as failure:
            self._raise(failure, indices=array)
        return float(masses) if is_scalar(indices) else masses

    @fast("update")
    def __setitem__(self, indices: ArrayLike | slice, masses: ArrayLike) -> None:
        """Do as `update` does, with the same errors; a slice of step 1 takes O(k + log n)."""
        if isinstance(indices, slice):
            if self._takes_device_arrays(masses=masses):
                raise DeviceArrayError(
                    "masses is in the memory of a device: a slice takes host arrays, so name the "
                    "leaves by indices on the device"
                )
            self._set_slice(indices, masses)
        else:
            self.update(indices, masses)

    def validate(self) -> None:
        """Check every leaf and every node against the rules. O(n).

        Raises
        ------
        CorruptTreeError
            Naming the first node that violates them.
        """
        plane, node = self._validate()
        if node >= 0:
            name = next(name for name, number in _PLANES.items() if number == plane)
            raise CorruptTreeError(
                f"node {node} of plane {name!r} is not the combination of its children, or is a "
                "leaf outside its domain"
            )

    def nodes(self, plane: Plane) -> Doubles:
        """Copy the whole tree, for comparison bit for bit. O(n).

        Parameters
        ----------
        plane : {"sum", "min", "max"}
            Which of the tree's reductions.

        Returns
        -------
        ndarray of float64, shape (2 * padded_capacity,)
            Node i at position i; node 1 is the root, leaf j is node padded_capacity + j, position 0
            is 0.

        Raises
        ------
        KindError
            If the tree has no such plane.
        ArgumentError
            If there is no such plane at all.
        """
        number = _PLANES[as_choice(plane, _PLANES, "plane")]
        nodes = np.empty(2 * self.padded_capacity, dtype=np.float64)
        try:
            self._nodes(number, nodes)
        except _core.Failure as failure:
            raise_failure(failure, f": a {type(self).__name__} has no plane {plane!r}")
        return nodes

    def __getstate__(self) -> dict[str, Any]:
        backend, device = self._requested
        return {
            "capacity": self._capacity,
            "backend": backend,
            "device": device,
            "masses": self[:],
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        Tree.__init__(self, state["capacity"], backend=state["backend"], device=state["device"])
        self[:] = state["masses"]

    def _root_of(self, plane: str) -> float:
        return self._root(_PLANES[plane])

    def _takes_device_arrays(self, **arguments: Any) -> bool:
        """Tell whether arguments are device arrays; refuse them where the tree is not there."""
        own = self._dlpack_device
        held = {name: on_device.is_device_array(a, own) for name, a in arguments.items()}
        if not any(held.values()):
            return False
        if self._device < 0:
            name = next(name for name, is_held in held.items() if is_held)
            raise on_device.host_tree_error(name, self._name)
        return True

    def _view(self, values: Any, name: str, dtype: str) -> _core.DeviceView:
        return on_device.view_of(values, name, dtype, self._dlpack_device)

    def _update_on_device(self, indices: Any, masses: Any) -> None:
        where = self._view(indices, "indices", "int64")
        given = masses
        if not on_device.is_device_array(masses, self._dlpack_device) and is_scalar(masses):
            given = float(as_doubles(masses, "masses"))
            masses = on_device.filled_like(indices, given)
        what = self._view(masses, "masses", "float64")
        check_same_shape(where.shape, what.shape, ("indices", "masses"))
        try:
            self._device_update(where, what)
        except _core.Failure as failure:
            self._raise(failure, indices=indices, masses=given)

    def _get_on_device(self, indices: Any) -> Any:
        try:
            masses = self._device_get(self._view(indices, "indices", "int64"))
        except _core.Failure as failure:
            self._raise(failure, indices=indices)
        return on_device.hand_to(on_device.library_of(indices), masses)

    def _get_slice(self, leaves: slice) -> Doubles:
        start, stop, step = as_steps(leaves, self._capacity)
        if step != 1:
            masses: Doubles = self[np.arange(start, stop, step)]
            return masses
        masses = np.empty(max(stop - start, 0), dtype=np.float64)
        self._get_range(start, masses)
        return masses

    def _set_slice(self, leaves: slice, values: ArrayLike) -> None:
        start, stop, step = as_steps(leaves, self._capacity)
        masses = as_doubles(values, "masses")
        count = len(range(start, stop, step))
        check_same_shape((count,), masses.shape, ("the slice", "masses"))
        if step == 1:
            self._set_range(start, count, masses)
        else:
            self.update(np.arange(start, stop, step), masses)

    def _set_range(self, start: int, count: int, masses: Doubles) -> None:
        """Set `count` leaves from `start` on; `masses` has shape (count,) or ()."""
        try:
            self._update_range(start, count, masses)
        except _core.Failure as failure:
            self._raise(failure, masses=masses)

    def _raise(self, failure: _core.Failure, **arguments: Any) -> NoReturn:
        raise_failure(failure, self._note(failure.args[0]), **arguments)

    def _note(self, name: str) -> str:
        """Say what a status with this name is about."""
        return f" (capacity {self._capacity})" if name == "INDEX" else ""
