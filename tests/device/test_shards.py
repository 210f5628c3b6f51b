"""Shards on GPUs, each on one of its own if there are enough: the draws of one buffer on cpu."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from libsumtree.backends import open_backend

sys.path.insert(0, str(Path(__file__).parents[1] / "mpi"))

from launch import Jobs
from test_replay_shards import CAPACITY, assert_draws_as_one_big_buffer


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_shards_draw_as_one_big_buffer(tmp_path: Path, shards: int) -> None:
    jobs = Jobs(tmp_path)
    job = jobs.run_shards(
        shards, "fills_blocks", "draws_blocks", capacity=CAPACITY, seed=5, backend="gpu"
    )
    assert_draws_as_one_big_buffer(job, shards)
    summaries = [job.json(f"summary.{shard}.json") for shard in range(shards)]
    assert [summary["backend"] for summary in summaries] == ["gpu"] * shards
    devices = open_backend("gpu").device_count
    assert [summary["device"] for summary in summaries] == [s % devices for s in range(shards)]
