"""The replay rank gives what a buffer in one process gives, and paces its clients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from launch import Jobs
from libsumtree import PrioritizedReplayBuffer, PriorityTree
from ring import RECORD, SIZES, assert_same, batch, filled, held


def test_round_trip_is_that_of_one_process(jobs: Jobs) -> None:
    """Batches that wrap, one longer than the ring, default priorities, draws, staleness."""
    job = jobs.run("draws", "adds", capacity=200, seed=5, beta=0.5)
    drawn = job.arrays("drawn.npz")
    buffer = PrioritizedReplayBuffer(200, RECORD, seed=5, beta=0.5)
    stale = 0
    for seed, count in enumerate(SIZES):
        records, priorities = batch(seed, count)
        buffer.add(records[::-1], None if seed % 4 == 3 else priorities[::-1])
        samples = buffer.sample(32), buffer.sample(7, beta=1.0)
        assert drawn[f"total.{seed}"] > 0.0
        for sample in samples:
            n = len(sample.ids)
            for name in ("ids", "indices", "weights", "transitions"):
                found = drawn[f"{name}{n}.{seed}"]
                assert found.tobytes() == getattr(sample, name).tobytes(), (name, n, seed)
            stale += buffer.update_priorities(sample.ids, 1.0 + np.arange(n))
    assert drawn["stale"] == stale
    assert_same(job.arrays("buffer.npz"), held(buffer))
    assert job.summary["rejected"] == {}
    assert job.summary["silent"] == []


def test_sleeps_are_short_while_a_long_message_moves_in_parts(jobs: Jobs, tmp_path: Path) -> None:
    """As in containers, which forbid MPI to read the memory of another process.

    2 ms of sleep between any two parts of 16 KiB make 10 s of 40 messages; without, they take 0.1.
    """
    jobs.options["MPIR_CVAR_CH4_CMA_ENABLE"] = "0"
    settings = {"capacity": 200_000, "clients": 2, "checkpoint_dir": tmp_path / "files"}
    job = jobs.run("moves_large", **settings)
    adding, drawing, _ = job.arrays("seconds.npz")["seconds"]
    assert adding < 5.0
    assert drawing < 5.0


@pytest.mark.parametrize("at_once", ["1", "0"])
def test_large_batches_are_whole(jobs: Jobs, at_once: str) -> None:
    """Straight into the ring where MPICH reads them at once; beside it where they come in parts."""
    jobs.options["MPIR_CVAR_CH4_CMA_ENABLE"] = at_once
    job = jobs.run("adds_large", capacity=30_000, seed=1)
    buffer = filled(*((seed, 20_000) for seed in range(5)), capacity=30_000, seed=1)
    assert_same(job.arrays("buffer.npz"), held(buffer))


def test_stale_updates_are_counted_across_a_restart_of_the_learner(jobs: Jobs) -> None:
    job = jobs.run("comes_twice", capacity=200, clients=4)
    assert job.summary["stale"] == 8


def test_an_actor_that_comes_back_does_not_stand_for_another(jobs: Jobs) -> None:
    job = jobs.run("comes_again_and_again", "comes_last", capacity=500)
    assert job.summary["added"] == {"1": 150, "2": 50}
    assert job.summary["reason"] == "all clients left"


def test_nobody_waits_for_clients_that_can_never_come(jobs: Jobs) -> None:
    """Their records take more memory than there is; others are served."""
    both = "comes_with_large_records", "comes_last"
    job = jobs.run("comes_with_large_records", capacity=1 << 40, record=False)
    assert job.summary["rejected"] == {"1": 1}
    assert job.summary["reason"] == "all clients left"
    assert jobs.run(*both, capacity=1 << 22, record=False).summary["inserted"] == 50
    both = "insists_on_large_records", "comes_last"
    job = jobs.run(*both, capacity=1 << 22, record=False, clients=2)
    assert (job.summary["inserted"], job.summary["rejected"]) == (50, {"1": 2})


def test_record_dtype_of_the_first_client_is_taken(jobs: Jobs) -> None:
    job = jobs.run("argues", capacity=100, clients=2, max_batch=100, record=False)
    assert job.summary["inserted"] == 4
    assert job.summary["rejected"] == {"1": 1}


def test_what_no_message_holds_is_refused_before_it_is_sent(jobs: Jobs) -> None:
    job = jobs.run("sends_more_than_a_message_holds", capacity=1, clients=2, record=False)
    assert job.summary["rejected"] == {}


def test_other_record_dtype_is_refused(jobs: Jobs) -> None:
    job = jobs.run("other_record", capacity=100, clients=1)
    assert job.summary["rejected"] == {"1": 1}


def test_actor_waits_while_it_has_no_credit(jobs: Jobs) -> None:
    job = jobs.run("exhausts_credits", capacity=10_000, samples_per_insert=1.0, actor_credits=2)
    sent, unacknowledged, message = (job.folder / "credits").read_text().split(maxsplit=2)
    assert int(unacknowledged) == 2
    assert "no credit for another batch from the replay rank (rank 0) within 0.5 s" in message
    assert "within 0.5 s: it waits for the rate limiter: " in message
    assert int(sent) < 10
    assert job.summary["inserted"] == 50 * int(sent)


def test_rate_limiter_keeps_the_ratio(jobs: Jobs) -> None:
    pacing = {"samples_per_insert": 4.0, "min_size_to_sample": 100, "error_buffer": 300.0}
    job = jobs.run("paces", "adds_for_ever", capacity=5000, actor_credits=2, **pacing)
    balances = job.arrays("balances.npz")["balances"]
    overshoot = 4.0 * 50 * 3  # the batch that passes the bound, and those that have credits
    assert balances.min() >= 400.0 - 300.0
    assert balances.max() <= 400.0 + 300.0 + overshoot


def test_prefetched_draws_are_under_way_and_tell_their_lag(jobs: Jobs) -> None:
    job = jobs.run("prefetches", capacity=500, clients=2)
    assert job.summary["sampled"] == 8 * 64


def test_requests_that_wait_for_their_share_are_served_before_the_end(jobs: Jobs) -> None:
    for _ in range(3):
        job = jobs.run("asks_and_stops", "adds_for_ever", capacity=500, learner_share=0.01)
        assert job.summary["sampled"] == 23 * 64


def test_default_error_buffer_lets_large_requests_pass(jobs: Jobs) -> None:
    """Requests larger than anything the ratio has seen, one actor, one credit: no deadlock."""
    job = jobs.run("paces", "adds_for_ever", capacity=500, actor_credits=1, samples_per_insert=0.5)
    assert job.summary["sampled"] == 40 * 64


def test_request_that_could_never_be_served_is_refused(jobs: Jobs) -> None:
    pacing = {"samples_per_insert": 2.0, "error_buffer": 20.0}
    job = jobs.run("asks_too_much", "meets_at_barrier", capacity=1000, **pacing)
    text = (job.folder / "asked").read_text()
    assert "64 samples at once can never pass an error_buffer of 20: at least 32 is needed" in text


def test_waiting_request_times_out_then_ends_with_the_service(jobs: Jobs) -> None:
    job = jobs.run("waits_for_sample", capacity=100)
    first, second = (job.folder / "outcome").read_text().splitlines()
    assert "no sample of 64 from the replay rank (rank 0) within 0.2 s" in first
    assert second == "stopped"


def test_idle_replay_rank_leaves_the_processor_alone(jobs: Jobs) -> None:
    """A ratio of the processor's time to the clock's: under 5 %, start-up left out."""
    job = jobs.run("adds_and_idles_three_seconds", capacity=100)
    assert job.summary["seconds"] > 3.0
    assert job.summary["cpu"] / job.summary["seconds"] < 0.05


@pytest.mark.parametrize("role", ["hostile_hello", "hostile_credits", "hostile_learner"])
def test_hostile_client_is_answered(jobs: Jobs, role: str) -> None:
    job = jobs.run(role, capacity=64, max_batch=100)
    rejected = {"hostile_hello": 10, "hostile_credits": 2, "hostile_learner": 8}
    assert job.summary["rejected"] == {"1": rejected[role]}
    assert job.summary["inserted"] == (30 if role == "hostile_credits" else 0)


def test_bad_batches_leave_their_neighbours_unchanged(jobs: Jobs) -> None:
    job = jobs.run("hostile_adds", capacity=64, max_batch=100, seed=1)
    good = filled(*((seed, 10) for seed in range(4)), seed=1)
    assert_same(job.arrays("buffer.npz"), held(good))
    assert job.summary["rejected"] == {"1": 13}


def test_bad_batches_between_good_ones_leave_them_unchanged(jobs: Jobs) -> None:
    job = jobs.run("hostile_inline", capacity=100, max_batch=100, seed=1)
    good = filled(*((seed, 10) for seed in range(8)), capacity=100, seed=1)
    assert_same(job.arrays("buffer.npz"), held(good))
    assert job.summary["rejected"] == {"1": 4}


def test_credits_bind_batches_in_control_messages(jobs: Jobs) -> None:
    pacing = {"samples_per_insert": 1.0, "actor_credits": 2}
    job = jobs.run("hostile_inline_credits", capacity=1000, max_batch=100, **pacing)
    refused = job.summary["rejected"]["1"]
    assert refused >= 5
    assert job.summary["inserted"] == 10 * (12 - refused)


def test_messages_out_of_protocol_leave_the_ring_unchanged(jobs: Jobs) -> None:
    job = jobs.run("hostile_messages", capacity=64, max_batch=100, seed=1)
    good = filled(*[(0, 10)] * 12, (1, 10), (2, 10), seed=1)
    assert_same(job.arrays("buffer.npz"), held(good))
    assert job.summary["rejected"]["1"] >= 1 + 2 * 12 + 2


@pytest.mark.parametrize("receive", ["matched", "staged"])
def test_thousands_of_mutated_messages_end_nothing(jobs: Jobs, receive: str) -> None:
    """Whatever comes is answered or counted; then a good client's batch is taken whole."""
    job = jobs.run("hostile_mutations", capacity=64, max_batch=100, seed=1, receive=receive)
    assert job.summary["rejected"]["1"] > 1000
    buffer = job.arrays("buffer.npz")
    PriorityTree(64, backend="cpu")[: len(buffer["tree/masses"])] = buffer["tree/masses"]
    rows = {row.tobytes() for row in buffer["transitions"]}
    assert {row.tobytes() for row in batch(0, 10)[0]} <= rows
