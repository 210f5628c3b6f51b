"""Gymnasium environments: making them, checking their spaces, playing greedy episodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import EpisodesStoppedError, UnsuitableEnvironmentError, require

#: What plays: observations, shape (B, ...), to action values, shape (B, A).
Values = Callable[[NDArray[Any]], NDArray[np.float32]]


@dataclass(frozen=True)
class EnvironmentSpec:
    """What the agent needs to know of an environment.

    Attributes
    ----------
    name : str
        Gymnasium's id.
    observation_shape : tuple of int
        Shape of one observation.
    observation_dtype : numpy.dtype
        Type of its numbers.
    actions : int
        Number of actions, A.
    first_action : int
        The environment's name for action 0.
    """

    name: str
    observation_shape: tuple[int, ...]
    observation_dtype: np.dtype[Any]
    actions: int
    first_action: int = 0

    def record_dtype(self) -> np.dtype[np.void]:
        """Return the dtype of one transition in the replay buffer."""
        observation = (self.observation_dtype, self.observation_shape)
        return np.dtype(
            [
                ("observation", *observation),
                ("action", np.int64),
                ("reward", np.float32),
                ("discount", np.float32),
                ("next_observation", *observation),
            ]
        )


def make_environment(name: str) -> Any:
    """Make a Gymnasium environment whose observations are one array.

    Observations that are not (numbers from a set, dictionaries, tuples) are flattened by
    Gymnasium, a number from a set to a one-hot vector.

    Raises
    ------
    UnsuitableEnvironmentError
        If there is no such environment, it cannot be made here, or its actions or observations
        are of a kind that DQN cannot take.
    MissingExtraError
        If Gymnasium is not installed.
    """
    require("gymnasium")
    import gymnasium
    from gymnasium import spaces

    try:
        environment = gymnasium.make(name, disable_env_checker=True)
    except (gymnasium.error.Error, ImportError) as error:
        reason = " ".join(str(error).split())
        raise UnsuitableEnvironmentError(
            f"the environment {name!r} cannot be made: {reason}"
        ) from error
    if not isinstance(environment.action_space, spaces.Discrete):
        raise UnsuitableEnvironmentError(
            f"the environment {name!r} has actions {environment.action_space}; DQN needs a "
            "Discrete action space"
        )
    if isinstance(environment.observation_space, spaces.Box):
        return environment
    if environment.observation_space.is_np_flattenable:
        return gymnasium.wrappers.FlattenObservation(environment)
    raise UnsuitableEnvironmentError(
        f"the environment {name!r} has observations {environment.observation_space}, which "
        "cannot be made one array of fixed shape"
    )


def describe(name: str) -> EnvironmentSpec:
    """Make the environment once and return what the agent needs to know of it."""
    environment = make_environment(name)
    try:
        return EnvironmentSpec(
            name=name,
            observation_shape=tuple(environment.observation_space.shape),
            observation_dtype=np.dtype(environment.observation_space.dtype),
            actions=int(environment.action_space.n),
            first_action=int(environment.action_space.start),
        )
    finally:
        environment.close()


class GreedyEpisodes:
    """Environments that play episodes side by side, one batch of action values a step.

    Parameters
    ----------
    spec : EnvironmentSpec
        What to play.
    count : int
        Environments made; more episodes than this are played in turns.
    limit : int
        Steps after which an episode is cut, for environments that never end by themselves.
    """

    def __init__(self, spec: EnvironmentSpec, count: int, limit: int = 100_000) -> None:
        self._spec = spec
        self._limit = limit
        self._environments = [make_environment(spec.name) for _ in range(count)]

    def play(
        self, q_values: Values, seeds: Sequence[int], stop: Callable[[], bool] = lambda: False
    ) -> NDArray[np.float64]:
        """Play one greedy episode for each seed and return the returns, float64, in order.

        Raises
        ------
        EpisodesStoppedError
            As soon as `stop`, asked before every step, says so.
        """
        size = len(self._environments)
        groups = [seeds[start : start + size] for start in range(0, len(seeds), size)]
        return np.concatenate([self._play_group(q_values, group, stop) for group in groups])

    def close(self) -> None:
        """Close the environments."""
        for environment in self._environments:
            environment.close()

    def _play_group(
        self, q_values: Values, seeds: Sequence[int], stop: Callable[[], bool]
    ) -> NDArray[np.float64]:
        spec = self._spec
        observations = np.empty((len(seeds), *spec.observation_shape), spec.observation_dtype)
        for row, seed in enumerate(seeds):
            observations[row], _ = self._environments[row].reset(seed=seed)
        returns = np.zeros(len(seeds))
        playing = list(range(len(seeds)))
        for _ in range(self._limit):
            if stop():
                raise EpisodesStoppedError("stopped between two steps, as was asked for")
            values = q_values(observations[playing])
            actions = (values.argmax(axis=1) + spec.first_action).tolist()
            over = []
            for row, action in zip(playing, actions, strict=True):
                outcome = self._environments[row].step(action)
                observations[row], reward, terminated, truncated, _ = outcome
                returns[row] += reward
                if terminated or truncated:
                    over.append(row)
            if over:
                playing = [row for row in playing if row not in over]
            if not playing:
                break
        return returns
