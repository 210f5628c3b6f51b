"""Drawing from the buffer, weights, beta, and the priorities that come back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.random import Generator, Philox, SeedSequence

import libsumtree as st
from libsumtree.errors import (
    ArgumentError,
    ArgumentTypeError,
    EmptyTreeError,
    ExponentError,
    IdError,
    PriorityError,
    ShapeError,
    TooFewError,
)

RECORD = np.dtype([("value", "<i8")])


def buffer_of(masses: Any, capacity: int | None = None, **options: Any) -> Any:
    """Make a buffer that holds transitions 0, 1, 2, .. with these masses."""
    count = len(masses)
    made = st.PrioritizedReplayBuffer(
        capacity or count, RECORD, alpha=1.0, **{"seed": 0, **options}
    )
    rows = np.zeros(count, RECORD)
    rows["value"] = np.arange(count)
    made.add(rows, masses)
    return made


# ---- sample ----


@pytest.mark.parametrize("stratified", [True, False])
def test_a_sample_is_of_one_piece(stratified: bool) -> None:
    buffer = buffer_of(np.arange(1.0, 14.0), capacity=10)
    drawn = buffer.sample(64, beta=0.5, stratified=stratified)
    assert [part.shape for part in drawn] == [(64,)] * 5
    assert (drawn.ids.dtype, drawn.indices.dtype) == (np.int64, np.int64)
    assert (drawn.masses.dtype, drawn.weights.dtype) == (np.float64, np.float64)
    assert np.array_equal(drawn.indices, drawn.ids % 10)
    assert np.array_equal(drawn.transitions["value"], drawn.ids)
    assert np.array_equal(drawn.masses, drawn.ids + 1.0)
    assert np.array_equal(drawn.transitions, buffer[drawn.ids])
    np.testing.assert_array_max_ulp(drawn.weights, (4.0 / drawn.masses) ** 0.5, 4)


def test_a_sample_without_replacement_is_of_one_piece() -> None:
    """And its draws are those of the reference, over the same masses."""
    buffer = buffer_of(np.arange(1.0, 14.0), capacity=10, seed=5)
    reference = st.reference.PriorityTree(10, seed=5)
    reference[:] = buffer.tree[:]
    for n in (4, 10, 0, 7):
        drawn = buffer.sample(n, beta=0.5, replace=False)
        expected = reference.sample(n, 0.5, replace=False)
        assert [part.shape for part in drawn] == [(n,)] * 6
        for field in ("indices", "masses", "expansions"):
            assert getattr(drawn, field).tobytes() == getattr(expected, field).tobytes()
        np.testing.assert_array_max_ulp(drawn.weights, expected.weights, 4)
        assert np.array_equal(drawn.indices, drawn.ids % 10)
        assert np.array_equal(drawn.transitions, buffer[drawn.ids])

    def state() -> tuple[Any, ...]:
        return str(buffer.tree.rng_state), buffer.sampled, buffer.tree.nodes("sum").tobytes()

    before = state()
    for n, beta in ((11, 0.5), (4, 1.5), (4, np.nan)):
        with pytest.raises((ExponentError, TooFewError)):
            buffer.sample(n, beta, replace=False)
    assert state() == before


def test_expansions_add_up_to_the_sum_over_the_buffer() -> None:
    """In expectation; transitions of mass 0, which are never drawn, are no part of it."""
    rng = np.random.default_rng(3)
    buffer = buffer_of(np.append(rng.random(30) ** 4, [0.0, 0.0]), seed=1)
    values = rng.normal(size=32)
    expected = values[buffer.tree[:] > 0].sum()
    for n in (1, 12):
        estimates = []
        for _ in range(6000):
            drawn = buffer.sample(n, replace=False)
            estimates.append(drawn.expansions @ values[drawn.transitions["value"]])
        error = np.std(estimates) / np.sqrt(len(estimates))
        assert abs(np.mean(estimates) - expected) < 4.5 * error


def test_draws_are_those_of_numpys_philox() -> None:
    buffer = buffer_of(np.arange(1.0, 101.0), seed=77)
    draws = Generator(Philox(SeedSequence(77)))
    ends = np.cumsum(np.arange(1.0, 101.0))
    for n in (1, 3, 513):
        targets = (np.arange(n) + draws.random(n)) / n * 5050.0
        assert np.array_equal(buffer.sample(n).ids, np.searchsorted(ends, targets, "right"))
        targets = draws.random(n) * 5050.0
        expected = np.searchsorted(ends, targets, "right")
        assert np.array_equal(buffer.sample(n, stratified=False).ids, expected)


@pytest.mark.parametrize("stratified", [True, False])
def test_frequencies_are_proportional_to_priority_to_the_alpha(stratified: bool) -> None:
    buffer = st.PrioritizedReplayBuffer(8, RECORD, alpha=0.5, seed=3)
    priorities = np.array([0.0, 1.0, 4.0, 9.0, 16.0, 25.0, 0.0, 36.0])
    buffer.add(np.zeros(8, RECORD), priorities)
    draws = 200_000
    counts = np.bincount(buffer.sample(draws, stratified=stratified).ids, minlength=8)
    expected = np.sqrt(priorities) / np.sqrt(priorities).sum() * draws
    assert counts[priorities == 0].sum() == 0
    positive = priorities > 0
    chi2 = ((counts - expected)[positive] ** 2 / expected[positive]).sum()
    assert chi2 < 24.3, "beyond the 99.98 % quantile of 5 degrees of freedom"


def test_the_largest_weight_over_the_whole_buffer_is_1() -> None:
    masses = np.array([1e-3, 1e9, 1e9, 1e9])
    buffer = buffer_of(masses)
    drawn = buffer.sample(50, beta=1.0)
    assert set(drawn.ids.tolist()) <= {1, 2, 3}, "the smallest mass is not in the batch"
    np.testing.assert_array_max_ulp(drawn.weights, np.full(50, 1e-12), 4)
    buffer.update_priorities([1, 2, 3], 1e-3)
    assert buffer.sample(50, beta=1.0).weights.tolist() == [1.0] * 50


def test_weights_see_only_positive_masses_that_are_held_now() -> None:
    buffer = buffer_of([0.5, 8.0, 2.0, 0.0])
    buffer.update_priorities([0], 0.0)
    drawn = buffer.sample(40, beta=1.0)
    assert np.array_equal(drawn.weights, 2.0 / drawn.masses)
    buffer.add(np.zeros(3, RECORD), [4.0, 4.0, 16.0])
    drawn = buffer.sample(40, beta=1.0)
    assert np.array_equal(drawn.weights, 4.0 / drawn.masses)


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_weights_are_powers_of_beta(beta: float) -> None:
    buffer = buffer_of(np.arange(1.0, 9.0))
    drawn = buffer.sample(32, beta=beta)
    np.testing.assert_array_max_ulp(drawn.weights, (1.0 / drawn.masses) ** beta, 4)
    assert drawn.weights.max() <= 1.0


def test_an_empty_sample_takes_no_transition() -> None:
    buffer = st.PrioritizedReplayBuffer(4, RECORD)
    drawn = buffer.sample(0)
    assert [part.shape for part in drawn] == [(0,)] * 5
    assert drawn.transitions.dtype == RECORD


def test_a_failing_sample_takes_no_random_number() -> None:
    buffer = buffer_of([1.0, 2.0, 3.0], seed=5)
    for error, arguments in (
        (ExponentError, {"n": 2, "beta": 1.5}),
        (ExponentError, {"n": 2, "beta": np.nan}),
        (ArgumentError, {"n": -1}),
        (ArgumentTypeError, {"n": 2.0}),
        (ArgumentTypeError, {"n": True}),
        (ArgumentTypeError, {"n": 2, "beta": "1"}),
    ):
        with pytest.raises(error):
            buffer.sample(**arguments)
    buffer.update_priorities([0, 1, 2], 0.0)
    with pytest.raises(EmptyTreeError):
        buffer.sample(2)
    assert buffer.sampled == 0
    buffer.update_priorities([0, 1, 2], [1.0, 2.0, 3.0])
    assert np.array_equal(buffer.sample(9).ids, buffer_of([1.0, 2.0, 3.0], seed=5).sample(9).ids)


def test_a_seed_that_was_not_given_can_be_read_and_given_again() -> None:
    first = buffer_of([1.0] * 50, seed=None)
    again = buffer_of([1.0] * 50, seed=first.tree.seed.entropy)
    other = buffer_of([1.0] * 50, seed=None)
    drawn = first.sample(64, stratified=False).ids.tolist()
    assert again.sample(64, stratified=False).ids.tolist() == drawn
    assert other.sample(64, stratified=False).ids.tolist() != drawn


# ---- beta ----


@pytest.mark.parametrize("beta", [-0.1, 1.1, np.nan, np.inf])
def test_a_beta_outside_0_to_1_is_refused(beta: float) -> None:
    with pytest.raises(ExponentError, match="beta"):
        buffer_of([1.0], beta=beta)
    with pytest.raises(ExponentError, match="beta"):
        buffer_of([1.0]).sample(1, beta=beta)


def test_the_beta_of_the_buffer_is_taken_where_none_is_given() -> None:
    buffer = buffer_of([1.0, 4.0], beta=0.5)
    assert buffer.beta == 0.5
    assert set(buffer.sample(30).weights.tolist()) == {1.0, 0.5}
    assert set(buffer.sample(30, beta=0.0).weights.tolist()) == {1.0}
    assert set(buffer.sample(30, beta=1.0).weights.tolist()) == {1.0, 0.25}


def test_a_schedule_moves_beta_with_every_sample() -> None:
    buffer = buffer_of([1.0, 4.0], beta=st.BetaSchedule(0.0, 1.0, samples=4))
    seen = []
    for _ in range(7):
        seen.append(buffer.beta)
        drawn = buffer.sample(16)
        np.testing.assert_array_max_ulp(drawn.weights, (1.0 / drawn.masses) ** seen[-1], 4)
    assert seen == [0.0, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert buffer.sampled == 7


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (-1.0, 1.0, [0.0, 0.0, 0.0, 0.5, 1.0, 1.0]),
        (0.0, 4.0, [0.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
        (1.0, 0.0, [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]),
        (2.0, 3.0, [1.0] * 6),
        (-3.0, -2.0, [0.0] * 6),
    ],
)
def test_a_schedule_is_clamped_to_0_to_1(start: float, stop: float, expected: list[float]) -> None:
    schedule = st.BetaSchedule(start, stop, samples=4)
    assert [schedule.at(sampled) for sampled in range(6)] == expected
    buffer = buffer_of([1.0], beta=schedule)
    for beta in expected:
        assert buffer.beta == beta
        buffer.sample(1)


@pytest.mark.parametrize("ends", [(np.nan, 1.0), (0.4, np.inf), (-np.inf, 1.0)])
def test_a_schedule_has_finite_ends(ends: tuple[float, float]) -> None:
    with pytest.raises(ExponentError, match="finite"):
        st.BetaSchedule(*ends)


@pytest.mark.parametrize("ends", [("a", 1.0), (0.4, None), (1j, 1.0)])
def test_a_schedule_has_ends_that_are_numbers(ends: tuple[Any, Any]) -> None:
    with pytest.raises(ArgumentTypeError):
        st.BetaSchedule(*ends)


@pytest.mark.parametrize("samples", [0, -5, 1.5, True])
def test_a_schedule_takes_a_number_of_samples(samples: Any) -> None:
    with pytest.raises((ArgumentError, ArgumentTypeError), match="samples"):
        st.BetaSchedule(samples=samples)


# ---- update_priorities ----


def test_new_priorities_are_drawn_from_at_once() -> None:
    buffer = buffer_of([1.0, 1.0, 1.0])
    assert buffer.update_priorities([1], 0.0) == 0
    assert set(buffer.sample(60).ids.tolist()) == {0, 2}
    assert buffer.update_priorities([0, 1], [0.0, 6.0]) == 0
    assert set(buffer.sample(60).ids.tolist()) == {1, 2}
    assert buffer.tree[:].tolist() == [0.0, 6.0, 1.0]


def test_of_equal_ids_the_last_wins() -> None:
    buffer = buffer_of([1.0] * 4)
    buffer.update_priorities([2, 1, 2, 2, 1], [10.0, 20.0, 30.0, 40.0, 50.0])
    assert buffer.tree[:].tolist() == [1.0, 50.0, 40.0, 1.0]
    buffer.update_priorities(np.arange(400) % 4, np.arange(400.0))
    assert buffer.tree[:].tolist() == [396.0, 397.0, 398.0, 399.0]


def test_a_priority_for_a_transition_that_was_overwritten_is_skipped_and_counted() -> None:
    buffer = buffer_of([1.0, 2.0, 3.0])
    drawn = np.array([0, 1, 2])
    buffer.add(np.zeros(2, RECORD), [7.0, 8.0])
    assert buffer.update_priorities(drawn, [100.0, 200.0, 300.0]) == 2
    assert buffer.tree[:].tolist() == [7.0, 8.0, 300.0]
    assert buffer.update_priorities([0, 3, 0, 1], [9.0, 4.0, 9.0, 9.0]) == 3
    assert buffer.tree[:].tolist() == [4.0, 8.0, 300.0]
    assert buffer.update_priorities([0, 1], 5.0) == 2
    assert buffer.tree[:].tolist() == [4.0, 8.0, 300.0]


def test_priorities_for_stale_ids_are_validated() -> None:
    buffer = buffer_of([1.0, 2.0])
    buffer.add(np.zeros(1, RECORD), 7.0)
    for bad in (np.nan, -1.0, np.inf):
        with pytest.raises(PriorityError, match=r"^priorities\[1\]"):
            buffer.update_priorities([1, 0], [5.0, bad])
    assert buffer.tree[:].tolist() == [7.0, 2.0]


def test_a_batch_with_an_id_never_issued_changes_nothing() -> None:
    buffer = buffer_of([1.0, 2.0, 3.0])
    for never in (3, -1, 2**40, 2**63 - 1, 2**64):
        with pytest.raises(IdError, match=rf"^ids\[2\] is {never}:") as caught:
            buffer.update_priorities([0, 1, never], 9.0)
        assert isinstance(caught.value, IndexError)
        assert buffer.tree[:].tolist() == [1.0, 2.0, 3.0]


def test_one_id_and_any_shape() -> None:
    buffer = buffer_of([1.0] * 6, capacity=4)
    assert buffer.update_priorities(5, 50.0) == 0
    assert buffer.update_priorities(np.int64(0), 70.0) == 1
    assert buffer.update_priorities([], []) == 0
    assert buffer.update_priorities(np.array([[2, 3], [0, 4]]), [[20.0, 30.0], [1.0, 40.0]]) == 1
    assert buffer.tree[:].tolist() == [40.0, 50.0, 20.0, 30.0]
    for ids, priorities in (([2, 3], [1.0]), (2, [1.0]), ([[2, 3]], [1.0, 2.0])):
        with pytest.raises(ShapeError, match="priorities"):
            buffer.update_priorities(ids, priorities)
    assert buffer.tree[:].tolist() == [40.0, 50.0, 20.0, 30.0]


@pytest.mark.parametrize("ids", [[0.0], [True], ["0"], 1.0])
def test_ids_are_integers(ids: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="ids"):
        buffer_of([1.0]).update_priorities(ids, 1.0)


def test_inputs_are_read_only_and_untouched() -> None:
    buffer = buffer_of([1.0] * 4)
    ids = np.arange(8, dtype=">i4")[::-2][::-1] // 2
    priorities = np.arange(8, dtype=">f4")[::2]
    for array in (ids, priorities):
        array.flags.writeable = False
    before = ids.tolist(), priorities.tolist()
    buffer.update_priorities(ids, priorities)
    assert (ids.tolist(), priorities.tolist()) == before
    assert buffer.tree[:].tolist() == [0.0, 2.0, 4.0, 6.0]
