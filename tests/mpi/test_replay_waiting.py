"""The rate limiter changes while it runs; clients that give up waiting are told why, and go on."""

from __future__ import annotations

from pathlib import Path

from launch import Jobs
from libsumtree import checkpoint
from libsumtree.replay import RateLimit
from libsumtree.replay.restored import read_file


def test_learner_changes_the_limit_and_checkpoints_keep_it(jobs: Jobs, tmp_path: Path) -> None:
    asked = {"min_size_to_sample": 1000, "samples_per_insert": 1.0}
    settings = {"capacity": 5000, "checkpoint_dir": tmp_path / "files"}
    job = jobs.run("waiting_changes_limit", "waiting_adds_120", **settings, **asked)
    before, waits, drawn = job.json("limit.json")
    assert before == RateLimit(1000, 1.0).to_json()
    assert waits[0] == "rate limiter"
    assert waits[1].endswith("within 0.4 s: it waits for the rate limiter: 120 of 1000 transitions")
    assert drawn == 64
    assert job.summary["rejected"] == {"1": 7}
    assert job.err.count("the learner on rank 1 changed the rate limit") == 2
    path = Path(job.summary["last_checkpoint"])
    with checkpoint.read_chain(path) as chain:
        assert '"changes": 2' in str(chain.newest.attributes["replay_rate_limit"])
    again = jobs.run("waiting_tells_limit", **settings, **asked)
    assert again.json("limit.json") == RateLimit(100, 2.0).to_json()
    assert "rate limit: as a learner has set it" in again.err
    other = jobs.run("waiting_tells_limit", **settings, min_size_to_sample=7)
    assert other.json("limit.json") == RateLimit(7).to_json()
    assert "rate limit: what is asked for wins" in other.err


def test_actor_is_told_that_the_limiter_holds_it_back(jobs: Jobs) -> None:
    pacing = {"samples_per_insert": 1.0, "error_buffer": 64.0}
    job = jobs.run("waiting_for_actor", "waiting_actor", capacity=5000, **pacing)
    sent, waits, answered, longest = job.json("actor.json")
    assert waits[0] == "rate limiter"
    assert "it waits for the rate limiter: " in waits[1]
    assert "more samples must be drawn first, at 1 samples per insert" in waits[1]
    assert job.summary["inserted"] == 50 * sent
    assert answered == sent
    assert longest >= 0.3


def test_silence_of_the_replay_rank_is_said_and_overcome(jobs: Jobs) -> None:
    job = jobs.run("waiting_through_silence", capacity=100, clients=2)
    silent, limit, sizes = job.json("silence.json")
    for waits in (silent, limit):
        assert waits[0] == "answer"
        assert waits[1].endswith("within 0.3 s: no answer from rank 0")
    assert sizes == [16, 8, 4]


def test_wait_that_is_given_up_before_a_payload_mixes_no_answers(jobs: Jobs) -> None:
    job = jobs.run("waiting_is_late", "waiting_for_payload", capacity=64, clients=1)
    late, actions = job.json("late.json")
    assert late[0] == "answer"
    assert actions == [[8] * 8, [4] * 4]


def test_answers_to_a_former_client_are_nothing_to_the_next(jobs: Jobs) -> None:
    job = jobs.run("waiting_as_another", capacity=200, clients=3)
    left, unwelcome = job.json("another.json")
    assert left.startswith("no goodbye from the replay rank")
    assert unwelcome.startswith("no welcome from the replay rank")
    assert job.summary["inserted"] == 100
    assert job.summary["rejected"] == {"1": 1}


def test_payload_for_a_former_client_is_no_draw_of_the_next(jobs: Jobs) -> None:
    roles = "waiting_is_late_for_two", "waiting_for_payload_as_another"
    late, actions = jobs.run(*roles, capacity=64, clients=1).json("late.json")
    assert "no sample of 8" in late[0][1]
    assert "no goodbye" in late[1][1]
    assert actions == [4] * 4


def test_learners_have_their_states_written_in_turn(jobs: Jobs, tmp_path: Path) -> None:
    files = tmp_path / "files"
    job = jobs.run("waiting_turns", "waiting_turns", capacity=64, checkpoint_dir=files, keep=100)
    names = [job.json(f"turns.{number}.json") for number in (0, 1)]
    assert len({*names[0], *names[1]}) == 16
    for number, own in enumerate(names):
        states = [state_in(files / name) for name in own]
        assert states == [[number, step] for step in range(8)]
    assert state_in(Path(job.summary["last_checkpoint"]))[1] == 100
    assert job.summary["rejected"] == {}


def state_in(path: Path) -> list[int]:
    state = read_file(path, "cpu").progress.learner
    assert state is not None
    return [int(state["number"]), int(state["step"])]
