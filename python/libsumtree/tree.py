"""The trees: sums, minima and proportional draws over the leaves of a complete binary tree.

A node is always recomputed from its two children, in IEEE double, left before right. The whole tree
is thus a function of its leaves alone, and every backend gives the bits of `libsumtree.reference`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.random import Philox, SeedSequence
from numpy.typing import ArrayLike

from . import _core, philox
from . import device_arrays as on_device
from .arguments import (
    Doubles,
    as_count,
    as_doubles,
    as_range,
    as_real,
    is_scalar,
    names_of,
)
from .backends import AUTO, open_backend
from .errors import ArgumentError, OutOfMemoryError, ShapeError
from .failures import raise_failure
from .leaves import MAX_CAPACITY, MIN, PRIORITY, SUM, Plane, Tree, fast

__all__ = [
    "MAX_CAPACITY",
    "MAX_MASS",
    "MinTree",
    "Plane",
    "PriorityTree",
    "Side",
    "SumTree",
    "Tree",
    "TreeSample",
    "masses_of",
]

MAX_MASS: float = _core.MAX_MASS

Side: TypeAlias = Literal["right", "left"]

_EMPTY_NOTE = ": nothing was added yet, or every mass is 0"
_SIDES: dict[str, int] = {"right": 0, "left": 1}


class TreeSample(NamedTuple):
    """A draw from a `PriorityTree`.

    Attributes
    ----------
    indices : array of int64, shape (n,)
        The leaves drawn.
    masses : array of float64, shape (n,)
        Their masses.
    weights : array of float64, shape (n,)
        (min positive mass / mass) ** beta, in 0 .. 1.
    """

    indices: Any
    masses: Any
    weights: Any


class _Summed(Tree):
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
        RangeError
            If the range is not within the leaves.

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

        Notes
        -----
        O(k log n).
        """
        if not isinstance(side, str) or side not in _SIDES:
            raise ArgumentError(f"side is {side!r}: it must be one of {names_of(_SIDES)}")
        if self._takes_device_arrays(targets=targets):
            return self._find_on_device(targets, side)
        array = as_doubles(targets, "targets")
        indices = np.empty(array.shape, dtype=np.int64)
        try:
            self._find(array, _SIDES[side], indices)
        except _core.Failure as failure:
            self._raise(failure, targets=array)
        return int(indices) if is_scalar(targets) else indices

    def _find_on_device(self, targets: Any, side: Side) -> Any:
        try:
            view = self._view(targets, "targets", "float64")
            indices = self._device_find(view, _SIDES[side])
        except _core.Failure as failure:
            self._raise(failure, targets=targets)
        return on_device.hand_to(on_device.library_of(targets), indices)

    def _note(self, name: str) -> str:
        if name == "EMPTY":
            return _EMPTY_NOTE
        return f" ({self.total})" if name == "TARGET" else super()._note(name)


class SumTree(_Summed):
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
        RangeError
            If the range is not within the leaves.
        """
        return self._min(*as_range(start, stop, self._capacity))


class PriorityTree(_Summed):
    """Sum, min and max over the same masses, updated in one pass, and draws from them.

    Parameters
    ----------
    capacity : int
        The number of leaves, 1 .. 2**40, all zero at first.
    seed : int, sequence of int, SeedSequence or None
        Of the draws: ``numpy.random.Philox(SeedSequence(seed))``. None takes entropy, see `seed`.
    backend : {"auto", "cpu", "multicore", "gpu"}
    device : int, optional
        As for `SumTree`, with the same errors.
    """

    _KIND = PRIORITY

    def __init__(
        self,
        capacity: int,
        *,
        seed: philox.Seed = None,
        backend: str = AUTO,
        device: int | None = None,
    ) -> None:
        self._seed = philox.seed_sequence(seed)
        super().__init__(capacity, backend=backend, device=device)
        self.rng_state = Philox(self._seed).state

    @property
    def seed(self) -> SeedSequence:
        """The seed sequence of the draws; its `entropy` repeats them."""
        return self._seed

    @property
    def min(self) -> float:
        """The smallest positive mass held now; +inf if there is none. O(1)."""
        return self._root_of("min")

    @property
    def max(self) -> float:
        """The largest mass held now; 0.0 if none is positive. O(1)."""
        return self._root_of("max")

    @property
    def rng_state(self) -> dict[str, Any]:
        """The state of the draws: a ``numpy.random.Philox`` that is given it draws the same."""
        return philox.state_of(self._rng)

    @rng_state.setter
    def rng_state(self, state: Mapping[str, Any]) -> None:
        self._rng = philox.words_of(state)

    @fast("sample", TreeSample)
    def sample(
        self,
        n: int,
        beta: float = 0.4,
        stratified: bool = True,
        *,
        out: TreeSample | None = None,
        xp: Any = None,
    ) -> TreeSample:
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
        out : TreeSample, optional
            Arrays of shape (n,), int64, float64 and float64, that are filled and returned: NumPy's,
            or on the tree's device.
        xp : module, optional
            An array library that has ``from_dlpack``, such as torch, cupy or jax.numpy: the results
            are arrays of it, on the tree's device. Without it they are NumPy's.

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
        DeviceArrayError, ArgumentTypeError, ShapeError, ArgumentError
            If `out` or `xp` is not as described.

        Notes
        -----
        O(n log capacity).
        """
        count = as_count(n, "n")
        exponent = as_real(beta, "beta")
        try:
            drawn, fill = self._room_for(count, out, xp)
            fill(exponent, bool(stratified), *drawn)
        except _core.Failure as failure:
            name = failure.args[0]
            if name == "MEMORY":
                raise _too_many(count) from None
            note = f" (beta is {exponent})" if name == "EXPONENT" else self._note(name)
            raise_failure(failure, note)
        if out is not None:
            return out
        if xp is None:
            return drawn
        return TreeSample(*(on_device.hand_to(xp, array) for array in drawn))

    def _room_for(
        self, count: int, out: TreeSample | None, xp: Any
    ) -> tuple[TreeSample, Callable[..., None]]:
        """Give the arrays for a draw, and what fills them."""
        if out is not None:
            if xp is not None:
                raise ArgumentError("out and xp are both given: the library of out is that of out")
            return self._room_in(count, out)
        if xp is not None:
            on_device.check_library(xp)
            if self._device < 0:
                raise ArgumentError(
                    f"xp is given, but the results of backend {self._name!r} are in host memory: "
                    "make the tree with backend='gpu'"
                )
            shapes = [([count], field == "indices") for field in TreeSample._fields]
            return TreeSample(*(self._new_array(*shape) for shape in shapes)), self._device_sample
        try:
            arrays = np.empty(count, dtype=np.int64), np.empty(count), np.empty(count)
        except (MemoryError, ValueError):
            raise _too_many(count) from None
        return TreeSample(*arrays), self._sample

    def _room_in(self, count: int, out: TreeSample) -> tuple[TreeSample, Callable[..., None]]:
        """Check the arrays that the caller has for a draw."""
        if not isinstance(out, tuple) or len(out) != len(TreeSample._fields):
            raise ArgumentError("out must be a TreeSample of three arrays")
        named = dict(zip([f"out.{field}" for field in TreeSample._fields], out, strict=True))
        dtypes = ("int64", "float64", "float64")
        is_there = self._takes_device_arrays(**named)
        arrays = []
        for (name, array), dtype in zip(named.items(), dtypes, strict=True):
            arrays.append(self._out_view(array, name, dtype) if is_there else array)
            if not is_there and not _core.is_plain_and_writable(array, dtype == "int64"):
                raise ArgumentError(
                    f"{name} must be a NumPy array of {dtype}, contiguous and writable"
                )
            if arrays[-1].shape != (count,):
                raise ShapeError(f"{name} has shape {arrays[-1].shape}: it must be ({count},)")
        _check_apart(list(named), [_address(array) for array in arrays], 8 * count)
        return TreeSample(*arrays), self._device_sample if is_there else self._sample_into

    def _sample_into(self, beta: float, stratified: bool, *out: Any) -> None:
        """Draw into arrays of our own first: other threads may write to the caller's meanwhile."""
        drawn = [np.empty_like(array) for array in out]
        self._sample(beta, stratified, *drawn)
        for array, values in zip(out, drawn, strict=True):
            array[:] = values

    def _out_view(self, array: Any, name: str, dtype: str) -> _core.DeviceView:
        return on_device.view_of(array, name, dtype, self._dlpack_device, writable=True)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "seed": self._seed, "rng": self._rng}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._seed = state["seed"]
        self._rng = state["rng"]


def _address(array: Any) -> int:
    where: int = array.ctypes.data if isinstance(array, np.ndarray) else array.address
    return where


def _check_apart(names: list[str], addresses: list[int], nbytes: int) -> None:
    """Raise unless no two of some arrays of this size share memory."""
    for (first, one), (second, other) in combinations(zip(names, addresses, strict=True), 2):
        if abs(one - other) < nbytes:
            raise ArgumentError(f"{first} and {second} share memory: each needs its own")


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


def check_priorities(priorities: Doubles) -> None:
    """Raise `PriorityError`, naming the first bad one, unless all are finite and >= 0."""
    masses = np.empty(priorities.shape, dtype=np.float64)
    try:  # priority ** 0, the cheapest power: no priority makes it too large
        open_backend("cpu").masses(priorities, 0.0, masses)
    except _core.Failure as failure:
        raise_failure(failure, priorities=priorities)


def _too_many(count: int) -> OutOfMemoryError:
    return OutOfMemoryError(f"n is {count}: the memory cannot hold so many draws")
