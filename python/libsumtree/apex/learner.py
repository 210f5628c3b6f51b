"""Double Q-learning from prioritized samples: the learner's arithmetic, without MPI."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CheckpointMismatchError
from .network import QFunction

Array = NDArray[Any]

#: Added to every abs(TD error), so that no transition's priority is zero.
PRIORITY_EPSILON = 1e-6


def double_q_targets(transitions: Array, online: Array, target: Array) -> NDArray[np.float32]:
    """Return ``reward + discount * target[argmax of online]``, float32, shape (B,).

    Double Q-learning (van Hasselt, Guez and Silver, 2016): one network chooses the next action,
    the other values it.

    Parameters
    ----------
    transitions : numpy.ndarray
        Structured, shape (B,), with fields ``reward`` and ``discount``.
    online, target : numpy.ndarray
        Both networks' values of ``next_observation``, float32, shape (B, A).
    """
    chosen = target[np.arange(len(target)), online.argmax(axis=1)]
    targets: NDArray[np.float32] = transitions["reward"] + transitions["discount"] * chosen
    return targets


def priorities_of(td_errors: Array) -> NDArray[np.float64]:
    """Return ``abs(TD error) + PRIORITY_EPSILON``, float64, shape (B,)."""
    return np.abs(td_errors, dtype=np.float64) + PRIORITY_EPSILON


def initial_priorities(network: QFunction, transitions: Array) -> NDArray[np.float64]:
    """Return priorities of new transitions as an actor sees them, float64, shape (B,).

    An actor has one network, which both chooses and values the next action (Horgan et al., 2018,
    algorithm 1).
    """
    rows = np.arange(len(transitions))
    following = network.q_values(transitions["next_observation"])
    taken = network.q_values(transitions["observation"])[rows, transitions["action"]]
    return priorities_of(double_q_targets(transitions, following, following) - taken)


@dataclass(frozen=True)
class Update:
    """What one learner step gives back.

    Attributes
    ----------
    priorities : numpy.ndarray
        New priorities of the sampled transitions, float64, shape (B,).
    loss : float
        Mean weighted Huber loss of the batch, before the step.
    """

    priorities: NDArray[np.float64]
    loss: float


class DoubleQLearner:
    """An online network, a target network that follows it, and the number of steps made.

    Parameters
    ----------
    online, target : QFunction
        Two networks of one factory and spec; the target starts as a copy of the online one.
    target_interval : int
        Learner steps between two copies to the target network.
    """

    def __init__(self, online: QFunction, target: QFunction, target_interval: int) -> None:
        self.online = online
        self.steps = 0
        self._target = target
        self._target_interval = target_interval
        target.load_parameters(online.parameters())

    def update(self, transitions: Array, weights: Array) -> Update:
        """Make one step on a batch.

        Parameters
        ----------
        transitions : numpy.ndarray
            Structured, shape (B,), the fields of `NStepTransition`.
        weights : numpy.ndarray
            Importance-sampling weights, shape (B,).
        """
        following = np.ascontiguousarray(transitions["next_observation"])
        targets = double_q_targets(
            transitions, self.online.q_values(following), self._target.q_values(following)
        )
        errors = self.online.fit(
            transitions["observation"], transitions["action"], targets, weights
        )
        self.steps += 1
        if self.steps % self._target_interval == 0:
            self._target.load_parameters(self.online.parameters())
        return Update(priorities_of(errors), weighted_huber(errors, weights))

    def state(self) -> dict[str, Array]:
        """Return a copy of both networks, the optimizer and the step, as flat arrays."""
        state = {f"online/{name}": array for name, array in self.online.state().items()}
        state |= {f"target/{name}": array for name, array in self._target.parameters().items()}
        state["learner_steps"] = np.array(self.steps, np.int64)
        return state

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Take over what `state` returned.

        Raises
        ------
        CheckpointMismatchError
            If an array is missing or has another shape; nothing that the agent relies on may be
            used after that.
        """
        if "learner_steps" not in state:
            raise CheckpointMismatchError(
                "the checkpoint's learner state has no 'learner_steps': it is not an Ape-X "
                "learner's"
            )
        self.online.load_state(part(state, "online/"))
        self._target.load_parameters(part(state, "target/"))
        self.steps = int(state["learner_steps"])


def part(state: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """Return the entries whose name begins with `prefix`, without it."""
    return {name[len(prefix) :]: state[name] for name in state if name.startswith(prefix)}


def weighted_huber(errors: Array, weights: Array) -> float:
    """Return the mean of ``weight * huber(error)``, with the Huber loss's threshold at 1."""
    size = np.abs(errors, dtype=np.float64)
    quadratic = np.minimum(size, 1.0)
    return float(np.mean(weights * quadratic * (size - 0.5 * quadratic)))
