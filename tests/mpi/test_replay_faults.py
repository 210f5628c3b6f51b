"""Ranks that die, dawdle, flood or break the protocol: their neighbours never notice."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from launch import PROGRAMS, Jobs, need_hydra, wait_until
from libsumtree import PrioritizedReplayBuffer, checkpoint
from libsumtree.ids import NUMBER_BITS
from ring import assert_same, batch, filled, held

sys.path.insert(0, str(PROGRAMS))
from faults import DOOMED, doomed

# Two nodes of Hydra's on one machine, for a launcher that lets a job live when a node loses a rank;
# it tells the others by SIGUSR1, which is to end no service here.
TWO_NODES = ["-disable-auto-cleanup", "-launcher", "fork", "-hosts", "one:2,two:1"]
DEAF_TO_USR1 = (
    "import os, signal, sys\n"
    "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})\n"
    "os.execvp(sys.argv[1], sys.argv[1:])\n"
)


def newest(folder: Path) -> Path:
    return max(folder.glob("replay-*.h5"))


def assert_whole(records: np.ndarray) -> int:
    """Check that of the batch whose sender died all is there, or nothing; return how much."""
    found = records[records["action"] == DOOMED]
    if len(found):
        assert found.tobytes() == doomed().tobytes()
    return len(found)


# ---- 4: what is refused ----


def test_bad_batches_are_counted_against_their_sender_alone(jobs: Jobs) -> None:
    """Wrong dtype, shape, size, NaN and negative, while an honest actor works beside."""
    job = jobs.run("adds_some", "hostile_adds", capacity=100, max_batch=100)
    assert job.summary["rejected"] == {"2": 13}
    assert job.summary["added"] == {"1": 30, "2": 40}
    rows = job.arrays("buffer.npz")["transitions"]
    good = [batch(1, 30)[0], *(batch(seed, 10)[0] for seed in range(4))]
    assert sorted(map(bytes, rows)) == sorted(map(bytes, np.concatenate(good)))


def test_another_record_dtype_is_refused_with_its_sender(jobs: Jobs) -> None:
    job = jobs.run("adds_some", "other_record", capacity=100, clients=2)
    assert job.summary["rejected"] == {"2": 1}
    assert_same(job.arrays("buffer.npz"), held(filled((1, 30), capacity=100)), but=RANDOM)


RANDOM = ("seed", "rng_key", "rng_counter", "rng_buffer_pos")


# ---- 5: an actor killed while it sends ----


@pytest.mark.parametrize("seconds", [0.0, 0.01])
def test_a_job_that_dies_with_an_actor_goes_on_from_whole_batches(
    jobs: Jobs, tmp_path: Path, seconds: float
) -> None:
    """What most launchers do: they end the job. The newest checkpoint has no torn batch."""
    files = tmp_path / "files"
    jobs.options = {"SENDS_FOR": str(seconds), "FILES": str(files)}
    settings = {"capacity": 2 << 20, "max_batch": 1 << 20, "checkpoint_dir": files}
    job = jobs.start(
        "faulty_waits_for_a_file",
        "faulty_dies_while_sending",
        checkpoint_interval=0.05,
        **settings,
    )
    job.wait_for("died")
    assert job.end() != 0
    with checkpoint.read_chain(newest(files)) as chain:
        saved = PrioritizedReplayBuffer.from_checkpoint(chain)
    rows = held(saved)["transitions"]
    whole = assert_whole(rows)
    honest = rows[rows["reward"] == 1.0]
    assert len(honest) > 0
    np.testing.assert_array_equal(honest["action"], np.arange(len(honest)))
    assert len(rows) == saved.inserted == len(honest) + 10 + whole
    again = jobs.run("adds_some", **settings)
    assert again.summary["inserted"] == saved.inserted + 30


@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.5])
def test_a_job_that_lives_on_never_shows_a_torn_batch(
    jobs: Jobs, tmp_path: Path, seconds: float
) -> None:
    """The neighbour adds, draws and ends the service; all that it added is saved."""
    need_hydra()
    files = tmp_path / "files"
    jobs.flags = TWO_NODES
    jobs.prefix = [sys.executable, "-c", DEAF_TO_USR1]
    jobs.options = {"SENDS_FOR": str(seconds), "UCX_TLS": "tcp,self"}
    settings = {"capacity": 2 << 20, "max_batch": 1 << 20, "checkpoint_dir": files}
    job = jobs.start("faulty_goes_on", "faulty_dies_while_sending", grace=0.5, **settings)
    job.wait_for("went_on")
    result = job.folder / "buffer.npz"
    wait_until(lambda: result.exists() or not job.lives(0), "end of the replay rank")
    with checkpoint.read_chain(newest(files)) as chain:
        saved = PrioritizedReplayBuffer.from_checkpoint(chain)
    rows = held(saved)["transitions"]
    whole = assert_whole(rows)
    sent = saved.inserted - 10 - whole
    assert sent >= 200 * 50
    if result.exists():
        summary = job.summary
        assert summary["silent"] == [2]
        assert summary["saved"] is True
        assert summary["added"] == {"1": sent, "2": 10 + whole}
    else:  # MPI crashed when the dead rank, which owed nothing, was told of the end
        assert whole > 0
    job.kill()  # MPI waits for the dead rank before it ends


def test_a_large_batch_of_a_client_that_was_given_up(jobs: Jobs) -> None:
    """Its memory is MPI's until that has let go of it: the replay rank stops for longer."""
    job = jobs.run("faulty_gives_up", capacity=300_000, max_batch=1 << 18, clients=1)
    rows = job.arrays("buffer.npz")["transitions"]
    assert_same({"rows": rows[-10:]}, {"rows": batch(1, 10)[0]})
    assert len(rows) in (10, 200_010)
    if len(rows) > 10:
        assert rows[:-10].tobytes() == batch(0, 200_000)[0].tobytes()


def test_a_ring_of_buffers_closes_whatever_is_lent(jobs: Jobs) -> None:
    job = jobs.command(1, [sys.executable, "-m", "mpi4py", str(PROGRAMS / "staging.py")])
    assert "closed" in job.succeed().out


def test_messages_longer_than_mpi_can_count(jobs: Jobs) -> None:
    """Refused by their length alone: nothing of them is received."""
    job = jobs.start("faulty_sends_too_much", "adds_some", capacity=100, grace=0.5)
    job.wait_for("summary.json")
    assert job.summary["rejected"] == {"1": 3}
    assert job.summary["added"] == {"2": 30}
    job.kill()  # the messages are never taken, and MPI waits for that


def test_a_message_whose_memory_is_gone(jobs: Jobs) -> None:
    """As that of a sender that died, which MPI reads from its process, and cannot any more."""
    need_hydra()
    job = jobs.run("faulty_cannot_be_read", capacity=1000, max_batch=1 << 16)
    if (job.folder / "no_reading").exists():
        pytest.skip("no process may read the memory of another here")
    rows = job.arrays("buffer.npz")["transitions"]
    expected = np.concatenate([batch(seed, 10)[0] for seed in (0, 1)])
    assert_same({"rows": rows}, {"rows": expected})
    assert job.summary["rejected"] == {"1": 1}


# ---- 6: a learner that comes again ----


def test_ids_that_a_restart_lost_are_stale(jobs: Jobs, tmp_path: Path) -> None:
    files = tmp_path / "files"
    settings = {"capacity": 100, "seed": 2, "checkpoint_dir": files, "checkpoint_interval": 600.0}
    job = jobs.start("faulty_keeps_its_ids", clients=9, **settings)
    ids = job.wait_for("ids.npz")
    job.kill()
    jobs.options = {"OLD_IDS": str(ids)}
    again = jobs.run("faulty_comes_with_old_ids", clients=2, **settings)
    counts = (again.folder / "stale").read_text().split()
    first, second, both, saved, lost = map(int, counts)
    assert (first, second, both) == (0, lost, lost)
    assert (saved, again.summary["stale"]) == (16, 2 * lost)
    assert lost > 0
    masses = again.arrays("buffer.npz")["tree/masses"]
    raised = np.unique(np.load(ids)["saved"] & (1 << NUMBER_BITS) - 1)
    np.testing.assert_array_equal(np.flatnonzero(masses == 9.0**0.6), raised)


# ---- 7 and 8: a slow learner, and floods ----


def test_a_slow_learner_holds_the_actors_back_and_memory_stays(jobs: Jobs) -> None:
    """Two actors that never pause: no deadlock, no more than the rate limit, no more memory."""
    actors = ("adds_for_ever", "adds_for_ever")
    pacing = {"samples_per_insert": 1.0, "min_size_to_sample": 500, "error_buffer": 500.0}
    job = jobs.run("faulty_learns_slowly", *actors, capacity=1000, actor_credits=2, **pacing)
    slow = job.arrays("slow.npz")
    ahead = 500 + 500.0 + 2 * 2 * 50  # the bound, and what has credits
    assert slow["inserted"] <= slow["sampled"] + ahead
    assert job.summary["sampled"] == 30 * 64
    assert job.summary["silent"] == []
    assert np.ptp(slow["memory"][10:]) < 4096
    total = sum(int((job.folder / f"added.{rank}").read_text()) for rank in (2, 3))
    assert total == job.summary["inserted"]


def test_a_flood_takes_no_memory_and_starves_nobody(jobs: Jobs) -> None:
    """300,000 transitions of three actors that begin together, into a ring of 10,000."""
    job = jobs.run("faulty_watches_a_flood", *["faulty_floods"] * 3, capacity=10_000)
    memory = job.arrays("flood.npz")["memory"]
    assert np.ptp(memory[10:]) < 4096
    added = {int(rank): count for rank, count in job.summary["added"].items()}
    assert sorted(added) == [2, 3, 4]
    assert sum(added.values()) == job.summary["inserted"] >= 294_000
    assert min(added.values()) > 0.1 * max(added.values()), added


def test_a_flood_beyond_the_credits_is_refused_and_takes_no_memory(jobs: Jobs) -> None:
    """5000 batches without waiting for one answer, and an honest actor beside."""
    job = jobs.run("faulty_floods_without_credit", "adds_some", capacity=100_000)
    hostile = job.arrays("hostile.npz")
    taken, refused = job.summary["added"]["1"] // 10, job.summary["rejected"].get("1", 0)
    # Once payloads lag far behind, they are refused by themselves, and counted.
    assert 5000 - taken <= refused <= 2 * (5000 - taken)
    assert hostile["ok"] == taken
    assert hostile["credit"] <= refused
    assert np.ptp(hostile["memory"][20:]) < 16 << 10
    rows = job.arrays("buffer.npz")["transitions"]
    own = batch(1, 30)[0]
    assert job.summary["added"]["2"] == 30
    assert len(rows) == 10 * taken + 30
    known = {row.tobytes() for records in (own, batch(1, 10)[0]) for row in records}
    assert {row.tobytes() for row in rows} == known


# ---- 9: the end of an allocation ----


def test_one_second_between_sigterm_and_sigkill_is_enough(jobs: Jobs, tmp_path: Path) -> None:
    """A learner in a long computation, so that nobody sends a state; then everything is killed.

    The second itself cannot be tested on a machine that is busy: this waits for the file, and
    takes from it when its state was.
    """
    files = tmp_path / "files"
    settings = {"capacity": 500, "seed": 3, "checkpoint_dir": files, "checkpoint_interval": 600.0}
    job = jobs.start("adds_and_idles", "faulty_computes_through_the_end", **settings)
    for name in ("idle", "computing"):
        job.wait_for(name)
    sent = time.time()
    job.send(0, signal.SIGTERM)
    job.wait_until(lambda: any(files.glob("replay-*.h5")), "checkpoint")
    job.kill()
    assert not (job.folder / "summary.json").exists()
    with checkpoint.read_chain(newest(files)) as chain:
        created = float(chain.newest.attributes["created"])
        saved = PrioritizedReplayBuffer.from_checkpoint(chain)
    expected = filled(*((seed, 50) for seed in range(8)), capacity=500, seed=3)
    assert_same(held(saved), held(expected))
    assert created - sent < 1.0


def test_an_exception_of_any_rank_ends_the_job(jobs: Jobs) -> None:
    """A client's is tested in test_replay_endings.py; this is the replay rank's own."""
    job = jobs.start("idles", capacity=0)
    assert job.end(30.0) != 0
    assert "capacity is 0" in job.err
