from __future__ import annotations

import numpy as np
import pytest

from libsumtree.apex import DuelingMLP
from libsumtree.apex.actor import Player
from libsumtree.apex.environments import EnvironmentSpec, describe
from libsumtree.apex.exploration import ActorRandomness
from libsumtree.apex.learner import (
    PRIORITY_EPSILON,
    DoubleQLearner,
    double_q_targets,
    initial_priorities,
    weighted_huber,
)
from libsumtree.errors import CheckpointMismatchError

SPEC = EnvironmentSpec("x", (2,), np.dtype(np.float32), 2)


def transitions(count=8, seed=0):
    generator = np.random.default_rng(seed)
    rows = np.zeros(count, SPEC.record_dtype())
    rows["observation"] = generator.normal(size=(count, 2))
    rows["next_observation"] = generator.normal(size=(count, 2))
    rows["action"] = generator.integers(2, size=count)
    rows["reward"] = generator.normal(size=count)
    rows["discount"] = 0.5 * (np.arange(count) % 2)
    return rows


def learner(target_interval=3, seed=0):
    return DoubleQLearner(
        DuelingMLP(2, 2, hidden=(8,), seed=seed),
        DuelingMLP(2, 2, hidden=(8,), seed=seed + 1),
        target_interval,
    )


def test_the_online_network_chooses_and_the_target_network_values():
    rows = transitions(3)
    rows["reward"], rows["discount"] = [1.0, 2.0, 3.0], [0.5, 0.25, 0.0]
    online = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]], np.float32)
    target = np.array([[100.0, 10.0], [8.0, 100.0], [9.0, 9.0]], np.float32)
    assert double_q_targets(rows, online, target).tolist() == [6.0, 4.0, 3.0]


def test_weighted_huber_by_hand():
    errors = np.array([0.5, -3.0, 1.0], np.float32)
    # 0.125, 2.5 and 0.5, weighted by 1, 0.5 and 2.
    assert weighted_huber(errors, np.array([1.0, 0.5, 2.0])) == pytest.approx(2.375 / 3)


def test_initial_priorities_are_those_of_the_actors_own_network():
    network = DuelingMLP(2, 2, hidden=(8,), seed=0)
    rows = transitions()
    best = network.q_values(rows["next_observation"]).max(axis=1)
    taken = network.q_values(rows["observation"])[np.arange(8), rows["action"]]
    expected = np.abs(rows["reward"] + rows["discount"] * best - taken) + PRIORITY_EPSILON
    priorities = initial_priorities(network, rows)
    assert priorities.dtype == np.float64
    np.testing.assert_allclose(priorities, expected, rtol=1e-5)


def test_priorities_after_a_step_are_the_errors_before_it():
    one = learner()
    rows = transitions()
    online = one.online.q_values(rows["next_observation"])
    target = double_q_targets(rows, online, online)  # the target begins as a copy
    errors = target - one.online.q_values(rows["observation"])[np.arange(8), rows["action"]]
    update = one.update(rows, np.ones(8))
    np.testing.assert_allclose(update.priorities, np.abs(errors) + PRIORITY_EPSILON, rtol=1e-5)
    assert update.loss == pytest.approx(weighted_huber(errors, np.ones(8)), rel=1e-5)


def test_a_perfect_prediction_has_a_positive_priority():
    rows = transitions(4)
    rows["discount"] = 0.0
    one = learner()
    taken = one.online.q_values(rows["observation"])[np.arange(4), rows["action"]]
    rows["reward"] = taken
    assert (one.update(rows, np.ones(4)).priorities > 0).all()


def test_the_target_network_is_copied_every_few_steps():
    one = learner(target_interval=3)
    seen = []
    for step in range(1, 8):
        one.update(transitions(seed=step), np.ones(8))
        same = np.array_equal(
            one.state()["target/layer0.weight"], one.state()["online/layer0.weight"]
        )
        seen.append(same)
    assert seen == [False, False, True, False, False, True, False]


def test_learning_goes_on_bit_for_bit_from_a_state():
    one, other = learner(seed=0), learner(seed=10)
    for step in range(4):
        one.update(transitions(seed=step), np.ones(8))
    other.load_state(one.state())
    for step in range(4, 9):
        one.update(transitions(seed=step), np.ones(8))
        other.update(transitions(seed=step), np.ones(8))
    assert other.steps == 9
    for name, array in one.state().items():
        np.testing.assert_array_equal(array, other.state()[name], err_msg=name)


def test_a_state_of_something_else_is_refused():
    with pytest.raises(CheckpointMismatchError, match="not an Ape-X learner's"):
        learner().load_state({"weights": np.zeros(3)})


def player(**changes):
    spec = describe("CartPole-v1")
    settings = {"rate": 0.5, "n_step": 3, "gamma": 0.99, "batch": 10} | changes
    return Player(spec, DuelingMLP(4, 2, seed=0), ActorRandomness(0, 0, 0), **settings)


def test_every_environment_step_of_an_actor_is_one_transition():
    one = player()
    rows, steps = [], 0
    for _ in range(137):
        one.step()
        steps += 1
        if one.ready:
            rows.append(one.take()[0])
    one.cut()
    rows.append(one.take()[0])
    assert sum(map(len, rows)) == steps
    assert all(10 <= len(part) <= 12 for part in rows[:-1])
    # Consecutive transitions of CartPole: the observation after this step begins the next one,
    # unless the episode was over.
    observations = np.concatenate(rows)["observation"]
    starts = np.abs(observations).max(axis=1) <= 0.05
    assert starts.sum() >= len(one.finished) + 1
    assert sum(length for _, length in one.finished) <= steps


def test_the_same_seed_plays_the_same_steps():
    def play():
        one = player()
        for _ in range(60):
            one.step()
            if one.ready:
                yield from one.take()[0].tolist()

    assert str(list(play())) == str(list(play()))


def test_an_actor_without_exploration_is_greedy():
    one = player(rate=0.0)
    network = DuelingMLP(4, 2, seed=0)
    for _ in range(10):
        one.step()
    rows, priorities = one.take()
    assert len(rows) >= 8
    assert len(priorities) == len(rows)
    greedy = network.q_values(rows["observation"]).argmax(axis=1)
    assert rows["action"].tolist() == greedy.tolist()
