"""What HDF5 writes a file to: memory, or a disk whose failures it is spared."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from typing import Any

from ..files import write_all

_PAGE_BYTES = 4096


class Sparse(io.RawIOBase):
    """A file in memory that HDF5 writes to, without the places that it leaves alone."""

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}
        self._place = 0
        self.length = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a place."""
        before = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self.length}
        self._place = before[whence] + offset
        return self._place

    def tell(self) -> int:
        """Return the place."""
        return self._place

    def write(self, data: Any) -> int:
        """Write all at the place."""
        for page, start, part in self._parts(memoryview(data).cast("B")):
            self._pages.setdefault(page, bytearray(_PAGE_BYTES))[start : start + len(part)] = part
        self._place += len(data)
        self.length = max(self.length, self._place)
        return len(data)

    def readinto(self, buffer: Any) -> int:
        """Read from the place on; what was never written is zeros."""
        view = memoryview(buffer).cast("B")
        for page, start, part in self._parts(view):
            held = self._pages.get(page, bytes(_PAGE_BYTES))
            part[:] = held[start : start + len(part)]
        self._place += len(view)
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """Set the length."""
        self.length = self._place if size is None else size
        return self.length

    def check(self) -> None:
        """Do nothing: memory has no failures to report."""

    def save(self, file: io.FileIO) -> None:
        """Write all that is there to a real file of the same length."""
        file.truncate(self.length)
        for page, data in sorted(self._pages.items()):
            start = page * _PAGE_BYTES
            write_all(file.fileno(), data[: max(0, self.length - start)], start)

    def _parts(self, view: memoryview) -> Iterator[tuple[int, int, memoryview]]:
        done = 0
        while done < len(view):
            page, start = divmod(self._place + done, _PAGE_BYTES)
            part = view[done : done + _PAGE_BYTES - start]
            yield page, start, part
            done += len(part)


class Direct(io.RawIOBase):
    """A file on disk that HDF5 writes to; after a first failure it swallows everything.

    HDF5 must be able to close a file whose disk is full: otherwise it keeps it and fails again at
    exit. So no error reaches HDF5; `error` holds the first, for the caller to raise.
    """

    def __init__(self, file: io.FileIO) -> None:
        self.error: BaseException | None = None
        self._file = file

    def _attempt(self, operation: Any, *arguments: Any) -> Any:
        if self.error is None:
            try:
                return operation(*arguments)
            except BaseException as error:  # KeyboardInterrupt too: it is raised by the caller
                self.error = error
        return 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a place."""
        return int(self._attempt(self._file.seek, offset, whence))

    def tell(self) -> int:
        """Return the place."""
        return int(self._attempt(self._file.tell))

    def write(self, data: Any) -> int:
        """Write all at the place."""
        offset = self._attempt(self._file.tell)
        self._attempt(write_all, self._file.fileno(), data, offset)
        self._attempt(self._file.seek, offset + len(data))
        return len(data)

    def readinto(self, buffer: Any) -> int:
        """Read from the place on."""
        return int(self._attempt(self._file.readinto, buffer))

    def truncate(self, size: int | None = None) -> int:
        """Set the length."""
        return int(self._attempt(self._file.truncate, size))

    def check(self) -> None:
        """Raise the first failure, if there was one."""
        if self.error is not None:
            raise self.error


@contextlib.contextmanager
def reporting(sink: Sparse | Direct) -> Iterator[None]:
    """Put the failure of the file itself before whatever HDF5 made of it."""
    try:
        yield
    except Exception:
        sink.check()
        raise
    sink.check()
