"""Lines into a file, by a thread of their own: who hands them over never waits and never fails."""

from __future__ import annotations

import contextlib
import os
import queue
import stat
import threading
from collections.abc import Callable
from pathlib import Path

from ..errors import MetricsError

_MOST_WAITING = 64


class MetricsSink:
    """Appends lines to a file.

    A line that cannot be written is lost and counted; the first of several in a row is said. What
    was written of it is taken back, so that a file has no torn line but by a crash.

    Parameters
    ----------
    path : pathlib.Path
        Appended to if it exists; a pipe must have a reader.
    say : callable
        Told, by the thread, what is wrong, one line.

    Raises
    ------
    MetricsError
        If the file cannot be opened for writing.
    """

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            self._file = os.open(path, flags, 0o666)
        except OSError as error:
            raise MetricsError(
                f"metrics file {path} cannot be written: {error.strerror}"
            ) from error
        self._path = path
        self._say = say
        self._lost = 0
        self._failing = False
        self._regular = stat.S_ISREG(os.fstat(self._file).st_mode)
        self._torn = self._regular and _ends_torn(path)
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="libsumtree-metrics", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> int:
        """How many lines were not written."""
        return self._lost

    def put(self, line: bytes) -> None:
        """Hand over one line, newline included; never waits."""
        if self._lines.qsize() >= _MOST_WAITING:
            self._lost += 1
        else:
            self._lines.put(line)

    def close(self, seconds: float) -> bool:
        """Have what was handed over written; return whether that took at most so many seconds."""
        self._lines.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self._write(line)
                self._failing = False
            except OSError as error:
                self._lost += 1
                if not self._failing:
                    self._failing = True
                    self._say(
                        f"METRICS LOST, serving on without: {self._path} cannot be written: "
                        f"{error.strerror}"
                    )
        os.close(self._file)

    def _write(self, line: bytes) -> None:
        size = os.fstat(self._file).st_size
        rest = memoryview(b"\n" + line if self._torn else line)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            self._take_back(size)
            raise
        self._torn = False

    def _take_back(self, size: int) -> None:
        """Cut off what was written of a line; if that cannot be, the next line begins anew."""
        self._torn = not self._regular
        if self._regular:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, size)
                return
            self._torn = True


def _ends_torn(path: Path) -> bool:
    """Whether the last byte of a file is there and no newline: whoever wrote it was killed."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    return False
