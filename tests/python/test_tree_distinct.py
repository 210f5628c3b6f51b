"""Draws without replacement: their law, their weights, their bits, and what they leave behind."""

from __future__ import annotations

import threading
from collections import Counter
from fractions import Fraction
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from numpy.random import Generator, Philox, SeedSequence

import libsumtree as st
from libsumtree.errors import (
    ArgumentError,
    ArgumentTypeError,
    EmptyTreeError,
    ExponentError,
    IndexOutOfRangeError,
    TooFewError,
)

MASSES = some.one_of(
    some.sampled_from([0.0, 0.0, 5e-324, 1e-300, 1.0, 1.0, 3.0, 2.0**900, 2.0**960]),
    some.floats(0, 10),
)


def tree_with(masses: Any, seed: int = 0, kind: Any = st.PriorityTree) -> Any:
    tree = kind(len(masses), seed=seed)
    tree[:] = masses
    return tree


def state_of(tree: Any) -> tuple[Any, ...]:
    """All that a draw could change: every node, and the place in the stream of doubles."""
    state = tree.rng_state
    nodes = tuple(tree.nodes(plane).tobytes() for plane in ("sum", "min", "max"))
    return (*nodes, state["state"]["counter"].tolist(), state["buffer_pos"])


def consumed(tree: Any) -> int:
    """How many doubles a tree has drawn since it was made."""
    state = tree.rng_state
    return int(state["state"]["counter"][0]) * 4 - (4 - int(state["buffer_pos"]))


# ---- what is refused ----


def test_more_than_there_are_changes_nothing() -> None:
    tree = tree_with([1.0, 0.0, 2.0, 0.0, 1e-9])
    before = state_of(tree)
    with pytest.raises(TooFewError, match="n is 4, without replacement: 3 leaves have a positive"):
        tree.sample(4, replace=False)
    with pytest.raises(TooFewError, match="n is 6, without replacement: there are 5 leaves"):
        tree.sample(6, replace=False)
    with pytest.raises(TooFewError):
        tree.sample(2**62, replace=False)
    assert state_of(tree) == before
    assert len(tree.sample(3, replace=False).indices) == 3


def test_an_empty_tree_gives_nothing_but_nothing() -> None:
    tree = st.PriorityTree(3, seed=0)
    with pytest.raises(EmptyTreeError):
        tree.sample(1, replace=False)
    assert [part.shape for part in tree.sample(0, replace=False)] == [(0,)] * 4
    assert consumed(tree) == 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"beta": 1.5}, ExponentError),
        ({"beta": float("nan")}, ExponentError),
        ({"beta": 2.0, "n": 0}, ExponentError),
        ({"n": -1}, ArgumentError),
        ({"n": 1.5}, ArgumentTypeError),
        ({"stratified": True}, ArgumentError),
        ({"xp": np}, ArgumentError),
        ({"out": st.TreeSample(np.empty(2, int), np.empty(2), np.empty(2))}, ArgumentError),
    ],
)
def test_what_has_no_meaning_is_refused(arguments: Any, error: type[Exception]) -> None:
    tree = tree_with([1.0, 2.0, 3.0])
    before = state_of(tree)
    with pytest.raises(error):
        tree.sample(**{"n": 2, "replace": False, **arguments})
    assert state_of(tree) == before


# ---- the very bits ----


@given(some.lists(MASSES, min_size=1, max_size=70), some.integers(0, 80), some.integers(0, 2**64))
def test_draws_are_the_references_to_the_last_bit(masses: Any, n: int, seed: int) -> None:
    tree = tree_with(masses, seed)
    reference = tree_with(masses, seed, st.reference.PriorityTree)
    before = state_of(tree)
    n = min(n, sum(mass > 0.0 for mass in masses))
    for beta in (0.4, 0.0, 1.0):
        ours = tree.sample(n, beta, replace=False)
        theirs = reference.sample(n, beta, replace=False)
        assert [part.dtype for part in ours] == [np.int64] + [np.float64] * 3
        for field in ("indices", "masses", "expansions"):
            assert getattr(ours, field).tobytes() == getattr(theirs, field).tobytes(), field
        np.testing.assert_array_max_ulp(ours.weights, theirs.weights, 4)
        assert len(set(ours.indices.tolist())) == n
        assert np.array_equal(ours.masses, np.asarray(masses)[ours.indices])
        assert consumed(tree) == consumed(reference)
    assert state_of(tree)[:3] == before[:3]


@pytest.mark.parametrize("n", [1, 2, 511, 5000])
def test_draws_without_repetitions_are_numpys(n: int) -> None:
    masses = np.random.default_rng(0).random(2**16)
    tree = tree_with(masses, 17)
    uniforms = Generator(Philox(SeedSequence(17))).random(n)
    found = tree.find(np.minimum(uniforms * tree.total, np.nextafter(tree.total, 0.0)))
    _, first = np.unique(found, return_index=True)
    expected = found[np.sort(first)]
    drawn = tree.sample(n, replace=False)
    assert np.array_equal(drawn.indices[: len(expected)], expected)
    assert np.array_equal(drawn.weights[:1], (masses.min() / drawn.masses[:1]) ** 0.4)


def test_overwhelming_leaves_cost_no_long_rounds() -> None:
    """Each of 15 leaves is all that a round finds; 16 rounds of 1000 draws would be 16,000."""
    masses = np.ones(1000)
    masses[500:515] = 1e280 * 1e-18 ** np.arange(15)
    tree = tree_with(masses)
    drawn = tree.sample(1000, replace=False)
    assert drawn.indices[:15].tolist() == list(range(500, 515))
    assert sorted(drawn.indices.tolist()) == list(range(1000))
    assert consumed(tree) < 6000


def test_leaves_that_overwhelm_one_another_are_drawn_one_by_one() -> None:
    masses = 2.0 ** (-60.0 * np.arange(16))
    tree = tree_with(masses)
    assert tree.sample(16, replace=False).indices.tolist() == list(range(16))
    assert consumed(tree) < 64


# ---- the law ----


def chance_of(order: tuple[int, ...], masses: list[int]) -> Fraction:
    left, chance = Fraction(sum(masses)), Fraction(1)
    for index in order:
        chance *= masses[index] / left
        left -= masses[index]
    return chance


@pytest.mark.parametrize(
    ("masses", "n", "limit"),
    [([1, 2, 3, 4, 10], 3, 128), ([1, 2, 3, 4, 10], 1, 36), ([1, 2, 4, 16], 4, 73)],
    ids=["some", "one", "all, in many rounds"],
)
def test_the_law_is_that_of_successive_sampling(masses: list[int], n: int, limit: float) -> None:
    """Below `limit` but with probability 1e-6, by the degrees of freedom; the seed is fixed."""
    repeats = 60_000
    tree = tree_with([float(mass) for mass in masses], seed=11)
    counts = Counter(tuple(tree.sample(n, replace=False).indices.tolist()) for _ in range(repeats))
    chi_squared = 0.0
    orders = list(permutations(range(len(masses)), n))
    for order in orders:
        expected = float(chance_of(order, masses)) * repeats
        chi_squared += (counts[order] - expected) ** 2 / expected
    assert sum(counts[order] for order in orders) == repeats
    assert chi_squared < limit


def rounds_of(masses: list[int], n: int, wanted: int | None = None) -> dict[Any, Fraction]:
    """Give the chance of every order by the documented rounds, over all strings of draws."""
    if n == 0:
        return {(): Fraction(1)}
    total, found = Fraction(sum(masses)), Counter[Any]()
    wanted = n if wanted is None else wanted
    for string in product([i for i, mass in enumerate(masses) if mass], repeat=wanted):
        chance = Fraction(1)
        for index in string:
            chance *= masses[index] / total
        new = tuple(dict.fromkeys(string))
        rest = [0 if i in new else mass for i, mass in enumerate(masses)]
        missing = n - len(new)
        for order, later in rounds_of(rest, missing, min(missing, 2 * len(new))).items():
            found[new + order] += chance * later
    return dict(found)


@pytest.mark.parametrize(
    ("masses", "n"), [([1, 5, 2, 8], 3), ([1, 5, 2, 8], 4), ([100, 1, 1, 1], 4), ([3, 0, 7], 2)]
)
def test_rounds_have_the_very_law_of_successive_sampling(masses: list[int], n: int) -> None:
    """In exact arithmetic: passing over repetitions, and ending a round, favour nobody."""
    positive = [i for i, mass in enumerate(masses) if mass]
    expected = {order: chance_of(order, masses) for order in permutations(positive, n)}
    assert rounds_of(masses, n) == expected
    assert sum(expected.values()) == 1


def des_raj(order: tuple[int, ...], masses: list[int]) -> list[Fraction]:
    left, found = Fraction(sum(masses)), []
    for k, index in enumerate(order, 1):
        found.append((left / masses[index] + len(order) - k) / len(order))
        left -= masses[index]
    return found


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_expansions_have_the_very_expectation(n: int) -> None:
    """By enumeration: over all orders, each estimate by its chance gives the sum itself."""
    masses, values = [1, 5, 2, 8], [3, -7, 100, 1]
    expected = sum(
        chance_of(order, masses)
        * sum(w * values[i] for w, i in zip(des_raj(order, masses), order, strict=True))
        for order in permutations(range(4), n)
    )
    assert expected == sum(values)
    tree = tree_with([float(mass) for mass in masses], seed=n)
    for _ in range(50):
        drawn = tree.sample(n, replace=False)
        exact = des_raj(tuple(drawn.indices.tolist()), masses)
        np.testing.assert_allclose(drawn.expansions, [float(x) for x in exact], rtol=1e-15)


def test_expansions_are_unbiased_where_weights_are_not() -> None:
    rng = np.random.default_rng(5)
    masses, values, n, repeats = rng.random(40) ** 3, rng.normal(1.0, 1.0, 40), 20, 20_000
    values += 3.0 * masses
    tree = tree_with(masses, seed=6)
    estimates, weighted = np.empty(repeats), np.empty(repeats)
    for k in range(repeats):
        drawn = tree.sample(n, 1.0, replace=False)
        estimates[k] = drawn.expansions @ values[drawn.indices]
        with_replacement = tree.total / drawn.masses / n
        weighted[k] = with_replacement @ values[drawn.indices]
    error = estimates.std() / np.sqrt(repeats)
    assert abs(estimates.mean() - values.sum()) < 4.5 * error
    assert abs(weighted.mean() - values.sum()) > 30 * error


def test_small_remainders_do_not_cancel() -> None:
    masses = [1.0, *(1e-30 * np.arange(1, 9))]
    drawn = tree_with(masses, seed=3).sample(5, replace=False)
    left = sum(Fraction(mass) for mass in masses)
    for k, index in enumerate(drawn.indices, 1):
        exact = (left / Fraction(masses[index]) + 5 - k) / 5
        assert abs(Fraction(drawn.expansions[k - 1]) / exact - 1) < Fraction(1, 10**14)
        left -= Fraction(masses[index])


def test_a_writer_beside_draws_loses_nothing() -> None:
    """Masses that are set while a draw has emptied leaves must not be those it puts back."""
    tree = tree_with(np.ones(3 * 4096), seed=1)
    leaf = np.arange(3 * 4096)
    done = threading.Event()

    def draw() -> None:
        while not done.is_set():
            tree.sample(2 * 4096, replace=False)

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        for k in range(1, 60):
            tree.update(leaf, float(k))
            assert (tree[:] == k).all()
    finally:
        done.set()
        thread.join()
    tree.validate()


# ---- diagnostics ----


def test_probabilities_are_masses_over_the_total() -> None:
    tree = tree_with([1.0, 0.0, 3.0, 0.1])
    assert tree.probabilities(2) == 3.0 / tree.total
    assert isinstance(tree.probabilities(2), float)
    found = tree.probabilities([[3, 1], [0, 2]])
    assert np.array_equal(found, np.array([[0.1, 0.0], [1.0, 3.0]]) / tree.total)
    empty = st.PriorityTree(2)
    assert empty.probabilities(1) == 0.0
    assert empty.probabilities([0, 1]).tolist() == [0.0, 0.0]
    with pytest.raises(IndexOutOfRangeError):
        tree.probabilities([0, 4])


@given(some.lists(MASSES, min_size=1, max_size=70))
def test_the_effective_sample_size_is_the_references(masses: Any) -> None:
    ours = tree_with(masses).effective_sample_size()
    assert ours == tree_with(masses, kind=st.reference.PriorityTree).effective_sample_size()
    positive = [Fraction(mass) for mass in masses if mass > 0.0]
    if not positive:
        assert ours == 0.0
        return
    exact = sum(positive) ** 2 / sum(mass**2 for mass in positive)
    assert abs(Fraction(ours) / exact - 1) <= Fraction(3 * 7 + 4, 2**53)


def test_the_effective_sample_size_of_a_large_tree() -> None:
    tree = st.PriorityTree(3 * 2**16 + 5)
    assert tree.effective_sample_size() == 0.0
    tree[:] = 0.3
    assert abs(tree.effective_sample_size() / len(tree) - 1) < 64 * 2.0**-53
    tree[:] = 0.0
    tree[2**17 + 1] = 2.0**960
    assert tree.effective_sample_size() == 1.0
