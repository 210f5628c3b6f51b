"""The random numbers of learners: a stream of NumPy's Philox for each, and how far it has come.

A learner without a number takes ``Philox(SeedSequence(seed))``, the stream of a buffer; learner s
of several takes that of ``SeedSequence(seed, spawn_key=(s,))``. A position counts the doubles that
were taken: it is all that a checkpoint needs to hold.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.random import Generator, Philox, SeedSequence

from .. import philox
from ..arguments import Doubles, as_count
from ..errors import ArgumentError, ProtocolError

#: The number of a learner that has none.
ALONE = -1
MOST_LEARNERS = 1 << 20

_WORDS = 4


class Stream:
    """Uniform doubles of one learner.

    Parameters
    ----------
    seed : SeedSequence
        That of the service, without a spawn key.
    learner : int
        The learner's number, or `ALONE`.
    position : int
        How many doubles were taken before.
    """

    def __init__(self, seed: SeedSequence, learner: int = ALONE, position: int = 0) -> None:
        key = () if learner == ALONE else (learner,)
        self.seed = SeedSequence(seed.entropy, spawn_key=key, pool_size=seed.pool_size)
        self.position = position
        bits = Philox(self.seed)
        bits.advance(position // _WORDS)
        bits.random_raw(position % _WORDS)
        self._generator = Generator(bits)

    def random(self, n: int) -> Doubles:
        """Take n doubles in 0 .. 1."""
        self.position += n
        return self._generator.random(n)

    @property
    def state(self) -> dict[str, Any]:
        """The state, as NumPy's Philox and `PriorityTree.rng_state` have it."""
        return dict(self._generator.bit_generator.state)


class Streams:
    """The streams of all learners of one replay rank, as checkpoints hold them.

    Parameters
    ----------
    seed : SeedSequence
        That of the service, without a spawn key.
    positions : dict of int to int
        How many doubles each learner has taken; brought up to date here.
    """

    def __init__(self, seed: SeedSequence, positions: dict[int, int]) -> None:
        self.seed = seed
        self._positions = positions
        self._streams: dict[int, Stream] = {}

    def position(self, learner: int) -> int:
        """Return how many doubles a learner has taken."""
        return self._positions.get(learner, 0)

    def note(self, learner: int, position: int) -> None:
        """Take note of what a learner took for itself."""
        self._positions[learner] = position

    def random(self, learner: int, n: int) -> Doubles:
        """Take n doubles for a learner."""
        stream, position = self._streams.get(learner), self.position(learner)
        if stream is None or stream.position != position:
            stream = self._streams[learner] = Stream(self.seed, learner, position)
        self._positions[learner] = position + n
        return stream.random(n)


def position_of(state: Mapping[str, Any]) -> int:
    """Return how many doubles a Philox has given, from its state; it began at counter 0.

    Raises
    ------
    ArgumentError
        If it is not the state of a Philox.
    """
    _, counter, buffer_pos = philox.words_of(state)
    blocks = sum(word << 64 * i for i, word in enumerate(counter))
    return max(0, _WORDS * (blocks - 1) + buffer_pos)


def seed_text(seed: SeedSequence) -> str:
    """Return a seed as text."""
    entropy = np.asarray(seed.entropy, object)
    return json.dumps([[int(n) for n in entropy.ravel()], entropy.ndim, seed.pool_size])


def seed_of(text: str) -> SeedSequence:
    """Read a seed from text.

    Raises
    ------
    ProtocolError
        If it is none.
    """
    try:
        numbers, ndim, pool_size = json.loads(text)
        return philox.saved_seed(numbers if ndim else numbers[0], pool_size)
    except (TypeError, ValueError, IndexError, OverflowError, RecursionError) as error:
        raise ProtocolError(f"{text!r:.80} is not a seed: {error}") from None


def learner_number(learner: int | None) -> int:
    """Return the number of a learner as messages have it.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        If it is no number of a learner.
    """
    number = ALONE if learner is None else as_count(learner, "learner")
    if number >= MOST_LEARNERS:
        raise ArgumentError(f"learner is {number}: 0 .. {MOST_LEARNERS - 1} are possible")
    return number
