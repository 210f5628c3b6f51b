"""The user block: the first 512 bytes of a checkpoint, which plain reads understand.

ASCII lines, then zeros. ::

    libsumtree checkpoint
    format 1
    length 0000000000108657
    sha256 <64 hexadecimal digits: the SHA-256 of every byte after the user block>
    parent <the sha256 of the checkpoint that this one goes on from, or "none">
    block <8 hexadecimal digits: the CRC-32 of the lines above>

The first two lines, and ``block`` as the last one, stay the same in every format.
"""

from __future__ import annotations

import io
import os
import re
import stat
import zlib
from dataclasses import dataclass
from pathlib import Path

from ..errors import CheckpointCorruptError, CheckpointFormatError

FORMAT = 1
"""The version of checkpoint files."""
BLOCK_SIZE = 512
"""Bytes of the user block, with which a file begins."""

_MAGIC = b"libsumtree checkpoint\n"
_NONE = "none"


@dataclass(frozen=True)
class Header:
    """What the user block says.

    Attributes
    ----------
    length : int
        Bytes of the file.
    digest : str
        SHA-256 of all bytes after the user block: the file's name among checkpoints.
    parent : str, optional
        The digest of the checkpoint that an incremental one goes on from.
    """

    length: int
    digest: str
    parent: str | None

    def to_bytes(self) -> bytes:
        """Return the user block."""
        lines = _MAGIC + (
            f"format {FORMAT}\nlength {self.length:016d}\nsha256 {self.digest}\n"
            f"parent {self.parent or _NONE}\n"
        ).encode("ascii")
        return (lines + b"block %08x\n" % zlib.crc32(lines)).ljust(BLOCK_SIZE, b"\0")


def parse_block(path: Path, block: bytes) -> Header:
    """Return what a user block says.

    Raises
    ------
    CheckpointCorruptError
        It is none, or not the one that was written.
    CheckpointFormatError
        The file has another format.
    """
    if not block.startswith(_MAGIC):
        raise CheckpointCorruptError(
            f"{path} is not a libsumtree checkpoint: it does not start with 'libsumtree checkpoint'"
        )
    lines, separator, _ = block.rpartition(b"block ")
    found = re.match(rb"format (\d{1,9})\n", lines[len(_MAGIC) :])
    checksum = b"%08x\n" % zlib.crc32(lines)
    if found is None or block != (lines + separator + checksum).ljust(BLOCK_SIZE, b"\0"):
        raise CheckpointCorruptError(
            f"checkpoint {path}: its first {BLOCK_SIZE} bytes are not those that were written"
        )
    _check_format(path, int(found[1]))
    said = re.fullmatch(
        rb"length (\d{16})\nsha256 ([0-9a-f]{64})\nparent ([0-9a-f]{64}|none)\n",
        lines[len(_MAGIC) + found.end() :],
    )
    if said is None:
        raise CheckpointCorruptError(
            f"checkpoint {path}: its first lines are not those of format {FORMAT}"
        )
    parent = said[3].decode("ascii")
    return Header(int(said[1]), said[2].decode("ascii"), None if parent == _NONE else parent)


def _check_format(path: Path, version: int) -> None:
    if version > FORMAT:
        raise CheckpointFormatError(
            f"checkpoint {path} has format {version}; this version of libsumtree reads formats up "
            f"to {FORMAT}: a newer version is needed"
        )
    if version < FORMAT:
        raise CheckpointFormatError(
            f"checkpoint {path} has format {version}, a draft that no release has written"
        )


def read_header(path: Path) -> Header:
    """Return what the first bytes of a file say of it; nothing after them is looked at.

    Raises
    ------
    CheckpointCorruptError, CheckpointFormatError
        See `parse_block`.
    OSError
        The file cannot be read.
    """
    with open_regular(path) as file:
        return parse_block(path, file.read(BLOCK_SIZE))


def open_regular(path: Path) -> io.FileIO:
    """Open a file for reading, if it is one.

    Raises
    ------
    CheckpointCorruptError
        It is something else, such as a pipe, which would wait for its writer.
    OSError
        It cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CheckpointCorruptError(f"{path} is not a regular file")
    return io.FileIO(descriptor, "r")
