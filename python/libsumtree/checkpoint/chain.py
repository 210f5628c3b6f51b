"""Chains: a full checkpoint and the incremental ones that go on from it, each named by its digest.

An incremental checkpoint says whose digest it goes on from, never a file name: files may be renamed
within their folder, and a file that was replaced or damaged is not taken for the one that was
meant.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import CheckpointCorruptError, CheckpointError
from ..files import is_temporary
from .block import Header, read_header
from .reader import Checkpoint, read

MOST_FILES = 128
"""How many files one chain may have: all are open while it is read."""


@dataclass(frozen=True)
class Chain:
    """The open files that together hold one state; a context manager that closes them.

    Attributes
    ----------
    links : list of Checkpoint
        The full one first, then those that go on from it, each from the one before.
    """

    links: list[Checkpoint]
    _resources: contextlib.ExitStack

    @property
    def newest(self) -> Checkpoint:
        """The file that was asked for: its attributes are those of the state."""
        return self.links[-1]

    def close(self) -> None:
        """Close all files."""
        self._resources.close()

    def __enter__(self) -> Chain:
        """Return the chain itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close all files."""
        self.close()


def read_chain(path: str | os.PathLike[str]) -> Chain:
    """Open a checkpoint and all that it goes on from, every byte of them checked.

    Parameters
    ----------
    path : path_like
        The files that it goes on from stand in its folder, under whatever names.

    Returns
    -------
    Chain
        To be closed by the caller; use ``with``.

    Raises
    ------
    CheckpointCorruptError
        Also where a file that it goes on from is missing or damaged.
    CheckpointError, CheckpointFormatError, ImportError
        See `read`; also where a file that may be the one that it goes on from cannot be opened.

    Notes
    -----
    Time is linear in the bytes of all files.
    """
    with contextlib.ExitStack() as resources:
        links = [resources.enter_context(read(path))]
        while (parent := links[-1].header.parent) is not None:
            links.append(resources.enter_context(_read_parent(links[-1].path, parent)))
        return Chain(links[::-1], resources.pop_all())
    raise AssertionError("unreachable")


def _read_parent(child: Path, digest: str) -> Checkpoint:
    closed: list[tuple[Path, OSError]] = []
    problem = ""
    for path, header in headers(child.parent, closed):
        if header.digest == digest:
            try:
                return read(path)
            except CheckpointCorruptError as error:
                problem = str(error)
    says = f"checkpoint {child} goes on from the one with sha256 {digest[:12]}..., which"
    if closed and not problem:
        path, why = closed[0]
        raise CheckpointError(f"{says} may be {path}: that cannot be opened: {why.strerror}")
    problem = problem or f"it is not in {child.parent}, or its first bytes are damaged"
    raise CheckpointCorruptError(f"{says} cannot be used: {problem}")


def headers(
    folder: Path, closed: list[tuple[Path, OSError]] | None = None
) -> Iterator[tuple[Path, Header]]:
    """Yield the files of a folder that begin as checkpoints of this format do.

    Parameters
    ----------
    folder : pathlib.Path
    closed : list, optional
        Takes the files that cannot be opened, for permissions or a failing disk, and why.

    Raises
    ------
    CheckpointError
        The folder cannot be read.
    """
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise CheckpointError(f"cannot read folder {folder}: {error.strerror}") from error
    for path in paths:
        try:
            if not is_temporary(path.name) and path.is_file():
                yield path, read_header(path)
        except (CheckpointError, FileNotFoundError):
            pass
        except OSError as error:
            if closed is not None:
                closed.append((path, error))
