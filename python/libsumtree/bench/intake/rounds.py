"""Runs of the stacks by turns: what a cell measured, and whether nothing was lost."""

from __future__ import annotations

import json
import os
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
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
    seconds : float
    transitions, requests : int
        How many were acknowledged, and answered.
    processor : float
        Processor seconds of the server.
    times : ndarray of float64
        Seconds of the requests that both began and ended in the window.
    """

    seconds: float
    transitions: int
    requests: int
    processor: float
    times: Doubles

    @property
    def rate(self) -> float:
        """Transitions per second."""
        return self.transitions / self.seconds

    @property
    def a_transition(self) -> float:
        """Processor seconds of the server for one transition."""
        return self.processor / self.transitions

    @property
    def a_request(self) -> float:
        """Processor seconds of the server for one request and its update."""
        return self.processor / self.requests


@dataclass(frozen=True)
class Measured:
    """What one run found.

    Attributes
    ----------
    adding, both, asking : Window
        While the actors added, while beside them the learner drew and updated, and while it did so
        alone.
    """

    adding: Window
    both: Window
    asking: Window


@dataclass(frozen=True)
class _Look:
    begin: float
    transitions: int
    requests: int
    processor: float


def measure(stack: Stack, record: str, actors: int, seconds: float) -> Measured:
    """Have actors add for some seconds, then for as long beside a learner, which goes on alone.

    Raises
    ------
    BenchmarkError
        If a process fails, or the server does not hold what was sent.
    """
    with _folder() as folder, launch.run(stack, make_task(stack, record, actors), folder) as run:
        looks = []
        for phase in (Phase.FLOOD, Phase.LEARN, Phase.REST):
            run.board.set_phase(phase)
            if phase is Phase.REST:
                _wait_for_actors(run)
            run.rest(WARM_SECONDS)
            looks.append(_watch(run, seconds, phase))
        held = _end(run)
        requests = _requests(folder)
        sent = sum(_counts(run))
        if (held.inserted, held.size) != (sent, min(sent, run.task.kind.capacity)):
            raise BenchmarkError(
                f"{stack.title}: {sent} transitions were sent and acknowledged, but the server "
                f"took {held.inserted} and holds {held.size}"
            )
    return Measured(*(_between(*pair, requests) for pair in looks))


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
        _wait_for_actors(run)
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
    return Task(stack.module, record, actors, batches, os.getpid(), _PATIENCE_SECONDS, address)


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="libsumtree-intake-") as name:
        yield Path(name)


def _watch(run: launch.Run, seconds: float, phase: Phase) -> tuple[_Look, _Look]:
    """Look twice, after so many seconds and some progress: a batch, and two requests."""
    before = _look(run)
    run.rest(seconds)
    if phase < Phase.REST:
        run.wait(lambda: sum(_counts(run)) > before.transitions, "no transitions")
    if phase > Phase.FLOOD:
        enough = before.requests + _REQUESTS
        run.wait(lambda: run.board.counted(LEARNER) >= enough, "no requests")
    return before, _look(run)


def _look(run: launch.Run) -> _Look:
    requests = run.board.counted(LEARNER)
    return _Look(time.perf_counter(), sum(_counts(run)), requests, run.processor_seconds())


def _between(before: _Look, after: _Look, requests: Mapping[str, NDArray[Any]]) -> Window:
    begins, times = requests["begins"], requests["seconds"]
    inside = (begins >= before.begin) & (begins + times <= after.begin)
    return Window(
        after.begin - before.begin,
        after.transitions - before.transitions,
        after.requests - before.requests,
        after.processor - before.processor,
        times[inside],
    )


def _wait_for_actors(run: launch.Run) -> None:
    places = range(FIRST_ACTOR, run.task.places)
    run.wait(lambda: all(run.board.finished(place) for place in places), "actors not done")


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
