"""A run that saves while it goes on, one step after another: each is a function of its number.

As a program, it forks such a run for every line that it reads, so that hundreds can be killed
without hundreds of interpreters being started.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import mpi4py
import numpy as np

mpi4py.rc.initialize = False  # nothing here speaks MPI, and children are forked

import libsumtree as st  # noqa: E402
from libsumtree.replay.checkpoints import CheckpointFolder, Progress  # noqa: E402

RECORD = np.dtype([("observation", "<f4", (4,)), ("action", "<i8"), ("label", "U3")])
CAPACITY = 20_000
FULL_EVERY = 4
KEEP = 2
MOST_STEPS = 200  # of one save: more would change so much that every file is full


def new_buffer() -> st.PrioritizedReplayBuffer:
    return st.PrioritizedReplayBuffer(
        CAPACITY, RECORD, seed=7, beta=st.BetaSchedule(0.4, 1.0, 5000)
    )


def step(buffer: st.PrioritizedReplayBuffer, number: int) -> Any:
    """Add, draw and update as step `number` does; return what was drawn."""
    count = number * 37 % 30
    rows = np.zeros(count, RECORD)
    rows["observation"] = number
    rows["action"] = np.arange(count)
    rows["label"] = str(number % 1000)
    buffer.add(rows, None if number % 5 == 0 else 0.5 + np.arange(count) % 11)
    if number == 0:
        buffer.add(np.zeros(CAPACITY + 3, RECORD), 1.0)
    if number % 997 == 996:
        buffer.clear()
        buffer.add(np.zeros(100, RECORD))
    drawn = buffer.sample(32)
    buffer.update_priorities(drawn.ids, (number + np.arange(32)) % 13)
    return drawn


def run(folder_name: str, log_name: str) -> None:
    """Go on from the newest checkpoint for ever, saving all the time; log what is on disk."""
    log = os.open(log_name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    folder = CheckpointFolder(Path(folder_name), KEEP, FULL_EVERY)
    restored = folder.newest("cpu")
    buffer = new_buffer() if restored is None else restored.buffer
    learner = None if restored is None else restored.progress.learner
    number = 0 if learner is None else int(learner["step"])
    while True:
        saving = folder.begin(buffer, Progress(learner={"step": np.array(number)}))
        os.write(log, b"begun\n")
        saved = number
        while not saving.done:
            if number < saved + MOST_STEPS:
                step(buffer, number)
                number += 1
            else:
                time.sleep(0.0005)
        folder.finish(saving)
        os.write(log, b"saved %d\n" % saved)
        step(buffer, number)
        number += 1


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            run(*line.split())
        print(child, flush=True)


if __name__ == "__main__":
    main()
