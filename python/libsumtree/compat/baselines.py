"""The segment trees of OpenAI Baselines, Stable-Baselines 2, RLlib and DI-engine.

>>> tree = SumSegmentTree(4)
>>> tree[2] = 1.0
>>> tree[3] = 3.0
>>> tree.sum(2, -1), tree.find_prefixsum_idx(1.01)
(1.0, 3)
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from ..arguments import Doubles, as_doubles
from ..errors import ArgumentError, CapacityError, IndexOutOfRangeError, TargetError
from ..tree import MinTree, Plane, SumTree
from .conventions import asserted, half_open

__all__ = ["MinSegmentTree", "SegmentTree", "SumSegmentTree"]

Operation: TypeAlias = str | Callable[..., Any]

SLACK = 1e-5
"""How far above the total a prefix sum may be, as they allow: it then counts as the total."""

_OPERATIONS: dict[Operation, str] = {
    operator.add: "sum",
    np.add: "sum",
    "sum": "sum",
    min: "min",
    np.minimum: "min",
    "min": "min",
    max: "max",
    np.maximum: "max",
    "max": "max",
}
_NEUTRAL = {"sum": 0.0, "min": np.inf, "max": -np.inf}


class SegmentTree:
    """An array whose contiguous parts are reduced in O(log capacity).

    Parameters
    ----------
    capacity : int
        The number of leaves, 1 .. 2**40: any, not powers of two alone.
    operation : callable or str
        ``operator.add``, ``min`` or ``max``, their namesakes in NumPy (``numpy.add``, ``minimum``,
        ``maximum``), or ``"sum"``, ``"min"``, ``"max"``.
    neutral_element : float, optional
        0.0, inf or -inf, as the operation has it.

    Raises
    ------
    AssertedCapacityError
        If the capacity is not in that range.
    ArgumentError
        If the operation is another one, or the neutral element not its own.
    """

    def __init__(
        self, capacity: int, operation: Operation, neutral_element: float | None = None
    ) -> None:
        kind = _OPERATIONS.get(operation) if isinstance(operation, Hashable) else None
        if kind is None:
            raise ArgumentError(
                f"operation is {operation!r}: it must be operator.add, min or max, their namesakes "
                "in NumPy, or 'sum', 'min' or 'max'"
            )
        if neutral_element is not None and neutral_element != _NEUTRAL[kind]:
            raise ArgumentError(
                f"neutral_element is {neutral_element!r}: that of {kind} is {_NEUTRAL[kind]}"
            )
        self.operation = operation
        self.neutral_element: float = _NEUTRAL[kind]
        self._is_max = kind == "max"
        try:
            self._tree = SumTree(capacity) if kind == "sum" else MinTree(capacity)
        except CapacityError as error:
            raise asserted(error, "capacity") from None

    @property
    def capacity(self) -> int:
        """The number of leaves."""
        return self._tree.capacity

    @property
    def value(self) -> Doubles:
        """A copy of all nodes, root at 1, leaves in the second half. O(n).

        float64 of shape (2 * n,), n being the next power of two from the capacity on.
        """
        plane: Plane = "sum" if isinstance(self._tree, SumTree) else "min"
        nodes: Doubles = self._signed(self._tree.nodes(plane))
        nodes[0] = self.neutral_element
        return nodes

    def __setitem__(self, idx: ArrayLike, val: ArrayLike) -> None:
        """Set one leaf, or those of an array of any shape; of equal ones the last wins.

        Raises
        ------
        AssertedIndexError
            If an index is outside 0 .. capacity-1, naming the first.
        MassError, ArgumentTypeError, ShapeError
            As `libsumtree.SumTree.update`. After any error nothing has changed.
        """
        try:
            self._tree.update(idx, -as_doubles(val, "val") if self._is_max else val)
        except IndexOutOfRangeError as error:
            raise asserted(error, "idx") from None

    def __getitem__(self, idx: ArrayLike) -> Any:
        """Read one leaf as a float, or those of an array as float64 of its shape."""
        try:
            return self._signed(self._tree[idx])
        except IndexOutOfRangeError as error:
            raise asserted(error, "idx") from None

    def reduce(self, start: int = 0, end: int | None = None) -> float:
        """Reduce the leaves start .. end-1; the neutral element if there are none. O(log n).

        Parameters
        ----------
        start : int
            0 .. capacity.
        end : int, optional
            Excluded; below 0 it counts from the capacity, which None stands for.

        Raises
        ------
        RangeError
            If they are not within the leaves.
        """
        first, stop = half_open(start, end, self._tree.capacity)
        if isinstance(self._tree, SumTree):
            return self._tree.sum(first, stop)
        reduced: float = self._signed(self._tree.min(first, stop))
        return reduced

    def get_state(self) -> dict[str, Any]:
        """Give the leaves, for `set_state`; RLlib's buffer asks its trees for it."""
        return {"capacity": self.capacity, "values": self._signed(self._tree[:])}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `get_state` of a tree of the same capacity gave.

        Raises
        ------
        ArgumentError
            If it is of another capacity.
        """
        if state["capacity"] != self.capacity:
            raise ArgumentError(
                f"state is of capacity {state['capacity']}: this tree has {self.capacity}"
            )
        self._tree[:] = self._signed(state["values"])

    def _signed(self, values: Any) -> Any:
        """Turn values of the tree into the caller's, or back: maxima are minima of negatives."""
        return -values if self._is_max else values


class SumSegmentTree(SegmentTree):
    """A segment tree of sums over masses in 0 .. 2**960.

    Parameters
    ----------
    capacity : int
        The number of leaves, 1 .. 2**40.

    Raises
    ------
    AssertedCapacityError
        If the capacity is not in that range.
    """

    _tree: SumTree

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, operator.add)

    def sum(self, start: int = 0, end: int | None = None) -> float:
        """Do as `reduce` does: sum the leaves start .. end-1."""
        return self.reduce(start, end)

    def find_prefixsum_idx(self, prefixsum: ArrayLike, trust_caller: bool = True) -> Any:
        """Find the highest i such that the leaves before it sum to at most `prefixsum`.

        Parameters
        ----------
        prefixsum : array_like of real numbers, any shape
            0 .. total; up to 1e-5 more counts as the total.
        trust_caller : bool
            DI-engine's; the range is checked whatever it is.

        Returns
        -------
        int, or ndarray of int64 of the shape of `prefixsum`
            Never a leaf of mass 0.

        Raises
        ------
        AssertedTargetError
            If one is out of that range, naming the first.
        EmptyTreeError
            If the total is 0.
        """
        try:
            return self._tree.find(prefixsum)
        except TargetError:
            return self._find_near(prefixsum)

    def _find_near(self, prefixsum: ArrayLike) -> Any:
        """Find prefix sums of which some are above the total, if only by what is allowed."""
        targets, total = as_doubles(prefixsum, "prefixsum"), self._tree.total
        lowered = np.where(targets <= total + SLACK, np.minimum(targets, total), targets)
        try:
            return self._tree.find(lowered if np.ndim(prefixsum) else float(lowered))
        except TargetError as error:
            raise asserted(error, "prefixsum") from None


class MinSegmentTree(SegmentTree):
    """A segment tree of minima over any numbers but NaN; unset leaves are inf.

    Parameters
    ----------
    capacity : int
        The number of leaves, 1 .. 2**40.

    Raises
    ------
    AssertedCapacityError
        If the capacity is not in that range.
    """

    _tree: MinTree

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, min)

    def min(self, start: int = 0, end: int | None = None) -> float:
        """Do as `reduce` does: give the minimum of the leaves start .. end-1."""
        return self.reduce(start, end)
