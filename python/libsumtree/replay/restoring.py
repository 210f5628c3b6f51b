"""What a replay rank goes on from when it starts, and what is said of it."""

from __future__ import annotations

from pathlib import Path

from ..errors import (
    ArgumentError,
    CheckpointCorruptError,
    CheckpointError,
    CheckpointMismatchError,
    SumTreeError,
)
from ..records import dtype_to_text
from .config import ReplayConfig
from .console import say
from .limiter import RateLimit, RateLimiter, shared_out
from .restored import Restored, read_state
from .shard_folders import Folder, LeadFolder
from .shards import Alone, joined

_GOOD, _DAMAGED, _WRONG = "good", "damaged", "wrong"


def restore(config: ReplayConfig, folder: Folder | None, shards: Alone) -> Restored | None:
    """Read the state to go on from, if there is one; all shards call this, and read one state.

    Parameters
    ----------
    config : ReplayConfig
        Of this shard.
    folder : CheckpointFolder or LeadFolder, optional
    shards : Alone

    Raises
    ------
    CheckpointError
        If it cannot be read by every shard, or is of another record dtype.
    """
    if config.resume != "auto" and folder is not None and shards.leads:
        folder.spare_existing()
    if config.resume == "never":
        return None
    if shards.shards > 1:
        restored = _agreed(config, folder, shards)
    elif config.resume != "auto":
        restored = read_state(
            Path(config.resume), config.backend, config.capacity, shards.place(config)
        )
    else:
        assert not isinstance(folder, LeadFolder)
        restored = (
            None if folder is None else folder.newest(config.backend, config.capacity, config.dtype)
        )
    if restored is not None:
        for line in differences(config, restored):
            say(line)
        size, path = len(restored.buffer), restored.path
        say(f"going on from {path}: {size} transitions, epoch {restored.buffer.epoch}")
    return restored


def _agreed(config: ReplayConfig, folder: Folder | None, shards: Alone) -> Restored | None:
    """Read the newest state that every shard finds whole."""
    damaged = []
    for path in _candidates(config, folder, shards):
        restored, outcome, text = _try(path, config, shards)
        outcomes = shards.exchange([outcome, text])
        wrong = [(s, text) for s, (found, text) in enumerate(outcomes) if found == _WRONG]
        if wrong:
            raise CheckpointError(joined(wrong))
        bad = [(s, text) for s, (found, text) in enumerate(outcomes) if found == _DAMAGED]
        if not bad:
            _check_alike(path, restored, shards)
            return restored
        if shards.leads:
            say(f"passing over a damaged checkpoint, {path.name}: {joined(bad)}")
        damaged.append(path.name)
    if damaged:
        raise CheckpointCorruptError(
            f"every checkpoint to go on from is damaged ({', '.join(damaged)}); put a good one "
            "there, or start empty with resume 'never'"
        )
    return None


def _candidates(config: ReplayConfig, folder: Folder | None, shards: Alone) -> list[Path]:
    """Return the states to try, the newest first, as shard 0 sees them."""
    if config.resume != "auto":
        return [Path(config.resume)]
    found = [] if folder is None or not shards.leads else folder.states()
    return [Path(text) for text in shards.exchange([str(path) for _, path in found])[0]]


def _try(path: Path, config: ReplayConfig, shards: Alone) -> tuple[Restored | None, str, str]:
    try:
        restored = read_state(path, config.backend, config.capacity, shards.place(config))
    except CheckpointCorruptError as error:
        return None, _DAMAGED, str(error)
    except (SumTreeError, OSError) as error:
        return None, _WRONG, str(error)
    return restored, _GOOD, ""


def _check_alike(path: Path, restored: Restored | None, shards: Alone) -> None:
    """Refuse a state whose shards hold records of different dtypes; all shards call this."""
    assert restored is not None
    found = shards.exchange(dtype_to_text(restored.buffer.dtype))
    for shard, text in enumerate(found):
        if text != found[0]:
            raise CheckpointMismatchError(
                f"checkpoint {path}: shard {shard} has dtype {text} where shard 0 has {found[0]}"
            )


def make_limiter(
    config: ReplayConfig, restored: Restored | None, whole: ReplayConfig
) -> RateLimiter:
    """Make the rate limiter; what a learner changed before a restart holds on, if it can.

    Parameters
    ----------
    config : ReplayConfig
        Of this shard.
    restored : Restored, optional
    whole : ReplayConfig
        Of all shards.

    Raises
    ------
    CheckpointCorruptError
        If what the checkpoint says of it is no rate limit.
    """
    pacing = config.min_size_to_sample, config.samples_per_insert, config.error_buffer
    if restored is None:
        return RateLimiter(*pacing)
    inserted, progress = restored.buffer.inserted, restored.progress
    limiter = RateLimiter(*pacing, inserted, progress.surplus)
    if progress.rate_limit is None:
        return limiter
    saved = progress.rate_limit
    asked = RateLimit(whole.min_size_to_sample, whole.samples_per_insert, whole.error_buffer)
    try:
        shared: str | None = saved
        if progress.paced_shards:
            shared = shared_out(saved, asked, progress.paced_shards, whole.shards)
        kept = shared is not None and limiter.go_on(
            shared, inserted, progress.surplus, config.capacity
        )
    except ArgumentError as error:
        raise CheckpointCorruptError(f"checkpoint {restored.path}: {error}") from None
    say(
        f"rate limit: as a learner has set it, {limiter.limit.to_json()}"
        if kept
        else "rate limit: what is asked for wins over what a learner had set, for it differs "
        "from what was asked for then, or does not fit the capacity or the number of shards"
    )
    return limiter


def differences(config: ReplayConfig, restored: Restored) -> list[str]:
    """Say in what a checkpoint differs from the settings, one line each, and which of them wins."""
    buffer = restored.buffer
    lines = []
    if restored.saved_capacity != config.capacity:
        dropped = restored.saved_size - len(buffer)
        lines.append(
            f"capacity: {restored.saved_capacity} stored, {config.capacity} asked for; what is "
            f"asked for wins, {f'and the oldest {dropped}' if dropped else 'and no'} transitions "
            "are dropped"
        )
    if buffer.alpha != config.alpha:
        lines.append(
            f"alpha: {buffer.alpha} stored, {config.alpha} asked for; what is stored wins, for the "
            "masses are priority ** alpha"
        )
    if buffer.beta_schedule != config.beta:
        lines.append(
            f"beta: {buffer.beta_schedule} stored, {config.beta} asked for; what is stored wins, "
            "for the schedule goes on"
        )
    entropy = buffer.tree.seed.entropy
    if config.seed is not None and config.seed != entropy:
        lines.append(
            f"seed: {entropy} stored, {config.seed} asked for; what is stored wins, for the draws "
            "go on"
        )
    return lines
