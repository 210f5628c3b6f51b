"""Seeds and states of `libsumtree.philox` against NumPy's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from numpy.random import Generator, Philox, SeedSequence

import libsumtree as st
from libsumtree.errors import ArgumentError, ArgumentTypeError
from libsumtree.philox import saved_seed, seed_sequence, state_of, words_of

WORD = some.one_of(some.integers(0, 2**64 - 1), some.sampled_from([0, 2**64 - 1]))


@given(
    some.lists(WORD, min_size=2, max_size=2),
    some.lists(WORD, min_size=4, max_size=4),
    some.integers(1, 4),
)
def test_states_go_both_ways(key: list[int], counter: list[int], position: int) -> None:
    state = state_of((key, counter, position))
    assert words_of(state) == (key, counter, position)
    philox = Philox()
    philox.state = state
    assert words_of(philox.state) == (key, counter, position)


def test_a_block_not_begun_is_the_end_of_the_one_before() -> None:
    # NumPy never has buffer_pos 0: it makes a block only to use a word of it.
    assert words_of(state_of(([1, 2], [7, 0, 0, 0], 0))) == ([1, 2], [6, 0, 0, 0], 4)


@given(some.integers(0, 2**128), some.integers(0, 13), some.integers(1, 13))
def test_the_state_made_is_numpys(seed: int, before: int, more: int) -> None:
    philox = Philox(seed)
    philox.random_raw(before)
    other = Philox()
    other.state = state_of(words_of(philox.state))
    assert other.random_raw(more).tolist() == philox.random_raw(more).tolist()
    assert str(other.state) == str(philox.state)


@given(some.lists(WORD, min_size=2, max_size=2), some.lists(WORD, min_size=4, max_size=4))
def test_a_tree_draws_from_any_state(key: list[int], counter: list[int]) -> None:
    """Wherever the counter stands, carries included, the tree goes on as NumPy does."""
    tree = st.PriorityTree(4096)
    tree[:] = 1.0
    tree.rng_state = state_of((key, counter, 2))
    philox = Philox()
    philox.state = state_of((key, counter, 2))
    uniforms = Generator(philox).random(11)
    drawn = tree.sample(11, stratified=False)
    assert drawn.indices.tolist() == np.floor(uniforms * 4096).astype(int).tolist()
    assert words_of(tree.rng_state) == words_of(philox.state)


def test_a_half_used_word_does_not_matter() -> None:
    philox = Philox(3)
    Generator(philox).integers(0, 9, dtype=np.int32)
    assert philox.state["has_uint32"] == 1
    uniforms = state_of(words_of(philox.state))
    other = Philox()
    other.state = uniforms
    assert Generator(other).random(5).tolist() == Generator(philox).random(5).tolist()


@pytest.mark.parametrize("seed", [0, 1, 2**300, [5], [1, 2**70], (3, 4), np.array([7, 8])])
def test_seeds(seed: Any) -> None:
    words = seed_sequence(seed).generate_state(8)
    assert words.tolist() == SeedSequence(seed).generate_state(8).tolist()


def test_a_seed_sequence_is_taken_as_it_is() -> None:
    sequence = SeedSequence(5, spawn_key=(3,))
    assert seed_sequence(sequence) is sequence
    assert seed_sequence(None).entropy != seed_sequence(None).entropy


@pytest.mark.parametrize("seed", [-1, 1.5, "a", [1, -2], [1.5], object(), [None]])
def test_bad_seeds(seed: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="seed is .*integer >= 0"):
        st.PriorityTree(4, seed=seed)


def test_states_that_are_none() -> None:
    good = Philox(1).state
    with pytest.raises(ArgumentError, match="bit_generator is 'PCG64'"):
        words_of(np.random.PCG64(1).state)
    for part, value in [("buffer_pos", 5), ("buffer_pos", -1), ("buffer_pos", None), ("state", 3)]:
        with pytest.raises(ArgumentError, match="is not the state of a numpy.random.Philox"):
            words_of({**good, part: value})
    for state in ({}, None, [], {"bit_generator": "Philox"}):
        with pytest.raises(ArgumentError, match="is not the state of a numpy.random.Philox"):
            words_of(state)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["key", "counter"])
def test_a_state_of_texts_that_are_none_is_refused(name: str) -> None:
    """Bytes that are no code points: NumPy cannot make a text of an element of theirs."""
    good = Philox(1).state
    texts = np.frombuffer(bytes([255]) * 16, "<U1")
    with pytest.raises(ArgumentError, match="is not the state .*an array of <U1"):
        words_of({**good, "state": {**good["state"], name: texts}})


@pytest.mark.parametrize(
    ("entropy", "pool_size"), [(None, 4), (1, 10**12), (None, 10**12), (1, -1), (1, "4"), (1, 0)]
)
def test_a_seed_that_was_read_takes_no_entropy_and_no_memory(entropy: Any, pool_size: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        saved_seed(entropy, pool_size)
    assert saved_seed(5, 8, [1]).state == SeedSequence(5, spawn_key=(1,), pool_size=8).state
