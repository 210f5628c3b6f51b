"""Prioritized DQN of Stable-Baselines3."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from libsumtree import BetaSchedule, errors
from libsumtree.adapters.stable_baselines3 import (
    PrioritizedDQN,
    PrioritizedReplayBuffer,
)

BOX, ACTIONS = spaces.Box(-1.0, 1.0, (3,)), spaces.Discrete(4)


def made(size: int = 6, n_envs: int = 2, **options: Any) -> PrioritizedReplayBuffer:
    return PrioritizedReplayBuffer(size, BOX, ACTIONS, "cpu", n_envs, replay_seed=0, **options)


def add(buffer: ReplayBuffer, step: int) -> None:
    """Add a step whose observations, rewards and ends tell which transition they are of."""
    n = buffer.n_envs
    rewards = step * n + np.arange(n, dtype=np.float32)
    observations = np.repeat(rewards.reshape(n, 1), 3, axis=1)
    ends = rewards.astype(int) % 2 == 0
    infos = [{"TimeLimit.truncated": bool(r % 4 == 0)} for r in rewards]
    buffer.add(observations, observations + 1, rewards.astype(int) % 4, rewards, ends, infos)


def test_transitions_and_leaves_belong_together() -> None:
    buffer = made()
    for step in range(5):  # a ring of 3 steps
        add(buffer, step)
    sample = buffer.sample(64)
    of = sample.rewards.ravel()
    leaves = torch.from_numpy(sample.leaves)
    assert torch.equal(of.long() % 6, leaves)
    assert sorted(set(of.tolist())) == [4, 5, 6, 7, 8, 9]
    assert torch.equal(sample.observations, of.reshape(-1, 1).expand(-1, 3))
    assert torch.equal(sample.next_observations, sample.observations + 1)
    assert torch.equal(sample.actions.ravel(), of.long() % 4)
    # An end by a time limit is none.
    assert torch.equal(sample.dones.ravel(), ((of % 2 == 0) & (of % 4 != 0)).float())
    assert sample.weights.shape == sample.dones.shape == sample.rewards.shape == (64, 1)
    assert sample.weights.dtype == torch.float32


def test_draws_follow_priorities() -> None:
    buffer = made(alpha=0.5, beta=1.0, eps=0.0)
    for step in range(3):
        add(buffer, step)
    buffer.update_priorities(np.arange(6), torch.tensor([1.0, 4.0, 9.0, 0.0, 16.0, 0.0]))
    sample = buffer.sample(1000)
    np.testing.assert_array_equal(np.bincount(sample.leaves), [100, 200, 300, 0, 400])
    expected = 1.0 / np.array([1, 2, 3, 0.1, 4])[sample.leaves]
    np.testing.assert_allclose(sample.weights.ravel(), expected, rtol=1e-6)
    add(buffer, 3)  # in the place of leaves 0 and 1
    assert buffer.tree[:].tolist() == [4, 4, 3, 0, 4, 0]
    buffer.reset()
    with pytest.raises(errors.EmptyTreeError):
        buffer.sample(1)


def test_beta_moves_with_the_samples() -> None:
    buffer = made(beta=BetaSchedule(0.4, 1.0, 2))
    add(buffer, 0)
    betas = [buffer.beta for _ in range(3) if buffer.sample(1) is not None]
    assert betas == [0.7, 1.0, 1.0]


def test_bad_priorities_change_nothing() -> None:
    buffer = made()
    add(buffer, 0)
    before = buffer.tree[:].tolist()
    with pytest.raises(errors.PriorityError, match=r"priorities\[1\] is nan"):
        buffer.update_priorities(np.array([0, 1]), torch.tensor([1.0, torch.nan]))
    with pytest.raises(errors.IndexOutOfRangeError, match="is 6"):
        buffer.update_priorities(np.array([0, 6]), np.ones(2))
    with pytest.raises(errors.ShapeError):
        buffer.update_priorities(np.array([0, 1]), np.ones(3))
    assert buffer.tree[:].tolist() == before


def test_what_is_not_taken_is_said() -> None:
    for wrong, kind in (
        ({"optimize_memory_usage": True}, errors.ArgumentError),
        ({"alpha": -1.0}, errors.ExponentError),
        ({"beta": 1.5}, errors.ExponentError),
        ({"eps": -1.0}, errors.PriorityError),
    ):
        with pytest.raises(kind):
            made(**wrong)
    with pytest.raises(errors.ArgumentError, match="Dict space"):
        PrioritizedReplayBuffer(4, spaces.Dict({"a": BOX}), ACTIONS)
    with pytest.raises(errors.ArgumentError, match="replay_buffer_class is ReplayBuffer"):
        PrioritizedDQN("MlpPolicy", "CartPole-v1", replay_buffer_class=ReplayBuffer)
    with pytest.raises(errors.ArgumentError, match="n_steps is 3"):
        PrioritizedDQN("MlpPolicy", "CartPole-v1", n_steps=3)


def test_a_pickle_draws_what_the_buffer_draws(tmp_path: Path) -> None:
    buffer = made()
    for step in range(3):
        add(buffer, step)
    buffer.update_priorities(np.arange(6), np.arange(6.0))
    again = pickle.loads(pickle.dumps(buffer))
    for _ in range(3):
        one, other = buffer.sample(32), again.sample(32)
        np.testing.assert_array_equal(one.leaves, other.leaves)
        assert torch.equal(one.weights, other.weights)


def learner(env: Any, **options: Any) -> PrioritizedDQN:
    settings = {
        "learning_rate": 2.3e-3,
        "batch_size": 64,
        "buffer_size": 20_000,
        "learning_starts": 1000,
        "target_update_interval": 10,
        "train_freq": 64,
        "gradient_steps": 32,
        "exploration_fraction": 0.16,
        "exploration_final_eps": 0.04,
        "policy_kwargs": {"net_arch": [64, 64]},
        "replay_buffer_kwargs": {"replay_seed": 0, "alpha": 0.6, "beta": 0.4},
        "seed": 0,
        "device": "cpu",
    }
    return PrioritizedDQN("MlpPolicy", env, **{**settings, **options})


def test_it_learns_cartpole_and_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    model = learner("CartPole-v1")
    model.learn(20_000)
    returns = np.array(model.env.envs[0].get_episode_rewards())
    means = np.convolve(returns, np.full(20, 1 / 20), "valid")
    # Seeds 0, 1 and 2 come to 311, 418 and 438.
    assert means[0] < 60.0 < 120.0 < means.max(), f"of 20 episodes: {means[0]}, {means.max()}"

    masses = model.replay_buffer.tree[: model.replay_buffer.size()]
    assert len(np.unique(masses)) > 2000, "priorities did not change"
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    other = PrioritizedDQN.load(tmp_path / "model", env=model.get_env(), device="cpu")
    other.load_replay_buffer(tmp_path / "buffer")
    np.testing.assert_array_equal(other.replay_buffer.tree[:], model.replay_buffer.tree[:])
    one, two = model.replay_buffer.sample(8), other.replay_buffer.sample(8)
    np.testing.assert_array_equal(one.leaves, two.leaves)
    other.learn(500, reset_num_timesteps=False)


def test_the_weights_and_errors_are_those_of_the_loss() -> None:
    """One gradient step, beside the same by hand."""
    model = learner("CartPole-v1", learning_starts=100, train_freq=(1, "step"), gradient_steps=0)
    model.learn(300)
    buffer = model.replay_buffer
    buffer.update_priorities(np.arange(300), np.linspace(0.0, 3.0, 300))
    twin = pickle.loads(pickle.dumps(buffer)).sample(64)
    with torch.no_grad():
        values = model.q_net(twin.observations).gather(1, twin.actions.long())
        best = model.q_net_target(twin.next_observations).max(1).values.reshape(-1, 1)
        targets = twin.rewards + (1 - twin.dones) * model.gamma * best
        errors_then = (values - targets).abs().ravel().double().numpy()
        by_hand = torch.nn.functional.huber_loss(values, targets, reduction="none")
        loss = (twin.weights * by_hand).mean()
    assert twin.weights.min() < 0.9
    model.train(1, 64)
    logged = model.logger.name_to_value["train/loss"]
    np.testing.assert_allclose(logged, loss.item(), rtol=1e-5)
    last = dict(zip(twin.leaves.tolist(), errors_then, strict=True))
    masses = buffer.tree[np.array(list(last))]
    expected = (np.array(list(last.values())) + buffer.eps) ** buffer.alpha
    np.testing.assert_allclose(masses, expected, rtol=1e-5)


def test_several_environments_and_normalization() -> None:
    env = VecNormalize(DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * 3))
    model = learner(env, learning_starts=100, train_freq=4, gradient_steps=1)
    model.learn(600)
    assert model.replay_buffer.n_envs == 3
    assert isinstance(model, DQN)
    assert model._n_updates > 20
