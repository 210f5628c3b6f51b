"""A ring of transitions as a checkpoint, and a checkpoint as a ring."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.random import SeedSequence

from . import checkpoint, philox
from .annealing import BetaSchedule, restored_beta
from .arguments import Doubles, as_count, as_integer, is_scalar
from .backends import AUTO
from .checkpoint import state
from .errors import (
    ArgumentError,
    ArgumentTypeError,
    CapacityError,
    CheckpointError,
)
from .ids import MAX_EPOCH, Ids
from .intake import FilledRing
from .records import dtype_from_text, dtype_to_text
from .ring import Ring
from .snapshot import ASIDE_BYTES, Base, Rows, Snapshot


class SavedRing(FilledRing):
    """A `FilledRing` that can be saved and loaded."""

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
        ArgumentError
            If there is no such compression.
        ImportError
            If h5py is missing (the extra ``hdf5``), or what the compression needs.
        """
        with self.snapshot() as snapshot:
            snapshot.write(path, compression=compression)

    def snapshot(self, base: Base | None = None, aside_bytes: int = ASIDE_BYTES) -> Snapshot:
        """Take hold of the buffer as it is now, to be written while it goes on.

        Parameters
        ----------
        base : Base, optional
            What `Snapshot.write` returned for a file in the same folder. The new file then holds
            only what is different, and goes on from that one. Where most is different, an epoch was
            opened since, alpha was set, or the chain has `libsumtree.checkpoint.MOST_FILES` files,
            the new file is a full one all the same.
        aside_bytes : int
            >= 0. How much may be copied aside while the file is written; then `add` waits.

        Returns
        -------
        Snapshot
            Use ``with``: until it is closed, `add` copies aside what was not written yet.

        Raises
        ------
        ArgumentError, ArgumentTypeError
            If `aside_bytes` is negative, or not a whole number.

        Notes
        -----
        Copies the masses, 8 bytes a transition, and 8 more where draws are counted: O(size).
        """
        aside_bytes = as_count(aside_bytes, "aside_bytes")
        with self._lock:
            self._withdraw_old()
            masses = self._held_masses()
            first = self._oldest_record
            if base is not None and _is_small_change(self, base):
                first = max(base.cursor, first)
            else:
                base = None
            rows = Rows(self._storage, first, self.inserted, aside_bytes)
            times = None
            if self.max_times_sampled is not None:
                numbers = np.arange(self._oldest, self.inserted)
                times = self._withdrawal.times(numbers, self.inserted)
            snapshot = Snapshot(self._attributes(), self._ids.history, masses, rows, base, times)
            self._snapshots = [s for s in self._snapshots if s.open] + [snapshot]
            return snapshot

    def _attributes(self) -> dict[str, checkpoint.Attribute]:
        """Give all that a checkpoint says of the buffer, but for arrays."""
        key, counter, buffer_pos = philox.words_of(self._tree.rng_state)
        schedule = self._beta
        if not isinstance(schedule, BetaSchedule):
            schedule = BetaSchedule(schedule, schedule, 1)
        seed = self._tree.seed
        limits = {"max_times_sampled": self.max_times_sampled, "max_age": self.max_age}
        return {
            **{name: limit for name, limit in limits.items() if limit is not None},
            "capacity": self.capacity,
            "dtype": dtype_to_text(self._dtype),
            "alpha": self._alpha,
            "beta": np.array([schedule.start, schedule.stop]),
            "beta_samples": schedule.samples,
            "cursor": self.inserted,
            "size": len(self),
            "epoch": self.epoch,
            "sampled": self._sampled,
            **self._sums(with_total=True),
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
        CapacityError, ArgumentTypeError, BackendError, DeviceError, OutOfMemoryError
            If `capacity`, `backend` or `device` is not as for a new buffer.
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
                max_times_sampled=saved_limit(saved, "max_times_sampled"),
                max_age=saved_limit(saved, "max_age"),
            )
            buffer._restore(chain, masses)
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            asked_for_too_much = isinstance(error, CapacityError) and capacity is not None
            if isinstance(error, CheckpointError) or asked_for_too_much:
                raise
            raise state.no_buffer(chain.newest, error) from error
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
        self._set_held_masses(masses[len(masses) - kept :])
        if kept == len(masses):
            state.check_sums(chain.newest, self._sums(saved["capacity"] == self.capacity))
        self._restore_withdrawn(chain, masses[len(masses) - kept :])
        state.read_transitions(chain, self._storage, self._oldest_record)
        self._tree.rng_state = {
            "bit_generator": "Philox",
            "state": {"key": saved["rng_key"], "counter": saved["rng_counter"]},
            "buffer_pos": saved["rng_buffer_pos"],
        }

    def _restore_withdrawn(self, chain: checkpoint.Chain, masses: Doubles) -> None:
        """Take over how often transitions were drawn; check that those withdrawn have no mass."""
        numbers = np.arange(self._oldest, self.inserted)
        if self.max_times_sampled is not None:
            times = state.times_of(chain)[-len(numbers) :] if len(numbers) else numbers
            self._withdrawal.set_times(numbers, times, self.inserted)
        drawn = self._withdrawal.holds(numbers, self.inserted) & (masses > 0.0)
        if drawn.any():
            raise ValueError(
                f"number {numbers[np.argmax(drawn)]} is withdrawn, but its mass is not 0"
            )

    def _sums(self, with_total: bool) -> dict[str, float]:
        """Give what the tree says of its masses; the total depends on the capacity, too."""
        sums = {"min": self._tree.min, "max": self._tree.max}
        return {"total": self._tree.total, **sums} if with_total else sums


def _is_small_change(buffer: Ring, base: Base) -> bool:
    """Tell whether an incremental checkpoint is worth a link of a chain."""
    oldest = buffer.inserted - len(buffer)
    own = base.storage is buffer._storage and base.epoch == buffer.epoch
    own &= base.alpha == buffer.alpha
    own &= base.files < checkpoint.MOST_FILES
    follows = own and base.first <= oldest <= base.cursor <= buffer.inserted
    return follows and 2 * (buffer.inserted - base.cursor) <= len(buffer)


def saved_limit(saved: Mapping[str, Any], name: str) -> int | None:
    """Return a limit that a checkpoint tells of; None where there is none."""
    return int(saved[name]) if name in saved else None


def _restored_seed(text: str) -> SeedSequence:
    entropy, spawn_key, pool_size = json.loads(text)
    return philox.saved_seed(entropy, pool_size, spawn_key)


def _plain(value: Any) -> Any:
    """Turn a seed's integers, of whatever type and nesting, into JSON's."""
    if value is None or isinstance(value, int):
        return value
    if is_scalar(value):
        return int(value)
    return [_plain(item) for item in value]
