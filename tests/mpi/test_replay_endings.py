"""Signals, kills, failures and restarts: nothing acknowledged is lost, and nothing hangs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from launch import PROGRAMS, Job, Jobs
from libsumtree import PrioritizedReplayBuffer, checkpoint
from ring import assert_same, filled, held

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


def newest(folder: Path) -> Path:
    return max(folder.glob("replay-*.h5"))


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_signal_while_idle_is_a_checkpoint_and_a_clean_end(
    jobs: Jobs, tmp_path: Path, number: signal.Signals
) -> None:
    files = tmp_path / "files"
    settings = {"capacity": 64, "seed": 3, "checkpoint_dir": files}
    job = jobs.start("adds_and_idles", "learner_idles", **settings)
    job.wait_for("idle")
    job.send(0, number)
    job.succeed()
    assert job.summary["reason"] == f"{number.name} came"
    assert job.summary["silent"] == []
    assert job.summary["saved"] is True
    assert job.summary["inserted"] == 8 * 50
    buffer = filled(*((seed, 50) for seed in range(8)), seed=3)
    with checkpoint.read_chain(newest(files)) as stored:
        saved = PrioritizedReplayBuffer.from_checkpoint(stored)
    assert_same(held(saved), held(buffer))
    assert_same(held(saved), job.arrays("buffer.npz"))


def test_signal_before_any_client_has_come(jobs: Jobs, tmp_path: Path) -> None:
    files = tmp_path / "files"
    job = jobs.start("never_comes", capacity=64, checkpoint_dir=files, grace=0.3)
    job.wait_for("ready")
    job.send(0, signal.SIGTERM)
    job.wait_for("summary.json")
    assert not list(files.glob("replay-*"))
    job.succeed()


def test_killed_job_goes_on_from_its_newest_checkpoint(jobs: Jobs, tmp_path: Path) -> None:
    """SIGKILL in mid-run, twice; then masses, ids, draws and learner state are the file's."""
    files = tmp_path / "files"
    settings = {"capacity": 300, "seed": 9, "checkpoint_dir": files, "checkpoint_interval": 0.05}
    steps = [0]
    for _ in range(2):
        job = jobs.start("learns_for_ever", "adds_for_ever", **settings)
        job.wait_for("hundred")
        job.kill()
        assert job.arrays("found.npz").get("step", 0) >= steps[-1]
        steps += [int(path.read_text()) for path in sorted(job.folder.glob("*.step"))]
    assert len(list(files.glob("replay-*.h5"))) <= 8 + 3 + 1
    path = newest(files)
    with checkpoint.read_chain(path) as stored:
        state = {
            "/".join(map(checkpoint.unescape_name, name.split("/")[1:])): data.read()
            for name, data in stored.newest.datasets.items()
            if name.startswith("learner/")
        }
        saved = PrioritizedReplayBuffer.from_checkpoint(stored)
    assert state["step"] >= max(steps) >= 100
    job = jobs.run("learns_a_little", **settings)
    assert Path(job.summary["restored_from"]) == path
    found = job.arrays("found.npz")
    assert found.pop("epoch") == saved.epoch + 1
    assert found.keys() == state.keys()
    for name, value in state.items():
        assert found[name].dtype == value.dtype, name
        assert found[name].tobytes() == value.tobytes(), name
    first, sample = job.arrays("first.npz"), saved.sample(32)
    for name in ("ids", "indices", "transitions"):
        assert first[name].tobytes() == getattr(sample, name).tobytes(), name
    with checkpoint.read_chain(newest(files)) as stored:
        assert stored.newest.datasets["learner/step"].read() == state["step"] + 1
        saved.update_priorities(sample.ids, np.ones(32))
        again = PrioritizedReplayBuffer.from_checkpoint(stored)
    assert_same(held(again), held(saved), but=("epoch", "ids/epochs"))


def test_stop_keeps_all_that_was_acknowledged(jobs: Jobs, tmp_path: Path) -> None:
    """Two actors in full flight when the signal comes: what they added is what the file holds."""
    files = tmp_path / "files"
    job = jobs.start("adds_for_ever", "adds_for_ever", capacity=10**6, checkpoint_dir=files)
    for rank in (1, 2):
        job.wait_for(f"flying.{rank}")
    job.send(0, signal.SIGUSR1)
    job.succeed()
    with checkpoint.read_chain(newest(files)) as stored:
        saved = PrioritizedReplayBuffer.from_checkpoint(stored)
    added = {int(rank): count for rank, count in job.summary["added"].items()}
    assert saved.inserted == sum(added.values()) == job.summary["inserted"]
    arrays = job.arrays("buffer.npz")
    assert_same(arrays, held(saved))
    for rank, count in added.items():
        told = int((job.folder / f"added.{rank}").read_text())
        assert told == count
        own = arrays["transitions"]["action"] // 1000 // 1_000_000 == rank
        assert np.count_nonzero(own) == count


def test_failing_actor_ends_the_job(jobs: Jobs) -> None:
    job = jobs.start("fails", "learner_idles", capacity=64)
    assert job.end(20.0) != 0
    assert "ZeroDivisionError: this actor fails" in job.err
    assert "the actor on rank 1 failed" in job.err


def test_failing_learner_is_an_end_with_a_checkpoint(jobs: Jobs, tmp_path: Path) -> None:
    files = tmp_path / "files"
    job = jobs.run("fails_and_says_so", "idles", capacity=64, checkpoint_dir=files)
    assert job.summary["reason"] == "the learner on rank 1 failed"
    assert job.summary["silent"] == []


def test_client_that_leaves_without_a_word_is_named(jobs: Jobs) -> None:
    job = jobs.run("leaves_without_a_word", "stops_at_barrier", capacity=64, grace=0.3)
    assert job.summary["silent"] == [1]
    assert "the clients on ranks 1 did not leave within 0.3 s" in job.err


@pytest.mark.parametrize("name", ["files", os.fsdecode(b"\xff")], ids=["text", "no text"])
def test_lost_folder_is_told_and_service_goes_on(jobs: Jobs, tmp_path: Path, name: str) -> None:
    """Whatever the folder is called: its name goes to the learner in an answer."""
    files = tmp_path / name
    jobs.options["LOST_FOLDER"] = str(files)
    job = jobs.run("loses_its_folder", capacity=64, checkpoint_dir=files, clients=2)
    assert job.summary["checkpoint_failures"] >= 1
    assert job.summary["saved"] is False
    assert "CHECKPOINT FAILED, serving on without" in job.err


ON_A_SMALL_DISK = 'mount -t tmpfs -o size=2m,mode=700 none "$1" && shift && exec "$@"'


def test_full_disk_is_told_and_service_goes_on(jobs: Jobs, tmp_path: Path) -> None:
    """A real tmpfs of 2 MiB where the kernel lets this user mount one, else a file size limit."""
    files = tmp_path / "files"
    files.mkdir()
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    private = ["unshare", *user, "--mount", "sh", "-c"]
    if subprocess.run([*private, "mount -t tmpfs none /mnt"], capture_output=True).returncode == 0:
        jobs.prefix = [*private, ON_A_SMALL_DISK, "sh", str(files)]
        reason = "No space left on device"
    else:
        jobs.options = {"FILE_SIZE_LIMIT": str(2 << 20)}
        reason = "File too large"
    job = jobs.run("outgrows_its_disk", capacity=100_000, checkpoint_dir=files, clients=2)
    assert job.summary["checkpoint_failures"] >= 1
    assert job.summary["checkpoints"] >= 1
    assert job.summary["saved"] is False
    assert re.search(f"CHECKPOINT FAILED, serving on without: cannot write .*{reason}", job.err)


def test_intake_and_samples_go_on_while_a_file_is_written(jobs: Jobs, tmp_path: Path) -> None:
    """Files are of one instant, however much comes in meanwhile; after a flood they are links."""
    files = tmp_path / "files"
    settings = {"capacity": 30_000, "seed": 5, "checkpoint_dir": files, "keep": 10**6}
    job = jobs.start(
        "draws_till_the_end", "adds_in_order", checkpoint_interval=0.02, full_every=3, **settings
    )
    job.wait_for("written")
    job.send(0, signal.SIGTERM)
    job.succeed()
    links = []
    for path in sorted(files.glob("replay-*.h5")):
        with checkpoint.read_chain(path) as chain:
            links.append(len(chain.links))
            saved = PrioritizedReplayBuffer.from_checkpoint(chain)
        numbers = np.arange(saved.inserted - len(saved), saved.inserted)
        assert (held(saved)["transitions"]["action"] == numbers).all()
    assert len(links) == job.summary["checkpoints"] >= 5
    # Between two of these come three bursts and the credits at most: less than half of the ring.
    assert sorted(links[-3:]) == [1, 2, 3]


def test_damaged_newest_file_is_passed_over(jobs: Jobs, tmp_path: Path) -> None:
    files = tmp_path / "files"
    jobs.run("adds_some", capacity=64, checkpoint_dir=files)
    good = newest(files)
    bad = files / "replay-000000000777.h5"
    bad.write_bytes(good.read_bytes()[:-1] + b"\0")
    job = jobs.run("adds_some", capacity=64, checkpoint_dir=files)
    assert Path(job.summary["restored_from"]) == good
    assert "passing over a damaged checkpoint" in job.err
    assert Path(job.summary["last_checkpoint"]).name == "replay-000000000778.h5"
    assert bad.exists()


def test_resume_never_starts_empty_and_spares_what_is_there(jobs: Jobs, tmp_path: Path) -> None:
    files = tmp_path / "files"
    jobs.run("adds_some", capacity=64, checkpoint_dir=files)
    before = newest(files)
    job = jobs.run("adds_some", capacity=64, checkpoint_dir=files, resume="never", keep=1)
    assert job.summary["restored_from"] is None
    assert job.summary["inserted"] == 30
    assert before.exists()
    assert newest(files) > before


def test_a_file_that_is_gone_on_from_spares_what_is_there(jobs: Jobs, tmp_path: Path) -> None:
    files = tmp_path / "files"
    jobs.run("adds_some", capacity=64, checkpoint_dir=files)
    older = newest(files)
    jobs.run("adds_some", capacity=64, checkpoint_dir=files)
    newer = newest(files)
    job = jobs.run("adds_some", capacity=64, checkpoint_dir=files, resume=str(older), keep=1)
    assert Path(job.summary["restored_from"]) == older
    assert newest(files) > newer
    assert newer.exists()
    assert older.exists()


def test_a_replay_rank_that_cannot_be_made_lets_go_of_its_folder(
    jobs: Jobs, tmp_path: Path
) -> None:
    program = [sys.executable, "-m", "mpi4py", str(PROGRAMS / "again.py"), str(tmp_path / "files")]
    told = jobs.command(2, program).succeed().out.splitlines()
    assert len(told) == 3
    assert "none.h5 does not exist" in told[0]
    assert "m.jsonl" in told[1]
    assert "size=0" in told[2]


def test_what_differs_from_the_command_line_is_said(jobs: Jobs, tmp_path: Path) -> None:
    files = tmp_path / "files"
    jobs.run("adds_some", capacity=64, seed=1, checkpoint_dir=files)
    others = {"alpha": 0.7, "beta": 0.5, "seed": 2}
    job = jobs.run("adds_some", capacity=20, checkpoint_dir=files, **others)
    assert "the oldest 10 transitions are dropped" in job.err
    told = [line.split("replay: ")[1] for line in job.err.splitlines() if " asked for" in line]
    assert [line.partition(" asked for;")[0] for line in told] == [
        "capacity: 64 stored, 20",
        "alpha: 0.6 stored, 0.7",
        "beta: 0.4 stored, 0.5",
        "seed: 1 stored, 2",
    ]
    assert job.summary["inserted"] == 60
    assert job.summary["size"] == 20
    larger = jobs.run("adds_some", capacity=100, checkpoint_dir=files, **others)
    assert "and no transitions are dropped" in larger.err
    assert larger.summary["size"] == 50


def test_a_learner_that_comes_back_after_the_end_is_told_so(jobs: Jobs) -> None:
    job = jobs.start("comes_back_late", capacity=64, grace=0.3)
    job.wait_for("busy")
    job.send(0, signal.SIGTERM)
    job.wait_for("told", seconds=15.0)
    job.end()


CLI = ["-m", "mpi4py", "-m", "libsumtree", "replay"]


def beside(actors: int) -> list[str]:
    """Return the rest of a command line that starts actors beside the replay rank."""
    program = str(PROGRAMS / "alone.py")
    return [":", "-n", str(actors), sys.executable, "-m", "mpi4py", program]


def assert_refused(job: Job, message: str) -> None:
    assert job.end() == 2
    lines = [line for line in job.err.splitlines() if line.startswith("libsumtree: error: ")]
    assert len(lines) == 1, job.err
    assert message in lines[0]
    assert "Traceback" not in job.err, job.err


def test_refusal_ends_a_job_whose_exit_status_alone_would_not(jobs: Jobs) -> None:
    """Without ``-m mpi4py``, a rank that only exits would leave the others waiting."""
    serve = ["-m", "libsumtree", "replay", "--capacity", "0", "--ranks", "2"]
    job = jobs.command(1, [sys.executable, *serve, *beside(1)])
    assert_refused(job, "capacity is 0")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--capacity abc --ranks 2", "argument --capacity: invalid int value: 'abc'"),
        ("--capacity 64", "the following arguments are required: --ranks"),
        ("--capacity 64 --ranks 2 --bogus", "unrecognized arguments: --bogus"),
    ],
)
def test_a_command_line_that_cannot_be_read_ends_the_job(
    jobs: Jobs, options: str, message: str
) -> None:
    """The clients wait in the start of MPI for the rank that reads it."""
    job = jobs.command(1, [sys.executable, *CLI, *options.split(), *beside(1)])
    assert_refused(job, message)


def test_two_replay_ranks_are_refused(jobs: Jobs) -> None:
    job = jobs.command(2, [sys.executable, *CLI, "--capacity", "64", "--ranks", "2"])
    assert_refused(job, "rank 1 where it must be rank 0")


@pytest.mark.parametrize(
    ("ranks", "options", "message"),
    [
        (1, "--capacity 64 --ranks 6", "the launcher started 1 rank where 6 were asked for"),
        (2, "--capacity 64 --ranks 3", "the launcher started 2 ranks where 3 were asked for"),
        (1, "--capacity 64 --ranks 1", "--ranks is 1"),
        (1, "--capacity 0 --ranks 2", "capacity is 0"),
        (1, "--capacity 64 --ranks 2 --keep 2", "--keep has no meaning without --checkpoint-dir"),
        (1, "--capacity 64 --ranks 2 --full-every 2", "--full-every has no meaning without"),
        (1, "--capacity 64 --ranks 2 --compression gzip", "--compression has no meaning without"),
        (1, "--capacity 64 --ranks 2 --checkpoint-dir x --full-every 0", "full_every is 0"),
        (1, "--capacity 64 --ranks 2 --checkpoint-dir x --compression zip", "compression is 'zip'"),
        (1, "--capacity 64 --ranks 2 --resume auto", "no meaning without --checkpoint-dir"),
        (1, "--capacity 64 --ranks 2 --error-buffer 9", "no meaning without samples_per_insert"),
        (1, "--capacity 64 --ranks 2 --min-size-to-sample 65", "more than the capacity"),
        (1, "--capacity 64 --ranks 2 --beta 0.4:x:3", "--beta 0.4:x:3"),
        (1, "--capacity 64 --ranks 2 --dtype nonsense", "dtype text"),
    ],
)
def test_options_that_cannot_be_are_one_line(
    jobs: Jobs, ranks: int, options: str, message: str
) -> None:
    clients = beside(ranks - 1) if ranks > 1 else []
    job = jobs.command(1, [sys.executable, *CLI, *options.split(), *clients])
    assert_refused(job, message)


def other_file(files: Path) -> Path:
    path = files / "replay-000000000001.h5"
    files.mkdir()
    buffer = PrioritizedReplayBuffer(64, [("x", "<f8")])
    buffer.save(path)
    return path


def newer_format(path: Path) -> None:
    """Make it a file of format 9, with a first block that is right for that."""
    data = path.read_bytes()
    lines = re.sub(rb"format \d+\n", b"format 9\n", data[:512].partition(b"block ")[0])
    block = lines + b"block %08x\n" % zlib.crc32(lines)
    path.write_bytes(block.ljust(512, b"\0") + data[512:])


def unusable(kind: str, files: Path) -> tuple[list[str], str]:
    """Prepare a folder; return options and the message that is due."""
    options = ["--checkpoint-dir", str(files)]
    if kind == "unwritable":
        files.write_text("a file")
        return options, "cannot be written"
    path = other_file(files)
    if kind == "other dtype":
        return [*options, "--dtype", '[["y", "<f8"]]'], "has dtype"
    if kind == "newer format":
        newer_format(path)
        return options, "format 9"
    if kind == "all damaged":
        path.write_bytes(b"nonsense")
        return options, "every checkpoint in"
    return ["--resume", str(files / "none.h5")], "does not exist"


@pytest.mark.parametrize(
    "kind",
    ["unwritable", "other dtype", "newer format", "all damaged", "no file"],
)
def test_checkpoints_that_cannot_be_used_end_the_whole_job(
    jobs: Jobs, tmp_path: Path, kind: str
) -> None:
    options, message = unusable(kind, tmp_path / "files")
    command = [sys.executable, *CLI, "--capacity", "64", "--ranks", "2", *options]
    assert_refused(jobs.command(1, [*command, *beside(1)]), message)


def test_command_line_writes_chains_and_compresses(jobs: Jobs, tmp_path: Path) -> None:
    files = tmp_path / "files"
    options = ["--checkpoint-dir", str(files), "--full-every", "2", "--compression", "gzip"]
    serve = [*CLI, "--capacity", "5000", "--ranks", "2", "--seed", "1", *options]
    jobs.command(1, [sys.executable, *serve, *beside(1), "adds_compressible"]).succeed()
    with checkpoint.read_chain(newest(files)) as chain:
        saved = PrioritizedReplayBuffer.from_checkpoint(chain)
    assert saved.inserted == 4000
    assert newest(files).stat().st_size < saved.inserted * saved.dtype.itemsize


def test_command_line_serves(jobs: Jobs, tmp_path: Path) -> None:
    """One MPMD job: the replay rank by its command, and an actor."""
    files = tmp_path / "files"
    serve = [*CLI, "--capacity", "64", "--ranks", "2", "--seed", "1", "--idle-sleep", "0.001"]
    serve += ["--beta", "0.4:1:100", "--checkpoint-dir", str(files), "--grace", "2"]
    job = jobs.command(1, [sys.executable, *serve, *beside(1)]).succeed()
    assert "transitions: 30 added, 30 held" in job.out
    with checkpoint.read_chain(newest(files)) as stored:
        saved = PrioritizedReplayBuffer.from_checkpoint(stored)
    assert_same(held(saved), held(filled((1, 30), seed=1)), but=("beta", "beta_samples"))
