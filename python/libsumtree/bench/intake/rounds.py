"""Runs of the stacks by turns: what a cell measured, and whether nothing was lost."""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arguments import Doubles
from ...errors import BenchmarkError
from . import launch
from .board import Phase
from .process import HELD, LIBRARY, REQUESTS
from .records import Held, expected
from .stacks import Stack
from .task import FIRST_ACTOR, LEARNER, Task

WARM_SECONDS = 0.3
_PATIENCE_SECONDS = 90
_CHECKED_BATCHES = 3
_REQUESTS = 2  # at least one of them has begun and ended in the window


@dataclass(frozen=True)
class Window:
    """What happened between two looks at a run.

    Attributes
    ----------
    rate : float
        Transitions acknowledged, per second.
    processor : float
        Processor seconds of the server for one transition.
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
    with _folder() as folder, launch.run(stack, make_task(stack, record, actors), folder) as run:
        run.board.set_phase(Phase.FLOOD)
        run.rest(WARM_SECONDS)
        alone, _ = _window(run, seconds, 0)
        run.board.set_phase(Phase.LEARN)
        run.rest(WARM_SECONDS)
        learning, (begin, end) = _window(run, seconds, _REQUESTS)
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


def check(stack: Stack, record: str, actors: int = 2, batches: int = _CHECKED_BATCHES) -> str:
    """Send numbered batches; the server must hold each of them, bit for bit, and their total.

    Returns
    -------
    str
        What carried them: library and version.

    Raises
    ------
    BenchmarkError
        If a process fails, or the server does not hold what was sent.
    """
    task = make_task(stack, record, actors, batches)
    with _folder() as folder, launch.run(stack, task, folder) as run:
        run.board.set_phase(Phase.FLOOD)
        places = range(FIRST_ACTOR, task.places)
        run.wait(lambda: all(run.board.finished(place) for place in places), "actors not done")
        run.board.set_phase(Phase.LEARN)
        run.wait(lambda: run.board.finished(LEARNER), "learner not done")
        held = _end(run)
        drawn = _requests(folder)["drawn"]
        library = (folder / LIBRARY).read_text()
    right = expected(task.kind, actors, batches, drawn)
    if held != right:
        raise BenchmarkError(f"{stack.title}: the server holds {held} where {right} was sent")
    return library


def make_task(stack: Stack, record: str, actors: int, batches: int = 0) -> Task:
    """Make the task of a run, with an address of its own."""
    address = f"libsumtree-{uuid.uuid4().hex}"
    return Task(stack.module, record, actors, batches, _PATIENCE_SECONDS, address)


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="libsumtree-intake-") as name:
        yield Path(name)


def _window(run: launch.Run, seconds: float, requests: int) -> tuple[Window, tuple[float, float]]:
    """Look twice, after so many seconds and some progress: a batch, and so many requests."""
    board = run.board
    drawn = board.counted(LEARNER) + requests
    begin, count, processor = _look(run)
    run.rest(seconds)
    run.wait(lambda: sum(_counts(run)) > count, "no transitions")
    run.wait(lambda: board.counted(LEARNER) >= drawn, "no requests")
    end, count_after, processor_after = _look(run)
    passed = count_after - count
    used = processor_after - processor
    return Window(passed / (end - begin), used / passed), (begin, end)


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
