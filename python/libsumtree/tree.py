"""The trees: sums, minima and proportional draws over the leaves of a complete binary tree.

A node is always recomputed from its two children, in IEEE double, left before right. The whole tree
is thus a function of its leaves alone, and every backend gives the bits of `libsumtree.reference`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.random import Philox, SeedSequence
from numpy.typing import ArrayLike

from . import _core, philox
from . import device_arrays as on_device
from .arguments import MAX_CAPACITY, Doubles, Indices, as_beta, as_count
from .backends import AUTO
from .errors import ArgumentError, OutOfMemoryError, ShapeError, TooFewError
from .failures import raise_failure
from .leaves import PRIORITY, Plane, Tree, fast
from .masses import MAX_MASS, masses_of
from .sums import MinTree, Side, SummedTree, SumTree

__all__ = [
    "MAX_CAPACITY",
    "MAX_MASS",
    "DistinctTreeSample",
    "MinTree",
    "Plane",
    "PriorityTree",
    "Side",
    "SumTree",
    "Tree",
    "TreeSample",
    "masses_of",
]

_BLOCK = 1 << 16


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


class DistinctTreeSample(NamedTuple):
    """A draw from a `PriorityTree` without replacement, in the order in which it was drawn.

    Attributes
    ----------
    indices : array of int64, shape (n,)
        The leaves drawn, all different.
    masses : array of float64, shape (n,)
        Their masses.
    weights : array of float64, shape (n,)
        (min positive mass / mass) ** beta, as of a `TreeSample`: right for draws with replacement,
        and biased for these the more, the larger a part of all leaves is drawn.
    expansions : array of float64, shape (n,)
        For how many leaves each stands: the sum of ``expansions * f(indices)`` has exactly the
        expectation of the sum of f over all leaves of positive mass, whatever f is.
    """

    indices: Indices
    masses: Doubles
    weights: Doubles
    expansions: Doubles


class PriorityTree(SummedTree):
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

    Raises
    ------
    ArgumentTypeError
        If the seed is not one.
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
        """The state of the draws: a ``numpy.random.Philox`` that is given it draws the same.

        Setting it to anything else than the state of a Philox is an `ArgumentError`.
        """
        return philox.state_of(self._rng)

    @rng_state.setter
    def rng_state(self, state: Mapping[str, Any]) -> None:
        self._rng = philox.words_of(state)

    @overload
    def sample(
        self,
        n: int,
        beta: float = ...,
        stratified: bool | None = ...,
        *,
        replace: Literal[True] = ...,
        out: TreeSample | None = ...,
        xp: Any = ...,
    ) -> TreeSample: ...

    @overload
    def sample(
        self,
        n: int,
        beta: float = ...,
        stratified: bool | None = ...,
        *,
        replace: Literal[False],
    ) -> DistinctTreeSample: ...

    @fast("sample", TreeSample)
    def sample(
        self,
        n: int,
        beta: float = 0.4,
        stratified: bool | None = None,
        *,
        replace: bool = True,
        out: TreeSample | None = None,
        xp: Any = None,
    ) -> TreeSample | DistinctTreeSample:
        """Draw n leaves, each with probability mass / total.

        With replacement it consumes exactly n doubles u_i of the generator; none if it fails. The
        targets are fl(u_i * total), or stratified fl(fl(fl(i + u_i) / n) * total), each at most the
        double below the total.

        Without replacement, each leaf is drawn with probability mass / what the leaves not drawn
        before have in total. Independent leaves are drawn in rounds, and those that came before are
        passed over. The first round draws n; each further one draws from the tree without the
        leaves that were found, and as many as are missing, but at most twice those that the round
        before found. So it consumes as many doubles as all rounds draw, n at least; none if it
        fails.

        Parameters
        ----------
        n : int
            How many, >= 0.
        beta : float
            Exponent of the weights, 0 .. 1 (Schaul et al., 2016, section 3.4).
        stratified : bool, optional
            One draw from each of n equal parts of the total, instead of n independent ones. By
            default with replacement; it does not go with draws without.
        replace : bool
            Whether a leaf may be drawn more than once.
        out : TreeSample, optional
            Arrays of shape (n,), int64, float64 and float64, that are filled and returned: NumPy's,
            or on the tree's device. With replacement only.
        xp : module, optional
            An array library that has ``from_dlpack``, such as torch, cupy or jax.numpy: the results
            are arrays of it, on the tree's device. Without it they are NumPy's. With replacement
            only.

        Returns
        -------
        TreeSample
            indices, masses and weights, each of shape (n,).
        DistinctTreeSample
            Without replacement: expansions as well.

        Raises
        ------
        EmptyTreeError
            If n > 0 and the total is zero.
        TooFewError
            If fewer than n leaves have a positive mass, without replacement.
        ExponentError
            If beta is outside 0 .. 1.
        OutOfMemoryError
            If the memory cannot hold n draws.
        DeviceArrayError, ArgumentTypeError, ShapeError, ArgumentError
            If n, `out` or `xp` is not as described, or an argument does not go with `replace`.

        Notes
        -----
        O(n log capacity).

        To pass over repetitions of independent draws is successive sampling (Rosen, 1972), hence
        the law of the n smallest of independent exponentials with the masses as rates (Efraimidis
        and Spirakis, 2006) and of the Gumbel-top-k trick (Kool, van Hoof and Welling, 2019); see
        ``docs/sampling.md``. The expansions are Des Raj's (1956): with R_k the total of the leaves
        not drawn before the k-th, k = 1 .. n, fl(fl(fl(R_k / mass_k) + (n - k)) / n). R_k is added
        up from the last drawn to the k-th, onto the total of the leaves that were not drawn.
        """
        if not replace:
            return self._sample_distinct_of(n, beta, stratified, (out, xp))
        stratified = True if stratified is None else bool(stratified)
        count, exponent = as_count(n, "n"), as_beta(beta)
        try:
            drawn, fill = self._room_for(count, out, xp)
            fill(exponent, stratified, *drawn)
        except _core.Failure as failure:
            name = failure.args[0]
            if name == "MEMORY":
                raise _too_many(count) from None
            raise_failure(failure)
        if out is not None:
            return out
        if xp is None:
            return drawn
        return TreeSample(*(on_device.hand_to(xp, array) for array in drawn))

    def _sample_distinct_of(
        self, n: int, beta: float, stratified: bool | None, others: tuple[Any, Any]
    ) -> DistinctTreeSample:
        count, exponent = as_count(n, "n"), as_beta(beta)
        if stratified:
            raise ArgumentError(
                "stratified is true and replace false: strata are of draws with replacement"
            )
        if others != (None, None):
            raise ArgumentError(
                "out or xp is given and replace false: draws without replacement are new NumPy "
                "arrays"
            )
        if count > self._capacity:
            raise _too_few(count, f"there are {self._capacity} leaves")
        try:
            drawn = DistinctTreeSample(
                np.empty(count, dtype=np.int64), *(np.empty(count) for _ in range(3))
            )
            self._sample_distinct(exponent, *drawn)
        except MemoryError:
            raise _too_many(count) from None
        except _core.Failure as failure:
            name, _, found = failure.args
            if name == "MEMORY":
                raise _too_many(count) from None
            if name == "EMPTY" and found > 0:
                raise _too_few(count, f"{found} leaves have a positive mass") from None
            raise_failure(failure)
        return drawn

    def probabilities(self, indices: ArrayLike) -> Any:
        """Give the probability of each leaf in one draw: mass / total; 0 where the total is 0.

        Parameters
        ----------
        indices : array_like of integers, any shape

        Returns
        -------
        float, or ndarray of float64 of the shape of `indices`

        Raises
        ------
        IndexOutOfRangeError, ArgumentTypeError
            As reading leaves does.

        Notes
        -----
        O(k). Correctly rounded from mass and total.
        """
        masses, total = self[indices], self.total
        return masses / total if total > 0.0 else masses * 0.0

    def effective_sample_size(self) -> float:
        """Give total**2 / sum(mass**2): how many equal masses would be as even as these are.

        From 1, where one leaf has all of the mass, to the number of leaves of positive mass, where
        all are equal; 0 for an empty tree (Kish, 1965). One over it is the probability that two
        independent draws are the same leaf.

        Returns
        -------
        float
            Defined to the last bit: masses are divided by the power of two above the largest, and
            squares added up as the tree adds masses. Its relative error is at most (3 log2(padded
            capacity) + 4) * 2**-53.

        Notes
        -----
        O(capacity). For a tree that nobody writes to meanwhile.
        """
        exponent = math.frexp(self.max)[1]
        width = min(self._padded_capacity, _BLOCK)
        roots = np.zeros(self._padded_capacity // width)
        for block in range(-(-self._capacity // width)):
            leaves = self[block * width : (block + 1) * width]
            squares = np.zeros(width)
            np.square(np.ldexp(leaves, -exponent), out=squares[: len(leaves)])
            roots[block] = _sum_by_pairs(squares)
        squared = _sum_by_pairs(roots)
        return math.ldexp(self.total, -exponent) ** 2 / squared if squared > 0.0 else 0.0

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


def _too_many(count: int) -> OutOfMemoryError:
    return OutOfMemoryError(f"n is {count}: the memory cannot hold so many draws")


def _too_few(count: int, there: str) -> TooFewError:
    return TooFewError(f"n is {count}, without replacement: {there}")


def _sum_by_pairs(values: Doubles) -> float:
    """Add up a power of two of numbers as a tree does."""
    while len(values) > 1:
        values = values[0::2] + values[1::2]
    return float(values[0])
