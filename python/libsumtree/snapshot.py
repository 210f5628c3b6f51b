"""Snapshots: a buffer as of one instant, written while the buffer goes on.

At the instant only the masses are copied, 8 bytes a transition. The records stay in the ring and
are written from there, oldest first: in the order in which new transitions will overwrite them. A
record that is about to be overwritten before it was written is copied aside; where too many stand
aside, new transitions wait for the writing.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import checkpoint
from .checkpoint import state
from .errors import CheckpointError
from .records import Records

Datasets = Mapping[str, "Sequence[NDArray[Any]] | checkpoint.Stream"]

BLOCK_BYTES = 16 << 20
ASIDE_BYTES = 64 << 20
AHEAD_BYTES = 4 << 20
PATIENCE_SECONDS = 10.0
TURN_SECONDS = 0.003
_TURN_SLEEP = 20e-6
_SPARSE_BYTES = 16  # a changed mass with its number


class Rows:
    """The records of numbers `first` .. `stop`, as they are now, while the ring goes on.

    Parameters
    ----------
    storage : structured ndarray, shape (capacity,)
        The ring; number n stands in slot n modulo capacity.
    first, stop : int
        All of them are held.
    aside_bytes : int
        How much may stand aside before new transitions wait.
    """

    def __init__(self, storage: Records, first: int, stop: int, aside_bytes: int) -> None:
        itemsize = storage.dtype.itemsize
        self.first, self.stop = first, stop
        self.dtype = checkpoint.storable_record(storage.dtype)
        self.storage = storage
        self._bytes = storage.view(np.uint8).reshape(len(storage), itemsize)
        self._next = first
        self._aside: deque[NDArray[np.uint8]] = deque()
        self._aside_stop = first
        self._aside_most = max(1, aside_bytes // itemsize)
        self._piece = max(1, AHEAD_BYTES // itemsize)
        self._spent: list[NDArray[np.uint8]] = []
        self._condition = threading.Condition()
        self._process = os.getpid()
        self._being_written = False
        self._given_up = False
        self._turn_due = 0.0

    def spare(self, next_number: int) -> None:
        """Copy aside what will be overwritten when `next_number` is the next, or wait.

        Called before any slot is written to. Where the writing makes no progress for
        `PATIENCE_SECONDS`, the rows are given up, and their writer fails.
        """
        if os.getpid() != self._process:
            return  # a forked child: the writer is not its own
        self.let_writer_run()
        doomed = min(self.stop, next_number - len(self._bytes))
        if doomed <= self._aside_stop and doomed <= self._next:
            return
        with self._condition:
            while not self._given_up and (start := max(self._next, self._aside_stop)) < doomed:
                # Some more than is needed now: many small pieces would cost the writer its time.
                room = min(self.stop, max(doomed, start + self._piece)) - start
                if self._being_written:
                    room = min(room, self._aside_most - (start - self._next))
                if room > 0:
                    self._set_aside(start, start + room)
                elif not self._progress():
                    self._give_up()

    def let_writer_run(self) -> None:
        """Give the thread that writes a turn with the GIL, if the last was a while ago.

        A thread that lets go of the GIL often, and only for a moment each time, has always taken it
        again before one that waits for it has woken up, and keeps the interpreter from ever asking
        for it on that one's behalf: it has to sleep now and then.
        """
        waits = self._being_written and not self._given_up
        if waits and time.monotonic() >= self._turn_due:
            time.sleep(_TURN_SLEEP)
            self._turn_due = time.monotonic() + TURN_SECONDS

    def _set_aside(self, start: int, stop: int) -> None:
        while start < stop:
            part = self._ring(start, stop)[: self._piece]
            piece = self._spent.pop() if self._spent else np.empty_like(self._bytes[: self._piece])
            rows = piece[: len(part)]
            rows[:] = part
            self._aside.append(rows)
            start += len(part)
            self._aside_stop = start

    def _progress(self) -> bool:
        before = self._next
        self._condition.wait_for(lambda: self._next > before or self._given_up, PATIENCE_SECONDS)
        return self._next > before

    def close(self) -> None:
        """Spare nothing any more, and let those go on who wait."""
        if os.getpid() == self._process:
            with self._condition:
                self._give_up()
                self._condition.notify_all()

    def _give_up(self) -> None:
        self._given_up = True
        self._aside.clear()
        self._spent.clear()

    def _ring(self, start: int, stop: int) -> NDArray[np.uint8]:
        """Return the rows from `start` on, up to `stop` or the end of the ring's memory."""
        slot = start % len(self._bytes)
        return self._bytes[slot : slot + stop - start]

    def begin(self) -> None:
        """Take note that a thread has begun to write: it will take the rows before long."""
        self._being_written = True

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Yield the records, oldest first, in arrays that share their memory."""
        itemsize = self._bytes.shape[1]
        most = max(1, BLOCK_BYTES // itemsize)
        staging = np.empty((min(most, self.stop - self.first), itemsize), np.uint8)
        self.begin()
        while self._next < self.stop:
            with self._condition:
                rows = self._take(staging)
                self._condition.notify_all()
            yield rows if self.dtype.names is None else rows.reshape(-1).view(self.dtype)
            if rows.base is not staging:
                assert rows.base is not None
                self._spent.append(rows.base)  # memory that is there need not be asked for again

    def _take(self, staging: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the next rows: what stands aside, or else a copy from the ring."""
        if self._given_up:
            raise CheckpointError(
                f"nothing could be written for {PATIENCE_SECONDS:g} s while new transitions waited "
                "for it: the checkpoint is given up"
            )
        if self._aside:
            rows = self._aside.popleft()
        else:
            part = self._ring(self._next, self.stop)
            rows = staging[: len(part)]
            rows[:] = part[: len(rows)]
        self._next += len(rows)
        return rows

    def stream(self) -> checkpoint.Stream:
        """Return the dataset that holds the records."""
        shape = (self.stop - self.first, *self.dtype.shape)
        return checkpoint.Stream(self.dtype.base, shape, self.blocks)


@dataclass(frozen=True)
class Base:
    """What the next incremental checkpoint goes on from: a state that was written.

    Attributes
    ----------
    digest : str
        Of its file.
    epoch : int
    first, cursor : int
        The numbers of its transitions are first .. cursor.
    masses : ndarray of float64, shape (cursor - first,)
    alpha : float
        What its masses were made with.
    storage : ndarray
        The ring of the buffer that it is a state of, and of no other.
    files : int
        Of its chain.
    """

    digest: str
    epoch: int
    first: int
    cursor: int
    masses: NDArray[np.float64]
    alpha: float
    storage: Records
    files: int


class Snapshot:
    """A `PrioritizedReplayBuffer` as of one instant; a context manager that lets go of it.

    Made by `PrioritizedReplayBuffer.snapshot`. It is to be written soon, by any one thread, for
    the longer it is open, the more of the ring may have to be copied.

    Attributes
    ----------
    attributes : dict
        What the root of the file says.
    incremental : bool
        Whether it goes on from a base.
    """

    def __init__(
        self,
        attributes: dict[str, checkpoint.Attribute],
        epochs: NDArray[np.int64],
        masses: NDArray[np.float64],
        rows: Rows,
        base: Base | None,
        times: NDArray[np.int64] | None = None,
    ) -> None:
        self.attributes = {**attributes, "created": time.time()}
        self.incremental = base is not None
        self.rows = rows
        self._epochs = epochs
        self._masses = masses
        self._base = base
        self._times = times
        self._open = True

    def datasets(self) -> dict[str, Sequence[NDArray[Any]] | checkpoint.Stream]:
        """Return the datasets of the file; the transitions can be read once."""
        first_row = self.rows.first
        datasets: dict[str, Sequence[NDArray[Any]] | checkpoint.Stream] = {
            state.TRANSITIONS: self.rows.stream(),
            state.EPOCHS: [self._epochs],
        }
        if self._times is not None:
            datasets[state.TIMES_SAMPLED] = [self._times]
        first = self.rows.stop - len(self._masses)
        if self._base is None:
            return {**datasets, state.MASSES: [self._masses]}
        old = self._masses[: first_row - first]
        before = self._base.masses[first - self._base.first :][: len(old)]
        changed = np.flatnonzero(old != before)
        if len(changed) * _SPARSE_BYTES > old.nbytes:
            return {**datasets, state.MASSES: [self._masses]}
        return {
            **datasets,
            state.MASSES: [self._masses[len(old) :]],
            state.CHANGED_NUMBERS: [changed + first],
            state.CHANGED_MASSES: [old[changed]],
        }

    def write(
        self,
        path: str | os.PathLike[str],
        attributes: Mapping[str, checkpoint.Attribute] | None = None,
        datasets: Datasets | None = None,
        compression: str | None = None,
    ) -> Base:
        """Write the file, once; return what the next incremental one can go on from.

        Parameters
        ----------
        path, compression
            See `libsumtree.checkpoint.write`.
        attributes, datasets : mapping, optional
            What else the file is to hold.

        Raises
        ------
        CheckpointError, ArgumentError, ImportError
            See `libsumtree.checkpoint.write`; also if the file that an incremental one goes on from
            is not in the same folder, or is the one that would be written over.

        Notes
        -----
        Memory: what is copied aside (`ASIDE_BYTES` at most while new transitions can wait), and
        16 MiB, or one record.
        """
        if not self._open:
            raise CheckpointError("this snapshot was closed, or written before")
        self.rows.begin()
        try:
            if self._base is not None:
                _check_parent_stays(Path(path), self._base.digest)
            header = checkpoint.write(
                path,
                {**self.attributes, **(attributes or {})},
                {**self.datasets(), **(datasets or {})},
                parent=None if self._base is None else self._base.digest,
                compression=compression,
            )
        finally:
            self.close()
        cursor = self.rows.stop
        epoch = int(self._epochs[-1, 0])
        first = cursor - len(self._masses)
        alpha = float(self.attributes["alpha"])
        files = 1 if self._base is None else 1 + self._base.files
        return Base(
            header.digest, epoch, first, cursor, self._masses, alpha, self.rows.storage, files
        )

    @property
    def open(self) -> bool:
        """Whether records that are about to be overwritten have to be copied aside."""
        return self._open

    def close(self) -> None:
        """Let go of the ring. Twice is no harm."""
        self._open = False
        self.rows.close()

    def __enter__(self) -> Snapshot:
        """Return the snapshot itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Let go of the ring."""
        self.close()


def _check_parent_stays(path: Path, digest: str) -> None:
    """Raise unless the file that `path` is to go on from will stand beside it."""
    beside = [p for p, header in checkpoint.headers(path.parent) if header.digest == digest]
    if not any(parent.name != path.name for parent in beside):
        where = "is the file to be written over" if beside else f"is not in {path.parent}"
        raise CheckpointError(
            f"cannot write checkpoint {path}: the one that it goes on from, sha256 "
            f"{digest[:12]}..., {where}; write a full one, from a snapshot without a base"
        )
