from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from libsumtree.apex.environments import GreedyEpisodes, describe, make_environment
from libsumtree.apex.errors import EpisodesStoppedError, UnsuitableEnvironmentError


class Countdown(gymnasium.Env):
    """Ends after as many steps as the seed says; pays the action's number."""

    observation_space = spaces.Box(-100, 100, (1,), np.float64)
    action_space = spaces.Discrete(2, start=5)

    def reset(self, *, seed=None, options=None):
        self._left = seed % 10
        return np.array([self._left], np.float64), {}

    def step(self, action):
        assert action in self.action_space
        self._left -= 1
        return np.array([self._left], np.float64), float(action), self._left == 0, False, {}


class Unbounded(Countdown):
    observation_space = spaces.Graph(spaces.Discrete(2), None)


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    gymnasium.register("ApexCountdown-v0", Countdown)
    gymnasium.register("ApexGraph-v0", Unbounded)
    gymnasium.register("ApexMissing-v0", "no_such_module_here:Environment")


def test_cartpole():
    spec = describe("CartPole-v1")
    assert (spec.observation_shape, spec.observation_dtype, spec.actions) == ((4,), np.float32, 2)
    assert spec.first_action == 0
    dtype = spec.record_dtype()
    assert dtype.names == ("observation", "action", "reward", "discount", "next_observation")
    assert dtype.itemsize == 16 + 8 + 4 + 4 + 16
    assert not dtype.hasobject


def test_observations_that_are_numbers_of_a_set_become_one_hot():
    environment = make_environment("FrozenLake-v1")
    observation, _ = environment.reset(seed=0)
    assert observation.tolist() == [1] + [0] * 15
    assert describe("FrozenLake-v1").observation_shape == (16,)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("NoSuchThing-v0", "'NoSuchThing-v0' cannot be made"),
        ("not a name!", "'not a name!' cannot be made"),
        ("Pendulum-v1", "DQN needs a Discrete action space"),
        ("ApexGraph-v0", "cannot be made one array of fixed shape"),
        ("ApexMissing-v0", "No module named 'no_such_module_here'"),
    ],
)
def test_environments_that_dqn_cannot_play(name, message):
    with pytest.raises(UnsuitableEnvironmentError, match=message) as caught:
        describe(name)
    assert "\n" not in str(caught.value)


def always(action):
    def q_values(observations):
        values = np.zeros((len(observations), 2), np.float32)
        values[:, action] = 1
        return values

    return q_values


def test_greedy_episodes_end_each_in_its_own_time():
    episodes = GreedyEpisodes(describe("ApexCountdown-v0"), 4)
    # Seed s lasts s % 10 steps; action 1 is the environment's 6.
    assert episodes.play(always(1), [3, 1, 7, 2]).tolist() == [18.0, 6.0, 42.0, 12.0]
    assert episodes.play(always(0), [3]).tolist() == [15.0]


def test_more_episodes_than_environments_are_played_in_turns():
    episodes = GreedyEpisodes(describe("ApexCountdown-v0"), 2)
    assert episodes.play(always(1), range(1, 6)).tolist() == [6.0, 12.0, 18.0, 24.0, 30.0]


def test_an_endless_episode_is_cut():
    episodes = GreedyEpisodes(describe("ApexCountdown-v0"), 1, limit=4)
    assert episodes.play(always(0), [9]).tolist() == [20.0]


def test_episodes_stop_before_a_step_when_asked():
    episodes = GreedyEpisodes(describe("ApexCountdown-v0"), 1)
    answers = iter([False, False, True])
    asked = []

    def values(observations):
        asked.append(len(observations))
        return always(0)(observations)

    with pytest.raises(EpisodesStoppedError):
        episodes.play(values, [9], lambda: next(answers))
    assert asked == [1, 1]
    assert episodes.play(always(0), [3]).tolist() == [15.0]


def test_the_same_seeds_give_the_same_returns():
    episodes = GreedyEpisodes(describe("CartPole-v1"), 3)
    first = episodes.play(always(1), [1, 2, 3])
    assert first.tolist() == episodes.play(always(1), [1, 2, 3]).tolist()
    assert first.tolist() == [len_of_falling(seed) for seed in (1, 2, 3)]


def len_of_falling(seed):
    environment = gymnasium.make("CartPole-v1")
    environment.reset(seed=seed)
    for steps in range(1, 500):
        if environment.step(1)[2]:
            return float(steps)
    raise AssertionError("pushing to one side never fails")
