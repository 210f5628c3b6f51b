"""What the checkpoint of a replay rank holds, and how it is read, by any number of shards."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import SeedSequence
from numpy.typing import NDArray

from .. import checkpoint
from ..buffer import PrioritizedReplayBuffer
from ..errors import ArgumentTypeError, CheckpointCorruptError, CheckpointMismatchError
from ..philox import saved_seed
from ..records import dtype_from_text, dtype_to_text
from ..redistribution import redistribute
from .archive import State
from .console import say
from .streams import ALONE, Stream, position_of

_LEARNER = "learner/"
_SAMPLED, _STALE, _SURPLUS = "replay_sampled", "replay_stale", "replay_surplus"
_RATE_LIMIT = "replay_rate_limit"
_STREAMS = "replay_streams"
_SHARDS = "replay_shards"
_MOST_SHARDS = 1 << 20


@dataclass(slots=True)
class Progress:
    """What a checkpoint of a replay rank holds besides the buffer.

    Attributes
    ----------
    sampled, stale : int
        Transitions ever drawn, and updates ever skipped.
    surplus : float, optional
        Of the rate limiter; None if there was no pacing.
    rate_limit : str, optional
        What `RateLimiter.saved` returned; None if the rate limit was never changed at run time.
    paced_shards : int
        How many shards that rate limit was shared out to; 0: as many as there are.
    most_shards : int
        The most shards whose handles learners may still have.
    learner : dict of str to ndarray, optional
        The learner state that came last; None if none ever did. Replaced, never written to.
    streams : dict of int to int
        How many doubles each learner has taken from its stream, see `streams.Streams`.
    """

    sampled: int = 0
    stale: int = 0
    surplus: float | None = None
    learner: State | None = None
    rate_limit: str | None = None
    paced_shards: int = 0
    most_shards: int = 1
    streams: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Restored:
    """A buffer with what else its checkpoint held.

    Attributes
    ----------
    path : pathlib.Path
    buffer : PrioritizedReplayBuffer
    saved_capacity, saved_size : int
        Of the buffer that was saved.
    progress : Progress
    """

    path: Path
    buffer: PrioritizedReplayBuffer
    saved_capacity: int
    saved_size: int
    progress: Progress = field(default_factory=Progress)


@dataclass(frozen=True, slots=True)
class Place:
    """Which shard of how many reads a state, what it asks for, and where its next files will stand.

    Attributes
    ----------
    shard, shards : int
    dtype : numpy.dtype, optional
        The record dtype that is asked for; None: that of the file.
    folder : pathlib.Path, optional
        None: none will.
    device : int, optional
        Of its tree, see `PrioritizedReplayBuffer`.
    """

    shard: int = 0
    shards: int = 1
    folder: Path | None = None
    device: int | None = None
    dtype: np.dtype[Any] | None = None


def contents_of(
    progress: Progress,
) -> tuple[dict[str, checkpoint.Attribute], dict[str, list[NDArray[Any]]]]:
    """Return what a file holds besides the buffer."""
    attributes: dict[str, checkpoint.Attribute] = {
        _SAMPLED: progress.sampled,
        _STALE: progress.stale,
    }
    if progress.surplus is not None:
        attributes[_SURPLUS] = progress.surplus
    if progress.rate_limit is not None:
        attributes[_RATE_LIMIT] = progress.rate_limit
    if progress.most_shards > 1:
        attributes[_SHARDS] = progress.most_shards
    if progress.streams:
        attributes[_STREAMS] = np.array(sorted(progress.streams.items()), np.int64)
    learner = {
        _LEARNER + "/".join(map(checkpoint.escape_name, name.split("/"))): [array]
        for name, array in (progress.learner or {}).items()
    }
    return attributes, learner


def read_file(
    path: Path,
    backend: str,
    capacity: int | None = None,
    place: Place = Place(),
) -> Restored:
    """Read the checkpoint of a replay rank, or of a buffer alone, and open a new epoch of ids.

    The epoch is new in the folder of the checkpoint, and in that where the next ones will stand.

    Raises
    ------
    CheckpointMismatchError
        It is of another record dtype than is asked for.
    CheckpointError
        See `PrioritizedReplayBuffer.load`.
    """
    with checkpoint.read_chain(path) as chain:
        saved = chain.newest.attributes
        _check_dtype(path, saved, place.dtype)
        progress = _progress(path, saved, learner_state(chain.newest))
        buffer = PrioritizedReplayBuffer.from_checkpoint(chain, backend, capacity, place.device)
        sizes = int(saved["capacity"]), int(saved["size"])
    paths = [path] if place.folder is None else [path, place.folder / path.name]
    buffer.open_epoch(checkpoint.open_epoch_in(paths, buffer.epoch))
    return Restored(path, buffer, *sizes, progress)


def _check_dtype(
    path: Path, saved: dict[str, checkpoint.Attribute], dtype: np.dtype[Any] | None
) -> None:
    """Refuse records of another dtype, before any memory is taken for them.

    A file that names none is for `PrioritizedReplayBuffer.from_checkpoint` to refuse.
    """
    text = saved.get("dtype")
    if dtype is None or not isinstance(text, str):
        return
    try:
        other = dtype_from_text(text) != dtype
    except ArgumentTypeError:
        return
    if other:
        raise CheckpointMismatchError(
            f"checkpoint {path} has dtype {text} where {dtype_to_text(dtype)} is asked for: give "
            "the same dtype, another folder, or resume 'never'"
        )


def read_state(path: Path, backend: str, capacity: int, place: Place) -> Restored:
    """Read one shard's part of a state, which is a file or a manifest, and open a new epoch.

    The same number of shards goes on, each from its own file. For another number the transitions
    are dealt out anew: see `libsumtree.redistribution`.

    Raises
    ------
    CheckpointError
        See `read_file`, `read_manifest` and `redistribute`.
    """
    files = checkpoint.files_of(path)
    if len(files) != place.shards:
        return _dealt_out(path, files, backend, capacity, place)
    restored = read_file(files[place.shard], backend, capacity, place)
    restored.path = path
    return restored


def _dealt_out(
    path: Path, files: tuple[Path, ...], backend: str, capacity: int, place: Place
) -> Restored:
    parts, seed, position = [], SeedSequence(0), 0
    for file in files:
        with checkpoint.read(file) as stored:
            saved = stored.attributes
            _check_dtype(file, saved, place.dtype)
            parts.append(_progress(file, saved, learner_state(stored)))
            if file is files[0]:
                seed, position = _stream_of(file, saved)
    made = redistribute(
        files,
        place.shards,
        capacity,
        seed,
        backend,
        only=place.shard,
        places=() if place.folder is None else (place.folder / path.name,),
        device=place.device,
    )
    progress, (buffer,) = _joined(parts, place), made.buffers
    if len(files) == 1:
        progress.streams[ALONE] = position
    if place.shards == 1:
        stream = Stream(seed, ALONE, progress.streams.pop(ALONE, 0))
        buffer.tree.rng_state = stream.state
    if place.shard == 0:
        say(
            f"{path.name} is of {len(files)} shards, and {place.shards} go on from it: transitions "
            f"are dealt out anew, the oldest {made.dropped} are dropped, and what was drawn before "
            "is stale"
        )
    return Restored(path, buffer, capacity, len(buffer), progress)


def _stream_of(path: Path, saved: dict[str, checkpoint.Attribute]) -> tuple[SeedSequence, int]:
    """Return the seed of a buffer without its spawn key, and how far its own stream has come."""
    try:
        entropy, _, pool_size = json.loads(str(saved["seed"]))
        state = {
            "bit_generator": "Philox",
            "state": {"key": saved["rng_key"], "counter": saved["rng_counter"]},
            "buffer_pos": saved["rng_buffer_pos"],
        }
        return saved_seed(entropy, pool_size), position_of(state)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CheckpointCorruptError(
            f"checkpoint {path}: its seed or the state of its draws is none: {error}"
        ) from error


def _joined(parts: list[Progress], place: Place) -> Progress:
    """Return one shard's part of what several noted: shard 0 takes what is not to be shared out."""
    surpluses = [part.surplus for part in parts if part.surplus is not None]
    whole = len(surpluses) == len(parts)
    joined = Progress(surplus=sum(surpluses) / place.shards if whole else None)
    joined.rate_limit, joined.paced_shards = parts[0].rate_limit, len(parts)
    joined.most_shards = max(len(parts), *(part.most_shards for part in parts))
    if place.shard == 0:
        joined.sampled = sum(part.sampled for part in parts)
        joined.stale = sum(part.stale for part in parts)
        joined.learner = parts[0].learner
    joined.streams = dict(parts[0].streams)
    return joined


def learner_state(stored: checkpoint.Checkpoint) -> State:
    """Return the learner state of a file, empty if it has none."""
    return {
        "/".join(map(checkpoint.unescape_name, name.split("/")[1:])): array.read()
        for name, array in stored.datasets.items()
        if name.startswith(_LEARNER)
    }


def _progress(path: Path, attributes: dict[str, checkpoint.Attribute], learner: State) -> Progress:
    """Return what a replay rank noted beside the buffer; nothing in a file that none wrote."""
    sampled, stale = attributes.get(_SAMPLED, 0), attributes.get(_STALE, 0)
    surplus = attributes.get(_SURPLUS)
    if type(sampled) is not int or type(stale) is not int:
        raise CheckpointCorruptError(
            f"checkpoint {path}: {_SAMPLED} is {sampled!r} and {_STALE} is {stale!r}"
        )
    if surplus is not None and type(surplus) is not float:
        raise CheckpointCorruptError(f"checkpoint {path}: {_SURPLUS} is {surplus!r}")
    limit = attributes.get(_RATE_LIMIT)
    if limit is not None and type(limit) is not str:
        raise CheckpointCorruptError(f"checkpoint {path}: {_RATE_LIMIT} is {limit!r}")
    shards = attributes.get(_SHARDS, 1)
    if type(shards) is not int or not 1 <= shards <= _MOST_SHARDS:
        raise CheckpointCorruptError(f"checkpoint {path}: {_SHARDS} is {shards!r}")
    return Progress(
        sampled,
        stale,
        surplus,
        learner or None,
        limit,
        most_shards=shards,
        streams=_streams(path, attributes),
    )


def _streams(path: Path, attributes: dict[str, checkpoint.Attribute]) -> dict[int, int]:
    table = np.asarray(attributes.get(_STREAMS, np.zeros((0, 2), np.int64)))
    if table.dtype != np.int64 or table.ndim != 2 or table.shape[1] != 2 or (table[:, 1] < 0).any():
        raise CheckpointCorruptError(f"checkpoint {path}: {_STREAMS} is {table!r}")
    return {int(learner): int(position) for learner, position in table}
