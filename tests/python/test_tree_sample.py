"""Draws: NumPy's Philox is the oracle, the formulas are spelled out with NumPy."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator, Philox, SeedSequence

import libsumtree as st
from libsumtree.errors import ArgumentError, ArgumentTypeError, EmptyTreeError, ExponentError

MASSES = np.array([0.0, 3.0, 0.25, 1e-9, 0.0, 40.0, 7.5, 0.0, 0.1, 12.5, 2.0])


def tree_with(seed: Any) -> st.PriorityTree:
    tree = st.PriorityTree(len(MASSES), seed=seed)
    tree[:] = MASSES
    return tree


def targets_of(uniforms: np.ndarray, total: float, stratified: bool) -> np.ndarray:
    n = len(uniforms)
    fractions = (np.arange(n) + uniforms) / n if stratified else uniforms
    return np.minimum(fractions * total, np.nextafter(total, 0.0))


@pytest.mark.parametrize("stratified", [True, False])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 511, 512, 513, 5000])
def test_draws_are_numpys(n: int, stratified: bool) -> None:
    tree = tree_with(17)
    generator = Generator(Philox(SeedSequence(17)))
    for _ in range(3):
        drawn = tree.sample(n, stratified=stratified)
        targets = targets_of(generator.random(n), tree.total, stratified)
        assert np.array_equal(drawn.indices, tree.find(targets))
        assert np.array_equal(drawn.masses, MASSES[drawn.indices])


@pytest.mark.parametrize("seed", [0, 5, 2**200, [1, 2, 3], SeedSequence(9, spawn_key=(4,))])
def test_seeds_are_numpys(seed: Any) -> None:
    sequence = seed if isinstance(seed, SeedSequence) else SeedSequence(seed)
    state, numpys = tree_with(seed).rng_state, Philox(sequence).state
    assert state["state"]["key"].tolist() == numpys["state"]["key"].tolist()
    assert state["state"]["counter"].tolist() == numpys["state"]["counter"].tolist()
    assert state["buffer_pos"] == numpys["buffer_pos"]


def test_streams_are_spawned_keys() -> None:
    streams = [tree_with(SeedSequence(3, spawn_key=(s,))).sample(50) for s in range(3)]
    spawned = [tree_with(child).sample(50) for child in SeedSequence(3).spawn(3)]
    for ours, numpys in zip(streams, spawned, strict=True):
        assert ours.indices.tolist() == numpys.indices.tolist()
    assert len({tuple(stream.indices.tolist()) for stream in streams}) == 3


def test_no_seed_takes_entropy_that_can_be_read() -> None:
    tree = tree_with(None)
    assert tree.seed.entropy != tree_with(None).seed.entropy
    again = tree_with(tree.seed.entropy)
    assert again.sample(64).indices.tolist() == tree.sample(64).indices.tolist()


@pytest.mark.parametrize("before", range(9))
def test_a_generator_with_the_state_goes_on_alike(before: int) -> None:
    tree = tree_with(2)
    tree.sample(before)
    philox = Philox()
    philox.state = tree.rng_state
    uniforms = Generator(philox).random(100)
    drawn = tree.sample(100, stratified=False)
    assert np.array_equal(drawn.indices, tree.find(targets_of(uniforms, tree.total, False)))
    state = tree.rng_state
    assert state["buffer"].tolist() == philox.state["buffer"].tolist()
    assert state["buffer_pos"] == philox.state["buffer_pos"]


@pytest.mark.parametrize("before", range(9))
def test_a_state_of_numpy_is_taken(before: int) -> None:
    philox = Philox(77)
    Generator(philox).random(before)
    tree = tree_with(1)
    tree.rng_state = philox.state
    uniforms = Generator(philox).random(100)
    drawn = tree.sample(100, stratified=False)
    assert np.array_equal(drawn.indices, tree.find(targets_of(uniforms, tree.total, False)))


def test_seeds_that_numpy_would_crash_on() -> None:
    itself: list[Any] = []
    itself.append(itself)
    matrix: Any = np.array([[1, 2]]).view(np.matrix)
    for seed in (itself, matrix, np.array([[1, 2]])):
        with pytest.raises(ArgumentTypeError, match="seed is"):
            st.PriorityTree(3, seed=seed)


def test_a_bad_state_changes_nothing() -> None:
    tree = tree_with(4)
    tree.sample(3)
    good = tree.rng_state
    bad: list[Any] = [None, {}, 5, np.random.PCG64(1).state, {**good, "buffer_pos": 5}]
    bad += [{**good, "buffer_pos": -1}, {**good, "state": {"key": [1, 2], "counter": [0] * 3}}]
    bad += [{**good, "state": {"key": [1, 2**64], "counter": [0] * 4}}]
    bad += [{**good, "state": {"key": [-1, 2], "counter": [0] * 4}}]
    bad += [
        {**good, "state": np.arange(3)},
        {**good, "buffer_pos": 1.0},
        {**good, "buffer_pos": np.ma.masked},
    ]
    for state in bad:
        with pytest.raises(ArgumentError, match="not the state of a numpy.random.Philox"):
            tree.rng_state = state
    assert str(tree.rng_state) == str(good)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((-1,), ArgumentError),
        ((2.0,), ArgumentTypeError),
        ((True,), ArgumentTypeError),
        (("3",), ArgumentTypeError),
        ((3, -0.1), ExponentError),
        ((3, 1.1), ExponentError),
        ((3, math.nan), ExponentError),
        ((3, "0.5"), ArgumentTypeError),
        ((3, True), ArgumentTypeError),
        ((3, 0.5 + 0j), ArgumentTypeError),
    ],
)
def test_a_failing_sample_consumes_nothing(arguments: Any, error: type[Exception]) -> None:
    tree = tree_with(6)
    before = str(tree.rng_state)
    with pytest.raises(error):
        tree.sample(*arguments)
    assert str(tree.rng_state) == before


def test_an_empty_tree_gives_nothing() -> None:
    tree = st.PriorityTree(4, seed=1)
    before = str(tree.rng_state)
    with pytest.raises(EmptyTreeError):
        tree.sample(1)
    drawn = tree.sample(0)
    assert [array.shape for array in drawn] == [(0,)] * 3
    assert [array.dtype for array in drawn] == [np.int64, np.float64, np.float64]
    assert str(tree.rng_state) == before


@pytest.mark.parametrize("beta", [0.0, 0.4, 0.5, 1.0, 1e-300, 1 / 3])
def test_weights_are_within_4_ulp_of_the_truth(beta: float) -> None:
    drawn = tree_with(8).sample(200, beta)
    with localcontext() as context:
        context.prec = 60
        for mass, weight in zip(drawn.masses.tolist(), drawn.weights.tolist(), strict=True):
            # The ratio is a double: the power is taken of that.
            truth = Decimal(1e-9 / mass) ** Decimal(beta)
            assert abs(Decimal(weight) - truth) <= 4 * Decimal(math.ulp(weight))


def test_the_largest_weight_over_the_whole_tree_is_1() -> None:
    # Elsewhere weights are scaled by the largest of the batch: here a batch may lack it.
    tree = st.PriorityTree(3, seed=0)
    tree[:] = [1e-12, 1.0, 4.0]
    drawn = tree.sample(16, beta=0.5)
    assert set(drawn.indices.tolist()) == {1, 2}
    assert np.allclose(drawn.weights, np.where(drawn.indices == 1, 1e-6, 5e-7), rtol=1e-12)
    tree[0] = 0.0
    assert tree.sample(4, beta=0.5).weights.max() == 1.0


def test_stratified_draws_take_one_of_each_part() -> None:
    tree = st.PriorityTree(64, seed=3)
    tree[:] = 1.0
    assert tree.sample(64).indices.tolist() == list(range(64))
    assert tree.sample(64, stratified=False).indices.tolist() != list(range(64))


@pytest.mark.parametrize("mass", [5e-324, 1e-310, 1.0, 2.0**960])
def test_no_target_reaches_the_total(mass: float) -> None:
    tree = st.PriorityTree(5, seed=3)
    tree[2] = mass
    for stratified in (True, False):
        assert set(tree.sample(999, stratified=stratified).indices.tolist()) == {2}


def test_draws_are_proportional() -> None:
    """A chi-square test at 1e-6, with a fixed seed: it cannot fail by chance."""
    tree = st.PriorityTree(5, seed=12)
    masses = np.array([1.0, 0.0, 2.0, 3.0, 4.0])
    tree[:] = masses
    for stratified in (True, False):
        drawn = tree.sample(100_000, stratified=stratified)
        counts = np.bincount(drawn.indices, minlength=5)
        expected = 100_000 * masses / masses.sum()
        positive = expected > 0
        deviations = (counts - expected)[positive] ** 2 / expected[positive]
        assert counts[1] == 0
        assert deviations.sum() < 30.7
