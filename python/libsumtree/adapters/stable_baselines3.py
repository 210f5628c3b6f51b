"""Prioritized replay for Stable-Baselines3: a replay buffer, and a DQN that learns from it.

>>> from libsumtree.adapters.stable_baselines3 import PrioritizedDQN
>>> model = PrioritizedDQN("MlpPolicy", "CartPole-v1", seed=0)
>>> model = model.learn(1000)

`PrioritizedDQN` takes what `stable_baselines3.DQN` does; ``replay_buffer_kwargs`` go to
`PrioritizedReplayBuffer`. For another algorithm, have its ``train`` weigh the loss by the samples'
`weights` and give absolute TD errors to `PrioritizedReplayBuffer.update_priorities`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..annealing import BetaSchedule
from ..arguments import Indices, as_count, as_doubles, as_real
from ..errors import ArgumentError, ExponentError
from ..philox import Seed
from ..tree import PriorityTree, masses_of

try:
    import torch
    from gymnasium import spaces
    from stable_baselines3 import DQN
    from stable_baselines3.common.buffers import ReplayBuffer
except ImportError as error:
    raise ImportError(
        f"{__name__} needs Stable-Baselines3 ({error}): pip install 'libsumtree[sb3]'"
    ) from error

__all__ = ["PrioritizedDQN", "PrioritizedReplayBuffer", "PrioritizedSamples"]


class PrioritizedSamples(NamedTuple):
    """What Stable-Baselines3 has of a sample, and what prioritized replay adds.

    Attributes
    ----------
    observations, actions, next_observations, dones, rewards : Tensor
        As in ``ReplayBufferSamples``, n rows each.
    discounts : None
        One step is looked ahead.
    weights : Tensor of float32, shape (n, 1)
        Importance-sampling weights, in 0 .. 1.
    leaves : ndarray of int64, shape (n,)
        Which transitions these are, for `PrioritizedReplayBuffer.update_priorities`.
    """

    observations: torch.Tensor
    actions: torch.Tensor
    next_observations: torch.Tensor
    dones: torch.Tensor
    rewards: torch.Tensor
    discounts: None
    weights: torch.Tensor
    leaves: Indices


class PrioritizedReplayBuffer(ReplayBuffer):
    """A replay buffer for ``replay_buffer_class=``: draws go by (priority + eps) ** alpha.

    Parameters
    ----------
    buffer_size, observation_space, action_space, device, n_envs, handle_timeout_termination
        As ``stable_baselines3.common.buffers.ReplayBuffer`` takes them.
    optimize_memory_usage : bool
        Must be False.
    alpha : float
        Finite, >= 0.
    beta : float or BetaSchedule
        Exponent of the weights, in 0 .. 1, or how it moves with the calls of `sample`.
    eps : float
        Finite, >= 0; added to every priority.
    replay_seed : int, sequence of int, SeedSequence or None
        Of the draws; None takes entropy, whatever seed the algorithm has.

    Raises
    ------
    ArgumentError
        If the observations are of a Dict space, or memory usage is to be optimized.
    ExponentError
        If alpha or beta is out of its domain.

    Notes
    -----
    The transition of step `pos` in environment `e` is leaf pos * n_envs + e of `tree`. A transition
    begins with the largest mass held, 1.0 if there is none. It pickles, with priorities and draws:
    ``save_replay_buffer`` and ``load_replay_buffer`` go on with the very same samples.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: Any,
        action_space: Any,
        device: Any = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        alpha: float = 0.6,
        beta: float | BetaSchedule = 0.4,
        eps: float = 1e-6,
        replay_seed: Seed = None,
    ) -> None:
        if isinstance(observation_space, spaces.Dict):
            raise ArgumentError("observations are of a Dict space: only arrays are taken here")
        if optimize_memory_usage:
            raise ArgumentError("optimize_memory_usage is True: it must be False here")
        self.alpha, self.eps = as_real(alpha, "alpha"), as_real(eps, "eps")
        masses_of(np.array(self.eps), self.alpha)
        self.beta_schedule = beta if isinstance(beta, BetaSchedule) else _constant(beta)
        self.sampled = 0
        super().__init__(
            buffer_size,
            observation_space,
            action_space,
            device,
            n_envs=n_envs,
            handle_timeout_termination=handle_timeout_termination,
        )
        self.tree = PriorityTree(self.buffer_size * n_envs, seed=replay_seed)

    @property
    def beta(self) -> float:
        """The exponent of the weights of the next `sample`."""
        return self.beta_schedule.at(self.sampled)

    def add(self, *transition: Any, **named: Any) -> None:
        """Add one transition of each environment, with the largest mass held, or 1.0."""
        leaves = slice(self.pos * self.n_envs, (self.pos + 1) * self.n_envs)
        mass = self.tree.max or 1.0
        self.tree[leaves] = 0.0
        super().add(*transition, **named)
        self.tree[leaves] = mass

    def reset(self) -> None:
        """Drop all transitions."""
        super().reset()
        self.tree[:] = 0.0

    def sample(self, batch_size: int, env: Any = None) -> PrioritizedSamples:
        """Draw transitions, each with probability mass / total, stratified, with replacement.

        Parameters
        ----------
        batch_size : int
            >= 0.
        env : VecNormalize, optional
            What normalizes observations and rewards.

        Raises
        ------
        EmptyTreeError
            If the buffer is empty.
        """
        drawn = self.tree.sample(as_count(batch_size, "batch_size"), self.beta)
        self.sampled += 1
        at = drawn.indices // self.n_envs, drawn.indices % self.n_envs
        ends = self.dones[at] * (1.0 - self.timeouts[at])
        return PrioritizedSamples(
            self.to_torch(self._normalize_obs(self.observations[at], env)),
            self.to_torch(self.actions[at]),
            self.to_torch(self._normalize_obs(self.next_observations[at], env)),
            self.to_torch(ends.astype(np.float32).reshape(-1, 1)),
            self.to_torch(self._normalize_reward(self.rewards[at].reshape(-1, 1), env)),
            None,
            self.to_torch(drawn.weights.astype(np.float32).reshape(-1, 1)),
            drawn.indices,
        )

    def update_priorities(self, leaves: Indices, priorities: Any) -> None:
        """Set the priorities of transitions that were drawn, before any is added.

        Parameters
        ----------
        leaves : array_like of integers, shape (n,)
            `PrioritizedSamples.leaves`.
        priorities : array_like or Tensor of n real numbers
            Absolute TD errors, finite, >= 0; eps is added here.

        Raises
        ------
        PriorityError, IndexOutOfRangeError, ShapeError, ArgumentTypeError
            Naming the first bad position and its value; nothing is changed.
        """
        if isinstance(priorities, torch.Tensor):
            priorities = priorities.detach().cpu().numpy()
        values = np.ravel(as_doubles(priorities, "priorities"))
        masses_of(values, self.alpha)  # names what the caller gave
        self.tree.update(leaves, masses_of(values + self.eps, self.alpha))


class PrioritizedDQN(DQN):
    """Deep Q-learning from a `PrioritizedReplayBuffer` (Schaul et al., 2016, algorithm 1).

    As `stable_baselines3.DQN`, with the same arguments; its loss is weighted, and the absolute TD
    errors become priorities.

    Raises
    ------
    ArgumentError
        If ``replay_buffer_class`` is given and is no `PrioritizedReplayBuffer`, or ``n_steps`` is
        given.
    """

    replay_buffer_class: type[PrioritizedReplayBuffer] | None

    def _setup_model(self) -> None:
        if self.replay_buffer_class is None:
            self.replay_buffer_class = PrioritizedReplayBuffer
        if not issubclass(self.replay_buffer_class, PrioritizedReplayBuffer):
            raise ArgumentError(
                f"replay_buffer_class is {self.replay_buffer_class.__name__}: it must be a "
                f"PrioritizedReplayBuffer of {__name__}"
            )
        if getattr(self, "n_steps", 1) != 1:
            raise ArgumentError(f"n_steps is {self.n_steps}: it must be 1 here")
        super()._setup_model()

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Take gradient steps, each from a new sample whose priorities it then updates."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        losses = [self._train_once(batch_size) for _ in range(gradient_steps)]
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", float(np.mean(losses)))
        self.logger.record("train/beta", self.replay_buffer.beta)

    def _train_once(self, batch_size: int) -> float:
        batch = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
        targets = self._targets_of(batch)
        values = self.q_net(batch.observations).gather(1, batch.actions.long())
        losses = torch.nn.functional.smooth_l1_loss(values, targets, reduction="none")
        loss = (batch.weights * losses).mean()
        self.policy.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
        self.policy.optimizer.step()
        self.replay_buffer.update_priorities(batch.leaves, (values - targets).abs())
        return loss.item()

    def _targets_of(self, batch: PrioritizedSamples) -> torch.Tensor:
        with torch.no_grad():
            best = self.q_net_target(batch.next_observations).amax(dim=1, keepdim=True)
            return batch.rewards + (1.0 - batch.dones) * self.gamma * best


def _constant(beta: Any) -> BetaSchedule:
    value = as_real(beta, "beta")
    if not 0.0 <= value <= 1.0:
        raise ExponentError(f"beta is {value}: it must be in 0 .. 1, or a BetaSchedule")
    return BetaSchedule(value, value, 1)
