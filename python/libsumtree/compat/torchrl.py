"""The segment trees of TorchRL.

>>> import numpy as np
>>> tree = SumSegmentTreeFp64(5)
>>> tree.update(np.arange(4), np.array([0.5, 1.0, 1.0, 3.0]))
>>> tree.query(0, 4), tree.scan_lower_bound(0.5)
(5.5, 0)
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..arguments import Doubles, as_doubles, as_indices, check_same_shape, is_scalar
from ..errors import (
    CapacityError,
    DeviceArrayError,
    IndexOutOfRangeError,
    RangeError,
    TargetError,
)
from ..tree import MinTree, SumTree
from .conventions import renamed

__all__ = [
    "MinSegmentTreeFp32",
    "MinSegmentTreeFp64",
    "SumSegmentTreeFp32",
    "SumSegmentTreeFp64",
]

_INT64_MAX = np.iinfo(np.int64).max


class _SegmentTree:
    """An array whose contiguous parts are reduced; indices are of any shape, results have theirs.

    Parameters
    ----------
    size : int
        The number of leaves, 1 .. 2**40.

    Raises
    ------
    CapacityError, ArgumentTypeError
        If the size is not an integer in that range.

    Notes
    -----
    What it is given may be NumPy's, a list, or PyTorch's in host memory, of any dtype that fits; it
    gives arrays to arrays and tensors to tensors, of its own dtype, and Python's numbers to numbers
    and to indices without axes.
    """

    _TREE: ClassVar[type[SumTree] | type[MinTree]]
    _DTYPE: ClassVar[type[np.floating[Any]]]
    _tree: SumTree | MinTree

    def __init__(self, size: int) -> None:
        try:
            self._tree = self._TREE(size)
        except CapacityError as error:
            raise CapacityError(renamed(error, "size")) from None

    @property
    def size(self) -> int:
        """The number of leaves."""
        return self._tree.capacity

    @property
    def capacity(self) -> int:
        """The lowest power of two above the size, as there; only `size` leaves can be named."""
        return 1 << self.size.bit_length()

    @property
    def identity_element(self) -> float:
        """What an unset leaf is: 0.0 in sums, inf in minima."""
        return 0.0 if isinstance(self._tree, SumTree) else np.inf

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        """Read leaves; see `at`."""
        return self.at(index)

    def at(self, index: Any, /) -> Any:
        """Read leaves.

        Parameters
        ----------
        index : int, or array or tensor of integers, any shape
            0 .. size-1.

        Raises
        ------
        IndexOutOfRangeError, ArgumentTypeError
            Naming the first that is out of range, or if they are not integers.
        """
        indices, hand_back = _in_host_memory(index, "index")
        try:
            return self._handed(np.asarray(self._tree[indices]), hand_back)
        except IndexOutOfRangeError as error:
            raise IndexOutOfRangeError(renamed(error, "index")) from None

    def __setitem__(self, index: Any, value: Any) -> None:
        """Set leaves; see `update`."""
        self.update(index, value)

    def update(self, index: Any, value: Any, /) -> None:
        """Set leaves; of equal indices the last wins.

        Parameters
        ----------
        index : int, or array or tensor of integers, any shape
            0 .. size-1.
        value : real numbers of the shape of `index`, or one for all
            Rounded to float32 in Fp32 trees.

        Raises
        ------
        IndexOutOfRangeError, MassError, ShapeError, ArgumentTypeError
            Naming the first bad position and its value; nothing has changed.
        """
        masses = self._rounded(value, "value")
        if masses.size == 1:
            masses = masses.reshape(())
        try:
            self._tree.update(_in_host_memory(index, "index")[0], masses)
        except IndexOutOfRangeError as error:
            raise IndexOutOfRangeError(renamed(error, "index")) from None

    def query(self, left: Any, right: Any, /) -> Any:
        """Reduce the leaves left .. right-1; the identity element if there are none.

        Parameters
        ----------
        left, right : int, or arrays or tensors of integers of one shape
            0 .. size each; or left <= 0 and right >= size for all leaves.

        Raises
        ------
        RangeError, ShapeError, ArgumentTypeError
            Naming the first pair that is not within the leaves.

        Notes
        -----
        O(log n) for each pair.
        """
        starts, hand_back = _in_host_memory(left, "left")
        first = as_indices(starts, _INT64_MAX, "left")
        last = as_indices(_in_host_memory(right, "right")[0], _INT64_MAX, "right")
        if not last.ndim and first.ndim:
            last = np.broadcast_to(last, first.shape)
        check_same_shape(first.shape, last.shape, ("left", "right"))
        pairs = zip(first.ravel().tolist(), last.ravel().tolist(), strict=True)
        reduced = np.array([self._reduce(*pair) for pair in pairs], dtype=np.float64)
        return self._handed(reduced.reshape(first.shape), hand_back)

    def _reduce(self, left: int, right: int) -> float:
        start, stop = (0, self.size) if left <= 0 and right >= self.size else (left, right)
        if not (0 <= start <= self.size and 0 <= stop <= self.size):
            raise RangeError(
                f"left is {left} and right is {right}: both must be in 0 .. {self.size}, or take "
                "in all of it"
            )
        stop = max(start, stop)
        if isinstance(self._tree, SumTree):
            return self._tree.sum(start, stop)
        return self._tree.min(start, stop)

    def _rounded(self, values: Any, name: str) -> Doubles:
        """Take real numbers as those of the tree's dtype; above its largest they are inf."""
        exact = as_doubles(_in_host_memory(values, name)[0], name)
        if self._DTYPE is np.float64:
            return exact
        with np.errstate(over="ignore"):
            return exact.astype(self._DTYPE).astype(np.float64)

    def _handed(self, values: Doubles, hand_back: Callable[[NDArray[Any]], Any]) -> Any:
        """Give results in the tree's dtype to whoever asked."""
        with np.errstate(over="ignore"):
            rounded = values.astype(self._DTYPE)
        return hand_back(rounded) if rounded.ndim else float(rounded)


class _SumSegmentTree(_SegmentTree):
    _TREE = SumTree
    _tree: SumTree

    def scan_lower_bound(self, value: Any, /) -> Any:
        """Find the lowest i such that the leaves up to it, itself included, sum to `value` or more.

        Parameters
        ----------
        value : real numbers, or an array or tensor of them, any shape
            >= 0. Rounded to float32 in Fp32 trees.

        Returns
        -------
        int, or array or tensor of int64 of the shape of `value`
            The size where `value` is above the total; never a leaf of mass 0.

        Raises
        ------
        TargetError
            If one is negative or NaN, naming the first.
        EmptyTreeError
            If the total is 0 and one is, too.
        """
        wanted, hand_back = _in_host_memory(value, "value")
        targets = self._rounded(wanted, "value")
        total = self._tree.total
        beyond = targets > float(self._DTYPE(total))
        if targets.ndim and not beyond.any():
            return hand_back(self._find(np.minimum(targets, total), targets))
        indices = np.full(targets.shape, self.size, dtype=np.int64)
        indices[~beyond] = self._find(np.minimum(targets, total)[~beyond], targets)
        return int(indices) if wanted is value and is_scalar(value) else hand_back(indices)

    def _find(self, within: Doubles, targets: Doubles) -> Any:
        """Find those targets that are not beyond the total; name the first of all that is bad."""
        try:
            return self._tree.find(within, side="left")
        except TargetError:
            lowered = np.where(targets > self._tree.total, 0.0, targets)
        try:
            return self._tree.find(lowered, side="left")
        except TargetError as error:
            raise TargetError(renamed(error, "value")) from None


def _in_host_memory(values: Any, name: str) -> tuple[Any, Callable[[NDArray[Any]], Any]]:
    """Give what NumPy takes of an argument, and what makes an array of the caller's kind again."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(values, torch.Tensor):
        return values, _as_it_is
    if values.device.type != "cpu":
        raise DeviceArrayError(
            f"{name} is a tensor on {values.device}, and these trees are for host memory: pass "
            f"{name}.cpu(), or use libsumtree.SumTree(size, backend='gpu')"
        )
    return values.detach().numpy(), torch.from_numpy


def _as_it_is(array: NDArray[Any]) -> NDArray[Any]:
    return array


class SumSegmentTreeFp32(_SumSegmentTree):
    """Sums over masses that are kept as float32; added up in double precision."""

    _DTYPE = np.float32


class SumSegmentTreeFp64(_SumSegmentTree):
    """Sums over masses."""

    _DTYPE = np.float64


class MinSegmentTreeFp32(_SegmentTree):
    """Minima over numbers that are kept as float32."""

    _TREE = MinTree
    _DTYPE = np.float32


class MinSegmentTreeFp64(_SegmentTree):
    """Minima over numbers."""

    _TREE = MinTree
    _DTYPE = np.float64
