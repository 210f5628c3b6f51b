"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

_TRIAL_BLOCK = 1 << 20


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash, never meets half of it.

    A temporary file in the same folder is written, synchronised and renamed; then the folder is
    synchronised. What stood at `path` before stays until the rename.

    Raises
    ------
    OSError
        If the folder cannot be written, naming `path`; the temporary file is removed.
    """
    try:
        _replace(path, content)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    file = temporary.open("xb")  # noqa: SIM115 - what stands there is not this one's to remove
    try:
        with file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync(path.parent)


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
    file = trial.open("xb")  # noqa: SIM115
    try:
        with file:
            for start in range(0, nbytes, _TRIAL_BLOCK):
                file.write(block[: nbytes - start])
            file.flush()
            os.fsync(file.fileno())
    finally:
        trial.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
