"""Files that appear whole or not at all."""

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

_TEMPORARY = r"\d+\.[0-9a-f]{16}\.tmp"


@contextlib.contextmanager
def temporary_beside(destination: Path) -> Iterator[tuple[io.FileIO, Path]]:
    """Create a locked temporary of `destination`; on exit it is gone, unless it was renamed.

    Its name is ``.NAME.<pid>.<random>.tmp``, its mode 0600. The lock lasts as long as the process:
    it tells `remove_leftovers` that the file has an owner. One that another writer took for a
    leftover, before it was locked, is made anew.
    """
    while True:
        temporary = destination.with_name(
            f".{destination.name}.{os.getpid()}.{secrets.token_hex(8)}.tmp"
        )
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with io.FileIO(os.open(temporary, flags, 0o600), "w+") as file:
            try:
                if _own(file, temporary):
                    yield file, temporary
                    return
                temporary.unlink(missing_ok=True)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    temporary.unlink()
                raise


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


def is_temporary(name: str) -> bool:
    """Tell whether a file is one that `temporary_beside` makes."""
    return re.fullmatch(rf"\..+\.{_TEMPORARY}", name) is not None


def remove_leftovers(folder: Path, name: str = "") -> None:
    """Remove the temporaries that killed processes left behind, those of one file or all."""
    middle = re.escape(name) if name else r".+"
    pattern = re.compile(rf"\.{middle}\.{_TEMPORARY}")
    for leftover in folder.iterdir():
        if pattern.fullmatch(leftover.name):
            with contextlib.suppress(OSError), leftover.open("rb+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                leftover.unlink()


def publish(file: io.FileIO, temporary: Path, destination: Path) -> None:
    """Put a temporary onto the disk, and then in the place of `destination`."""
    os.fsync(file.fileno())
    temporary.replace(destination)
    sync_folder(destination.parent)


def sync_folder(folder: Path) -> None:
    """Put the names in a folder onto the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
