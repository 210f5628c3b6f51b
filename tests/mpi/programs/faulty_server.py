"""A stack of the benchmark whose server has the fault that the variable FAULT names."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from libsumtree.bench.intake import zmq_raw
from libsumtree.bench.intake.board import Board
from libsumtree.bench.intake.records import Held
from libsumtree.bench.intake.task import Task
from libsumtree.bench.intake.zmq_raw import library, make_actor, make_learner

__all__ = ["library", "make_actor", "make_learner", "serve"]


class Faulty:
    """A buffer that takes the fourth batch otherwise than it came."""

    def __init__(self, buffer: Any) -> None:
        self._buffer = buffer
        self._batches = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._buffer, name)

    def __len__(self) -> int:
        return len(self._buffer)

    def __getitem__(self, ids: Any) -> Any:
        return self._buffer[ids]

    def append_packed(self, message: Any, offset: int, count: int) -> bool:
        """Leave every batch to `add`."""
        return False

    def add(self, rows: Any, priorities: Any) -> None:
        self._batches += 1
        if self._batches == 4:
            rows, priorities = FAULTS[os.environ["FAULT"]](rows.copy(), priorities.copy())
        self._buffer.add(rows, priorities)


def lose(rows: Any, priorities: Any) -> Any:
    return rows[:-1], priorities[:-1]


def tear(rows: Any, priorities: Any) -> Any:
    rows["next_observation"][7, -1] += 1
    return rows, priorities


def mix(rows: Any, priorities: Any) -> Any:
    return rows, np.roll(priorities, 1)


def fail(rows: Any, priorities: Any) -> Any:
    raise ZeroDivisionError("it broke")


FAULTS = {"lose": lose, "tear": tear, "mix": mix, "fail": fail}


def serve(task: Task, board: Board) -> Held:
    class FaultyTask(Task):
        def make_buffer(self) -> Any:
            return Faulty(super().make_buffer())

    return zmq_raw.serve(FaultyTask(**vars(task)), board)
