"""Locks of folders: one writer at a time, and none that outlives its process.

They are ``flock`` locks, which the kernel takes back however their holder ends; a child that it
forked does not keep them. HDF5's own locks are never used. Where a file system has no locks, or has
some that hang, the environment variable of HDF5 is the switch: with ``HDF5_USE_FILE_LOCKING=FALSE``
nothing is locked, and that one process at a time writes to a folder is up to those who start it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from weakref import WeakSet

from ..errors import CheckpointError
from ..files import is_file_at

LOCK_NAME = ".libsumtree.lock"
SWITCH = "HDF5_USE_FILE_LOCKING"

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_HOLDER_BYTES = 200


def locking() -> str:
    """Return what the environment asks for: ``"TRUE"``, ``"FALSE"`` or ``"BEST_EFFORT"``."""
    asked = os.environ.get(SWITCH, "TRUE").strip().upper()
    return {"0": "FALSE", "FALSE": "FALSE", "BEST_EFFORT": "BEST_EFFORT"}.get(asked, "TRUE")


def reason(error: OSError) -> str:
    """Say why a lock could not be had, and what to do where there are none."""
    if error.errno in _NO_LOCKS:
        return (
            f"its file system has no locks; with {SWITCH}=FALSE in the environment none are used, "
            "and it is up to you that one process at a time writes there"
        )
    return error.strerror or str(error)


class FolderLock:
    """The right to write checkpoints into a folder, until `close` or the end of the process.

    Parameters
    ----------
    folder : pathlib.Path

    Raises
    ------
    CheckpointError, OSError
        See `renew`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None
        self.renew()

    def renew(self) -> None:
        """Take the lock, if it is not held: the folder may have been removed and made again.

        Raises
        ------
        CheckpointError
            Another process has it, which the message names; or the file system has no locks.
        OSError
            The lock file cannot be made.
        """
        if locking() == "FALSE":
            return
        while self._descriptor is None or not is_file_at(self._descriptor, self._path):
            self.close()
            if not self._take():
                return

    @property
    def _path(self) -> Path:
        return self._folder / LOCK_NAME

    def _take(self) -> bool:
        """Lock the file that is there now; return False where there are no locks, and need not."""
        self._descriptor = descriptor = _open_lock(self._path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, _HOLDER_BYTES, 0).decode("utf-8", "replace").strip()
            self.close()
            raise CheckpointError(
                f"checkpoint folder {self._folder} is being written to by another process "
                f"({holder or 'unknown'}); give each job a folder of its own"
            ) from None
        except OSError as error:
            self.close()
            if error.errno in _NO_LOCKS and locking() == "BEST_EFFORT":
                return False
            raise CheckpointError(f"cannot lock folder {self._folder}: {reason(error)}") from error
        _note_holder(descriptor)
        _held.add(self)
        return True

    def close(self) -> None:
        """Let another process have it. Twice is no harm."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_held: WeakSet[FolderLock] = WeakSet()


def _close_in_child() -> None:
    """Close what a forked child has inherited: the lock is its parent's, and ends with it."""
    for lock in list(_held):
        lock.close()
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)


def _open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _note_holder(descriptor: int) -> None:
    """Note who holds the lock, for people; a full disk is no reason to fail."""
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    text = f"process {os.getpid()} on {socket.gethostname()} since {started}\n"
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode()[:_HOLDER_BYTES], 0)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file that is never removed and holds nothing; wait for it."""
    if locking() == "FALSE":
        yield
        return
    descriptor = _open_lock(path)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS or locking() != "BEST_EFFORT":
                raise
        yield
    finally:
        os.close(descriptor)
