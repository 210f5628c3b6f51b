"""The checkpoints of a replay rank: which file is written, which is read, and which are removed."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import re
import secrets
import sys
from dataclasses import dataclass, field
from pathlib import Path

from .. import checkpoint
from ..buffer import PrioritizedReplayBuffer
from ..errors import CheckpointCorruptError, CheckpointError
from .archive import State

_NAME = re.compile(r"replay-(\d{12})\.h5")
_TEMPORARY = re.compile(r"\.replay-\d{12}\.h5\..*\.tmp")
_LEARNER = "learner/"
_SAMPLED, _STALE, _SURPLUS = "replay_sampled", "replay_stale", "replay_surplus"


@dataclass(slots=True)
class Progress:
    """What a checkpoint of a replay rank holds besides the buffer.

    Attributes
    ----------
    sampled, stale : int
        Transitions ever drawn, and updates ever skipped.
    surplus : float, optional
        Of the rate limiter; None if there was no pacing.
    learner : dict of str to ndarray, optional
        The learner state that came last; None if none ever did.
    """

    sampled: int = 0
    stale: int = 0
    surplus: float | None = None
    learner: State | None = None


@dataclass(slots=True)
class Restored:
    """A buffer with what else its checkpoint held."""

    path: Path
    buffer: PrioritizedReplayBuffer
    progress: Progress = field(default_factory=Progress)


def say(text: str) -> None:
    """Tell whoever watches the job, on standard error."""
    print(f"libsumtree replay: {text}", file=sys.stderr, flush=True)


class CheckpointFolder:
    """A folder of files ``replay-<serial>.h5``, of which one replay rank at a time is the writer.

    Parameters
    ----------
    folder : pathlib.Path
        Made if it does not exist.
    keep : int
        Files to keep; older ones are removed once a new one is on disk.

    Raises
    ------
    CheckpointError
        If the folder cannot be made or written, or another replay rank writes to it.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder = folder
        self._keep = keep
        self._oldest = 0
        if importlib.util.find_spec("h5py") is None:
            raise CheckpointError("checkpoints need h5py: pip install 'libsumtree[hdf5]'")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(folder)
            self._remove_leftovers()
            _try_to_write(folder)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint folder {folder} cannot be written: {error.strerror or error}"
            ) from error

    def close(self) -> None:
        """Let another replay rank write to the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def files(self) -> list[tuple[int, Path]]:
        """Return serial and path of each file, the newest first."""
        found = ((_NAME.fullmatch(path.name), path) for path in self.folder.iterdir())
        return sorted(((int(m[1]), path) for m, path in found if m), reverse=True)

    def spare_existing(self) -> None:
        """Leave alone what is in the folder now, whatever `keep` says."""
        self._oldest = self._next_serial()

    def newest(self, backend: str) -> Restored | None:
        """Read the newest valid file; None if the folder holds none at all.

        A damaged file is passed over, and that is said on standard error.

        Raises
        ------
        CheckpointCorruptError
            If there are files, and every one is damaged.
        CheckpointError
            If a file cannot be read for another reason, such as a newer format.
        """
        damaged = []
        for _, path in self.files():
            try:
                return read_file(path, backend)
            except CheckpointCorruptError as error:
                say(f"passing over a damaged checkpoint: {error}")
                damaged.append(path.name)
        if damaged:
            raise CheckpointCorruptError(
                f"every checkpoint in {self.folder} is damaged ({', '.join(damaged)}); "
                "put a good one there, or start empty with resume 'never'"
            )
        return None

    def publish(self, buffer: PrioritizedReplayBuffer, progress: Progress) -> Path:
        """Write the next file, then remove those beyond `keep`.

        Raises
        ------
        CheckpointError
            If it cannot be written; the files in the folder are as before.
        """
        try:
            path = self.folder / f"replay-{self._next_serial():012d}.h5"
        except OSError as error:
            raise CheckpointError(
                f"cannot write a checkpoint into {self.folder}: {error.strerror or error}"
            ) from error
        write_file(path, buffer, progress)
        with contextlib.suppress(OSError):
            for _, old in [f for f in self.files() if f[0] >= self._oldest][self._keep :]:
                old.unlink()
        return path

    def _next_serial(self) -> int:
        return max((serial for serial, _ in self.files()), default=0) + 1

    def _remove_leftovers(self) -> None:
        """Remove the temporaries of killed writers; this process is the folder's only writer."""
        for path in self.folder.iterdir():
            if _TEMPORARY.fullmatch(path.name):
                path.unlink()


def _try_to_write(folder: Path) -> None:
    trial = folder / f".replay-trial.{os.getpid()}.{secrets.token_hex(4)}"
    trial.write_bytes(b"\0" * 512)
    trial.unlink()


def _lock(folder: Path) -> int | None:
    """Lock the folder as long as this process lives; None where the file system has no locks."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise CheckpointError(
            f"checkpoint folder {folder} is being written to by another replay rank; "
            "give each job a folder of its own"
        ) from None
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def write_file(path: Path, buffer: PrioritizedReplayBuffer, progress: Progress) -> None:
    """Write one checkpoint: what `PrioritizedReplayBuffer.save` writes, and the progress."""
    attributes, datasets = buffer.state()
    extra: dict[str, checkpoint.Attribute] = {_SAMPLED: progress.sampled, _STALE: progress.stale}
    if progress.surplus is not None:
        extra[_SURPLUS] = progress.surplus
    learner = {
        _LEARNER + "/".join(map(checkpoint.escape_name, name.split("/"))): [array]
        for name, array in (progress.learner or {}).items()
    }
    checkpoint.write(path, {**attributes, **extra}, {**datasets, **learner})


def read_file(path: Path, backend: str) -> Restored:
    """Read the checkpoint of a replay rank, or of a buffer alone, and open a new epoch of ids.

    Raises
    ------
    CheckpointError
        See `PrioritizedReplayBuffer.load`.
    """
    with checkpoint.read(path) as opened:
        attributes = opened.attributes
        learner = {
            "/".join(map(checkpoint.unescape_name, name.split("/")[1:])): stored.read()
            for name, stored in opened.datasets.items()
            if name.startswith(_LEARNER)
        }
        buffer = PrioritizedReplayBuffer.from_checkpoint(opened, backend)
    buffer.open_epoch(checkpoint.open_epoch(path, buffer.epoch))
    return Restored(path, buffer, _progress(path, attributes, learner))


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
    return Progress(sampled, stale, surplus, learner or None)
