"""The trees again, in plain Python: the oracle that every backend must match bit for bit.

Nodes are kept in dictionaries (an absent node is unset), numbers are Python floats, and every rule
stands here as it does in ``sumtree.h``, without any of the algorithms that make the C library fast.
Only the reading of arguments and the seeds are shared; random numbers are
`numpy.random.Generator`'s own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import ArrayLike

from . import philox
from .arguments import (
    Doubles,
    as_beta,
    as_capacity,
    as_choice,
    as_count,
    as_doubles,
    as_indices,
    as_range,
    as_steps,
    check_same_shape,
    is_scalar,
    out_of_range,
    place,
)
from .errors import (
    ArgumentError,
    CorruptTreeError,
    EmptyTreeError,
    KindError,
    MassError,
    NotANumberError,
    TargetError,
    TooFewError,
)
from .tree import MAX_MASS, DistinctTreeSample, Plane, Side, TreeSample

_EMPTY = "the tree holds no positive mass: nothing was added yet, or every mass is 0"

Combine = Callable[[float, float], float]


def _add(left: float, right: float) -> float:
    return left + right


def _smaller(left: float, right: float) -> float:
    return right if right < left else left


def _larger(left: float, right: float) -> float:
    return right if right > left else left


class _Plane:
    """One reduction: nodes by number, recomputed from their children."""

    def __init__(self, padded: int, combine: Combine, unset: float) -> None:
        self.padded = padded
        self.combine = combine
        self.unset = unset
        self.nodes: dict[int, float] = {}

    def __getitem__(self, node: int) -> float:
        return self.nodes.get(node, self.unset)

    def set_leaves(self, leaves: Mapping[int, float]) -> None:
        for index, value in leaves.items():
            self.nodes[self.padded + index] = value
        for index in leaves:
            node = (self.padded + index) >> 1
            while node >= 1:
                self.nodes[node] = self.combine(self[2 * node], self[2 * node + 1])
                node >>= 1

    def within(self, start: int, stop: int, node: int = 1) -> float:
        """Give the value of `node` in the tree whose leaves outside [start, stop) are unset."""
        height = self.padded.bit_length() - node.bit_length()
        first = (node << height) - self.padded
        last = first + (1 << height)
        if stop <= first or last <= start:
            return self.unset
        if start <= first and last <= stop:
            return self[node]
        return self.combine(
            self.within(start, stop, 2 * node), self.within(start, stop, 2 * node + 1)
        )

    def as_array(self) -> Doubles:
        nodes = np.full(2 * self.padded, self.unset)
        nodes[0] = 0.0
        for node, value in self.nodes.items():
            nodes[node] = value
        return nodes


class _Tree:
    _PLANES: ClassVar[dict[str, tuple[Combine, float]]]
    _LEAF_PLANE: ClassVar[Plane] = "sum"

    def __init__(self, capacity: int) -> None:
        self.capacity = as_capacity(capacity)
        self.padded_capacity = 1
        while self.padded_capacity < self.capacity:
            self.padded_capacity *= 2
        self._planes = {
            name: _Plane(self.padded_capacity, combine, unset)
            for name, (combine, unset) in self._PLANES.items()
        }

    def __len__(self) -> int:
        return self.capacity

    def update(self, indices: ArrayLike, masses: ArrayLike) -> None:
        """Do as `libsumtree.SumTree.update` does."""
        where = as_indices(indices, self.capacity)
        what = as_doubles(masses, "masses")
        check_same_shape(where.shape, what.shape, ("indices", "masses"))
        self._check_indices(where)
        for position, mass in enumerate(what.ravel().tolist() if where.size else []):
            self._check_leaf(place("masses", position, what.shape), mass)
        values = np.broadcast_to(what, where.shape).ravel().tolist()
        leaves = dict(zip(where.ravel().tolist(), values, strict=True))
        for name, plane in self._planes.items():
            plane.set_leaves({i: self._leaf(name, mass) for i, mass in leaves.items()})

    def __getitem__(self, indices: ArrayLike | slice) -> Any:
        if isinstance(indices, slice):
            return self[np.arange(*as_steps(indices, self.capacity))]
        where = as_indices(indices, self.capacity)
        self._check_indices(where)
        plane = self._planes[self._LEAF_PLANE]
        masses = [plane[self.padded_capacity + i] for i in where.ravel().tolist()]
        return masses[0] if is_scalar(indices) else np.array(masses, float).reshape(where.shape)

    def __setitem__(self, indices: ArrayLike | slice, masses: ArrayLike) -> None:
        if isinstance(indices, slice):
            indices = np.arange(*as_steps(indices, self.capacity))
            masses = as_doubles(masses, "masses")
            check_same_shape(indices.shape, masses.shape, ("the slice", "masses"))
        self.update(indices, masses)

    def validate(self) -> None:
        """Check every node that was ever set."""
        for name, plane in self._planes.items():
            for node in plane.nodes:
                if node < self.padded_capacity and plane[node] != plane.combine(
                    plane[2 * node], plane[2 * node + 1]
                ):
                    raise CorruptTreeError(f"node {node} of plane {name!r} is not as its children")

    def nodes(self, plane: Plane) -> Doubles:
        """Do as `libsumtree.SumTree.nodes` does."""
        as_choice(plane, ("sum", "min", "max"), "plane")
        if plane not in self._planes:
            raise KindError(
                f"this kind of tree has no such operation: a {type(self).__name__} has no plane "
                f"{plane!r}"
            )
        return self._planes[plane].as_array()

    def _check_indices(self, indices: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        for position, index in enumerate(indices.ravel().tolist()):
            if not 0 <= index < self.capacity:
                raise out_of_range(place("indices", position, indices.shape), index, self.capacity)

    def _check_leaf(self, where: str, mass: float) -> None:
        if not 0.0 <= mass <= MAX_MASS:
            raise MassError(f"{where} is {mass}: a mass must be a number in 0 .. 2^960")

    def _leaf(self, plane: str, mass: float) -> float:
        return mass + 0.0


class _Summed(_Tree):
    @property
    def total(self) -> float:
        """The root of the sums."""
        return self._planes["sum"][1]

    def sum(self, start: int = 0, stop: int | None = None) -> float:
        """Do as `libsumtree.SumTree.sum` does."""
        return self._planes["sum"].within(*as_range(start, stop, self.capacity))

    def find(self, targets: ArrayLike, side: Side = "right") -> Any:
        """Do as `libsumtree.SumTree.find` does."""
        as_choice(side, ("right", "left"), "side")
        wanted = as_doubles(targets, "targets")
        if wanted.size and self.total == 0.0:
            raise EmptyTreeError(_EMPTY)
        for position, target in enumerate(wanted.ravel().tolist()):
            if not 0.0 <= target <= self.total:
                where = place("targets", position, wanted.shape)
                raise TargetError(
                    f"{where} is {target}: a target must be a number in 0 .. total ({self.total})"
                )
        indices = [self._descend(target, side) for target in wanted.ravel().tolist()]
        return indices[0] if is_scalar(targets) else np.array(indices, int).reshape(wanted.shape)

    def _descend(self, rest: float, side: Side) -> int:
        sums = self._planes["sum"]
        node = 1
        while node < self.padded_capacity:
            left, right = sums[2 * node], sums[2 * node + 1]
            inside = left > rest if side == "right" else left >= rest and left > 0.0
            if inside or right == 0.0:
                node = 2 * node
            else:
                rest -= left
                node = 2 * node + 1
        return node - self.padded_capacity


class SumTree(_Summed):
    """`libsumtree.SumTree` in plain Python."""

    _PLANES: ClassVar = {"sum": (_add, 0.0)}


class MinTree(_Tree):
    """`libsumtree.MinTree` in plain Python."""

    _PLANES: ClassVar = {"min": (_smaller, math.inf)}
    _LEAF_PLANE = "min"

    def min(self, start: int = 0, stop: int | None = None) -> float:
        """Do as `libsumtree.MinTree.min` does."""
        return self._planes["min"].within(*as_range(start, stop, self.capacity))

    def _check_leaf(self, where: str, mass: float) -> None:
        if math.isnan(mass):
            raise NotANumberError(f"{where} is nan: a value of a min tree must not be NaN")

    def _leaf(self, plane: str, mass: float) -> float:
        return mass


class PriorityTree(_Summed):
    """`libsumtree.PriorityTree` in plain Python."""

    _PLANES: ClassVar = {"sum": (_add, 0.0), "min": (_smaller, math.inf), "max": (_larger, 0.0)}

    def __init__(self, capacity: int, *, seed: philox.Seed = None) -> None:
        super().__init__(capacity)
        self.seed = philox.seed_sequence(seed)
        self._generator = Generator(Philox(self.seed))

    @property
    def min(self) -> float:
        """The smallest positive mass held now."""
        return self._planes["min"][1]

    @property
    def max(self) -> float:
        """The largest mass held now."""
        return self._planes["max"][1]

    @property
    def rng_state(self) -> dict[str, Any]:
        """The state of the draws."""
        return dict(self._generator.bit_generator.state)

    @rng_state.setter
    def rng_state(self, state: Mapping[str, Any]) -> None:
        self._generator.bit_generator.state = philox.state_of(philox.words_of(state))

    def sample(
        self,
        n: int,
        beta: float = 0.4,
        stratified: bool | None = None,
        *,
        replace: bool = True,
    ) -> Any:
        """Do as `libsumtree.PriorityTree.sample` does."""
        count, exponent = as_count(n, "n"), as_beta(beta)
        if not replace and stratified:
            raise ArgumentError(
                "stratified is true and replace false: strata are of draws with replacement"
            )
        if not replace and count > self.capacity:
            raise TooFewError(
                f"n is {count}, without replacement: there are {self.capacity} leaves"
            )
        if count and self.total == 0.0:
            raise EmptyTreeError(_EMPTY)
        if not replace:
            return self._sample_distinct(count, exponent)
        targets = self._targets(count, stratified is None or stratified)
        indices = [self._descend(target, "right") for target in targets]
        masses = [self._planes["sum"][self.padded_capacity + i] for i in indices]
        weights = [math.pow(self.min / mass, exponent) for mass in masses]
        return TreeSample(np.array(indices, int), np.array(masses, float), np.array(weights, float))

    def _sample_distinct(self, count: int, beta: float) -> DistinctTreeSample:
        positive = sum(mass > 0.0 for mass in self[:].tolist())
        if positive < count:
            raise TooFewError(
                f"n is {count}, without replacement: {positive} leaves have a positive mass"
            )
        drawn: dict[int, float] = {}
        smallest, wanted = self.min, count
        while len(drawn) < count:
            before = len(drawn)
            for target in list(self._targets(wanted, stratified=False)):
                index = self._descend(target, "right")
                drawn.setdefault(index, self[index])
            for index in drawn:
                self[index] = 0.0
            wanted = min(count - len(drawn), 2 * (len(drawn) - before))
        left = self.total
        expansions = []
        for k, (index, mass) in reversed(list(enumerate(drawn.items(), 1))):
            self[index] = mass
            left = left + mass
            expansions.append((left / mass + (count - k)) / count)
        weights = [math.pow(smallest / mass, beta) for mass in drawn.values()]
        columns = list(drawn.values()), weights, expansions[::-1]
        return DistinctTreeSample(
            np.array(list(drawn), int), *(np.array(column, float) for column in columns)
        )

    def probabilities(self, indices: ArrayLike) -> Any:
        """Do as `libsumtree.PriorityTree.probabilities` does."""
        return self[indices] / (self.total or 1.0)

    def effective_sample_size(self) -> float:
        """Do as `libsumtree.PriorityTree.effective_sample_size` does."""
        if self.total == 0.0:
            return 0.0
        scale = -math.frexp(self.max)[1]
        squares = _Plane(self.padded_capacity, _add, 0.0)
        masses = [math.ldexp(mass, scale) for mass in self[:].tolist()]
        squares.set_leaves({i: mass * mass for i, mass in enumerate(masses)})
        return math.ldexp(self.total, scale) ** 2 / squares[1]

    def _targets(self, count: int, stratified: bool) -> Iterable[float]:
        below = math.nextafter(self.total, 0.0)
        for i, u in enumerate(self._generator.random(count).tolist()):
            fraction = (i + u) / count if stratified else u
            yield min(fraction * self.total, below)

    def _leaf(self, plane: str, mass: float) -> float:
        return math.inf if plane == "min" and mass == 0.0 else mass + 0.0
