"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_TRIAL_BLOCK = 1 << 20
_TEMPORARY = r"\d+\.[0-9a-f]{16}\.tmp"


def write_atomically(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file so that a reader, or a crash, never meets half of it.

    What stood at `path` before stays until the new file is on the disk.

    Parameters
    ----------
    path : pathlib.Path
    content : bytes
    mode : int
        Of a file that is made, less the process's umask.

    Raises
    ------
    OSError
        If the folder cannot be written, naming `path`; nothing is left behind.
    """
    try:
        remove_leftovers(path.parent, path.name)
        with temporary_beside(path, mode) as (file, temporary):
            write_all(file.fileno(), content, 0)
            publish(file, temporary, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextlib.contextmanager
def temporary_beside(destination: Path, mode: int = 0o600) -> Iterator[tuple[io.FileIO, Path]]:
    """Create a locked temporary of `destination`; on exit it is gone, unless it was published.

    Its name is ``.NAME.<pid>.<random>.tmp``. The lock lasts as long as the process: it tells
    `remove_leftovers` that the file has an owner. One that another writer took for a leftover,
    before it was locked, is made anew.
    """
    while True:
        temporary = destination.with_name(
            f".{destination.name}.{os.getpid()}.{secrets.token_hex(8)}.tmp"
        )
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with io.FileIO(os.open(temporary, flags, mode), "w+") as file:
            try:
                if _own(file, temporary):
                    yield file, temporary
                    return
            finally:
                temporary.unlink(missing_ok=True)


def publish(file: io.FileIO, temporary: Path, destination: Path) -> None:
    """Put a temporary onto the disk, and then in the place of `destination`."""
    os.fsync(file.fileno())
    temporary.replace(destination)
    folder = os.open(destination.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def remove_leftovers(folder: Path, name: str = "") -> None:
    """Remove the temporaries that killed processes left behind, those of one file or all."""
    middle = re.escape(name) if name else r".+"
    pattern = re.compile(rf"\.{middle}\.{_TEMPORARY}")
    for leftover in folder.iterdir():
        if pattern.fullmatch(leftover.name):
            with contextlib.suppress(OSError), leftover.open("rb+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                leftover.unlink()


def is_temporary(name: str) -> bool:
    """Tell whether a file is one that `temporary_beside` makes."""
    return re.fullmatch(rf"\..+\.{_TEMPORARY}", name) is not None


def _own(file: io.FileIO, path: Path) -> bool:
    """Lock a new file; tell whether it is still there, and nobody else has locked it.

    Where there are no locks, nobody removes a leftover either.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return is_file_at(file.fileno(), path)


def is_file_at(descriptor: int, path: Path) -> bool:
    """Tell whether a path names the very file that is open."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def make_writable(folder: Path) -> None:
    """Make a folder, if it is not there, and prove that it can be written.

    Raises
    ------
    OSError
        If it cannot be made or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    prove_writable(folder)


def prove_writable(folder: Path, nbytes: int = 512) -> None:
    """Write a new file into a folder, synchronise it, and remove it.

    Its name cannot be known beforehand, and a link that stands there is never followed: the folder
    may be one that others write to.

    Raises
    ------
    OSError
        If the folder cannot be written; the file is removed.
    """
    trial = folder / f".libsumtree-trial.{secrets.token_hex(8)}"
    block = os.urandom(min(nbytes, _TRIAL_BLOCK))  # that no file system makes small
    file = trial.open("xb")  # noqa: SIM115 - what stands there is not this one's to remove
    try:
        with file:
            for start in range(0, nbytes, _TRIAL_BLOCK):
                file.write(block[: nbytes - start])
            file.flush()
            os.fsync(file.fileno())
    finally:
        trial.unlink(missing_ok=True)


def write_all(descriptor: int, data: Any, offset: int) -> None:
    """Write every byte at `offset`: one call may take fewer."""
    rest = memoryview(data).cast("B")
    while rest:
        done = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[done:], offset + done


def read_all(descriptor: int, target: Any, offset: int) -> None:
    """Fill `target` with the bytes at `offset`.

    Raises
    ------
    EOFError
        The file ends before.
    """
    rest = memoryview(target).cast("B")
    while rest:
        done = os.preadv(descriptor, [rest], offset)
        if done == 0:
            raise EOFError(f"the file ends at {offset}")
        rest, offset = rest[done:], offset + done
