"""Two ranks of an MPI job, a replay rank and an actor: the checkpoint holds what was added.

mpiexec -n 2 python -m mpi4py two_ranks.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from mpi4py import MPI

from libsumtree import PrioritizedReplayBuffer
from libsumtree.cli import main
from libsumtree.replay import ActorClient

RECORD = np.dtype([("observation", "f4", (4,)), ("action", "i8")])
ROWS = 1000


def serve(folder: str) -> None:
    """Be the replay rank until the actor has left, then read the checkpoint."""
    command = ["replay", "--capacity", str(ROWS), "--ranks", "2", "--checkpoint-dir", folder]
    status = main(command)
    assert status == 0, f"libsumtree replay ended with status {status}"
    (checkpoint,) = Path(folder).glob("replay-*.h5")
    buffer = PrioritizedReplayBuffer.load(checkpoint)
    assert len(buffer) == ROWS, f"{len(buffer)} of {ROWS} transitions arrived"
    assert buffer.sample(32).indices.max() < ROWS
    print(f"2 ranks: {len(buffer)} transitions arrived and were saved")


def act() -> None:
    """Add transitions, and leave once all have been acknowledged."""
    records = np.zeros(ROWS // 10, RECORD)
    with ActorClient(MPI.COMM_WORLD, RECORD) as actor:
        for step in range(10):
            records["action"] = step
            actor.add(records, np.arange(1.0, len(records) + 1))
        while actor.unacknowledged:
            actor.poll()


assert MPI.COMM_WORLD.size == 2, f"start this with 2 ranks, not {MPI.COMM_WORLD.size}"
if MPI.COMM_WORLD.rank == 0:
    with tempfile.TemporaryDirectory() as folder:
        serve(folder)
else:
    act()
