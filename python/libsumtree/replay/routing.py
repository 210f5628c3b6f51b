"""One draw over several shards: which shard each target falls to, and what is left of it there.

The shards are the leaves of a small tree of their totals, with the association and the descent of
every tree of this package. Where all shards have one capacity, a power of two, that tree is the
top of the one big tree whose blocks they are: a target ends at the very leaf that it would find
there. Nothing here knows of MPI.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arguments import Doubles, Indices
from ..errors import IdError, IdsExhaustedError
from ..ids import NUMBER_BITS
from ..tree import PriorityTree, SumTree, masses_of

Summed = SumTree | PriorityTree

_ID_BITS = 63


@dataclass(frozen=True)
class Routed:
    """Where targets fall to.

    Attributes
    ----------
    shards : ndarray of int64, shape (n,)
    rests : ndarray of float64, shape (n,)
        What is left of each target in its shard. Rounding can carry a target at the upper edge of
        a shard beyond that shard's total, as it does within any tree; `find_rests` goes on there.
    """

    shards: Indices
    rests: Doubles


class Routing:
    """The tree over the totals of shards.

    Parameters
    ----------
    totals : array_like of float64, shape (shards,)
        The total of each shard, in the order of shards; at least one.
    """

    def __init__(self, totals: ArrayLike) -> None:
        self._totals = np.array(totals, np.float64)
        self._width = 1 << max(0, len(self._totals) - 1).bit_length()
        self._nodes = np.zeros(2 * self._width)
        self._nodes[self._width : self._width + len(self._totals)] = self._totals
        for node in range(self._width - 1, 0, -1):
            self._nodes[node] = self._nodes[2 * node] + self._nodes[2 * node + 1]

    @property
    def total(self) -> float:
        """The sum of all totals, as the root of one big tree has it."""
        return float(self._nodes[1])

    def route(self, targets: Doubles) -> Routed:
        """Descend from the root to shards.

        Parameters
        ----------
        targets : ndarray of float64, shape (n,)
            In 0 .. `total`, which is positive.

        Notes
        -----
        The rule of ``sumtree.h``: left if l > m or r == 0, else m -= l and right. A shard whose
        total is 0 is thus never returned. O(n log shards).

        A rest above its shard's total, which two roundings can make of a target that ends at the
        upper edge of the shard, becomes that total.
        """
        node = np.ones(len(targets), np.int64)
        rest = np.array(targets, np.float64)
        for _ in range(self._width.bit_length() - 1):
            node *= 2
            left, right = self._nodes[node], self._nodes[node + 1]
            goes_right = (left <= rest) & (right != 0.0)
            rest[goes_right] -= left[goes_right]
            node += goes_right
        return Routed(node - self._width, rest)


def fractions_of(uniforms: Doubles, stratified: bool = True) -> Doubles:
    """Return where in 0 .. 1 the targets of a draw lie: u, or, stratified, fl(fl(i + u_i) / n)."""
    if not stratified or len(uniforms) == 0:
        return uniforms
    return (np.arange(len(uniforms)) + uniforms) / len(uniforms)


def targets_of(fractions: Doubles, total: float) -> Doubles:
    """Return targets below `total`, which is positive: fl(fraction * total), as `sample` does."""
    return np.minimum(fractions * total, np.nextafter(total, 0.0))


def find_rests(tree: Summed, rests: Doubles) -> Indices:
    """Return the leaf that each rest ends at: the rule goes on below the shard's root.

    Parameters
    ----------
    tree : SumTree or PriorityTree
        The tree of one shard, with a positive total.
    rests : ndarray of float64, shape (n,)
        >= 0. Those above the total, where `find` would refuse, descend by the rule all the same.
    """
    total = tree.total
    indices: Indices = tree.find(np.minimum(rests, total))
    for position in np.flatnonzero(rests > total):
        indices[position] = _descend(tree, float(rests[position]))
    return indices


def _descend(tree: Summed, rest: float) -> int:
    start, stop = 0, 1 << (tree.capacity - 1).bit_length()
    while stop - start > 1:
        middle = (start + stop) // 2
        right = 0.0
        if middle < tree.capacity:
            right = tree.sum(middle, min(stop, tree.capacity))
        left = tree.sum(start, min(middle, tree.capacity))
        if left > rest or right == 0.0:
            stop = middle
        else:
            rest -= left
            start = middle
    return start


def fit_targets(rests: Doubles, told: float, total: float) -> Doubles:
    """Return the targets of one shard for its present total, which is positive.

    Parameters
    ----------
    rests : ndarray of float64, shape (n,)
        What `Routing.route` left of targets.
    told, total : float
        The total that they are of, and the present one. If they are equal, nothing changes;
        otherwise every target is stretched with the total, so that what is drawn from this shard
        stays in proportion to the masses that it holds now.
    """
    if told == total:
        return rests
    return np.minimum(rests / told * total, np.nextafter(total, 0.0))


def weights_of(masses: Doubles, least: float, beta: float) -> Doubles:
    """Return (least / mass) ** beta, with the bits that a tree whose minimum is `least` gives."""
    if beta == 0.0:
        return np.ones(len(masses))
    return masses_of(least / masses, beta)


class Handles:
    """The names of transitions over all shards: int64, the shard above the bits of its id.

    With one shard a handle is the id itself.

    Parameters
    ----------
    shards : int
        How many there are.

    Raises
    ------
    IdsExhaustedError
        By `check_epoch`, if ids leave no room for the shard.
    """

    def __init__(self, shards: int) -> None:
        self.shards = shards
        self._shift = _ID_BITS - (shards - 1).bit_length()

    def check_epoch(self, epoch: int) -> None:
        """Refuse an epoch whose ids would reach into the bits of the shard."""
        most = (1 << self._shift - NUMBER_BITS) - 1
        if epoch > most:
            raise IdsExhaustedError(
                f"epoch {epoch} of a shard, where handles of {self.shards} shards have room for "
                f"epochs up to {most}: copy the checkpoint into an empty folder, without its "
                "libsumtree.epoch, and go on there"
            )

    def join(self, shards: Indices, ids: Indices) -> Indices:
        """Return the handles of ids, which are below 2**63 / shards."""
        return shards << self._shift | ids if self.shards > 1 else ids

    def split(self, handles: Indices) -> tuple[Indices, Indices]:
        """Return the shard and the id of each handle.

        Raises
        ------
        IdError
            If one is negative. Of the ids each shard is the judge, and shard 0 of handles that name
            no shard: they may be of a time when there were more.
        """
        if self.shards == 1:
            return np.zeros(handles.shape, np.int64), handles
        shards = handles >> self._shift
        if (shards < 0).any():
            first = int(np.argmax(shards < 0))
            raise IdError(f"ids[{first}] is {handles[first]}: no shard ever issued such an id")
        beyond = shards >= self.shards
        ids = np.where(beyond, handles, handles & (1 << self._shift) - 1)
        return np.where(beyond, 0, shards), ids


def of_former_shards(ids: Indices, most: int, epoch: int) -> Indices:
    """Return ids in which handles of former shards have become the ids that they held: stale ones.

    Parameters
    ----------
    ids : ndarray of int64, shape (n,)
    most : int
        The most shards that there ever were.
    epoch : int
        That of the buffer: whoever shares transitions out anew opens one, so that every id of
        before is of an earlier one. What is of none stays what it is.
    """
    shift = _ID_BITS - (most - 1).bit_length()
    held = ids & (1 << shift) - 1
    former = (ids >> shift > 0) & (held >> NUMBER_BITS < epoch)
    return np.where(former, held, ids)


def parts_of(shards: Indices, count: int) -> list[NDArray[np.intp]]:
    """Return the positions of each of `count` shards, ascending."""
    return [np.flatnonzero(shards == shard) for shard in range(count)]
