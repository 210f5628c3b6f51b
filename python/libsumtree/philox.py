"""The random numbers of libsumtree: NumPy's Philox, its seeds and its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index as to_index
from typing import Any, TypeAlias

import numpy as np
from numpy.random import Philox, SeedSequence

from .arguments import short
from .errors import ArgumentError, ArgumentTypeError

Seed: TypeAlias = "int | Sequence[int] | SeedSequence | None"
Words: TypeAlias = tuple[Sequence[int], Sequence[int], int]

_COUNTER_WORDS = 4
_MOST_POOL = 1 << 14  # words of a seed that was read: to mix them takes the square of that


def seed_sequence(seed: Seed) -> SeedSequence:
    """Take a seed as NumPy's `SeedSequence`; None draws entropy, which stays readable in it."""
    if isinstance(seed, SeedSequence):
        return seed
    try:
        return SeedSequence(_finite(seed))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ArgumentTypeError(
            f"seed is {short(seed)}: it must be None, an integer >= 0, a sequence of these or a "
            f"SeedSequence ({error})"
        ) from None


def saved_seed(entropy: Any, pool_size: Any, spawn_key: Sequence[int] = ()) -> SeedSequence:
    """Make a seed of what was read: it draws no entropy of its own, and no memory without bound.

    Raises
    ------
    TypeError, ValueError, OverflowError, RecursionError
        If it is none.
    """
    if entropy is None:
        raise ValueError("a seed without its entropy")
    if not 0 <= to_index(pool_size) <= _MOST_POOL:
        raise ValueError(f"pool_size is {short(pool_size)}: at most {_MOST_POOL}")
    return SeedSequence(entropy, spawn_key=tuple(spawn_key), pool_size=pool_size)


def _finite(seed: Any) -> Any:
    """Give a seed in which every descent ends: in a matrix, SeedSequence descends until it crashes.

    Raises
    ------
    RecursionError
        A list holds itself.
    TypeError
        An array holds other things than integers, or has more than one axis: NumPy 2.5 refuses
        what earlier versions flatten.
    """
    if isinstance(seed, np.ndarray):
        if seed.dtype.kind not in "iu" or seed.ndim > 1:
            raise TypeError(f"an array of {seed.dtype} with {seed.ndim} axes")
        return np.asarray(seed)
    if isinstance(seed, list):
        return [_finite(part) for part in seed]
    return tuple(_finite(part) for part in seed) if isinstance(seed, tuple) else seed


def words_of(state: Mapping[str, Any]) -> Words:
    """Take (key, counter, buffer_pos) out of a state as ``numpy.random.Philox().state`` gives it.

    Raises
    ------
    ArgumentError
        If it is not the state of a Philox.
    """
    try:
        if state["bit_generator"] != "Philox":
            raise ValueError(f"bit_generator is {short(state['bit_generator'])}")
        key, counter = (_integers(state["state"][name]) for name in ("key", "counter"))
        position = to_index(state["buffer_pos"])
        if len(key) != 2 or len(counter) != _COUNTER_WORDS or not 0 <= position <= _COUNTER_WORDS:
            raise ValueError("key, counter or buffer_pos is out of range")
        if any(not 0 <= word < 1 << 64 for word in key + counter):
            raise ValueError("key and counter must be of 64-bit words")
    except (LookupError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"rng_state is not the state of a numpy.random.Philox: {type(error).__name__}: {error}"
        ) from None
    return key, counter, position


def _integers(words: Any) -> list[int]:
    """Take the words of a list or array; the elements of an array of texts need not be any."""
    if isinstance(words, np.ndarray) and words.dtype.kind not in "iuO":
        raise TypeError(f"an array of {words.dtype}")
    return [to_index(word) for word in words]


def state_of(words: Words) -> dict[str, Any]:
    """Make the state that NumPy's Philox has after the same draws: its setter takes it.

    NumPy keeps the block at `counter` in the state. It is made by drawing it again, from the block
    before.
    """
    key, counter, position = words
    before = sum(word << 64 * i for i, word in enumerate(counter)) - 1
    state = Philox(0).state
    state["state"]["key"] = np.array(key, dtype=np.uint64)
    state["state"]["counter"] = np.array(
        [before >> 64 * i & 0xFFFFFFFFFFFFFFFF for i in range(_COUNTER_WORDS)], dtype=np.uint64
    )
    state["buffer_pos"] = _COUNTER_WORDS
    generator = Philox(0)
    generator.state = state
    generator.random_raw(position)
    return dict(generator.state)
