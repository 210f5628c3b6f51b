"""The memory in which the processes of a run see its phase, and say how far they are."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Self

_WIDTH = 16
_EXTRAS = 8
_LOOK_SECONDS = 0.002


class Phase(IntEnum):
    """What the processes of a run are to do; it only ever goes up."""

    START = 0
    FLOOD = 1
    """Actors add as fast as they can."""
    LEARN = 2
    """Besides, the learner draws and updates."""
    REST = 3
    """Actors finish what they have begun; the learner goes on."""
    END = 4
    """The learner, too, finishes what it has begun, and all clients leave."""
    OVER = 5
    """The server has everything, and ends."""


class Board:
    """Whole numbers in a file that all processes of a run map.

    Each number has one writer: the phase that who started the run, everything else the process in
    whose place it stands. Place 0 is the server, 1 the learner, the others are actors.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._words = memoryview(self._map).cast("q")

    @classmethod
    def make(cls, path: Path, processes: int) -> Self:
        """Make the file, and map it."""
        path.write_bytes(bytes(8 * _WIDTH * (processes + 1)))
        return cls(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._words.release()
        self._map.close()

    @property
    def phase(self) -> int:
        """The `Phase`."""
        return self._words[0]

    def set_phase(self, phase: Phase) -> None:
        """Begin another phase."""
        self._words[0] = phase

    def come(self, place: int, pid: int) -> None:
        """Say that a process is there and connected."""
        self._words[_WIDTH * (place + 1)] = pid

    def pid(self, place: int) -> int:
        """Give the process in a place; 0 before it is there."""
        return self._words[_WIDTH * (place + 1)]

    def count(self, place: int, done: int) -> None:
        """Say how many transitions of an actor were acknowledged, or requests of the learner."""
        self._words[_WIDTH * (place + 1) + 1] = done

    def counted(self, place: int) -> int:
        """Give what a process has counted."""
        return self._words[_WIDTH * (place + 1) + 1]

    def finish(self, place: int) -> None:
        """Say that a process has nothing in flight any more."""
        self._words[_WIDTH * (place + 1) + 2] = 1

    def finished(self, place: int) -> bool:
        """Whether a process has nothing in flight any more."""
        return self._words[_WIDTH * (place + 1) + 2] == 1

    def say(self, place: int, what: int, number: int) -> None:
        """Leave a number for others, not 0: process or port."""
        self._words[_WIDTH * (place + 1) + _EXTRAS + what] = number

    def said(self, place: int, what: int) -> int:
        """Give a number that was left; 0 if none was."""
        return self._words[_WIDTH * (place + 1) + _EXTRAS + what]

    def wait(self, ready: Callable[[], bool]) -> None:
        """Look again and again; who started the run ends a wait in vain."""
        while not ready():
            time.sleep(_LOOK_SECONDS)
