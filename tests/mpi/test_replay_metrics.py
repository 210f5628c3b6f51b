"""What a replay rank writes about itself is what happened, and never stands in its way."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from launch import Jobs
from libsumtree.metrics import read_metrics, shard_path, summarize
from ring import RECORD, sharding
from test_replay_endings import CLI, assert_refused, beside


def test_metrics_are_what_happened(jobs: Jobs, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"schema": 1, "eve')  # whoever wrote this was killed
    settings = {"capacity": 1000, "metrics": path, "metrics_interval": 0.02}
    settings |= {"status_interval": 0.05}
    # The broken line, then the start and eight intervals, of which the status line takes some.
    jobs.options = {"METRICS": str(path), "LINES_OF_METRICS": "10"}
    job = jobs.run("waiting_counts", "waiting_adds_and_counts", **settings)
    text = path.read_text().split("\n", 1)[1]
    whole = tmp_path / "whole.jsonl"
    whole.write_text(text)
    lines, torn = read_metrics(whole)
    assert torn == 0
    assert [line["event"] for line in lines] == ["start", *["interval"] * (len(lines) - 2), "end"]
    assert len(lines) >= 10
    last, summary = lines[-1], summarize(lines)
    assert summary.reason == job.summary["reason"] == "the learner on rank 1 asked for it"
    counts = last["counts"]
    assert counts["batches"] == 100
    assert counts["added"] == job.summary["inserted"] == 5000
    assert counts["sampled"] == job.summary["sampled"] == 30 * 32
    assert (counts["updates"], counts["updated"]) == (31, 30 * 32 + 2)
    assert counts["stale"] == job.summary["stale"] == 2
    assert counts["rejected"] == 1
    assert last["rejected"] == {"id": 1}
    assert counts["lost_lines"] == 0
    assert last["buffer"]["size"] == 1000
    assert counts["bytes_in"] > 5000 * RECORD.itemsize + 5000 * 8
    assert counts["bytes_out"] > 30 * 32 * (RECORD.itemsize + 24)
    # Whatever was asked was answered, the update that was refused included.
    answered = {name: fields["count"] for name, fields in summary.latency.items()}
    assert answered == {"add": 100, "sample": 30, "update": 32}
    assert job.json("times.json") == {"sample": 30, "update": 32}
    added = sum(line["rates"]["added"] * line["seconds"] for line in lines)
    assert round(added) == 5000
    assert max(line["credits"]["learners"] for line in lines) == 1
    assert 2**20 < last["process"]["rss"] < 2**40
    assert "1,000 of 1,000 held" in job.err


def test_full_disk_is_said_once_and_service_goes_on(jobs: Jobs) -> None:
    settings = {"capacity": 1000, "metrics": "/dev/full", "metrics_interval": 0.02}
    job = jobs.run("waiting_counts", "waiting_adds_and_counts", **settings)
    assert job.summary["inserted"] == 5000
    lost = [line for line in job.err.splitlines() if "METRICS LOST, serving on without" in line]
    assert len(lost) == 1
    assert "No space left on device" in lost[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--metrics /nowhere/m.jsonl", "metrics file /nowhere/m.jsonl cannot be written: No such"),
        ("--metrics .", "metrics file . cannot be written: Is a directory"),
        ("--metrics-interval 5", "--metrics-interval has no meaning without --metrics"),
        ("--metrics m --metrics-interval 0", "metrics_interval is 0"),
        ("--status-interval -1", "status_interval is -1"),
    ],
)
def test_metrics_that_cannot_be_are_one_line(jobs: Jobs, options: str, message: str) -> None:
    serve = [*CLI, "--capacity", "64", "--ranks", "2", *options.split()]
    assert_refused(jobs.command(1, [sys.executable, *serve, *beside(1)]), message)


def test_command_line_says_that_the_last_checkpoint_is_lost(jobs: Jobs, tmp_path: Path) -> None:
    """Status 2, after all that was said before; the metrics are there all the same."""
    files = tmp_path / "files"
    jobs.options["LOST_FOLDER"] = str(files)
    serve = [*CLI, "--capacity", "64", "--ranks", "2", "--checkpoint-dir", str(files)]
    serve += ["--metrics", str(tmp_path / "m.jsonl")]
    role = ["waiting_loses_folder"]
    job = jobs.command(1, [sys.executable, *serve, *beside(1), *role])
    assert job.end() == 2
    assert "libsumtree: error: the last checkpoint was not written" in job.err
    assert "transitions: 30 added, 30 held" in job.out
    lines, _ = read_metrics(tmp_path / "m.jsonl")
    assert lines[-1]["event"] == "end"
    assert lines[-1]["checkpoints"]["failures"] >= 1


def test_every_shard_has_a_file_of_its_own(jobs: Jobs, tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    settings = {"capacity": sharding.CAPACITY, "seed": 5, "metrics": path}
    job = jobs.run_shards(2, "fills_blocks", "draws_blocks", **settings)
    assert sorted(file.name for file in tmp_path.glob("m*")) == [
        "m.shard0.jsonl",
        "m.shard1.jsonl",
    ]
    for shard in range(2):
        lines, torn = read_metrics(shard_path(path, shard))
        assert torn == 0
        assert [line["event"] for line in (lines[0], lines[-1])] == ["start", "end"]
        assert {line["rank"] for line in lines} == {shard}
        counts, told = lines[-1]["counts"], job.json(f"summary.{shard}.json")
        assert counts["added"] == told["inserted"] == sharding.CAPACITY // 2
        assert counts["sampled"] == told["sampled"] > 0
        answered = summarize(lines).latency["sample"]["count"]
        assert answered == counts["requests"] > 0
