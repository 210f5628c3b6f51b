"""Runs of the stacks by turns: what a cell measured, and whether nothing was lost."""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arguments import Doubles
from ...errors import BenchmarkError
from . import launch
from .board import Phase
from .process import HELD, REQUESTS
from .records import BATCH, Held, expected
from .stacks import Stack
from .task import FIRST_ACTOR, LEARNER, Task

WARM_SECONDS = 0.3
_PATIENCE_SECONDS = 90
_CHECKED_BATCHES = 3


@dataclass(frozen=True)
class Window:
    """What happened between two looks at a run.

    Attributes
    ----------
    rate : float
        Transitions acknowledged, per second.
    processor : float
        Processor seconds of the server for one transition; nan where there was none.
    """

    rate: float
    processor: float


@dataclass(frozen=True)
class Measured:
    """What one run found.

    Attributes
    ----------
    alone, learning : Window
        While the learner rested, and while it drew and updated.
    requests : ndarray of float64
        Seconds of the requests that fell into the second window.
    """

    alone: Window
    learning: Window
    requests: Doubles


def measure(stack: Stack, record: str, actors: int, seconds: float) -> Measured:
    """Have actors add for some seconds, then for as long beside a learner.

    Raises
    ------
    BenchmarkError
        If a process fails, or the server does not hold what was sent.
    """
    with _folder() as folder, launch.run(stack, _task(stack, record, actors), folder) as run:
        run.board.set_phase(Phase.FLOOD)
        run.rest(WARM_SECONDS)
        alone, _ = _window(run, seconds)
        run.board.set_phase(Phase.LEARN)
        run.rest(WARM_SECONDS)
        learning, (begin, end) = _window(run, seconds)
        held = _end(run)
        requests = _requests(folder)
        sent = sum(_counts(run))
        if (held.inserted, held.size) != (sent, min(sent, run.task.kind.capacity)):
            raise BenchmarkError(
                f"{stack.title}: {sent} transitions were sent and acknowledged, but the server "
                f"took {held.inserted} and holds {held.size}"
            )
    begins, times = requests["begins"], requests["seconds"]
    inside = (begins >= begin) & (begins + times <= end)
    return Measured(alone, learning, times[inside])


def check(stack: Stack, record: str, actors: int = 2, batches: int = _CHECKED_BATCHES) -> Held:
    """Send numbered batches; the server must hold each of them, bit for bit, and their total.

    Raises
    ------
    BenchmarkError
        If a process fails, or the server does not hold what was sent.
    """
    task = _task(stack, record, actors, batches)
    with _folder() as folder, launch.run(stack, task, folder) as run:
        run.board.set_phase(Phase.FLOOD)
        places = range(FIRST_ACTOR, task.places)
        run.wait(lambda: all(run.board.finished(place) for place in places), "actors not done")
        run.board.set_phase(Phase.LEARN)
        run.wait(lambda: run.board.finished(LEARNER), "learner not done")
        held = _end(run)
        drawn = _requests(folder)["drawn"]
    right = expected(task.kind, actors, batches, drawn)
    if held != right:
        raise BenchmarkError(f"{stack.title}: the server holds {held} where {right} was sent")
    return held


def _task(stack: Stack, record: str, actors: int, batches: int = 0) -> Task:
    address = f"libsumtree-{uuid.uuid4().hex}"
    return Task(stack.module, record, actors, batches, _PATIENCE_SECONDS, address)


def _folder() -> Any:
    made = tempfile.TemporaryDirectory(prefix="libsumtree-intake-")
    return _Folder(made)


class _Folder:
    """A temporary folder as a path."""

    def __init__(self, made: tempfile.TemporaryDirectory[str]) -> None:
        self._made = made

    def __enter__(self) -> Path:
        return Path(self._made.name)

    def __exit__(self, *_: object) -> None:
        self._made.cleanup()


def _window(run: launch.Run, seconds: float) -> tuple[Window, tuple[float, float]]:
    begin, count, processor = _look(run)
    run.rest(seconds)
    end, count_after, processor_after = _look(run)
    passed = count_after - count
    used = processor_after - processor
    window = Window(passed / (end - begin), used / passed if passed else float("nan"))
    return window, (begin, end)


def _look(run: launch.Run) -> tuple[float, int, float]:
    return time.perf_counter(), sum(_counts(run)), run.processor_seconds()


def _counts(run: launch.Run) -> Sequence[int]:
    return [run.board.counted(place) for place in range(FIRST_ACTOR, run.task.places)]


def _end(run: launch.Run) -> Held:
    run.board.set_phase(Phase.END)
    clients = range(LEARNER, run.task.places)
    run.wait(lambda: all(run.board.finished(place) for place in clients), "clients not done")
    run.board.set_phase(Phase.OVER)
    run.wait_for_end()
    return Held(**json.loads((run.folder / HELD).read_text()))


def _requests(folder: Path) -> dict[str, NDArray[Any]]:
    with np.load(folder / REQUESTS, allow_pickle=False) as stored:
        return dict(stored)


__all__ = ["BATCH", "Measured", "Window", "check", "measure"]
