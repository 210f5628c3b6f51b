"""The epochs that were opened in a folder: none is ever given out twice."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

from ..errors import ArgumentTypeError, CheckpointCorruptError, CheckpointError
from ..files import write_atomically
from ..ids import MAX_EPOCH
from .lock import locked, reason

LEDGER_NAME = "libsumtree.epoch"
"""The file of a folder that holds the highest epoch opened there."""


def open_epoch(path: str | os.PathLike[str], saved_epoch: int) -> int:
    """Return a new epoch for a buffer that goes on from the checkpoint at `path`.

    No epoch is given out twice from one folder, whichever of its checkpoints is opened, by however
    many processes, and whenever one of them is killed: the highest one stands in the file
    ``libsumtree.epoch`` there, on disk before this function returns.

    Parameters
    ----------
    path : path_like
        The checkpoint. Only its folder matters.
    saved_epoch : int
        The epoch in the checkpoint, 0 .. 2**23 - 1.

    Returns
    -------
    int
        Above `saved_epoch` and above every epoch opened before in this folder.

    Raises
    ------
    CheckpointCorruptError
        ``libsumtree.epoch`` does not hold what was written: the highest epoch is not known.
    CheckpointError
        The folder cannot be written or locked, or there is no epoch left.
    ArgumentTypeError
        `saved_epoch` is not a whole number in that range.
    """
    return open_epoch_in([path], saved_epoch)


def open_epoch_in(paths: Sequence[str | os.PathLike[str]], saved_epoch: int) -> int:
    """Return a new epoch, as `open_epoch` does, above every one opened in any of several folders.

    Parameters
    ----------
    paths : sequence of path_like
        Files, of which only their folders matter.
    saved_epoch : int
        The highest epoch in the checkpoints.

    Raises
    ------
    CheckpointCorruptError, CheckpointError, ArgumentTypeError
        See `open_epoch`.
    """
    by_folder = {Path(path).resolve().parent: path for path in paths}
    opened = {folder: _open(by_folder[folder], saved_epoch) for folder in sorted(by_folder)}
    highest = max(opened.values())
    for folder, epoch in opened.items():
        if epoch < highest:
            _open(by_folder[folder], highest - 1)
    return highest


def _open(path: str | os.PathLike[str], saved_epoch: int) -> int:
    if type(saved_epoch) is not int or not 0 <= saved_epoch <= MAX_EPOCH:
        raise ArgumentTypeError(f"saved_epoch {saved_epoch!r} is not an int in 0 .. {MAX_EPOCH}")
    ledger = Path(path).resolve().parent / LEDGER_NAME
    try:
        with locked(ledger.with_name(f".{LEDGER_NAME}.lock")):
            epoch = max(_read_ledger(ledger), saved_epoch) + 1
            if epoch > MAX_EPOCH:
                raise CheckpointError(f"{ledger}: all epochs up to {MAX_EPOCH} were opened")
            write_atomically(ledger, _ledger_text(epoch), 0o600)
            return epoch
    except OSError as error:
        raise CheckpointError(
            f"cannot note a new epoch in {ledger}: {reason(error)}. Without the note, ids given "
            "out now could be given out again after another restart, and name other transitions. "
            f"Copy the checkpoint {path} to a folder that can be written and locked, and open it "
            "there"
        ) from error


def _ledger_text(epoch: int) -> bytes:
    line = f"libsumtree epoch {epoch}"
    return f"{line} crc32 {zlib.crc32(line.encode()):08x}\n".encode()


def _read_ledger(ledger: Path) -> int:
    """Return the highest epoch that was opened, -1 where none ever was.

    The ledger comes into being whole, by a rename: an empty or altered one is never its beginning.
    """
    try:
        text = ledger.read_bytes()
    except FileNotFoundError:
        return -1
    found = re.match(rb"libsumtree epoch (\d{1,7}) ", text)
    if found is None or text != _ledger_text(int(found[1])):
        raise CheckpointCorruptError(
            f"{ledger} does not hold what was written, so the highest epoch opened in this folder "
            "is not known. Put the file back from a backup, or copy the checkpoint into an empty "
            "folder and let it live on there alone"
        )
    return int(found[1])
