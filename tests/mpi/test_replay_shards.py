"""Several replay ranks are one buffer: the same draws, one state, one end."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator, Philox, SeedSequence

from launch import PROGRAMS, Job, Jobs
from libsumtree import PrioritizedReplayBuffer, checkpoint
from libsumtree.checkpoint import read_manifest
from ring import RECORD, assert_same, batch, held, sharding

CAPACITY, SIZE, DRAWS = sharding.CAPACITY, sharding.SIZE, sharding.DRAWS


def one_big_buffer(holes: bool = True, **options: Any) -> PrioritizedReplayBuffer:
    buffer = PrioritizedReplayBuffer(CAPACITY, RECORD, **options)
    records, priorities = batch(0, CAPACITY)
    if holes:
        priorities[::5] = 0.0
    buffer.add(records, priorities)
    return buffer


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_shards_draw_as_one_big_buffer(jobs: Jobs, shards: int) -> None:
    """Draws with updates in between, and 10**6 of them against the masses by chi-square."""
    job = jobs.run_shards(shards, "fills_blocks", "draws_blocks", capacity=CAPACITY, seed=5)
    assert_draws_as_one_big_buffer(job, shards)


def assert_draws_as_one_big_buffer(job: Job, shards: int) -> None:
    drawn = job.arrays("drawn.npz")
    buffer = one_big_buffer(seed=5)
    for step in range(DRAWS):
        for n, beta in ((7, 1.0), (SIZE, None)):
            if n == 7 and step % 3 != 2:
                continue
            sample, name = buffer.sample(n, beta), f"{step}.{n}"
            assert drawn[f"total.{name}"] == buffer.tree.total
            for field in ("indices", "transitions"):
                assert drawn[f"{field}.{name}"].tobytes() == getattr(sample, field).tobytes()
            np.testing.assert_array_max_ulp(drawn[f"weights.{name}"], sample.weights, 4)
        if step % 2:
            buffer.update_priorities(sample.ids, sharding.new_priorities(step))
    assert drawn["status.min"] == buffer.tree.min
    assert drawn["status.max"] == buffer.tree.max
    assert_as_likely(drawn["counts"], buffer.tree[:] / buffer.tree.total)
    assert sum(job.json(f"summary.{s}.json")["sampled"] for s in range(shards)) == (
        16 * 62_500 + DRAWS * SIZE + 2 * 7
    )


def assert_as_likely(counts: np.ndarray[Any, Any], shares: np.ndarray[Any, Any]) -> None:
    """Chi-square at 1e-6, by Wilson and Hilferty; what has no mass was never drawn."""
    possible = shares > 0.0
    assert counts[~possible].sum() == 0
    expected = counts.sum() * shares[possible]
    statistic = float(((counts[possible] - expected) ** 2 / expected).sum())
    freedom = int(possible.sum()) - 1
    spread = 2.0 / (9.0 * freedom)
    assert statistic < freedom * (1.0 - spread + 4.75 * spread**0.5) ** 3


def test_edges(jobs: Jobs) -> None:
    """Nothing there, no mass, an empty shard, all mass in one, the default across shards."""
    job = jobs.run_shards(
        2, "fills_the_edges", "draws_the_edges", capacity=CAPACITY, seed=1, alpha=0.5
    )
    assert job.json("summary.0.json")["reason"].startswith("the learner on rank")
    assert [job.json(f"summary.{s}.json")["size"] for s in (0, 1)] == [6, 3]


# ---- several learners ----


def oracle_indices(learner: int, skipped: int, draws: int) -> list[np.ndarray[Any, Any]]:
    """What a learner draws from its own stream, 50 at a time, from one big tree."""
    tree = one_big_buffer(holes=False).tree
    generator = Generator(Philox(SeedSequence(7, spawn_key=(learner,))))
    generator.random(skipped)
    found = []
    for _ in range(draws):
        targets = (np.arange(50) + generator.random(50)) / 50 * tree.total
        found.append(tree.find(np.minimum(targets, np.nextafter(tree.total, 0.0))))
    return found


@pytest.mark.parametrize("shards", [1, 2])
def test_learners_have_streams_of_their_own_that_survive_a_restart(
    jobs: Jobs, tmp_path: Path, shards: int
) -> None:
    settings = {"capacity": CAPACITY, "seed": 7, "checkpoint_dir": tmp_path / "files"}
    roles = "replaces_all", "learns_as_0", "learns_as_1"
    job = jobs.run_shards(shards, *roles, **settings)
    for learner in (0, 1):
        drawn = job.arrays(f"drawn.{learner}.npz")
        for i, indices in enumerate(oracle_indices(learner, 0, 5)):
            np.testing.assert_array_equal(drawn[f"indices.{i}"], indices)
    summaries = [job.json(f"summary.{shard}.json") for shard in range(shards)]
    stale: Counter[str] = Counter()
    for summary in summaries:
        stale.update(summary["stale_of"])
    assert +stale == {str(shards + 2): 50}
    assert all(summary["saved"] for summary in summaries)
    again = jobs.run_shards(shards, "goes_on_as_0", "goes_on_as_1", **settings)
    for learner in (0, 1):
        found = again.arrays(f"on.{learner}.npz")
        np.testing.assert_array_equal(found["indices"], oracle_indices(learner, 250, 1)[0])
        assert found["epoch"] == 1


# ---- checkpoints and endings ----


def manifests(folder: Path) -> list[Path]:
    return sorted(folder.glob("replay-*.manifest"))


@pytest.mark.parametrize("shard", [0, 1])
def test_a_signal_for_any_shard_ends_all_with_one_manifest(
    jobs: Jobs, tmp_path: Path, shard: int
) -> None:
    files = tmp_path / "files"
    job = jobs.start_shards(
        2, "adds_for_ever", "draws_for_ever", capacity=2000, checkpoint_dir=files, grace=30
    )
    job.wait_for("flying.2")
    job.wait_for("drawing")
    job.send(shard, signal.SIGTERM)
    job.succeed()
    summaries = [job.json(f"summary.{s}.json") for s in (0, 1)]
    assert summaries[shard]["reason"] == "SIGTERM came"
    assert summaries[1 - shard]["reason"] == f"shard {shard} is ending: SIGTERM came"
    assert all(s["saved"] and s["silent"] == [] for s in summaries)
    state = read_manifest(manifests(files)[-1])
    assert summaries[0]["last_checkpoint"] == str(state.path)
    added = int((job.folder / "added.2").read_text())
    assert sum(s["inserted"] for s in summaries) == added
    for s, file in enumerate(state.files):
        with checkpoint.read_chain(file) as stored:
            saved = PrioritizedReplayBuffer.from_checkpoint(stored)
        assert_same(held(saved), job.arrays(f"buffer.{s}.npz"))
    with checkpoint.read(state.files[0]) as lead:
        step = int(lead.datasets["learner/step"].read())
    assert step == int((job.folder / "steps").read_text())
    # Spread, but no shard waits for a slower one.
    assert min(s["inserted"] for s in summaries) >= added / 5


def test_a_damaged_file_makes_the_state_before_the_newest(jobs: Jobs, tmp_path: Path) -> None:
    files = tmp_path / "files"
    settings = {"capacity": 256, "seed": 3, "checkpoint_dir": files, "keep": 2, "full_every": 1}
    job = jobs.run_shards(2, "writes_states", clients=2, **settings)
    names = (job.folder / "names").read_text().split()
    assert [path.name for path in manifests(files)] == names[-2:]
    assert len(list(files.glob("shard-*/replay-*.h5"))) == 4
    damaged = files / "shard-0001" / f"{Path(names[-1]).stem}.h5"
    data = bytearray(damaged.read_bytes())
    data[-100] ^= 1
    damaged.write_bytes(data)
    job = jobs.run_shards(2, "looks", **settings)
    assert f"passing over a damaged checkpoint, {names[-1]}: shard 1:" in job.err
    assert job.arrays("looked.npz")["step"] == 1
    assert Path(job.json("summary.0.json")["restored_from"]).name == names[-2]


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
def test_another_number_of_shards_deals_out_what_was_there(
    jobs: Jobs, tmp_path: Path, before: int, after: int
) -> None:
    files = tmp_path / "files"
    settings = {"capacity": 300, "seed": 3, "checkpoint_dir": files}
    fills = "writes_states" if before > 1 else "writes_states_alone"
    first = jobs.run_shards(before, fills, clients=2, **settings)
    total = sum(first.arrays(f"buffer.{s}.npz")["total"] for s in range(before))
    job = jobs.run_shards(after, "looks", **settings)
    assert f"is of {before} shards, and {after} go on from it" in job.err
    looked = job.arrays("looked.npz")
    assert looked["step"] == 2
    assert looked["size"] == looked["inserted"] == 100
    assert looked["total"] == pytest.approx(float(total))
    sizes = [job.json(f"summary.{s}.json")["size"] for s in range(after)]
    assert sizes == ([50, 50] if after == 2 else [100])
    again = jobs.run_shards(after, "looks", **settings)
    assert "go on from it" not in again.err
    assert again.arrays("looked.npz")["size"] == 100


def test_a_shard_that_cannot_write_makes_no_manifest(jobs: Jobs, tmp_path: Path) -> None:
    files = tmp_path / "files"
    jobs.options["LOST_FOLDER"] = str(files)
    job = jobs.run_shards(2, "loses_a_folder", capacity=256, clients=2, checkpoint_dir=files)
    assert len(manifests(files)) == 1
    assert "CHECKPOINT FAILED, serving on without: no manifest 2 was written: shard 1" in job.err
    assert [job.json(f"summary.{s}.json")["saved"] for s in (0, 1)] == [False, False]


def test_a_failing_learner_is_an_end_of_all_shards_with_a_state(jobs: Jobs, tmp_path: Path) -> None:
    files = tmp_path / "files"
    roles = "adds_a_little", "fails_and_says_so"
    job = jobs.run_shards(2, *roles, capacity=256, checkpoint_dir=files)
    summaries = [job.json(f"summary.{s}.json") for s in (0, 1)]
    assert all("the learner on rank 3 failed" in summary["reason"] for summary in summaries)
    assert all(summary["saved"] for summary in summaries)
    assert [summary["size"] for summary in summaries] == [100, 100]
    assert len(read_manifest(manifests(files)[-1]).files) == 2


def test_pacing_over_shards_holds_nobody_up_for_ever(jobs: Jobs) -> None:
    pacing = {"samples_per_insert": 0.5, "actor_credits": 1, "sample_credits": 1}
    job = jobs.run_shards(
        2, "paces", "adds_for_ever", "adds_for_ever", capacity=500, min_size_to_sample=120, **pacing
    )
    paced = job.arrays("paced.npz")
    assert paced["sampled"] == 40 * 64
    # Each shard within one request and one batch of its half, beyond what is held at the start.
    assert abs(0.5 * (paced["inserted"] - 120) - paced["sampled"]) <= 2 * (64 + 2 * 50)


@pytest.mark.parametrize(
    ("own", "text"),
    [
        ({1: {"capacity": 512}}, "shard 1 was asked for capacity 512 where shard 0 was for 256"),
        ({1: {"dtype": None}}, "shard 1 was asked for dtype None where shard 0"),
    ],
)
def test_shards_that_were_asked_for_different_things(
    jobs: Jobs, own: dict[int, dict[str, Any]], text: str
) -> None:
    job = jobs.start_shards(2, "paces", capacity=256, own=own)
    assert job.end() != 0
    assert text in job.err


def test_a_rank_that_is_no_shard(jobs: Jobs) -> None:
    job = jobs.start_shards(1, "expects_two_shards", capacity=256)
    assert job.end() != 0
    assert "ranks 0 .. 1 are replay ranks, and a client is one of those above them" in job.err


def test_command_line_starts_shards(jobs: Jobs) -> None:
    serve = ["-m", "mpi4py", "-m", "libsumtree", "replay", "--capacity", "64", "--shards", "2"]
    program = [":", "-n", "1", sys.executable, "-m", "mpi4py", str(PROGRAMS / "alone.py")]
    job = jobs.command(2, [sys.executable, *serve, "--ranks", "3", *program, "adds_to_two_shards"])
    job.succeed()
    assert "shard 0 of 2 ended after" in job.out
    assert "shard 1 of 2 ended after" in job.out
    assert job.out.count("30 added, 30 held") == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--capacity 64 --shards 2 --ranks 2", "--ranks is 2: 2 replay ranks and their clients"),
        ("--capacity 63 --shards 2 --ranks 3", "capacity is 63, and shards is 2"),
        ("--capacity 64 --shards 0 --ranks 3", "shards is 0: at least 1"),
    ],
)
def test_command_line_that_cannot_start_shards(jobs: Jobs, options: str, message: str) -> None:
    serve = ["-m", "mpi4py", "-m", "libsumtree", "replay", *options.split()]
    job = jobs.command(1, [sys.executable, *serve])
    assert job.end() != 0
    assert message in job.err
