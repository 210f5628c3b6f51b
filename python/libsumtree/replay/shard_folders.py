"""The checkpoints of several shards: a folder for each, and manifests that make states of them."""

from __future__ import annotations

import contextlib
from pathlib import Path

from .. import checkpoint
from ..buffer import PrioritizedReplayBuffer
from ..errors import CheckpointError, CheckpointMismatchError
from ..records import dtype_to_text
from .channel import Backoff
from .checkpoints import CheckpointFolder, Saving
from .config import ReplayConfig
from .restored import Progress
from .shards import Alone, Follower, Leader, joined

_LONGEST_SLEEP = 0.001


class PartFolder(CheckpointFolder):
    """The folder of one shard's files; what goes is decided by manifests."""

    def __init__(self, shard: int, config: ReplayConfig) -> None:
        assert config.checkpoint_dir is not None
        folder = checkpoint.shard_folder(config.checkpoint_dir, shard)
        self._serial = 0
        super().__init__(folder, config.keep, config.full_every, config.compression)

    def begin_at(self, serial: int, buffer: PrioritizedReplayBuffer, progress: Progress) -> Saving:
        """Begin to write the file with this serial."""
        self._serial = serial
        return self.begin(buffer, progress)

    def _next_serial(self) -> int:
        return self._serial

    def _remove_old(self) -> None:
        pass


class FollowerFolder(PartFolder):
    """What a further shard writes, telling shard 0 how it went."""

    def __init__(self, shards: Follower, config: ReplayConfig) -> None:
        self._shards = shards
        super().__init__(shards.shard, config)

    def begin(self, buffer: PrioritizedReplayBuffer, progress: Progress) -> Saving:
        """Begin to write the file that shard 0 asked for.

        Raises
        ------
        CheckpointError
            If the folder cannot be read, or the buffer of shard 0 has another record dtype.
        """
        self._serial = self._shards.take_serial()
        try:
            self._check_dtype(dtype_to_text(buffer.dtype))
            return super().begin(buffer, progress)
        except BaseException as error:
            self._shards.tell_saved(str(error) or type(error).__name__)
            raise

    def _check_dtype(self, dtype: str) -> None:
        if dtype != self._shards.dtype:
            raise CheckpointMismatchError(
                f"the record dtype is {dtype} where shard 0 has {self._shards.dtype}"
            )

    def finish(self, saving: Saving) -> Path:
        """Wait until the file is on disk, and tell shard 0."""
        try:
            path = super().finish(saving)
        except BaseException as error:
            self._shards.tell_saved(str(error) or type(error).__name__)
            raise
        self._shards.tell_saved("")
        return path


class Round:
    """A checkpoint that all shards write; `Saving` of shard 0's own file."""

    def __init__(self, serial: int, own: Saving | None, failure: str, shards: Leader) -> None:
        self.serial = serial
        self.own = own
        self.failure = failure
        self._shards = shards

    @property
    def done(self) -> bool:
        """Whether all have ended, well or not."""
        return (self.own is None or self.own.done) and self._shards.round_done()

    def give_turn(self) -> None:
        """Let the thread of the own file go on."""
        if self.own is not None:
            self.own.give_turn()


class LeadFolder:
    """The folder of manifests, and below it those of the shards; shard 0 is its one writer.

    Parameters
    ----------
    shards : Leader
    config : ReplayConfig

    Raises
    ------
    CheckpointError
        See `CheckpointFolder`.
    """

    def __init__(self, shards: Leader, config: ReplayConfig) -> None:
        assert config.checkpoint_dir is not None
        self.folder = config.checkpoint_dir
        self._shards = shards
        self._keep = config.keep
        self._oldest = 0
        self._states = CheckpointFolder(self.folder, config.keep)
        try:
            self._own = PartFolder(0, config)
        except BaseException:
            self._states.close()
            raise

    def close(self) -> None:
        """Let another service write to the folder."""
        self._own.close()
        self._states.close()

    def states(self) -> list[tuple[int, Path]]:
        """Return serial and path of each state, the newest first."""
        return self._states.states()

    def spare_existing(self) -> None:
        """Leave alone what is in the folder now, whatever `keep` says."""
        self._oldest = checkpoint.next_serial(self.folder)

    def begin(self, buffer: PrioritizedReplayBuffer, progress: Progress) -> Round:
        """Have every shard begin to write its next file.

        Raises
        ------
        CheckpointError
            If the folder cannot be read, or has another writer: no shard writes then, and all are
            told so.
        """
        try:
            serial = self._next_serial()
        except CheckpointError:
            self._shards.give_up()
            raise
        self._shards.begin_round(serial, dtype_to_text(buffer.dtype))
        try:
            return Round(serial, self._own.begin_at(serial, buffer, progress), "", self._shards)
        except CheckpointError as error:
            return Round(serial, None, str(error), self._shards)

    def _next_serial(self) -> int:
        try:
            self._states.renew_lock()
            return checkpoint.next_serial(self.folder)
        except OSError as error:
            raise CheckpointError(
                f"cannot write a checkpoint into {self.folder}: {error.strerror or error}"
            ) from error

    def finish(self, saving: Round) -> Path:
        """Wait until all files are on disk, publish the manifest, and remove what is beyond `keep`.

        Raises
        ------
        CheckpointError
            If a shard could not write, saying which: then there is no manifest.
        """
        backoff = Backoff(_LONGEST_SLEEP)
        while not saving.done:
            backoff.turn(busy=False)
        failures = dict(self._shards.failures())
        try:
            if saving.own is not None:
                self._own.finish(saving.own)
        except CheckpointError as error:
            saving.failure = str(error)
        if saving.failure:
            failures[0] = saving.failure
        if failures:
            raise CheckpointError(
                f"no manifest {saving.serial} was written: {joined(failures.items())}"
            )
        return self._publish(saving.serial)

    def _publish(self, serial: int) -> Path:
        folders = [checkpoint.shard_folder(self.folder, s) for s in range(self._shards.shards)]
        files = [checkpoint.file_of(folder, serial) for folder in folders]
        path = checkpoint.write_manifest(checkpoint.manifest_of(self.folder, serial), files).path
        with contextlib.suppress(OSError, CheckpointError):
            for old in checkpoint.removable(self.folder, self._keep, self._oldest):
                with contextlib.suppress(OSError):  # the others can go all the same
                    old.unlink()
        return path


Folder = CheckpointFolder | LeadFolder


def finish(folder: Folder, saving: Saving | Round) -> Path:
    """Wait for what a folder has begun; see `CheckpointFolder.finish` and `LeadFolder.finish`."""
    if isinstance(folder, LeadFolder):
        assert isinstance(saving, Round)
        return folder.finish(saving)
    assert isinstance(saving, Saving)
    return folder.finish(saving)


def open_folders(config: ReplayConfig, shards: Alone) -> Folder | None:
    """Return where this replay rank writes checkpoints; None if nowhere. All shards call this.

    Shard 0 makes the folder before the others make theirs in it.

    Raises
    ------
    CheckpointError, ReplayError
        If any shard cannot write, see `CheckpointFolder`.
    """
    if config.checkpoint_dir is None:
        return None
    if not isinstance(shards, Leader | Follower):
        return CheckpointFolder(
            config.checkpoint_dir, config.keep, config.full_every, config.compression
        )
    folder: Folder | None = None

    def lead() -> Folder | None:
        return LeadFolder(shards, config) if isinstance(shards, Leader) else None

    def follow() -> Folder | None:
        return FollowerFolder(shards, config) if isinstance(shards, Follower) else folder

    folder = shards.together(lead)
    try:
        return shards.together(follow)
    except BaseException:
        if folder is not None:
            folder.close()
        raise
