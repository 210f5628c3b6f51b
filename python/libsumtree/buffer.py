"""The prioritized replay buffer (Schaul et al., 2016): a ring of transitions over a tree."""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.random import SeedSequence
from numpy.typing import ArrayLike, DTypeLike, NDArray

from . import checkpoint, philox
from .arguments import (
    Doubles,
    Indices,
    as_count,
    as_doubles,
    as_integer,
    as_real,
    check_same_shape,
    is_scalar,
    place,
)
from .backends import AUTO, open_backend
from .checkpoint import state
from .errors import (
    ArgumentError,
    ArgumentTypeError,
    CapacityError,
    CheckpointCorruptError,
    CheckpointError,
    ExponentError,
    IdError,
    OutOfMemoryError,
    ShapeError,
    StaleIdError,
)
from .forking import hold_across_forks
from .frames import Footprint, check_runs, gather, layout_of
from .ids import MAX_EPOCH, Ids
from .records import check_record_dtype, dtype_from_text, dtype_to_text
from .snapshot import ASIDE_BYTES, Base, Rows, Snapshot
from .tree import PriorityTree, masses_of

Records = NDArray[np.void]

_EMPTY = np.array(0.0)


@dataclass(frozen=True)
class BetaSchedule:
    """A beta that moves from `start` to `stop` over the first `samples` calls of `sample`.

    Attributes
    ----------
    start, stop : float
        Finite; what comes out is clamped to [0, 1].
    samples : int
        > 0.

    Notes
    -----
    The linear annealing of Schaul et al. (2016), section 3.4.
    """

    start: float = 0.4
    stop: float = 1.0
    samples: int = 100_000

    def __post_init__(self) -> None:
        for name in ("start", "stop"):
            object.__setattr__(self, name, as_real(getattr(self, name), name))
        if not (np.isfinite(self.start) and np.isfinite(self.stop)):
            raise ExponentError(f"beta goes from {self.start} to {self.stop}: both must be finite")
        if as_count(self.samples, "samples") == 0:
            raise ArgumentError("samples is 0: a schedule takes at least one sample")

    def at(self, sampled: int) -> float:
        """Give the beta after `sampled` calls."""
        progress = min(sampled / self.samples, 1.0)
        return min(max(self.start * (1.0 - progress) + self.stop * progress, 0.0), 1.0)


class Sample(NamedTuple):
    """A draw from a `PrioritizedReplayBuffer`.

    Attributes
    ----------
    ids : ndarray of int64, shape (n,)
        The names of the transitions, for `update_priorities`.
    indices : ndarray of int64, shape (n,)
        The leaves, which are also the slots of the ring.
    masses : ndarray of float64, shape (n,)
    weights : ndarray of float64, shape (n,)
        Importance-sampling weights, (min positive mass / mass) ** beta, in 0 .. 1.
    transitions : structured ndarray, shape (n,)
        Copies of the records; of dtype `PrioritizedReplayBuffer.sample_dtype`.
    """

    ids: Indices
    indices: Indices
    masses: Doubles
    weights: Doubles
    transitions: Records


class Taken(NamedTuple):
    """Transitions at leaves of a `PrioritizedReplayBuffer`; the names are those of `Sample`."""

    ids: Indices
    masses: Doubles
    transitions: Records


class Intake:
    """Slots of the ring that were retired to take new transitions; one at a time is open.

    Made by `PrioritizedReplayBuffer.begin_add`. Until `commit` the slots are empty: their masses
    are 0 and no id names them.

    Attributes
    ----------
    count : int
        How many transitions are being added.
    segments : list of structured ndarray
        Writable views of the ring, one, or two where it wraps: the places of the last records, as
        many as it has room for, oldest first. Borrowed until `commit` or `abandon`.
    """

    def __init__(self, buffer: PrioritizedReplayBuffer, count: int, mass: float) -> None:
        self.count = count
        self._buffer: PrioritizedReplayBuffer | None = buffer
        self._mass = mass
        self._kept = min(count, buffer.capacity)
        stop, places = buffer.inserted + count, len(buffer._storage)
        self._slots = _ring_slices(stop - self._kept, self._kept, buffer.capacity)
        self._first_kept = stop - buffer.capacity
        self._placed = min(count, places)
        slices = _ring_slices(stop - self._placed, self._placed, places)
        self.segments = [buffer._storage[slots] for slots in slices]

    def retire(self, buffer: PrioritizedReplayBuffer) -> None:
        """Empty the slots: their transitions are gone, their masses 0. Twice is no harm."""
        buffer._floor = max(buffer._floor, min(self._first_kept, buffer.inserted))
        for slots in self._slots:
            buffer._tree._set_range(slots.start, slots.stop - slots.start, _EMPTY)

    def fill(self, transitions: Records) -> None:
        """Copy `count` records, oldest first, to their places."""
        self._open_buffer()
        if len(transitions) != self.count:
            raise ShapeError(
                f"{len(transitions)} transitions are not the {self.count} of the intake"
            )
        rows = transitions[self.count - self._placed :]
        for segment in self.segments:
            segment[...] = rows[: len(segment)]
            rows = rows[len(segment) :]

    def commit(self, priorities: ArrayLike | None = None) -> Indices:
        """Make the filled slots transitions.

        Parameters
        ----------
        priorities : array_like, shape (count,), or one number, or None
            None gives the largest mass that was held before `begin_add`, 1.0 if none was positive.

        Returns
        -------
        ndarray of int64, shape (count,)
            Their ids; all but the last capacity of them are stale already.

        Raises
        ------
        PriorityError, ShapeError, ArgumentTypeError, ArgumentError
            As `PrioritizedReplayBuffer.check_priorities` and `add`; the intake stays open.
        """
        masses = None
        if priorities is not None:
            masses = self._open_buffer().check_priorities(priorities, (self.count,))
        return self.publish(masses)

    def publish(self, masses: Doubles | None) -> Indices:
        """Do as `commit` does, given masses that `check_priorities` of the buffer returned."""
        kept = np.asarray(self._mass) if masses is None else masses
        if kept.ndim:
            kept = kept.ravel()[self.count - self._kept :]
        if self._open_buffer()._layout is not None:
            kept = self._without_bare(kept)
        with self._closing() as buffer:
            ids = buffer._ids.issue(self.count)
            for slots in self._slots:
                length = slots.stop - slots.start
                buffer._tree[slots] = kept[:length] if kept.ndim else kept
                kept = kept[length:] if kept.ndim else kept
            return ids

    def _without_bare(self, masses: Doubles) -> Doubles:
        """Check the frames, and return the masses with 0 where no transition begins."""
        age, ahead = (
            np.concatenate([segment[name] for segment in self.segments])
            for name in ("age", "ahead")
        )
        layout = self._open_buffer()._layout
        assert layout is not None
        check_runs(age, ahead, layout.stack, self._placed == self.count)
        return np.where(ahead[self._placed - self._kept :] > 0, masses, 0.0)

    def abandon(self) -> None:
        """Give up: the slots stay empty and their rows are zeroed; no id is issued."""
        segments = self.segments
        with self._closing() as buffer:
            self.retire(buffer)
            for segment in segments:
                segment.view(np.uint8)[...] = 0

    def _open_buffer(self) -> PrioritizedReplayBuffer:
        if self._buffer is None:
            raise ArgumentError("this intake was committed or abandoned before: begin a new one")
        return self._buffer

    @contextmanager
    def _closing(self) -> Iterator[PrioritizedReplayBuffer]:
        """Close the intake, and hold the buffer's lock for the last thing that it does."""
        with self._open_buffer()._lock:
            buffer = self._open_buffer()
            self._buffer = None
            self.segments = []
            buffer._intake = None
            yield buffer


class PrioritizedReplayBuffer:
    """A ring of transitions, drawn in proportion to priority ** alpha.

    Parameters
    ----------
    capacity : int
        How many transitions it holds, 1 .. 2**40; further ones replace the oldest.
    dtype : dtype_like
        A NumPy structured dtype, one record a transition, without object fields.
    alpha : float
        mass = priority ** alpha; finite, >= 0. Nothing is added to a priority.
    beta : float or BetaSchedule
        What `sample` takes if it is given none; in 0 .. 1.
    seed : int, sequence of int, SeedSequence or None
        Of the draws, see `PriorityTree`.
    backend : {"auto", "cpu", "multicore", "gpu"}
    device : int, optional
        Of the tree, see `SumTree`; transitions are in host memory whatever they are.

    Raises
    ------
    CapacityError, ArgumentTypeError, ExponentError, BackendError, DeviceError
        If an argument is out of its domain.
    OutOfMemoryError
        If the memory limit cannot hold the tree and the transitions: at once, never later.

    Notes
    -----
    Methods may be called from several threads; each waits for the one before.

    Examples
    --------
    >>> buffer = PrioritizedReplayBuffer(1000, [("observation", "f4", 4), ("reward", "f4")], seed=0)
    >>> ids = buffer.add(np.zeros(10, buffer.dtype))
    >>> drawn = buffer.sample(4)
    >>> buffer.update_priorities(drawn.ids, np.ones(4))
    0
    """

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
    ) -> None:
        self._dtype = check_record_dtype(dtype)
        self._alpha = as_real(alpha, "alpha")
        masses_of(np.empty(0), self._alpha)
        self._beta = beta if isinstance(beta, BetaSchedule) else _checked_beta(beta)
        self._layout = layout_of(self._dtype)
        self._context = 0 if self._layout is None else self._layout.context
        self._sample_dtype = self._dtype if self._layout is None else self._layout.stacked
        self._tree = PriorityTree(capacity, seed=seed, backend=backend, device=device)
        self._storage = _take_storage(self._tree.capacity + self._context, self._dtype)
        self._bytes = self._storage.view(np.uint8)
        self._capacity = self._tree.capacity
        self._ids = Ids()
        self._floor = 0
        self._sampled = 0
        self._intake: Intake | None = None
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
        return self._ids.next_number - self._oldest

    def footprint(self) -> Footprint:
        """Return what its records take, and what they would if none shared frames. O(size)."""
        with self._lock:
            held, transitions = self.inserted - self._oldest_record, len(self)
            if self._layout is not None:
                slices = _ring_slices(self._oldest, len(self), len(self._storage))
                parts = [self._storage["ahead"][slots] for slots in slices]
                transitions = sum(int(np.count_nonzero(part)) for part in parts)
            own, naive = self._dtype.itemsize, self._sample_dtype.itemsize
            return Footprint(held, transitions, held * own, transitions * naive)

    def __repr__(self) -> str:
        return (
            f"PrioritizedReplayBuffer({self.capacity}, alpha={self.alpha}, size={len(self)}, "
            f"backend={self._tree.backend!r})"
        )

    # ---- adding ----

    def add(self, transitions: ArrayLike, priorities: ArrayLike | None = None) -> Any:
        """Add transitions, replacing the oldest where the ring is full.

        Parameters
        ----------
        transitions : structured array_like, any shape
            Records of the buffer's dtype, oldest first; tuples are converted.
        priorities : array_like of real numbers, the shape of `transitions`, or one number, or None
            Finite, >= 0. None gives each the largest mass held before the call, 1.0 if none is
            positive.

        Returns
        -------
        int, or ndarray of int64 of the shape of `transitions`
            Their ids. Of a batch longer than the capacity only the last `capacity` transitions are
            kept; the ids of the others are stale.

        Raises
        ------
        ArgumentTypeError
            If the records are of another dtype.
        PriorityError, ShapeError
            If the priorities are not as described; nothing is added.
        ArgumentError
            If a batch of frames does not stand by itself, see `libsumtree.frames`; nothing is
            added.
        IdsExhaustedError
            If the 2**40 ids of a buffer were all issued.

        Notes
        -----
        O(k + log capacity) and one copy of each record.
        """
        rows = self._as_records(transitions)
        with self._lock:
            masses = None
            if priorities is not None:
                masses = self.check_priorities(priorities, rows.shape)
            flat = masses if masses is None or masses.ndim == 0 else masses.ravel()
            self.append(rows.ravel(), flat)
            ids = self._ids.latest(rows.size)
        return int(ids[0]) if rows.ndim == 0 else ids.reshape(rows.shape)

    def append(
        self, rows: Records | NDArray[np.uint8], masses: Doubles | None, elsewhere: float = 0.0
    ) -> None:
        """Do as `add` does, with what was checked before; the ids are not given.

        Parameters
        ----------
        rows : structured ndarray, shape (n,), or ndarray of uint8, shape (n * dtype.itemsize,)
            Records with the buffer's fields, or the memory of records of its very dtype.
        masses : ndarray of float64, shape (n,) or without axes, or None
            What `check_priorities` returned; None as in `add`.
        elsewhere : float
            The largest mass in other shards of this buffer: counts for the default.

        Raises
        ------
        ArgumentError, IdsExhaustedError
            As `add`; nothing is added.
        """
        are_bytes = rows.dtype.names is None
        count = len(rows) // self._dtype.itemsize if are_bytes else len(rows)
        with self._lock:
            self._check_no_intake()
            slot = self._ids.next_number % self._capacity
            if self._layout is None and 0 < count <= self._capacity - slot:
                self._append_whole(slot, count, rows, masses, elsewhere)
            else:
                self._append_parts(rows.view(self._dtype) if are_bytes else rows, masses, elsewhere)

    def _append_whole(
        self,
        slot: int,
        count: int,
        rows: Records | NDArray[np.uint8],
        masses: Doubles | None,
        elsewhere: float,
    ) -> None:
        """Do all at once what an `Intake` does, where the ring has the slots in one piece.

        As there, whatever exception strikes: a slot is empty before its record is written, and has
        a mass only after its id was issued.
        """
        ids, tree = self._ids, self._tree
        first = ids.next_number
        if masses is None:
            masses = np.array(max(tree.max, elsewhere) or 1.0)
        ids.check_room(count)
        if self._snapshots:
            self._spare_snapshots(count)
        self._floor = max(self._floor, min(first + count - self._capacity, first))
        try:
            tree._set_range(slot, count, _EMPTY)
            self._write(slot, count, rows)
            ids.next_number = first + count
            tree._set_range(slot, count, masses)
        except BaseException:
            if ids.next_number == first:
                tree._set_range(slot, count, _EMPTY)
                self._storage[slot : slot + count].view(np.uint8)[...] = 0
            raise

    def _write(self, slot: int, count: int, rows: Records | NDArray[np.uint8]) -> None:
        if rows.dtype.names is None:
            size = self._dtype.itemsize
            self._bytes[slot * size : (slot + count) * size] = rows
        else:
            self._storage[slot : slot + count] = rows

    def _append_parts(self, rows: Records, masses: Doubles | None, elsewhere: float) -> None:
        if self._layout is not None:
            check_runs(rows["age"], rows["ahead"], self._layout.stack, whole=True)
        try:
            intake = self.begin_add(len(rows), elsewhere)
            intake.fill(rows)
            intake.publish(masses)
        finally:
            if self._intake is not None:
                self._intake.abandon()

    def begin_add(self, count: int, elsewhere: float = 0.0) -> Intake:
        """Retire the slots for `count` new transitions, to be filled by the caller.

        For those who receive transitions straight into the ring. The transitions that they replace
        are gone from now on, whether the intake is committed or abandoned.

        Parameters
        ----------
        count : int
            >= 0.
        elsewhere : float
            The largest mass in other shards of this buffer: counts for the default.

        Returns
        -------
        Intake

        Raises
        ------
        ArgumentError
            If count is negative, or another intake is open.
        IdsExhaustedError
            If the 2**40 ids of a buffer were all issued.
        """
        count = as_count(count, "count")
        with self._lock:
            self._check_no_intake()
            self._ids.check_room(count)
            self._spare_snapshots(count)
            intake = Intake(self, count, max(self._tree.max, elsewhere) or 1.0)
            self._intake = intake
            try:
                intake.retire(self)
            except BaseException:
                intake.abandon()
                raise
            return intake

    def check_priorities(self, priorities: ArrayLike, shape: tuple[int, ...]) -> Doubles:
        """Turn priorities into masses, or say what is wrong with them.

        Parameters
        ----------
        priorities : array_like of real numbers, of shape `shape`, or one number
            Finite, >= 0, and priority ** alpha <= 2**960.
        shape : tuple of int
            Of the transitions.

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
        check_same_shape(shape, values.shape, ("the transitions", "priorities"))
        return masses_of(values, self._alpha)

    # ---- reading and drawing ----

    def __getitem__(self, ids: ArrayLike) -> Any:
        """Copy the transitions that ids name.

        Raises
        ------
        StaleIdError
            If one is no longer held, naming the first.
        IdError
            If one was never issued.
        """
        with self._lock:
            numbers, live = self._ids.resolve(ids, self._oldest)
            if not live.all():
                position = int(np.argmin(live))
                value = np.asarray(ids).ravel()[position]
                raise StaleIdError(
                    f"{place('ids', position, live.shape)} is {value}: its transition is gone"
                )
            self._check_not_bare(numbers, live)
            flat = np.atleast_1d(numbers).ravel()
            records = _take_rows(flat.size, self._sample_dtype)
            self._copy_out(flat, flat % self.capacity, records)
        return records.reshape(numbers.shape) if numbers.ndim else records[0].copy()

    def sample(self, n: int, beta: float | None = None, stratified: bool = True) -> Sample:
        """Draw n transitions, each with probability mass / total, with replacement.

        Parameters
        ----------
        n : int
            How many, >= 0.
        beta : float, optional
            Exponent of the weights, in 0 .. 1; the buffer's own if not given.
        stratified : bool
            See `PriorityTree.sample`.

        Returns
        -------
        Sample
            ids, indices, masses, weights and transitions, each of shape (n,).

        Raises
        ------
        EmptyTreeError
            If n > 0 and no transition has a positive mass.
        ExponentError
            If beta is outside 0 .. 1.

        Notes
        -----
        O(n log capacity) and one copy of each record.
        """
        transitions = _take_rows(as_count(n, "n"), self._sample_dtype)
        with self._lock:
            drawn = self._tree.sample(n, self.beta if beta is None else beta, stratified)
            self._sampled += 1
            numbers = self._numbers_of(drawn.indices)
            ids = self._ids.of_numbers(numbers)
            self._copy_out(numbers, drawn.indices, transitions)
            return Sample(ids, *drawn, transitions)

    def take(self, indices: Indices, counts: bool = True) -> Taken:
        """Copy the transitions at leaves that descents of `tree` have found.

        For those who draw the targets themselves, as learners of several shards do.

        Parameters
        ----------
        indices : ndarray of int64, shape (n,)
            Leaves of positive mass.
        counts : bool
            Whether this is a draw, which moves beta on.

        Returns
        -------
        Taken

        Notes
        -----
        O(n) and one copy of each record.
        """
        transitions = _take_rows(len(indices), self._sample_dtype)
        with self._lock:
            self._sampled += counts
            numbers = self._numbers_of(indices)
            self._copy_out(numbers, indices, transitions)
            return Taken(self._ids.of_numbers(numbers), self._tree[indices], transitions)

    def update_priorities(self, ids: ArrayLike, priorities: ArrayLike) -> int:
        """Set the priorities of transitions that are still held.

        Parameters
        ----------
        ids : array_like of integers, any shape
        priorities : array_like of real numbers, the shape of `ids`, or one number
            Finite, >= 0. Of equal ids the last wins.

        Returns
        -------
        int
            How many ids were stale: they are skipped.

        Raises
        ------
        IdError, PriorityError, ShapeError, ArgumentTypeError
            Naming the first bad position and its value; nothing is changed.

        Notes
        -----
        O(k log capacity).
        """
        with self._lock:
            numbers, live = self._ids.resolve(ids, self._oldest)
            values = as_doubles(priorities, "priorities")
            check_same_shape(numbers.shape, values.shape, ("ids", "priorities"))
            masses = masses_of(values, self._alpha)
            self._check_not_bare(numbers, live)
            slots = numbers % self.capacity
            stale = int(live.size - np.count_nonzero(live))
            if stale:
                slots, masses = slots[live], masses[live] if masses.ndim else masses
            self._tree.update(slots, masses)
            return stale

    def clear(self) -> None:
        """Drop all transitions; their ids are stale, and no id is issued again. O(capacity)."""
        with self._lock:
            self._tree[:] = 0.0
            self._floor = self._ids.next_number

    # ---- checkpoints ----

    def save(self, path: str | os.PathLike[str], compression: str | None = None) -> None:
        """Write a checkpoint: whole and on disk, or not at all.

        It holds the buffer as it is now; other threads may go on using the buffer meanwhile.

        Parameters
        ----------
        path : path_like
            An existing file is replaced, atomically.
        compression : {"lzf", "gzip", "zstd"}, optional
            See `libsumtree.checkpoint.write`.

        Raises
        ------
        CheckpointError
            If the file cannot be written; what stood there before is intact.
        ImportError
            If h5py is missing (the extra ``hdf5``).
        """
        with self.snapshot() as snapshot:
            snapshot.write(path, compression=compression)

    def snapshot(self, base: Base | None = None, aside_bytes: int = ASIDE_BYTES) -> Snapshot:
        """Take hold of the buffer as it is now, to be written while it goes on.

        Parameters
        ----------
        base : Base, optional
            What `Snapshot.write` returned for a file in the same folder. The new file then holds
            only what is different, and goes on from that one. Where most is different, or an epoch
            was opened since, the new file is a full one all the same.
        aside_bytes : int
            How much may be copied aside while the file is written; then `add` waits.

        Returns
        -------
        Snapshot
            Use ``with``: until it is closed, `add` copies aside what was not written yet.

        Notes
        -----
        Copies the masses, 8 bytes a transition: O(size).
        """
        with self._lock:
            masses = np.empty(len(self))
            slices = _ring_slices(self._oldest, len(self), self.capacity)
            split = slices[0].stop - slices[0].start
            for slots, part in zip(slices, (masses[:split], masses[split:]), strict=False):
                part[:] = self._tree[slots]
            first = self._oldest_record
            if base is not None and _is_small_change(self, base):
                first = max(base.cursor, first)
            else:
                base = None
            rows = Rows(self._storage, first, self.inserted, aside_bytes)
            snapshot = Snapshot(self._attributes(), self._ids.history, masses, rows, base)
            self._snapshots = [s for s in self._snapshots if s.open] + [snapshot]
            return snapshot

    def _attributes(self) -> dict[str, checkpoint.Attribute]:
        """Give all that a checkpoint says of the buffer, but for arrays."""
        key, counter, buffer_pos = philox.words_of(self._tree.rng_state)
        schedule = self._beta
        if not isinstance(schedule, BetaSchedule):
            schedule = BetaSchedule(schedule, schedule, 1)
        seed = self._tree.seed
        return {
            "capacity": self.capacity,
            "dtype": dtype_to_text(self._dtype),
            "alpha": self._alpha,
            "beta": np.array([schedule.start, schedule.stop]),
            "beta_samples": schedule.samples,
            "cursor": self.inserted,
            "size": len(self),
            "epoch": self.epoch,
            "sampled": self._sampled,
            "total": self._tree.total,
            "min": self._tree.min,
            "max": self._tree.max,
            "seed": json.dumps([_plain(seed.entropy), _plain(seed.spawn_key), seed.pool_size]),
            "rng_key": np.array(key, dtype=np.uint64),
            "rng_counter": np.array(counter, dtype=np.uint64),
            "rng_buffer_pos": buffer_pos,
        }

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        backend: str = AUTO,
        capacity: int | None = None,
        device: int | None = None,
    ) -> Self:
        """Make the buffer that was saved, in a new epoch of ids: it draws the very same samples.

        Parameters
        ----------
        path : path_like
            What `save` wrote. The new epoch is noted in the file ``libsumtree.epoch`` in its
            folder: move the folder as a whole, not a checkpoint out of it.
        backend : {"auto", "cpu", "multicore", "gpu"}
            Of the new buffer's tree.
        capacity : int, optional
            Of the new buffer; the saved one if not given. A larger one keeps everything; a smaller
            one keeps the newest transitions, and a warning says how many were dropped. Either
            keeps ids and masses, but not the draws.
        device : int, optional
            Of the new buffer's tree.

        Raises
        ------
        CheckpointCorruptError, CheckpointFormatError, CheckpointError
            If the file, or one that it goes on from, is damaged, missing, of a newer format, or
            cannot be read; or the epoch cannot be noted.
        ImportError
            If h5py is missing (the extra ``hdf5``).
        """
        with checkpoint.read_chain(path) as chain:
            buffer = cls.from_checkpoint(chain, backend, capacity, device)
            dropped = int(chain.newest.attributes["size"]) - len(buffer)
        buffer.open_epoch(checkpoint.open_epoch(path, buffer.epoch))
        if dropped:
            warnings.warn(
                f"a capacity of {buffer.capacity} does not hold all that {path} does: the oldest "
                f"{dropped} transitions were dropped",
                stacklevel=2,
            )
        return buffer

    @classmethod
    def from_checkpoint(
        cls,
        chain: checkpoint.Chain,
        backend: str = AUTO,
        capacity: int | None = None,
        device: int | None = None,
    ) -> Self:
        """Make the buffer of an open checkpoint, still in the epoch that was saved.

        Ids may only be issued after `open_epoch`. `backend` and `capacity`: see `load`.

        Raises
        ------
        CheckpointCorruptError
            If attributes or datasets are missing, or do not fit each other.
        """
        saved = chain.newest.attributes
        if capacity is not None:
            capacity = as_integer(capacity, "capacity")
        try:
            masses = state.masses_of(chain)
            buffer = cls(
                int(saved["capacity"]) if capacity is None else capacity,
                dtype_from_text(str(saved["dtype"])),
                float(saved["alpha"]),
                beta=restored_beta(saved["beta"], int(saved["beta_samples"])),
                seed=_restored_seed(str(saved["seed"])),
                backend=backend,
                device=device,
            )
            buffer._restore(chain, masses)
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            asked_for_too_much = isinstance(error, CapacityError) and capacity is not None
            if isinstance(error, CheckpointError) or asked_for_too_much:
                raise
            raise CheckpointCorruptError(
                f"checkpoint {chain.newest.path} does not hold a buffer: {type(error).__name__}: "
                f"{error}"
            ) from error
        return buffer

    def open_epoch(self, epoch: int) -> None:
        """Go on in a new epoch, above every one that was ever opened for these transitions."""
        with self._lock:
            if not self.epoch < epoch <= MAX_EPOCH:
                raise ArgumentError(
                    f"epoch is {epoch}: it must be above {self.epoch} and at most {MAX_EPOCH}"
                )
            self._ids.open_epoch(epoch)

    def __getstate__(self) -> dict[str, Any]:
        raise ArgumentTypeError(
            "a PrioritizedReplayBuffer is not pickled, since a copy would issue the same ids "
            "again: use save and load"
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

    def _spare_snapshots(self, count: int) -> None:
        """Have open snapshots copy what `count` new transitions will overwrite."""
        for snapshot in self._snapshots:
            if snapshot.open:
                snapshot.rows.spare(self.inserted + count)
            else:
                self._snapshots = [s for s in self._snapshots if s.open]

    def _check_no_intake(self) -> None:
        if self._intake is not None:
            raise ArgumentError("an intake is open: commit or abandon it before the next")

    def _numbers_of(self, slots: Indices) -> Indices:
        newest = self._ids.next_number - 1
        return newest - (newest - slots) % self.capacity

    def _as_records(self, transitions: ArrayLike) -> Records:
        tuples = _are_tuples(transitions)
        try:
            rows = np.asarray(transitions, dtype=self._dtype if tuples else None)
        except (TypeError, ValueError, OverflowError) as error:
            raise ArgumentTypeError(
                f"transitions cannot be made records of {self._dtype}: {error}"
            ) from None
        if not _same_fields(rows.dtype, self._dtype):
            raise ArgumentTypeError(
                f"transitions have dtype {rows.dtype}: it must be {self._dtype}{_remedy(rows)}"
            )
        return rows

    def _restore(self, chain: checkpoint.Chain, masses: Doubles) -> None:
        """Take over a saved state, the newest transitions of it where not all fit."""
        saved = chain.newest.attributes
        cursor = int(saved["cursor"])
        self._ids = Ids(chain.newest.datasets[state.EPOCHS].read(), cursor)
        if self.epoch != saved["epoch"]:
            raise ValueError(
                f"epoch is {saved['epoch']}, but the last that was opened {self.epoch}"
            )
        kept = min(len(masses), self.capacity)
        self._floor = cursor - kept
        self._sampled = as_count(saved["sampled"], "sampled")
        rest = masses[len(masses) - kept :]
        for slots in _ring_slices(self._floor, kept, self.capacity):
            length = slots.stop - slots.start
            self._tree[slots] = rest[:length]
            rest = rest[length:]
        self._check_sums(saved, kept == len(masses))
        state.read_transitions(chain, self._storage, self._oldest_record)
        self._tree.rng_state = {
            "bit_generator": "Philox",
            "state": {"key": saved["rng_key"], "counter": saved["rng_counter"]},
            "buffer_pos": saved["rng_buffer_pos"],
        }

    def _check_sums(self, saved: Mapping[str, Any], whole: bool) -> None:
        """Check that the tree over the masses is the one that was saved, to the last bit."""
        tree = self._tree
        same_tree = whole and saved["capacity"] == self.capacity
        found = {"min": tree.min, "max": tree.max} if whole else {}
        if same_tree:
            found["total"] = tree.total
        for name, value in found.items():
            if saved[name] != value:
                raise ValueError(f"{name} is {saved[name]}, but {value} that of the masses")


def _is_small_change(buffer: PrioritizedReplayBuffer, base: Base) -> bool:
    """Tell whether an incremental checkpoint is worth a link of a chain."""
    oldest = buffer.inserted - len(buffer)
    own = base.storage is buffer._storage and base.epoch == buffer.epoch
    follows = own and base.first <= oldest <= base.cursor <= buffer.inserted
    return follows and 2 * (buffer.inserted - base.cursor) <= len(buffer)


def _ring_slices(first: int, count: int, capacity: int) -> list[slice]:
    """Give the slots of `count` numbers from `first` on: one slice, or two where the ring wraps."""
    start = first % capacity
    stop = start + count
    if stop <= capacity:
        return [slice(start, stop)]
    return [slice(start, capacity), slice(0, stop - capacity)]


def _take_storage(capacity: int, dtype: np.dtype[Any]) -> Records:
    """Take the memory of all transitions now, so that no later call runs out."""
    needed = capacity * dtype.itemsize
    left = open_backend("cpu").memory_available()
    try:
        if needed > left:
            raise MemoryError
        storage = np.empty(capacity, dtype=dtype)
    except (MemoryError, ValueError):
        raise OutOfMemoryError(
            f"{capacity} transitions of {dtype.itemsize} bytes take {needed} bytes: more than the "
            f"{left} that the memory limit, control group included, has left"
        ) from None
    storage.view(np.uint8).fill(0)
    return storage


def _take_rows(count: int, dtype: np.dtype[Any]) -> Records:
    try:
        return np.empty(count, dtype=dtype)
    except (MemoryError, ValueError):
        raise OutOfMemoryError(
            f"n is {count}: the memory cannot hold so many transitions of {dtype.itemsize} bytes"
        ) from None


def _same_fields(given: np.dtype[Any], own: np.dtype[Any]) -> bool:
    """Tell whether records hold the same fields, whatever their byte order and padding."""
    if given.names != own.names:
        return False
    if given.names is None:
        base_given, base_own = given.base, own.base
        if given.subdtype or own.subdtype:
            return given.shape == own.shape and _same_fields(base_given, base_own)
        return given.newbyteorder("=") == own.newbyteorder("=")
    return all(_same_fields(given[name], own[name]) for name in given.names)


def _remedy(rows: NDArray[Any]) -> str:
    """Say how records are made, to those who give something else."""
    if rows.dtype.names is not None:
        return ""
    return "; give records, as in np.zeros(n, buffer.dtype) with its fields set, or tuples"


def _are_tuples(values: Any) -> bool:
    """Tell whether these are tuples, one a record, in lists of any depth."""
    return all(map(_are_tuples, values)) if isinstance(values, list) else isinstance(values, tuple)


def _checked_beta(beta: float) -> float:
    value = as_real(beta, "beta")
    if not 0.0 <= value <= 1.0:
        raise ExponentError(f"beta is {value}: it must be in 0 .. 1")
    return value


def restored_beta(ends: Any, samples: int) -> float | BetaSchedule:
    """Return the beta that a checkpoint's ``beta`` and ``beta_samples`` stand for."""
    start, stop = (float(end) for end in ends)
    constant = start == stop and samples == 1 and 0.0 <= start <= 1.0
    return start if constant else BetaSchedule(start, stop, samples)


def _restored_seed(text: str) -> SeedSequence:
    entropy, spawn_key, pool_size = json.loads(text)
    return SeedSequence(entropy, spawn_key=tuple(spawn_key), pool_size=pool_size)


def _plain(value: Any) -> Any:
    """Turn a seed's integers, of whatever type and nesting, into JSON's."""
    if value is None or isinstance(value, int):
        return value
    if is_scalar(value):
        return int(value)
    return [_plain(item) for item in value]
