from __future__ import annotations

import numpy as np
import pytest

from libsumtree.apex.environments import EnvironmentSpec
from libsumtree.apex.nstep import NStepAccumulator, TransitionBatch


def play(accumulator, rewards, end, start=0):
    """Step through states start, start + 1, ... with action = state; `end` is how it ends."""
    made = []
    for k, reward in enumerate(rewards):
        state, last = start + k, k == len(rewards) - 1
        made += accumulator.step(
            state,
            state,
            reward,
            state + 1,
            last and end == "terminated",
            last and end == "truncated",
        )
    return made


def test_three_step_returns_of_a_running_episode():
    made = play(NStepAccumulator(3, 0.5), [1.0, 2.0, 4.0, 8.0], "running")
    # 1 + 2/2 + 4/4 and 2 + 4/2 + 8/4; bootstrapped with 0.5**3.
    assert made == [(0, 0, 3.0, 0.125, 3), (1, 1, 6.0, 0.125, 4)]


def test_a_terminated_episode_has_no_value_after_its_end():
    accumulator = NStepAccumulator(3, 0.5)
    made = play(accumulator, [1.0, 2.0, 4.0, 8.0], "terminated")
    assert made == [
        (0, 0, 3.0, 0.125, 3),
        (1, 1, 6.0, 0.0, 4),
        (2, 2, 8.0, 0.0, 4),
        (3, 3, 8.0, 0.0, 4),
    ]
    assert len(accumulator) == 0


def test_a_truncated_episode_bootstraps_from_its_last_observation():
    made = play(NStepAccumulator(3, 0.5), [1.0, 2.0, 4.0, 8.0], "truncated")
    assert made == [
        (0, 0, 3.0, 0.125, 3),
        (1, 1, 6.0, 0.125, 4),
        (2, 2, 8.0, 0.25, 4),
        (3, 3, 8.0, 0.5, 4),
    ]


@pytest.mark.parametrize(("end", "discounts"), [("terminated", [0, 0]), ("truncated", [0.25, 0.5])])
def test_an_episode_shorter_than_n(end, discounts):
    made = play(NStepAccumulator(5, 0.5), [1.0, 2.0], end)
    assert made == [(0, 0, 2.0, discounts[0], 2), (1, 1, 2.0, discounts[1], 2)]


def test_an_episode_of_one_step():
    assert play(NStepAccumulator(3, 0.9), [7.0], "terminated") == [(0, 0, 7.0, 0.0, 1)]
    assert play(NStepAccumulator(3, 0.9), [7.0], "truncated") == [(0, 0, 7.0, 0.9, 1)]


def test_terminated_wins_over_truncated():
    made = NStepAccumulator(3, 0.9).step(0, 0, 1.0, 1, True, True)
    assert made == [(0, 0, 1.0, 0.0, 1)]


def test_one_step_returns():
    made = play(NStepAccumulator(1, 0.9), [1.0, 2.0], "terminated")
    assert made == [(0, 0, 1.0, 0.9, 1), (1, 1, 2.0, 0.0, 2)]


def test_returns_never_reach_across_a_reset():
    accumulator = NStepAccumulator(3, 1.0)
    first = play(accumulator, [1.0, 1.0], "truncated")
    second = play(accumulator, [10.0, 10.0, 10.0], "running", start=100)
    assert [t.reward for t in first] == [2.0, 1.0]
    assert [t.next_observation for t in first] == [2, 2]
    assert second == [(100, 100, 30.0, 1.0, 103)]


def test_cut_completes_what_is_under_way_as_if_truncated():
    accumulator = NStepAccumulator(3, 0.5)
    made = play(accumulator, [1.0, 2.0, 4.0, 8.0], "running")
    made += accumulator.cut(4)
    assert made[2:] == [(2, 2, 8.0, 0.25, 4), (3, 3, 8.0, 0.5, 4)]
    assert accumulator.cut(4) == []


def test_every_step_starts_exactly_one_transition():
    generator = np.random.default_rng(1)
    for n in (1, 2, 3, 7):
        accumulator = NStepAccumulator(n, 0.99)
        observations = []
        steps = 0
        while steps < 500:
            length = int(generator.integers(1, 12))
            end = str(generator.choice(["terminated", "truncated"]))
            made = play(accumulator, [1.0] * length, end, start=steps)
            observations += [t.observation for t in made]
            steps += length
        assert observations == list(range(steps))


def test_a_batch_holds_what_was_appended():
    dtype = EnvironmentSpec("x", (2,), np.dtype(np.float32), 3).record_dtype()
    batch = TransitionBatch(dtype, 3)
    for transition in play(NStepAccumulator(2, 0.5), [1.0, 2.0], "truncated"):
        batch.append(transition._replace(observation=[1, 2], next_observation=[3, 4]))
    assert len(batch) == 2
    assert not batch.full
    rows = batch.take()
    assert len(batch) == 0
    assert rows.dtype == dtype
    assert rows["observation"].tolist() == [[1, 2], [1, 2]]
    assert rows["next_observation"].tolist() == [[3, 4], [3, 4]]
    assert rows["action"].tolist() == [0, 1]
    assert rows["reward"].tolist() == [2.0, 2.0]
    assert rows["discount"].tolist() == [0.25, 0.5]
    batch.append((np.zeros(2), 0, 0.0, 0.0, np.zeros(2)))
    assert rows["reward"].tolist() == [2.0, 2.0]
