"""The lines of a metrics file, read once or as they come."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import MetricsError
from .lines import SCHEMA, Line, TornLineError, decode_line

_LONGEST_LINE = 1 << 20
_SIGNATURES = {
    b"\x89HDF\r\n\x1a\n": "an HDF5 file",
    b"\x89PNG": "a picture",
    b"PK\x03\x04": "a zip or .npz archive",
    b"\x1f\x8b": "a gzip file",
    b"\x7fELF": "a program",
    b"libsumtree checkpoint": "a checkpoint",
}


class MetricsReader:
    """Reads the lines of a metrics file that are complete, and later those that came since.

    Parameters
    ----------
    path : str or path

    Attributes
    ----------
    torn : int
        Lines that were broken off and are passed over: whoever wrote them was killed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.torn = 0
        self._offset = 0
        self._rest = b""
        self._number = 0
        self._good = 0

    def read(self) -> list[Line]:
        """Return the lines that are complete and were not returned before.

        Raises
        ------
        MetricsError
            If this is no metrics file, or one of another schema.
        OSError
            If it cannot be read.
        """
        data = self._new_bytes()
        if not self._good:
            self._check_beginning(data)
        *complete, self._rest = data.split(b"\n")
        return [line for text in complete if (line := self._decode(text)) is not None]

    @property
    def unfinished(self) -> bool:
        """Whether the file ends in the middle of a line."""
        return bool(self._rest)

    def _new_bytes(self) -> bytes:
        with self.path.open("rb") as file:
            if file.seekable():
                if file.seek(0, 2) < self._offset:  # begun anew by somebody
                    self._offset, self._rest, self._number = 0, b"", 0
                file.seek(self._offset)
            new = file.read()
        self._offset += len(new)
        return self._rest + new

    def _decode(self, text: bytes) -> Line | None:
        self._number += 1
        if not text.strip():
            return None
        try:
            line = decode_line(text.decode("utf-8", "replace"))
        except MetricsError as error:
            if isinstance(error, TornLineError) and self._good:
                self.torn += 1
                return None
            raise MetricsError(
                f"{self.path} is no metrics file of schema {SCHEMA}: line {self._number}: {error}"
            ) from None
        self._good += 1
        return line

    def _check_beginning(self, data: bytes) -> None:
        """Raise unless these first bytes may be those of a metrics file."""
        for signature, name in _SIGNATURES.items():
            if data.startswith(signature):
                raise MetricsError(f"{self.path} is no metrics file but {name}")
        if b"\0" in data[:_LONGEST_LINE]:
            raise MetricsError(f"{self.path} is no metrics file but something binary")
        if data and not data.lstrip().startswith(b"{"):
            first = data.splitlines()[0].decode("utf-8", "replace")
            raise MetricsError(f"{self.path} is no metrics file: its first line is {first!r:.60}")
        if b"\n" not in data and len(data) > _LONGEST_LINE:
            raise MetricsError(f"{self.path} is no metrics file: its first line has no end")


def read_metrics(path: str | os.PathLike[str]) -> tuple[list[Line], int]:
    """Return all the lines of a metrics file, at least one, and how many more are broken off.

    Raises
    ------
    MetricsError
        If it is none, or holds no line yet.
    OSError
        If it cannot be read.
    """
    reader = MetricsReader(path)
    lines = reader.read()
    if not lines:
        raise MetricsError(f"{path} holds no line of metrics yet")
    return lines, reader.torn + reader.unfinished
