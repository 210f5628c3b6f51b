"""The trees: sums, minima and proportional draws over the leaves of a complete binary tree.

A node is always recomputed from its two children, in IEEE double, left before right. The whole tree
is thus a function of its leaves alone, and every backend gives the bits of `libsumtree.reference`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn, TypeAlias

import numpy as np
from numpy.random import Philox, SeedSequence
from numpy.typing import ArrayLike

from . import _core, philox
from .arguments import (
    Doubles,
    Indices,
    as_count,
    as_doubles,
    as_indices,
    as_integer,
    as_range,
    as_real,
    check_same_shape,
    is_scalar,
    names_of,
    place,
)
from .backends import AUTO, open_backend, resolve
from .errors import (
    STATUS_ERRORS,
    ArgumentError,
    CapacityError,
    CorruptTreeError,
    OutOfMemoryError,
)

MAX_CAPACITY: int = _core.MAX_CAPACITY
MAX_MASS: float = _core.MAX_MASS

Plane: TypeAlias = Literal["sum", "min", "max"]
Side: TypeAlias = Literal["right", "left"]

_SUM, _MIN, _PRIORITY = range(3)
_PLANES: dict[str, int] = {"sum": 0, "min": 1, "max": 2}
_SIDES: dict[str, int] = {"right": 0, "left": 1}


class TreeSample(NamedTuple):
    """A draw from a `PriorityTree`.

    Attributes
    ----------
    indices : ndarray of int64, shape (n,)
        The leaves drawn.
    masses : ndarray of float64, shape (n,)
        Their masses.
    weights : ndarray of float64, shape (n,)
        (min positive mass / mass) ** beta, in 0 .. 1.
    """

    indices: Indices
    masses: Doubles
    weights: Doubles


_SUBJECTS = {
    "INDEX": "indices",
    "MASS": "masses",
    "VALUE": "masses",
    "PRIORITY": "priorities",
    "TARGET": "targets",
}


def raise_failure(
    failure: _core.Failure, note: str = "", **arguments: Doubles | Indices
) -> NoReturn:
    """Raise the exception of a status, with the place and the value that caused it.

    Parameters
    ----------
    failure : Failure
        What the binding raised: name and text of the status, and the first bad position.
    note : str, optional
        What to add to the text, such as the capacity in force.
    **arguments : ndarray
        The arrays of the call: the one that the status is about is named with the bad element.
    """
    name, text, position = failure.args
    subject = _SUBJECTS.get(name, "")
    message = f"{text}{note}"
    if subject in arguments:
        array = arguments[subject]
        position = position if array.ndim else 0
        message = f"{place(subject, position, array.shape)} is {array.ravel()[position]}: {message}"
    raise STATUS_ERRORS[name](message) from None


class Tree:
    """What all trees share: leaves, their update, their reading. Use one of its subclasses.

    Any number of threads may read, or one may write; others wait with the GIL released.
    """

    _KIND: ClassVar[int]

    def __init__(self, capacity: int, *, backend: str = AUTO) -> None:
        self._capacity = _checked_capacity(capacity)
        self._requested = backend
        self._name = resolve(backend, self._capacity)
        library = open_backend(self._name)
        try:
            self._core = _core.Tree(library, self._capacity, self._KIND)
        except _core.Failure as failure:
            if failure.args[0] != "MEMORY":
                raise_failure(failure)
            raise OutOfMemoryError(
                f"a {type(self).__name__} of capacity {self._capacity} takes "
                f"{library.bytes(self._capacity, self._KIND)} bytes: more than the memory limit, "
                "control group included, has left"
            ) from None

    @property
    def capacity(self) -> int:
        """The number of leaves."""
        return self._capacity

    @property
    def padded_capacity(self) -> int:
        """The next power of two: the width of the leaf level."""
        return self._core.padded_capacity

    @property
    def backend(self) -> str:
        """The backend that runs: ``"cpu"``, ``"multicore"`` or ``"gpu"``."""
        return self._name

    def __len__(self) -> int:
        return self._capacity

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._capacity}, backend={self._name!r})"

    def update(self, indices: ArrayLike, masses: ArrayLike) -> None:
        """Set leaves and recompute their ancestors.

        The batch is checked whole first: after an error nothing has changed. Of equal indices the
        last wins.

        Parameters
        ----------
        indices : array_like of integers, any shape
            Leaves, each in 0 .. capacity-1.
        masses : array_like of real numbers, the shape of `indices`, or one number for all
            Each in 0 .. 2**960; -0.0 is stored as 0.0. In a `MinTree`: any number but NaN.

        Raises
        ------
        IndexOutOfRangeError, MassError
            Naming the first bad position and its value.
        ArgumentTypeError, ShapeError
            If the dtypes or shapes do not fit.

        Notes
        -----
        O(k log n) for k leaves of n, and never more than O(k + n): the ancestors of one level do
        not depend on each other, so each level is recomputed once, and as a whole where the batch
        touches a fair part of it.
        """
        indices = as_indices(indices, self._capacity)
        masses = as_doubles(masses, "masses")
        check_same_shape(indices.shape, masses, ("indices", "masses"))
        try:
            self._core.update(indices, masses)
        except _core.Failure as failure:
            self._raise(failure, indices=indices, masses=masses)

    def __getitem__(self, indices: ArrayLike | slice) -> Any:
        """Read leaves: a float for one index, else float64 of the shape of `indices`. O(k)."""
        if isinstance(indices, slice):
            return self._get_slice(indices)
        array = as_indices(indices, self._capacity)
        masses = np.empty(array.shape, dtype=np.float64)
        try:
            self._core.get(array, masses)
        except _core.Failure as failure:
            self._raise(failure, indices=array)
        return float(masses) if is_scalar(indices) else masses

    def __setitem__(self, indices: ArrayLike | slice, masses: ArrayLike) -> None:
        """Do as `update` does; a slice of step 1 takes O(k + log n)."""
        if isinstance(indices, slice):
            self._set_slice(indices, as_doubles(masses, "masses"))
        else:
            self.update(indices, masses)

    def validate(self) -> None:
        """Check every leaf and every node against the rules. O(n).

        Raises
        ------
        CorruptTreeError
            Naming the first node that violates them.
        """
        plane, node = self._core.validate()
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
        if not isinstance(plane, str) or plane not in _PLANES:
            raise ArgumentError(f"plane is {plane!r}: it must be one of {names_of(_PLANES)}")
        nodes = np.empty(2 * self.padded_capacity, dtype=np.float64)
        try:
            self._core.nodes(_PLANES[plane], nodes)
        except _core.Failure as failure:
            raise_failure(failure)
        return nodes

    def __getstate__(self) -> dict[str, Any]:
        return {"capacity": self._capacity, "backend": self._requested, "masses": self[:]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Tree.__init__(self, state["capacity"], backend=state["backend"])
        self[:] = state["masses"]

    def _root(self, plane: str) -> float:
        return self._core.root(_PLANES[plane])

    def _get_slice(self, leaves: slice) -> Doubles:
        start, stop, step = leaves.indices(self._capacity)
        if step != 1:
            masses: Doubles = self[np.arange(start, stop, step)]
            return masses
        masses = np.empty(max(stop - start, 0), dtype=np.float64)
        self._core.get_range(start, masses)
        return masses

    def _set_slice(self, leaves: slice, masses: Doubles) -> None:
        start, stop, step = leaves.indices(self._capacity)
        if step != 1:
            self.update(np.arange(start, stop, step), masses)
            return
        count = max(stop - start, 0)
        check_same_shape((count,), masses, ("the slice", "masses"))
        try:
            self._core.update_range(start, count, masses)
        except _core.Failure as failure:
            self._raise(failure, masses=masses)

    def _raise(self, failure: _core.Failure, **arguments: Doubles | Indices) -> NoReturn:
        note = f" (capacity {self._capacity})" if failure.args[0] == "INDEX" else ""
        raise_failure(failure, note, **arguments)


class _Summed(Tree):
    """The part of a tree that adds up masses."""

    @property
    def total(self) -> float:
        """The root: the tree's sum of all masses. O(1)."""
        return self._root("sum")

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
        RangeError
            If the range is not within the leaves.

        Notes
        -----
        O(log n).
        """
        return self._core.sum(*as_range(start, stop, self._capacity))

    def find(self, targets: ArrayLike, side: Side = "right") -> Any:
        """Find the leaves in which targets lie, by descent from the root.

        At a node with children's sums l and r, m being the rest of the target: ``"right"`` goes
        left if l > m or r == 0; ``"left"`` goes left if (l >= m and l > 0) or r == 0; else m -= l
        and it goes right. Without rounding that is the smallest index j with target < sum(0, j+1),
        or with target <= sum(0, j+1) for ``"left"``. A leaf of mass zero is never returned.

        Parameters
        ----------
        targets : array_like of real numbers, any shape
            Each in 0 .. total.
        side : {"right", "left"}
            "right" is Baselines' convention, "left" TorchRL's, Tianshou's and dqn_zoo's.

        Returns
        -------
        int, or ndarray of int64 of the shape of `targets`

        Raises
        ------
        EmptyTreeError
            If the total is zero.
        TargetError
            If a target is negative, NaN or above the total, naming the first.

        Notes
        -----
        O(k log n).
        """
        if not isinstance(side, str) or side not in _SIDES:
            raise ArgumentError(f"side is {side!r}: it must be one of {names_of(_SIDES)}")
        array = as_doubles(targets, "targets")
        indices = np.empty(array.shape, dtype=np.int64)
        try:
            self._core.find(array, _SIDES[side], indices)
        except _core.Failure as failure:
            note = f" ({self.total})" if failure.args[0] == "TARGET" else ""
            raise_failure(failure, note, targets=array)
        return int(indices) if is_scalar(targets) else indices


class SumTree(_Summed):
    """A tree of sums over masses.

    Parameters
    ----------
    capacity : int
        The number of leaves, 1 .. 2**40, all zero at first.
    backend : {"auto", "cpu", "multicore", "gpu"}
        Where it runs; "auto" is what the environment variable LIBSUMTREE_BACKEND names, else what
        ``libsumtree tune`` measured to pay on this machine for this capacity, else "cpu".

    Raises
    ------
    CapacityError, ArgumentTypeError
        If the capacity is not an integer in that range.
    OutOfMemoryError
        If the memory limit cannot hold it: at once, never later.
    BackendError
        If the backend is unknown or not available.

    Examples
    --------
    >>> tree = SumTree(4)
    >>> tree.update([0, 1, 2, 3], [0.5, 1.0, 1.0, 3.0])
    >>> tree.total
    5.5
    >>> tree.find([0.0, 0.5, 5.5])
    array([0, 1, 3])
    """

    _KIND = _SUM


class MinTree(Tree):
    """A tree of minima over any numbers but NaN; unset leaves are +inf, and 0 counts.

    Parameters
    ----------
    capacity : int
        The number of leaves, 1 .. 2**40.
    backend : {"auto", "cpu", "multicore", "gpu"}
        As for `SumTree`, with the same errors.
    """

    _KIND = _MIN

    def min(self, start: int = 0, stop: int | None = None) -> float:
        """Give the minimum of the leaves start .. stop-1; +inf if there are none. O(log n).

        Parameters
        ----------
        start, stop : int
            0 <= start <= stop <= capacity; `stop` None means capacity.

        Raises
        ------
        RangeError
            If the range is not within the leaves.
        """
        return self._core.min(*as_range(start, stop, self._capacity))


class PriorityTree(_Summed):
    """Sum, min and max over the same masses, updated in one pass, and draws from them.

    Parameters
    ----------
    capacity : int
        The number of leaves, 1 .. 2**40, all zero at first.
    seed : int, sequence of int, SeedSequence or None
        Of the draws: ``numpy.random.Philox(SeedSequence(seed))``. None takes entropy, see `seed`.
    backend : {"auto", "cpu", "multicore", "gpu"}
        As for `SumTree`, with the same errors.
    """

    _KIND = _PRIORITY

    def __init__(self, capacity: int, *, seed: philox.Seed = None, backend: str = AUTO) -> None:
        self._seed = philox.seed_sequence(seed)
        super().__init__(capacity, backend=backend)
        self.rng_state = Philox(self._seed).state

    @property
    def seed(self) -> SeedSequence:
        """The seed sequence of the draws; its `entropy` repeats them."""
        return self._seed

    @property
    def min(self) -> float:
        """The smallest positive mass held now; +inf if there is none. O(1)."""
        return self._root("min")

    @property
    def max(self) -> float:
        """The largest mass held now; 0.0 if none is positive. O(1)."""
        return self._root("max")

    @property
    def rng_state(self) -> dict[str, Any]:
        """The state of the draws: a ``numpy.random.Philox`` that is given it draws the same."""
        return philox.state_of(self._core.rng)

    @rng_state.setter
    def rng_state(self, state: Mapping[str, Any]) -> None:
        self._core.rng = philox.words_of(state)

    def sample(self, n: int, beta: float = 0.4, stratified: bool = True) -> TreeSample:
        """Draw n leaves, each with probability mass / total, with replacement.

        Consumes exactly n doubles u_i of the generator; none if it fails. The targets are fl(u_i *
        total), or stratified fl(fl(fl(i + u_i) / n) * total), each at most the double below the
        total.

        Parameters
        ----------
        n : int
            How many, >= 0.
        beta : float
            Exponent of the weights, 0 .. 1 (Schaul et al., 2016, section 3.4).
        stratified : bool
            One draw from each of n equal parts of the total, instead of n independent ones.

        Returns
        -------
        TreeSample
            indices, masses and weights, each of shape (n,).

        Raises
        ------
        EmptyTreeError
            If n > 0 and the total is zero.
        ExponentError
            If beta is outside 0 .. 1.

        Notes
        -----
        O(n log capacity).
        """
        count = as_count(n, "n")
        exponent = as_real(beta, "beta")
        try:
            drawn = TreeSample(np.empty(count, dtype=np.int64), np.empty(count), np.empty(count))
        except (MemoryError, ValueError):
            raise OutOfMemoryError(f"n is {count}: the memory cannot hold so many draws") from None
        try:
            self._core.sample(exponent, bool(stratified), *drawn)
        except _core.Failure as failure:
            raise_failure(
                failure, f" (beta is {exponent})" if failure.args[0] == "EXPONENT" else ""
            )
        return drawn

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "seed": self._seed, "rng": self._core.rng}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._seed = state["seed"]
        self._core.rng = state["rng"]


def masses_of(priorities: Doubles, alpha: float) -> Doubles:
    """Turn priorities into masses: priority ** alpha, and 0 for priority 0 whatever alpha is.

    The one place where a priority's power is taken.

    Parameters
    ----------
    priorities : ndarray of float64, C-contiguous, any shape
        Finite, >= 0.
    alpha : float
        Finite, >= 0.

    Raises
    ------
    PriorityError
        Naming the first bad position and its value.
    ExponentError
        If alpha is negative or not finite.
    """
    masses = np.empty(priorities.shape, dtype=np.float64)
    try:
        open_backend("cpu").masses(priorities, alpha, masses)
    except _core.Failure as failure:
        raise_failure(failure, f" (alpha is {alpha})", priorities=priorities)
    return masses


def _checked_capacity(capacity: Any) -> int:
    value = as_integer(capacity, "capacity")
    if not 1 <= value <= MAX_CAPACITY:
        raise CapacityError(f"capacity is {value}: it must be in 1 .. {MAX_CAPACITY} (2**40)")
    return value
