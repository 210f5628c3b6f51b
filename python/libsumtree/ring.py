"""The ring of transitions: a record and a leaf for each slot, and the ids that name them."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from . import philox
from .annealing import BetaSchedule
from .arguments import (
    Doubles,
    Indices,
    as_alpha,
    as_beta,
    as_capacity,
    as_doubles,
    check_same_shape,
    place,
)
from .backends import AUTO, open_backend
from .errors import IdError, OutOfMemoryError, StaleIdError
from .forking import hold_across_forks
from .frames import Footprint, gather, layout_of
from .ids import Ids
from .masses import masses_of
from .records import Records, check_record_dtype
from .snapshot import Snapshot
from .tree import PriorityTree
from .withdrawal import Withdrawal, as_limit

RowBytes = NDArray[np.uint8]
"""The memory of contiguous records."""


class Ring:
    """What a `PrioritizedReplayBuffer` holds, and what can be asked of it."""

    def __init__(
        self,
        capacity: int,
        dtype: DTypeLike,
        alpha: float = 0.6,
        *,
        beta: float | BetaSchedule = 0.4,
        seed: philox.Seed = None,
        backend: str = AUTO,
        device: int | None = None,
        max_times_sampled: int | None = None,
        max_age: int | None = None,
    ) -> None:
        times = as_limit(max_times_sampled, "max_times_sampled")
        age = as_limit(max_age, "max_age")
        self._dtype = check_record_dtype(dtype)
        self._alpha = as_alpha(alpha)
        self._beta = beta if isinstance(beta, BetaSchedule) else as_beta(beta)
        self._layout = layout_of(self._dtype)
        self._context = 0 if self._layout is None else self._layout.context
        self._sample_dtype = self._dtype if self._layout is None else self._layout.stacked
        # Before the tree, for making a large one takes seconds.
        check_storage(as_capacity(capacity) + self._context, self._dtype)
        self._tree = PriorityTree(capacity, seed=seed, backend=backend, device=device)
        self._storage = take_storage(self._tree.capacity + self._context, self._dtype)
        self._bytes = self._storage.view(np.uint8)
        self._itemsize = self._dtype.itemsize
        self._powers = open_backend("cpu")
        self._capacity = self._tree.capacity
        counts = None
        if times is not None:
            counts = take_storage(self._tree.capacity, np.dtype(np.int64)).view(np.int64)
        self._withdrawal = Withdrawal(times, age, counts)
        # No record is bare, and none is withdrawn.
        self._is_plain = self._layout is None and times is None and age is None
        self._ids = Ids()
        self._floor = 0
        self._sampled = 0
        self._snapshots: list[Snapshot] = []
        self._lock = threading.RLock()
        hold_across_forks(self._lock)

    # ---- what it is ----

    @property
    def capacity(self) -> int:
        """How many transitions it holds at most."""
        return self._capacity

    @property
    def dtype(self) -> np.dtype[np.void]:
        """The record dtype."""
        return self._dtype

    @property
    def sample_dtype(self) -> np.dtype[np.void]:
        """What is drawn: the record dtype, or `FrameLayout.stacked` where records are frames."""
        return self._sample_dtype

    @property
    def alpha(self) -> float:
        """The exponent of priorities."""
        return self._alpha

    @property
    def beta(self) -> float:
        """The exponent of weights that the next `sample` takes if it is given none."""
        return self._beta.at(self._sampled) if isinstance(self._beta, BetaSchedule) else self._beta

    @property
    def beta_schedule(self) -> float | BetaSchedule:
        """The beta that was given: a number, or how it moves."""
        return self._beta

    @property
    def tree(self) -> PriorityTree:
        """The masses, one leaf a slot. To be read: `update_priorities` writes."""
        return self._tree

    @property
    def max_times_sampled(self) -> int | None:
        """After how many draws a transition is drawn no more; None for no limit."""
        return self._withdrawal.max_times_sampled

    @property
    def max_age(self) -> int | None:
        """How many of the newest transitions are drawn; None for all."""
        return self._withdrawal.max_age

    @property
    def inserted(self) -> int:
        """How many transitions were ever added, through all restores."""
        return self._ids.next_number

    @property
    def sampled(self) -> int:
        """How many times `sample` succeeded, through all restores."""
        return self._sampled

    @property
    def epoch(self) -> int:
        """The epoch of new ids; every restore opens a new one."""
        return self._ids.epoch

    @property
    def next_id(self) -> int:
        """The id of the next transition."""
        return self._ids.next_id

    def __len__(self) -> int:
        """Give the number of transitions held now."""
        return min(self._ids.next_number - self._floor, self._capacity)

    def footprint(self) -> Footprint:
        """Return what its records take, and what they would if none shared frames. O(size)."""
        with self._lock:
            held, transitions = self.inserted - self._oldest_record, len(self)
            if self._layout is not None:
                slices = ring_slices(self._oldest, len(self), len(self._storage))
                parts = [self._storage["ahead"][slots] for slots in slices]
                transitions = sum(int(np.count_nonzero(part)) for part in parts)
            own, naive = self._dtype.itemsize, self._sample_dtype.itemsize
            return Footprint(held, transitions, held * own, transitions * naive)

    def probabilities(self, ids: ArrayLike) -> Any:
        """Give the probability of each transition in one draw: mass / total; 0 where that is 0.

        Parameters
        ----------
        ids : array_like of integers, any shape

        Returns
        -------
        float, or ndarray of float64 of the shape of `ids`

        Raises
        ------
        StaleIdError, IdError, ArgumentTypeError
            As reading transitions does.
        """
        with self._lock:
            numbers = self._held_numbers(ids)
            found = self._tree.probabilities(numbers % self.capacity)
        return found if numbers.ndim else float(found)

    def effective_sample_size(self) -> float:
        """Give total**2 / sum(mass**2), see `PriorityTree.effective_sample_size`. O(capacity)."""
        with self._lock:
            return self._tree.effective_sample_size()

    def times_sampled(self, ids: ArrayLike) -> Any:
        """Give how often transitions were drawn; 0 where `max_times_sampled` is None.

        Parameters
        ----------
        ids : array_like of integers, any shape

        Returns
        -------
        int, or ndarray of int64 of the shape of `ids`

        Raises
        ------
        StaleIdError, IdError, ArgumentTypeError
            As reading transitions does.
        """
        with self._lock:
            numbers = self._held_numbers(ids)
            times = self._withdrawal.times(numbers, self.inserted)
        return times if numbers.ndim else int(times)

    def check_priorities(
        self, priorities: ArrayLike, shape: tuple[int, ...], of: str = "the transitions"
    ) -> Doubles:
        """Turn priorities into masses, or say what is wrong with them.

        Parameters
        ----------
        priorities : array_like of real numbers, of shape `shape`, or one number
            Finite, >= 0, and priority ** alpha <= 2**960.
        shape : tuple of int
            Of what they are the priorities of.
        of : str
            What that is, for the message of an error.

        Returns
        -------
        ndarray of float64
            Masses, of shape `shape`, or without axes for one number.

        Raises
        ------
        PriorityError, ShapeError, ArgumentTypeError
            Naming the first bad position and its value.
        """
        values = as_doubles(priorities, "priorities")
        check_same_shape(shape, values.shape, (of, "priorities"))
        return masses_of(values, self._alpha)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.capacity}, alpha={self.alpha}, size={len(self)}, "
            f"backend={self._tree.backend!r})"
        )

    # ---- inside ----

    @property
    def _oldest(self) -> int:
        """The number of the oldest transition held; it moves on by itself as numbers are issued.

        So one assignment, to `Ids.next_number`, makes new transitions held and old ones stale: an
        exception that strikes between two statements, as Ctrl-C does, finds no state in between.
        """
        return max(self._floor, self._ids.next_number - self.capacity)

    @property
    def _oldest_record(self) -> int:
        """The number of the oldest record whose frames may be in a stack."""
        return max(0, self._oldest - self._context)

    def _copy_out(self, numbers: Indices, slots: Indices, target: Records) -> None:
        """Fill `target`, of `sample_dtype`, with transitions that are held."""
        if self._layout is None:
            np.take(self._storage, slots, out=target, mode="clip")
        else:
            gather(self._layout, self._storage, numbers, target)

    def _check_not_bare(self, numbers: Indices, live: NDArray[np.bool_]) -> None:
        if self._layout is None:
            return
        bare = live & (self._storage["ahead"][numbers % len(self._storage)] == 0)
        if bare.any():
            where = place("ids", int(np.argmax(bare)), bare.shape)
            raise IdError(f"{where} names a frame that begins no transition: no such id is drawn")

    def _held_numbers(self, ids: ArrayLike) -> Indices:
        """Return the numbers of transitions that are held; refuse any other id."""
        numbers, live = self._ids.resolve(ids, self._oldest)
        if not live.all():
            position = int(np.argmin(live))
            value = np.asarray(ids).ravel()[position]
            raise StaleIdError(
                f"{place('ids', position, live.shape)} is {value}: its transition is gone"
            )
        self._check_not_bare(numbers, live)
        return numbers

    def _held_masses(self) -> Doubles:
        """Copy the masses of the transitions held, oldest first."""
        slices = ring_slices(self._oldest, len(self), self.capacity)
        return np.concatenate([self._tree[slots] for slots in slices])

    def _set_held_masses(self, masses: Doubles) -> None:
        for slots in ring_slices(self._oldest, len(masses), self.capacity):
            length = slots.stop - slots.start
            self._tree[slots] = masses[:length]
            masses = masses[length:]

    def _drawable(self) -> NDArray[np.bool_]:
        """Tell which of the transitions held may have a mass: not bare, and not withdrawn."""
        numbers = np.arange(self._oldest, self.inserted)
        drawable = ~self._withdrawal.holds(numbers, self.inserted)
        if self._layout is not None:
            drawable &= self._storage["ahead"][numbers % len(self._storage)] > 0
        return drawable

    def _withdraw_old(self) -> None:
        """Give those that became too old the mass 0."""
        start, stop = self._withdrawal.too_old(self._oldest, self.inserted)
        if start < stop:
            for slots in ring_slices(start, stop - start, self.capacity):
                self._tree[slots] = 0.0
            self._withdrawal.settle(stop)

    def _spare_snapshots(self, count: int) -> None:
        """Have open snapshots copy what `count` new transitions will overwrite."""
        for snapshot in self._snapshots:
            if snapshot.open:
                snapshot.rows.spare(self.inserted + count)
            else:
                self._snapshots = [s for s in self._snapshots if s.open]

    def _numbers_of(self, slots: Indices) -> Indices:
        newest = self._ids.next_number - 1
        return newest - (newest - slots) % self.capacity


def ring_slices(first: int, count: int, capacity: int) -> list[slice]:
    """Give the slots of `count` numbers from `first` on: one slice, or two where the ring wraps."""
    start = first % capacity
    stop = start + count
    if stop <= capacity:
        return [slice(start, stop)]
    return [slice(start, capacity), slice(0, stop - capacity)]


def check_storage(capacity: int, dtype: np.dtype[Any]) -> None:
    """Refuse more transitions than memory has room for."""
    if capacity * dtype.itemsize > open_backend("cpu").memory_available():
        raise _too_many(capacity, dtype)


def take_storage(capacity: int, dtype: np.dtype[Any]) -> Records:
    """Take the memory of all transitions now, so that no later call runs out."""
    check_storage(capacity, dtype)
    try:
        storage = np.empty(capacity, dtype=dtype)
    except (MemoryError, ValueError):
        raise _too_many(capacity, dtype) from None
    storage.view(np.uint8).fill(0)
    return storage


def _too_many(capacity: int, dtype: np.dtype[Any]) -> OutOfMemoryError:
    needed, left = capacity * dtype.itemsize, open_backend("cpu").memory_available()
    return OutOfMemoryError(
        f"{capacity} transitions of {dtype.itemsize} bytes take {needed} bytes: more than the "
        f"{left} that the memory limit, control group included, has left"
    )


def take_rows(count: int, dtype: np.dtype[Any]) -> Records:
    """Make room for records that are drawn."""
    try:
        return np.empty(count, dtype=dtype)
    except (MemoryError, ValueError):
        raise OutOfMemoryError(
            f"n is {count}: the memory cannot hold so many transitions of {dtype.itemsize} bytes"
        ) from None
