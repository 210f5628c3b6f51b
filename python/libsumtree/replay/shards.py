"""What a replay rank is to the others of its service: alone, the first of several, or another one.

Shard 0 leads: it decides when a checkpoint is written, tells the others its serial, and publishes
the manifest once all have written. Whatever ends one shard ends all. ::

    shard 0 -> others   save (serial, dtype), given_up, end (saved)
    others -> shard 0   changed (dtype), saved (failure), quiet
    any -> all          stop (reason)

Messages of one shard come in their order: what is told before quiet is known once that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
from numpy.random import SeedSequence

from ..checkpoint import shard_folder
from ..errors import ReplayError, SumTreeError
from ..records import dtype_to_text
from .config import ReplayConfig
from .console import speak_as
from .group import ShardGroup
from .restored import Place

# What all the shards of a service must be asked for alike.
_ALIKE = (
    *("shards", "capacity", "dtype", "alpha", "beta", "backend", "checkpoint_dir", "keep"),
    *("min_size_to_sample", "samples_per_insert", "error_buffer", "actor_credits"),
    *("sample_credits", "update_credits", "max_batch", "resume"),
)


Made = TypeVar("Made")


class Alone:
    """The only replay rank of a service.

    Attributes
    ----------
    shard, shards : int
        Which of how many.
    leads : bool
        Whether this one begins checkpoints.
    stop_reason : str
        Why another shard is ending; empty as long as none is.
    save_asked : int, optional
        The serial of the checkpoint that is to be written now.
    changes : int
        Goes up when another shard has something new to write.
    given_up : int
        Checkpoints that shard 0 could not even begin.
    dtype : str
        The record dtype of another shard's buffer, as text; empty as long as none is known.
    settled : bool
        At the end: nothing more comes from the others.
    """

    shard, shards, leads = 0, 1, True

    def __init__(self) -> None:
        self.stop_reason = ""
        self.save_asked: int | None = None
        self.changes = 0
        self.given_up = 0
        self.dtype = ""
        self.settled = True

    def seed(self, config: ReplayConfig) -> int | None | SeedSequence:
        """Return the seed of this shard's buffer."""
        return config.seed

    def device(self, config: ReplayConfig) -> int | None:
        """Return the device of this shard's tree; None for what the tree takes by itself."""
        return None

    def place(self, config: ReplayConfig) -> Place:
        """Return where this shard reads and writes."""
        folder = config.checkpoint_dir
        if folder is not None and self.shards > 1:
            folder = shard_folder(folder, self.shard)
        return Place(self.shard, self.shards, folder, self.device(config), config.dtype)

    def agree(self, error: Exception | None) -> None:
        """Raise in every shard what went wrong in one of them; all call this."""
        if error is not None:
            raise error

    def together(self, make: Callable[[], Made]) -> Made:
        """Return what `make` makes, if it can be made in every shard; all call this."""
        error: SumTreeError | OSError | None = None
        try:
            made = make()
        except (SumTreeError, OSError) as problem:
            error = problem
        self.agree(error)
        return made

    def exchange(self, value: Any) -> list[Any]:
        """Return what every shard gave, in their order; all call this."""
        return [value]

    def turn(self) -> bool:
        """Take what the other shards have told; return whether there was anything."""
        return False

    def note_changed(self, dtype: np.dtype[Any]) -> None:
        """There is something new to write, of records of this dtype."""

    def refuse_save(self, failure: str) -> None:
        """Tell shard 0 that what it asked for cannot be written; it may ask again."""

    def tell_stop(self, reason: str) -> None:
        """Tell the others that this shard is ending."""

    def tell_quiet(self) -> None:
        """Tell that no client will change this shard any more."""

    def end(self, saved: bool) -> bool:
        """Part from the others; return whether everything is in a checkpoint."""
        return saved


class _Shard(Alone):
    """One of several."""

    def __init__(self, group: ShardGroup, config: ReplayConfig) -> None:
        super().__init__()
        self.group = group
        self.shard, self.shards = group.shard, group.shards
        self.settled = False
        facts = group.exchange({name: str(getattr(config, name)) for name in _ALIKE})
        self._check_alike(facts)
        mine = config.seed if config.seed is not None else SeedSequence().entropy
        self._entropy = group.exchange(mine)[0]

    def _check_alike(self, facts: list[dict[str, str]]) -> None:
        for shard, found in enumerate(facts):
            for name, value in found.items():
                if value != facts[0][name]:
                    raise ReplayError(
                        f"shard {shard} was asked for {name} {value} where shard 0 was for "
                        f"{facts[0][name]}: start all replay ranks with the same settings"
                    )

    def seed(self, config: ReplayConfig) -> SeedSequence:
        return SeedSequence(self._entropy, spawn_key=(self.shard,))

    def device(self, config: ReplayConfig) -> int | None:
        return self.group.device(config.backend, config.capacity)

    def agree(self, error: Exception | None) -> None:
        texts = self.group.exchange("" if error is None else str(error) or type(error).__name__)
        if error is not None:
            raise error
        for shard, text in enumerate(texts):
            if text:
                raise ReplayError(f"shard {shard}: {text}")

    def exchange(self, value: Any) -> list[Any]:
        return self.group.exchange(value)

    def turn(self) -> bool:
        busy = False
        while (heard := self.group.hear()) is not None:
            shard, facts = heard
            getattr(self, "_on_" + facts.pop("kind"))(shard, **facts)
            busy = True
        return busy

    def tell_stop(self, reason: str) -> None:
        if not self.stop_reason:
            self.group.tell_others("stop", reason=f"shard {self.shard} is ending: {reason}")

    def _on_stop(self, shard: int, reason: str) -> None:
        self.stop_reason = self.stop_reason or reason


class Leader(_Shard):
    """Shard 0 of several."""

    def __init__(self, group: ShardGroup, config: ReplayConfig) -> None:
        super().__init__(group, config)
        self._noisy = set(range(1, self.shards))
        self._failures: dict[int, str] = {}
        self._writing: set[int] = set()

    def begin_round(self, serial: int, dtype: str) -> None:
        """Have the other shards write what they hold; one round at a time."""
        assert not self._writing, "a round of checkpoints is running"
        self._failures, self._writing = {}, set(range(1, self.shards))
        self.group.tell_others("save", serial=serial, dtype=dtype)

    def give_up(self) -> None:
        """Tell the others that no round could begin, for which they may wait."""
        self.group.tell_others("given_up")

    def round_done(self) -> bool:
        """Whether every other shard has written, or failed to."""
        self.turn()
        return not self._writing

    def failures(self) -> dict[int, str]:
        """Return what went wrong in which of them."""
        return self._failures

    def tell_quiet(self) -> None:
        """Take note that shard 0 itself is quiet."""
        self.settled = not self._noisy

    def end(self, saved: bool) -> bool:
        """Tell the others that all is over."""
        self.group.tell_others("end", saved=saved)
        self.group.close()
        return saved

    def _on_changed(self, shard: int, dtype: str) -> None:
        self.changes += 1
        self.dtype = self.dtype or dtype

    def _on_saved(self, shard: int, failure: str) -> None:
        self._writing.discard(shard)
        if failure:
            self._failures[shard] = failure

    def _on_quiet(self, shard: int) -> None:
        self._noisy.discard(shard)
        self.settled = not self._noisy


class Follower(_Shard):
    """A further shard: it writes when shard 0 says so."""

    leads = False

    def __init__(self, group: ShardGroup, config: ReplayConfig) -> None:
        super().__init__(group, config)
        self._told = False
        self._saved = True

    def note_changed(self, dtype: np.dtype[Any]) -> None:
        """Tell shard 0, once for each checkpoint."""
        if not self._told:
            self._told = True
            self.group.tell(0, "changed", dtype=dtype_to_text(dtype))

    def take_serial(self) -> int:
        """Return the serial that was asked for; what comes from now on is a new change."""
        assert self.save_asked is not None
        serial, self.save_asked, self._told = self.save_asked, None, False
        return serial

    def refuse_save(self, failure: str) -> None:
        """Tell shard 0 that what it asked for cannot be written; it may ask again."""
        self.dtype = ""
        self.take_serial()
        self.tell_saved(failure)

    def tell_saved(self, failure: str) -> None:
        """Tell how writing went."""
        self.group.tell(0, "saved", failure=failure)

    def tell_quiet(self) -> None:
        """Tell shard 0."""
        self.group.tell(0, "quiet")

    def end(self, saved: bool) -> bool:
        """Return what shard 0 said."""
        self.group.close()
        return self._saved

    def _on_save(self, shard: int, serial: int, dtype: str) -> None:
        self.save_asked, self.dtype = serial, dtype

    def _on_given_up(self, shard: int) -> None:
        self.given_up += 1

    def _on_end(self, shard: int, saved: bool) -> None:
        self._saved, self.settled = saved, True


def join(comm: Any, config: ReplayConfig) -> Alone:
    """Return what this rank is to the others, once all of them are there.

    Raises
    ------
    WorldError
        If this is no rank for a shard, or another shard does not come.
    ReplayError
        If the shards were asked for different things.
    """
    if config.shards == 1:
        return Alone()
    group = ShardGroup(comm, config.shards)
    speak_as(group.shard)
    return Leader(group, config) if group.shard == 0 else Follower(group, config)


def joined(texts: Iterable[tuple[int, str]]) -> str:
    """Return what went wrong in which shards, in one line."""
    return "; ".join(f"shard {shard}: {text}" for shard, text in sorted(texts))
