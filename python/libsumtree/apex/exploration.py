"""Exploration rates, and which seeds belong to whom.

The seeds of environments lie in three ranges that never meet, so that a policy is never judged
on an episode that it was trained on, nor chosen by the episodes that it is judged on:

- training: below 2**30,
- evaluation: 2**30 and above,
- validation (keeping the best policy): 2**30 + 2**29 and above.
"""

from __future__ import annotations

import numpy as np

#: Seeds of training episodes are below this.
TRAINING_SEED_STOP = 2**30
#: The first evaluation seed.
EVALUATION_SEED_START = 2**30
#: The first validation seed.
VALIDATION_SEED_START = 2**30 + 2**29


def epsilon(actor: int, actors: int, base: float = 0.4, exponent: float = 7.0) -> float:
    """Return the exploration rate of one actor: ``base ** (1 + exponent * i / (N - 1))``.

    The ladder of Horgan et al., "Distributed Prioritized Experience Replay", 2018, section 4. A
    single actor has ``base``.

    Parameters
    ----------
    actor : int
        The actor's number i, 0 .. N - 1.
    actors : int
        Number of actors N.
    base, exponent : float
        The ladder's first rate and its steepness.

    Raises
    ------
    ValueError
        If the actor's number is not below the number of actors.
    """
    if not 0 <= actor < actors:
        raise ValueError(f"actor {actor} is not one of 0 .. {actors - 1}")
    fraction = actor / (actors - 1) if actors > 1 else 0.0
    return float(base ** (1.0 + exponent * fraction))


class ActorRandomness:
    """Every random number of one actor: a pure function of (seed, actor, epoch).

    The epoch is the replay buffer's, advanced by every restore: a run that goes on does not
    repeat the episodes that it has learned from.

    Parameters
    ----------
    seed : int
        Seed of the run.
    actor : int
        The actor's number.
    epoch : int
        The replay buffer's epoch.
    """

    def __init__(self, seed: int, actor: int, epoch: int) -> None:
        sequence = np.random.SeedSequence(seed, spawn_key=(actor, epoch))
        episodes, choices = sequence.spawn(2)
        self._episodes = np.random.Generator(np.random.Philox(episodes))
        self._choices = np.random.Generator(np.random.Philox(choices))

    def episode_seed(self) -> int:
        """Return the seed of the next episode, below `TRAINING_SEED_STOP`."""
        return int(self._episodes.integers(TRAINING_SEED_STOP))

    def explores(self, rate: float) -> bool:
        """Return True with probability `rate`."""
        return float(self._choices.random()) < rate

    def action(self, actions: int) -> int:
        """Return one of ``actions`` numbers, each as likely."""
        return int(self._choices.integers(actions))


def evaluation_seeds(count: int = 20) -> range:
    """Return the seeds of the evaluation episodes: the same for every policy."""
    return range(EVALUATION_SEED_START, EVALUATION_SEED_START + count)


def validation_seeds(count: int = 20, start: int = 0) -> range:
    """Return ``count`` seeds of validation episodes, from the start-th on."""
    first = VALIDATION_SEED_START + start
    return range(first, first + count)
