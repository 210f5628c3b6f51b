"""Frames stored once, through the service: what is drawn is what the naive buffer would draw."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from launch import PROGRAMS, Jobs
from libsumtree import PrioritizedReplayBuffer
from ring import assert_same, held

sys.path.insert(0, str(PROGRAMS.parents[1] / "python"))
from framing import naive_priorities

sys.path.insert(0, str(PROGRAMS))
from filming import LAYOUT, ROUNDS, stream


def played(capacity: int, actors: int = 2) -> tuple[PrioritizedReplayBuffer, dict[str, np.ndarray]]:
    """Do in one process, with a buffer that stores every stack, what the job does."""
    naive = PrioritizedReplayBuffer(capacity, LAYOUT.stacked, seed=5)
    streams, drawn = [stream(actor) for actor in range(actors)], {}
    stale = 0
    for round_, steps in enumerate(ROUNDS):
        for one in streams:
            for batch, rows in one.play(steps):
                naive.add(rows, naive_priorities(naive, batch))
        if round_ >= 2:
            sample = naive.sample(16)
            for name in ("ids", "indices", "weights", "transitions"):
                drawn[f"{name}.{round_}"] = getattr(sample, name)
            stale += naive.update_priorities(sample.ids, 1.0 + np.arange(16))
    return naive, {**drawn, "stale": np.asarray(stale)}


# 60 wraps within batches; 15 is shorter than a batch; 1000 holds them all.
@pytest.mark.parametrize("capacity", [15, 60, 1000])
def test_two_actors_and_a_learner(jobs: Jobs, tmp_path: Path, capacity: int) -> None:
    roles = ("films_in_turn", "films_in_turn", "films_are_drawn")
    settings = {"capacity": capacity, "seed": 5, "record": False}
    job = jobs.run(*roles, checkpoint_dir=tmp_path / "files", **settings)
    naive, expected = played(capacity)
    assert_same(job.arrays("drawn.npz"), expected)
    assert job.summary["rejected"] == {}
    saved = PrioritizedReplayBuffer.load(max((tmp_path / "files").glob("*.h5")))
    assert saved.footprint().records == min(capacity + 3, saved.inserted)
    first, second = saved.sample(64), naive.sample(64)
    for name in ("ids", "indices", "weights", "transitions"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes(), name


def test_frames_that_are_not_there_are_refused(jobs: Jobs) -> None:
    job = jobs.run("films_that_lie", capacity=500, seed=1, record=False)
    for where in ("here", "there"):
        assert "ends 3 records further" in (job.folder / where).read_text(), where
    assert job.summary["rejected"] == {"1": 1}
    mine, good = stream(0), PrioritizedReplayBuffer(500, LAYOUT.record, seed=1)
    first, _, last = mine.play(61)
    good.add(*first[0])
    good.add(*last[0])
    assert_same(job.arrays("buffer.npz"), held(good))
