"""The checkpoints of a replay rank: which file is written, which is read, and which are removed."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .. import checkpoint
from ..buffer import PrioritizedReplayBuffer
from ..errors import CheckpointCorruptError, CheckpointError
from ..files import prove_writable
from ..snapshot import Base, Snapshot
from .console import say
from .restored import Place, Progress, Restored, contents_of, read_file, read_state

_TEMPORARY = re.compile(r"\.replay-\d{12}\.h5\..*\.tmp")


class Saving:
    """A checkpoint that a thread of its own writes, while the buffer goes on.

    Parameters
    ----------
    path : pathlib.Path
    snapshot : Snapshot
        Closed once it is written, or has failed.
    write : callable
        Does the writing.
    """

    def __init__(self, path: Path, snapshot: Snapshot, write: Callable[[], Base]) -> None:
        self.path = path
        self.incremental = snapshot.incremental
        self.base: Base | None = None
        self._snapshot = snapshot
        self._write = write
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="libsumtree-checkpoint")
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return not self._thread.is_alive()

    def give_turn(self) -> None:
        """Let the thread go on; for a loop that never waits, see `Rows.let_writer_run`."""
        self._snapshot.rows.let_writer_run()

    def wait(self) -> None:
        """Wait for the end.

        Raises
        ------
        CheckpointError
            The file could not be written.
        """
        self._thread.join()
        if isinstance(self._error, MemoryError):
            raise CheckpointError(f"cannot write checkpoint {self.path}: memory is short")
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self.base = self._write()
        except BaseException as error:  # for the thread that waits
            self._error = error
        finally:
            self._snapshot.close()


class CheckpointFolder:
    """A folder of files ``replay-<serial>.h5``, of which one replay rank at a time is the writer.

    Parameters
    ----------
    folder : pathlib.Path
        Made, for its owner alone, if it does not exist.
    keep, full_every, compression
        See `ReplayConfig`.

    Raises
    ------
    CheckpointError
        If the folder cannot be made or written, or another replay rank writes to it.
    """

    def __init__(
        self, folder: Path, keep: int, full_every: int = 1, compression: str | None = None
    ) -> None:
        self.folder = folder
        self._keep = keep
        self._full_every = full_every
        self._compression = compression
        self._oldest = 0
        self._base: tuple[Path, Base] | None = None
        try:
            import h5py  # noqa: F401 - now, not while serving
        except ImportError:
            raise CheckpointError("checkpoints need h5py: pip install 'libsumtree[hdf5]'") from None
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = checkpoint.FolderLock(folder)
            self._remove_leftovers()
            prove_writable(folder)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint folder {folder} cannot be written: {error.strerror or error}"
            ) from error

    def close(self) -> None:
        """Let another replay rank write to the folder."""
        self._lock.close()

    def renew_lock(self) -> None:
        """Stay the one writer even if the folder was removed and made again.

        Raises
        ------
        CheckpointError, OSError
            See ``FolderLock.renew``.
        """
        self._lock.renew()

    def files(self) -> list[tuple[int, Path]]:
        """Return serial and path of each file, the newest first."""
        return checkpoint.numbered_files(self.folder)

    def states(self) -> list[tuple[int, Path]]:
        """Return serial and path of each file and of each manifest, the newest first."""
        return checkpoint.numbered_states(self.folder)

    def spare_existing(self) -> None:
        """Leave alone what is in the folder now, whatever `keep` says."""
        self._oldest = self._next_serial()

    def newest(
        self, backend: str, capacity: int | None = None, dtype: np.dtype[Any] | None = None
    ) -> Restored | None:
        """Read the newest state that is whole; None if the folder holds no file at all.

        What is damaged, or goes on from a file that is damaged or missing, is passed over, and that
        is said on standard error.

        Raises
        ------
        CheckpointCorruptError
            If there are files, and every one is damaged.
        CheckpointMismatchError
            If it is not of the record `dtype` that is asked for.
        CheckpointError
            If a file cannot be read for another reason, such as a newer format.
        """
        damaged, place = [], Place(folder=self.folder, dtype=dtype)
        for _, path in self.states():
            try:
                if path.suffix == checkpoint.MANIFEST_SUFFIX and capacity is not None:
                    return read_state(path, backend, capacity, place)
                return read_file(path, backend, capacity, place)
            except CheckpointCorruptError as error:
                say(f"passing over a damaged checkpoint, {path.name}: {error}")
                damaged.append(path.name)
        if damaged:
            raise CheckpointCorruptError(
                f"every checkpoint in {self.folder} is damaged ({', '.join(damaged)}); "
                "put a good one there, or start empty with resume 'never'"
            )
        return None

    def begin(self, buffer: PrioritizedReplayBuffer, progress: Progress) -> Saving:
        """Begin to write the next file, with the buffer and the progress as they are now.

        One at a time: `finish` what it returns before the next.

        Raises
        ------
        CheckpointError
            If the folder cannot be read, or was made again and has another writer now.
        """
        try:
            self.renew_lock()
            path = checkpoint.file_of(self.folder, self._next_serial())
        except OSError as error:
            raise CheckpointError(
                f"cannot write a checkpoint into {self.folder}: {error.strerror or error}"
            ) from error
        snapshot = buffer.snapshot(self._usable_base())
        attributes, datasets = contents_of(progress)

        def write() -> Base:
            base = snapshot.write(path, attributes, datasets, self._compression)
            self._remove_old()
            return base

        return Saving(path, snapshot, write)

    def finish(self, saving: Saving) -> Path:
        """Wait until a file is on disk, and those beyond `keep` are gone.

        Raises
        ------
        CheckpointError
            If it could not be written; the files in the folder are as before.
        """
        saving.wait()
        assert saving.base is not None
        if self._full_every > 1:
            self._base = saving.path, saving.base
        return saving.path

    def publish(self, buffer: PrioritizedReplayBuffer, progress: Progress) -> Path:
        """Write the next file and wait for it: `begin` and `finish`."""
        return self.finish(self.begin(buffer, progress))

    def _usable_base(self) -> Base | None:
        """Return what an incremental checkpoint may go on from: the last, if it is still there."""
        if self._base is None:
            return None
        path, base = self._base
        if base.files >= self._full_every:
            return None
        with contextlib.suppress(OSError, CheckpointError):
            if checkpoint.read_header(path).digest == base.digest:
                return base
        return None

    def _remove_old(self) -> None:
        with contextlib.suppress(OSError, CheckpointError):
            for old in checkpoint.removable(self.folder, self._keep, self._oldest):
                with contextlib.suppress(OSError):  # the others can go all the same
                    old.unlink()

    def _next_serial(self) -> int:
        return checkpoint.next_serial(self.folder)

    def _remove_leftovers(self) -> None:
        """Remove the temporaries of killed writers; this process is the folder's only writer."""
        for path in self.folder.iterdir():
            if _TEMPORARY.fullmatch(path.name):
                path.unlink()
