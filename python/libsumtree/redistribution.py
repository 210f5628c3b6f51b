"""The buffers of several shards, restored onto another number of shards or another capacity."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import SeedSequence
from numpy.typing import NDArray

from . import checkpoint
from .annealing import restored_beta
from .backends import AUTO
from .buffer import PrioritizedReplayBuffer
from .checkpoint import state
from .errors import ArgumentError, CheckpointMismatchError
from .frames import layout_of
from .inspection import Contents, contents_of
from .persistence import saved_limit

_BLOCK_BYTES = 16 << 20


@dataclass(frozen=True)
class Redistributed:
    """What `redistribute` made.

    Attributes
    ----------
    buffers : list of PrioritizedReplayBuffer
        One for each new shard.
    dropped : int
        Transitions that had no room, the oldest.
    """

    buffers: list[PrioritizedReplayBuffer]
    dropped: int


def redistribute(
    paths: Sequence[str | os.PathLike[str]],
    shards: int,
    capacity: int,
    seed: int | SeedSequence | None = None,
    backend: str = AUTO,
    *,
    only: int | None = None,
    places: Sequence[str | os.PathLike[str]] = (),
    device: int | None = None,
) -> Redistributed:
    """Deal the transitions of several checkpoints out to `shards` new buffers.

    Every mass is kept, to the last bit, and so is how many transitions were ever added. Ids are
    not, for an id names a place in one shard: in each new buffer all ids that were ever issued
    before are stale.

    Parameters
    ----------
    paths : sequence of path_like
        The checkpoint of each shard, in one folder each or all in one; of one record dtype,
        alpha, `max_times_sampled` and `max_age`.
    shards, capacity : int
        How many new buffers, and the capacity of each. The newest transitions are kept where not
        all fit: of two shards, the last ones of either count as equally new.
    seed : int, SeedSequence or None
        Shard s draws with ``spawn_key=(s,)``. The draws before are not gone on with.
    backend : str
        See `PrioritizedReplayBuffer`.
    only : int, optional
        Make the buffer of this new shard alone: what each process of several does for its own.
    places : sequence of path_like
        Files in the folders where the next checkpoints will stand: the epoch is new there, too.
    device : int, optional
        See `PrioritizedReplayBuffer`.

    Raises
    ------
    CheckpointMismatchError
        The checkpoints differ in one of these.
    CheckpointError
        One cannot be read, or no epoch can be noted.
    ArgumentError, CapacityError, OutOfMemoryError
        `shards` is below 1, or records hold frames, see `libsumtree.frames`; see
        `PrioritizedReplayBuffer`.

    Notes
    -----
    O(n log n) for n transitions, 32 bytes of memory for each beside the new buffers.
    """
    if shards < 1 or not paths:
        raise ArgumentError(f"{len(paths)} shards onto {shards}: at least 1 of either")
    with contextlib.ExitStack() as resources:
        chains = [resources.enter_context(checkpoint.read_chain(path)) for path in paths]
        parts = [contents_of(chain) for chain in chains]
        _check_alike(parts)
        _check_no_frames(parts)
        order = _oldest_first(parts)
        kept = order[max(0, len(order) - shards * capacity) :]
        seeds = _seeds(seed, shards)
        saved = max(int(part.attributes["epoch"]) for part in parts)
        epoch = checkpoint.open_epoch_in([*paths, *places], saved)
        inserted = sum(int(part.attributes["cursor"]) for part in parts)
        buffers = []
        for shard in range(shards) if only is None else [only]:
            buffer = _empty_like(parts, capacity, seeds[shard], backend, device)
            sources = kept[shard::shards]
            _skip_numbers(buffer, len(range(shard, inserted, shards)) - len(sources))
            buffer.open_epoch(epoch)
            _fill(buffer, parts, sources)
            buffers.append(buffer)
    return Redistributed(buffers, len(order) - len(kept))


def _check_alike(parts: list[Contents]) -> None:
    for name in ("dtype", "alpha", *state.LIMITS):
        values = [part.attributes.get(name) for part in parts]
        for part, value in zip(parts, values, strict=True):
            if value != values[0]:
                raise CheckpointMismatchError(
                    f"checkpoint {part.chain.newest.path} has {name} {value} where the first shard "
                    f"has {values[0]}"
                )


def _check_no_frames(parts: list[Contents]) -> None:
    """Refuse records of frames: where they are dealt out, none stands beside its neighbours."""
    if layout_of(parts[0].dtype) is not None:
        raise ArgumentError(
            f"checkpoint {parts[0].chain.newest.path} holds records of frames, whose stacks reach "
            "into their neighbours: they can be restored onto the same number of shards alone"
        )


def _skip_numbers(buffer: PrioritizedReplayBuffer, count: int) -> None:
    """Have a new buffer begin with another number than 0: so many were added, and are gone."""
    buffer._ids.next_number = buffer._floor = count


def _empty_like(
    parts: list[Contents], capacity: int, seed: SeedSequence, backend: str, device: int | None
) -> PrioritizedReplayBuffer:
    """Make a buffer that goes on with the beta of the first shard."""
    saved = parts[0].attributes
    buffer = PrioritizedReplayBuffer(
        capacity,
        parts[0].dtype,
        float(saved["alpha"]),
        beta=restored_beta(saved["beta"], int(saved["beta_samples"])),
        seed=seed,
        backend=backend,
        device=device,
        max_times_sampled=saved_limit(saved, "max_times_sampled"),
        max_age=saved_limit(saved, "max_age"),
    )
    buffer._sampled = max(int(part.attributes["sampled"]) for part in parts)
    return buffer


def _seeds(seed: int | SeedSequence | None, shards: int) -> list[SeedSequence]:
    entropy = seed if isinstance(seed, SeedSequence) else SeedSequence(seed)
    return [SeedSequence(entropy.entropy, spawn_key=(shard,)) for shard in range(shards)]


def _oldest_first(parts: list[Contents]) -> NDArray[np.int64]:
    """Return (shard, position in it) of all transitions, shape (n, 2)."""
    sizes = [len(part.ids) for part in parts]
    shard = np.repeat(np.arange(len(parts)), sizes)
    position = np.concatenate([np.arange(size) for size in sizes])
    age = np.concatenate([np.arange(size - 1, -1, -1) for size in sizes])
    return np.stack([shard, position], axis=1)[np.lexsort((shard, -age))]


def _fill(
    buffer: PrioritizedReplayBuffer, parts: list[Contents], sources: NDArray[np.int64]
) -> None:
    """Add the transitions of (shard, position), with the masses that they have."""
    times_of = [part.times_sampled() for part in parts]
    step = max(1, _BLOCK_BYTES // (buffer.dtype.itemsize * len(parts)))
    for start in range(0, len(sources), step):
        block = sources[start : start + step]
        rows: NDArray[Any] = np.zeros(len(block), buffer.dtype)
        masses = np.zeros(len(block))
        times = np.zeros(len(block), np.int64)
        for shard, part in enumerate(parts):
            here = np.flatnonzero(block[:, 0] == shard)
            if len(here):
                positions = block[here, 1]
                rows[here] = part.rows(positions[0], positions[-1] + 1)[positions - positions[0]]
                masses[here] = part.masses[positions]
                counted = times_of[shard]
                if counted is not None:
                    times[here] = counted[positions]
        intake = buffer.begin_add(len(block))
        intake.fill(rows)
        ids = intake.publish(masses)
        buffer.set_times_sampled(ids, times)
