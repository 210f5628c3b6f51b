"""Trees of sums and of minima, and what a tree of sums finds."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from . import _core
from . import device_arrays as on_device
from .arguments import (
    as_choice,
    as_doubles,
    as_range,
    is_scalar,
)
from .leaves import MIN, SUM, Tree, fast

__all__ = [
    "MinTree",
    "Side",
    "SumTree",
    "SummedTree",
]

Side: TypeAlias = Literal["right", "left"]

_SIDES: dict[str, int] = {"right": 0, "left": 1}


class SummedTree(Tree):
    """The part of a tree that adds up masses."""

    @property
    def total(self) -> float:
        """The root: the tree's sum of all masses. O(1)."""
        return self._root_of("sum")

    def sum(self, start: int = 0, stop: int | None = None) -> float:
        """Sum the masses of the leaves start .. stop-1.

        The root of the same tree with the leaves outside the range set to zero: one defined order
        of additions.

        Parameters
        ----------
        start, stop : int
            0 <= start <= stop <= capacity; `stop` None means capacity.

        Raises
        ------
        RangeError, ArgumentTypeError
            If the range is not within the leaves, or not of integers.

        Notes
        -----
        O(log n).
        """
        return self._sum(*as_range(start, stop, self._capacity))

    @fast("find")
    def find(self, targets: ArrayLike, side: Side = "right") -> Any:
        """Find the leaves in which targets lie, by descent from the root.

        At a node with children's sums l and r, m being the rest of the target: ``"right"`` goes
        left if l > m or r == 0; ``"left"`` goes left if (l >= m and l > 0) or r == 0; else m -= l
        and it goes right. Without rounding that is the smallest index j with target < sum(0, j+1),
        or with target <= sum(0, j+1) for ``"left"``. A leaf of mass zero is never returned.

        Parameters
        ----------
        targets : array_like of real numbers, any shape
            Each in 0 .. total. Or a float64 array on the tree's device, of any library that exports
            DLPack.
        side : {"right", "left"}
            "right" is Baselines' convention, "left" TorchRL's, Tianshou's and dqn_zoo's.

        Returns
        -------
        int, or array of int64 of the shape of `targets`, of their library and on their device

        Raises
        ------
        EmptyTreeError
            If the total is zero.
        TargetError
            If a target is negative, NaN or above the total, naming the first.
        ArgumentTypeError, DeviceArrayError
            If the dtype does not fit, or a device array is on another device or not contiguous.
        ArgumentError
            If there is no such side.

        Notes
        -----
        O(k log n).
        """
        number = _SIDES[as_choice(side, _SIDES, "side")]
        if self._takes_device_arrays(targets=targets):
            return self._find_on_device(targets, number)
        array = as_doubles(targets, "targets")
        indices = np.empty(array.shape, dtype=np.int64)
        try:
            self._find(array, number, indices)
        except _core.Failure as failure:
            self._raise(failure, targets=array)
        return int(indices) if is_scalar(targets) else indices

    def _find_on_device(self, targets: Any, side: int) -> Any:
        try:
            view = self._view(targets, "targets", "float64")
            indices = self._device_find(view, side)
        except _core.Failure as failure:
            self._raise(failure, targets=targets)
        return on_device.hand_to(on_device.library_of(targets), indices)

    def _note(self, name: str) -> str:
        return f" ({self.total})" if name == "TARGET" else super()._note(name)


class SumTree(SummedTree):
    """A tree of sums over masses.

    Parameters
    ----------
    capacity : int
        The number of leaves, 1 .. 2**40, all zero at first.
    backend : {"auto", "cpu", "multicore", "gpu"}
        Where it runs; "auto" is what the environment variable LIBSUMTREE_BACKEND names, else what
        ``libsumtree tune`` measured to pay on this machine for this capacity, else "cpu".
    device : int, optional
        Which GPU, for backend "gpu" alone. By default the local rank modulo the number of GPUs
        under a launcher of MPI (see `libsumtree.devices`), else 0.

    Raises
    ------
    CapacityError, ArgumentTypeError
        If the capacity is not an integer in that range.
    OutOfMemoryError
        If the memory limit cannot hold it: at once, never later.
    BackendError
        If the backend is unknown or not available.
    DeviceError
        If there is no such GPU, or the gpu backend cannot run on it: saying what is missing.

    Examples
    --------
    >>> tree = SumTree(4)
    >>> tree.update([0, 1, 2, 3], [0.5, 1.0, 1.0, 3.0])
    >>> tree.total
    5.5
    >>> tree.find([0.0, 0.5, 5.5])
    array([0, 1, 3])
    """

    _KIND = SUM


class MinTree(Tree):
    """A tree of minima over any numbers but NaN; unset leaves are +inf, and 0 counts.

    Parameters
    ----------
    capacity : int
        The number of leaves, 1 .. 2**40.
    backend : {"auto", "cpu", "multicore", "gpu"}
    device : int, optional
        As for `SumTree`, with the same errors.
    """

    _KIND = MIN

    def min(self, start: int = 0, stop: int | None = None) -> float:
        """Give the minimum of the leaves start .. stop-1; +inf if there are none. O(log n).

        Parameters
        ----------
        start, stop : int
            0 <= start <= stop <= capacity; `stop` None means capacity.

        Raises
        ------
        RangeError, ArgumentTypeError
            If the range is not within the leaves, or not of integers.
        """
        return self._min(*as_range(start, stop, self._capacity))
