"""New transitions, and the slots of a ring that take them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from . import _core
from .arguments import Doubles, Indices, as_count
from .errors import ArgumentError, ShapeError
from .failures import raise_failure
from .frames import check_runs
from .ids import MAX_NUMBER
from .records import Records, as_records
from .ring import Ring, RowBytes, ring_slices

_EMPTY = np.array(0.0)


class FilledRing(Ring):
    """A `Ring` that takes new transitions."""

    _intake: Intake | None = None

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
            If an intake is open, or a batch of frames does not stand by itself, see
            `libsumtree.frames`; nothing is added.
        IdsExhaustedError
            If the 2**40 ids of a buffer were all issued.

        Notes
        -----
        O(k + log capacity) and one copy of each record.
        """
        rows = as_records(transitions, self._dtype)
        with self._lock:
            masses = None
            if priorities is not None:
                masses = self.check_priorities(priorities, rows.shape)
            flat = masses if masses is None or masses.ndim == 0 else masses.ravel()
            self.append(rows.ravel(), flat)
            ids = self._ids.latest(rows.size)
        return int(ids[0]) if rows.ndim == 0 else ids.reshape(rows.shape)

    def append(
        self, rows: Records | RowBytes, masses: Doubles | None, elsewhere: float = 0.0
    ) -> None:
        """Do as `add` does, with what was checked before; the ids are not given.

        Parameters
        ----------
        rows : structured ndarray, shape (n,), or ndarray of uint8, shape (n * dtype.itemsize,)
            Records with the buffer's fields, or the memory of records of its very dtype.
        masses : ndarray of float64, shape (n,) or without axes, or None
            What `check_priorities` returned; None as in `add`.
        elsewhere : float
            As in `begin_add`.

        Raises
        ------
        ArgumentError, IdsExhaustedError
            As `add`; nothing is added.
        """
        are_bytes = rows.dtype.names is None
        count = len(rows) // self._dtype.itemsize if are_bytes else len(rows)
        with self._lock:
            self._check_no_intake()
            if append_whole(self, count, rows, masses, elsewhere):
                return
            records: Any = rows.view(self._dtype) if are_bytes else rows
            if self._layout is not None:
                check_runs(records["age"], records["ahead"], self._layout.stack, whole=True)
            try:
                intake = self.begin_add(count, elsewhere)
                intake.fill(records)
                intake.publish(masses)
            finally:
                if self._intake is not None:
                    self._intake.abandon()

    def append_packed(self, message: RowBytes, offset: int, count: int) -> bool:
        """Add a batch as a message holds it, in one step; the ids are not given.

        Parameters
        ----------
        message : ndarray of uint8, shape (n,)
            From `offset` on: `count` priorities, little-endian float64, then as many records of the
            buffer's very dtype. It need not be aligned.
        offset, count : int

        Returns
        -------
        bool
            False if this must be done, or refused, by `check_priorities` and `append`: because a
            priority is bad, for instance. Nothing has changed then.
        """
        with self._lock:
            return self._intake is None and append_packed(self, message, offset, count)

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
        ArgumentError, ArgumentTypeError
            If count is negative or no integer, or another intake is open.
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

    def _check_no_intake(self) -> None:
        if self._intake is not None:
            raise ArgumentError("an intake is open: commit or abandon it before the next")


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

    def __init__(self, buffer: FilledRing, count: int, mass: float) -> None:
        self.count = count
        self._buffer: FilledRing | None = buffer
        self._mass = mass
        self._kept = min(count, buffer.capacity)
        stop, places = buffer.inserted + count, len(buffer._storage)
        self._slots = ring_slices(stop - self._kept, self._kept, buffer.capacity)
        self._first_kept = stop - buffer.capacity
        self._placed = min(count, places)
        slices = ring_slices(stop - self._placed, self._placed, places)
        self.segments = [buffer._storage[slots] for slots in slices]

    def retire(self, buffer: FilledRing) -> None:
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
        if len(self.segments) > 1 and np.may_share_memory(rows, self.segments[0].base):
            rows = rows.copy()  # the first segment would change what the second is to hold
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
            buffer._withdraw_old()
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

    def _open_buffer(self) -> FilledRing:
        if self._buffer is None:
            raise ArgumentError("this intake was committed or abandoned before: begin a new one")
        return self._buffer

    @contextmanager
    def _closing(self) -> Iterator[FilledRing]:
        """Close the intake, and hold the buffer's lock for the last thing that it does."""
        with self._open_buffer()._lock:
            buffer = self._open_buffer()
            buffer._intake = None
            self._buffer = None
            self.segments = []
            yield buffer


def append_whole(
    ring: Ring,
    count: int,
    rows: Records | RowBytes,
    masses: Doubles | None,
    elsewhere: float,
) -> bool:
    """Do all at once what an `Intake` does, if the ring has the slots in one piece.

    As there, whatever exception strikes: a slot is empty before its record is written, and has a
    mass only after its id was issued. The lock of the ring is held, and no intake is open.

    Returns
    -------
    bool
        False if an `Intake` has to do it; nothing has changed then.
    """
    ids, tree, capacity = ring._ids, ring._tree, ring._capacity
    first = ids.next_number
    slot = first % capacity
    if not 0 < count <= capacity - slot or ring._layout is not None:
        return False
    if masses is None:
        masses = np.array(max(tree.max, elsewhere) or 1.0)
    ids.check_room(count)
    if ring._snapshots:
        ring._spare_snapshots(count)
    floor = max(ring._floor, min(first + count - capacity, first))
    try:
        ring._floor = floor
        tree._set_range(slot, count, _EMPTY)
        _write(ring, slot, count, rows)
        ids.next_number = first + count
        tree._set_range(slot, count, masses)
    except BaseException:
        if ids.next_number == first:
            ring._floor = floor
            tree._set_range(slot, count, _EMPTY)
            ring._storage[slot : slot + count].view(np.uint8)[...] = 0
        raise
    if ring._withdrawal.max_age is not None:
        ring._withdraw_old()
    return True


def append_packed(ring: Ring, message: RowBytes, offset: int, count: int) -> bool:
    """Add a batch as a message holds it: `count` priorities (float64), then as many records.

    In one call of the binding: checked, raised to the power, copied and added up. As
    `append_whole` otherwise, whose place it takes for short batches.

    Parameters
    ----------
    ring : Ring
        Its lock is held, and no intake is open.
    message : ndarray of uint8
        Not aligned, perhaps.
    offset : int
        Where the priorities begin.
    count : int
        >= 1.

    Returns
    -------
    bool
        False if another way has to do it, or to say what is wrong; nothing has changed then.
    """
    ids, tree, capacity = ring._ids, ring._tree, ring._capacity
    first = ids.next_number
    slot = first % capacity
    plain = ring._layout is None and ring._withdrawal.max_age is None
    if not plain or not 0 < count <= capacity - slot or first + count > MAX_NUMBER:
        return False
    if ring._snapshots:
        ring._spare_snapshots(count)
    try:
        if not tree._append_packed(
            slot, count, message, offset, ring._itemsize, ring._powers, ring._alpha, ring._bytes
        ):
            return False
        ids.next_number = first + count
    except _core.Failure as failure:
        raise_failure(failure)
    except BaseException:
        if ids.next_number == first:
            ring._floor = max(ring._floor, min(first + count - capacity, first))
            tree._set_range(slot, count, _EMPTY)
            ring._storage[slot : slot + count].view(np.uint8)[...] = 0
        raise
    return True


def _write(ring: Ring, slot: int, count: int, rows: Records | RowBytes) -> None:
    if rows.dtype.names is None:
        size = ring._dtype.itemsize
        ring._bytes[slot * size : (slot + count) * size] = rows
    else:
        ring._storage[slot : slot + count] = rows
