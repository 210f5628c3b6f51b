"""What each process of a run runs: ``python -m libsumtree.bench.intake.process FOLDER [PLACE]``.

Without a place, it is the rank of an MPI job.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from .board import Board, Phase
from .clients import act, learn
from .records import Held
from .task import LEARNER, SERVER, Task, board_of

HELD = "held.json"
REQUESTS = "requests.npz"
LIBRARY = "library"


def main(arguments: list[str]) -> None:
    """Play one part in a run."""
    folder = Path(arguments[0])
    task = Task.read(folder)
    stack = import_module(task.stack)
    place = int(arguments[1]) if len(arguments) > 1 else stack.rank(task.places)
    with task.ended_with_starter(), Board(board_of(folder)) as board:
        if place == SERVER:
            held: Held = stack.serve(task, board)
            (folder / HELD).write_text(json.dumps(asdict(held)))
            (folder / LIBRARY).write_text(stack.library())
        else:
            _be_client(stack, task, board, place, folder)


def _be_client(stack: Any, task: Task, board: Board, place: int, folder: Path) -> None:
    board.wait(lambda: board.pid(SERVER) != 0)
    if place == LEARNER:
        learner = stack.make_learner(task, board)
        board.come(place, os.getpid())
        found = learn(learner, task, board)
        np.savez(folder / REQUESTS, allow_pickle=False, **found)
        client = learner
    else:
        actor = stack.make_actor(task, board, place)
        board.come(place, os.getpid())
        act(actor, task, board, place)
        client = actor
    board.finish(place)
    board.wait(lambda: board.phase >= Phase.END)
    client.close()


if __name__ == "__main__":
    main(sys.argv[1:])
