"""Clients of several shards: what they wait for, what they keep, and other numbers of shards."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch import Jobs


def test_lag_counts_updates_that_came_too_late(jobs: Jobs) -> None:
    jobs.run_shards(2, "lags", capacity=256, clients=2)


def test_prefetched_draws_are_under_way_and_tell_their_lag(jobs: Jobs) -> None:
    jobs.run_shards(2, "prefetches", capacity=256, clients=4)


def test_sleeps_are_short_while_a_long_message_moves_in_parts(jobs: Jobs) -> None:
    """As `test_replay_service` has it, for clients of two shards."""
    jobs.options["MPIR_CVAR_CH4_CMA_ENABLE"] = "0"
    job = jobs.run_shards(2, "moves_large_over_shards", capacity=1 << 18, clients=2)
    assert (job.arrays("seconds.npz")["seconds"] < 5.0).all()


def test_an_update_is_sent_to_all_its_shards_or_to_none(jobs: Jobs) -> None:
    settings = {"capacity": 256, "clients": 2, "update_credits": 1, "alpha": 0.5}
    job = jobs.run_shards(2, "updates_all_or_nothing", **settings)
    assert all(job.json(f"summary.{shard}.json")["stale"] == 0 for shard in (0, 1))


def test_staged_clients_that_never_sleep(jobs: Jobs) -> None:
    job = jobs.run_shards(2, "waits_staged", capacity=65536, clients=2, receive="staged")
    assert sum(job.json(f"summary.{shard}.json")["inserted"] for shard in (0, 1)) == 30_100


def test_memory_of_an_actor_is_that_of_a_few_batches(jobs: Jobs) -> None:
    """Four shards with three credits each: not the memory of twelve batches, but of four."""
    settings = {"capacity": 1 << 20, "max_batch": 1 << 18, "clients": 1}
    job = jobs.run_shards(4, "adds_large_ones", **settings)
    assert float((job.folder / "memory").read_text()) < 6.0
    added = [job.json(f"summary.{shard}.json")["inserted"] for shard in range(4)]
    assert added == [8 * 200_000] * 4


@pytest.mark.parametrize(("after", "minimum"), [(1, 80), (3, 81)])
def test_another_number_of_shards_keeps_the_pace_and_knows_old_handles(
    jobs: Jobs, tmp_path: Path, after: int, minimum: int
) -> None:
    jobs.options["OLD_IDS"] = str(tmp_path / "ids.npy")
    pacing = {"min_size_to_sample": 61, "samples_per_insert": 1.0, "error_buffer": 300.0}
    settings = {"capacity": 300, "seed": 3, "checkpoint_dir": tmp_path / "files", **pacing}
    jobs.run_shards(2, "changes_the_pace", clients=2, **settings)
    for _ in range(2 if after == 1 else 1):
        job = jobs.run_shards(after, "finds_the_pace", **settings)
        assert "rate limit: as a learner has set it" in job.err
        limit = f'{{"min_size_to_sample": {minimum}, "samples_per_insert": 2.0, '
        assert (job.folder / "limit").read_text() == limit + '"error_buffer": 400.0}'


def test_farewells_of_a_failed_client_wait_together(jobs: Jobs) -> None:
    """For shards that do not answer, a failed client waits 2 s, however many they are."""
    job = jobs.run_shards(4, "fails_before_deaf_shards", capacity=256)
    assert 1.0 <= float((job.folder / "farewells").read_text()) < 3.0
