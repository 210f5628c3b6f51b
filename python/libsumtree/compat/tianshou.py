"""The segment tree of Tianshou.

>>> import numpy as np
>>> tree = SegmentTree(4)
>>> tree[np.array([0, 1, 2])] = np.array([0.5, 1.0, 1.0])
>>> tree.reduce(), tree.get_prefix_sum_idx(0.5)
(2.5, 0)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..arguments import as_doubles, place
from ..errors import CapacityError, IndexOutOfRangeError, TargetError
from ..tree import SumTree
from .conventions import AssertedTargetError, asserted, half_open

__all__ = ["SegmentTree"]


class SegmentTree:
    """Sums over an array of masses.

    Parameters
    ----------
    size : int
        The number of leaves, 1 .. 2**40.

    Raises
    ------
    AssertedCapacityError
        If the size is not in that range.
    """

    def __init__(self, size: int) -> None:
        try:
            self._tree = SumTree(size)
        except CapacityError as error:
            raise asserted(error, "size") from None

    def __len__(self) -> int:
        return self._tree.capacity

    def __getitem__(self, index: ArrayLike) -> Any:
        """Read one leaf as a float, or those of an array as float64 of its shape.

        Raises
        ------
        AssertedIndexError
            If an index is outside 0 .. size-1, naming the first.
        """
        try:
            return self._tree[index]
        except IndexOutOfRangeError as error:
            raise asserted(error, "index") from None

    def __setitem__(self, index: ArrayLike, value: ArrayLike) -> None:
        """Set one leaf, or those of an array of any shape; of equal ones the last wins.

        Raises
        ------
        AssertedIndexError
            If an index is outside 0 .. size-1, naming the first.
        MassError, ArgumentTypeError, ShapeError
            As `libsumtree.SumTree.update`. After any error nothing has changed.
        """
        try:
            self._tree.update(index, value)
        except IndexOutOfRangeError as error:
            raise asserted(error, "index") from None

    def reduce(self, start: int = 0, end: int | None = None) -> float:
        """Sum the leaves start .. end-1; 0.0 if there are none. O(log n).

        Parameters
        ----------
        start : int
            0 .. size.
        end : int, optional
            Excluded; below 0 it counts from the size, which None stands for.

        Raises
        ------
        RangeError
            If they are not within the leaves.
        """
        return self._tree.sum(*half_open(start, end, self._tree.capacity))

    def get_prefix_sum_idx(self, value: ArrayLike) -> Any:
        """Find the lowest i such that the leaves up to it, itself included, sum to `value` or more.

        Parameters
        ----------
        value : array_like of real numbers, any shape
            In 0 .. total, the total excluded. It is not written to.

        Returns
        -------
        int, or ndarray of int64 of the shape of `value`
            Never a leaf of mass 0.

        Raises
        ------
        AssertedTargetError
            If one is out of that range, naming the first.
        EmptyTreeError
            If the total is 0.
        """
        try:
            indices = self._tree.find(value, side="left")
        except TargetError as error:
            raise asserted(error, "value") from None
        targets, total = as_doubles(value, "value"), self._tree.total
        if (targets == total).any():
            where = place("value", int(np.argmax(targets == total)), targets.shape)
            raise AssertedTargetError(f"{where} is the total, {total}: it must be below")
        return indices
