"""Another alpha for what is held, and what the buffer says of its own distribution."""

from __future__ import annotations

import signal
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as some

import libsumtree as st
from libsumtree.errors import (
    ArgumentError,
    ArgumentTypeError,
    ExponentError,
    IdError,
    PriorityError,
    ShapeError,
    StaleIdError,
)
from libsumtree.frames import FrameLayout, FrameWriter

RECORD = np.dtype([("value", "<i8")])


def buffer_of(priorities: Any, capacity: int | None = None, alpha: float = 0.6, **rest: Any) -> Any:
    count = len(priorities)
    made = st.PrioritizedReplayBuffer(capacity or count, RECORD, alpha, **{"seed": 0, **rest})
    made.add(np.zeros(count, RECORD), priorities)
    return made


def state_of(buffer: Any) -> tuple[Any, ...]:
    return buffer.alpha, buffer.tree.nodes("sum").tobytes(), buffer.tree.nodes("min").tobytes()


# ---- set_alpha: what is refused ----


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((-0.1,), ExponentError),
        ((np.nan,), ExponentError),
        ((np.inf,), ExponentError),
        ((True,), ArgumentTypeError),
        (("high",), ArgumentTypeError),
        ((0.9, [1.0, 2.0]), ShapeError),
        ((0.9, np.ones((4, 1))), ShapeError),
        ((0.9, [1.0, 2.0, -3.0, 4.0]), PriorityError),
        ((0.9, [1.0, 2.0, np.nan, 4.0]), PriorityError),
        ((0.9, [1.0, 2.0, True, 4.0]), ArgumentTypeError),
        ((500.0,), PriorityError),
        ((500.0, [1.0, 2.0, 3.0, 1e9]), PriorityError),
    ],
)
def test_a_bad_alpha_or_priority_changes_nothing(arguments: Any, error: type[Exception]) -> None:
    buffer = buffer_of([1.0, 2.0, 0.0, 1e9])
    before = state_of(buffer)
    with pytest.raises(error):
        buffer.set_alpha(*arguments)
    assert state_of(buffer) == before


def test_a_mass_that_would_be_too_large_is_named() -> None:
    buffer = buffer_of([0.0, 1.0, 2.0, 3.0], capacity=3, alpha=1.0)
    with pytest.raises(PriorityError, match=r"transition 1, counted from the oldest, is 2\.0"):
        buffer.set_alpha(961.0)
    buffer.set_alpha(600.0)
    assert buffer.tree[2] == 2.0**600


def test_alpha_0_cannot_be_left_without_priorities() -> None:
    buffer = buffer_of([1.0, 2.0, 0.0, 1e9])
    buffer.set_alpha(0.0)
    assert buffer.tree[:].tolist() == [1.0, 1.0, 0.0, 1.0]
    before = state_of(buffer)
    with pytest.raises(ArgumentError, match="give the priorities for alpha 0.6"):
        buffer.set_alpha(0.6)
    assert state_of(buffer) == before
    buffer.set_alpha(0.0)
    buffer.set_alpha(2.0, [1.0, 2.0, 0.0, 1e9])
    assert buffer.tree[:].tolist() == [1.0, 4.0, 0.0, 1e18]
    empty = st.PrioritizedReplayBuffer(4, RECORD, 0.0)
    empty.set_alpha(0.6)
    assert empty.alpha == 0.6


def test_not_while_an_intake_is_open() -> None:
    buffer = buffer_of([1.0, 2.0], capacity=4)
    intake = buffer.begin_add(1)
    with pytest.raises(ArgumentError, match="an intake is open"):
        buffer.set_alpha(1.0)
    intake.abandon()
    buffer.set_alpha(1.0)


# ---- set_alpha: what comes out ----


def exact_power(base: Any, exponent: Any) -> Decimal:
    with localcontext() as context:
        context.prec = 60
        return Decimal(float(base)) ** (Decimal(float(exponent[0])) / Decimal(float(exponent[1])))


@given(
    some.lists(some.floats(1e-280, 1e280), min_size=1, max_size=9),
    some.floats(0.05, 1.0),
    some.floats(0.05, 1.0),
)
@example([21365.0], np.nextafter(1.0, 0.0), 1.0)
def test_masses_are_as_close_as_documented(priorities: Any, old: float, new: float) -> None:
    buffer = buffer_of(priorities, alpha=old)
    buffer.set_alpha(new)
    ratio = Decimal(new) / Decimal(old)
    for priority, mass in zip(priorities, buffer.tree[:].tolist(), strict=True):
        exact = exact_power(priority, (new, 1))
        assert abs(Decimal(mass) / exact - 1) <= (4 * ratio + 1) * Decimal(2) ** -52


def test_the_power_itself_is_rounded_once() -> None:
    """A double's exponent would lose what the logarithm of the mass multiplies."""
    masses = np.array([2.0**-900, 1e-200, 3.0, 1e100, 2.0**900])
    buffer = buffer_of(masses, alpha=1.0)
    buffer._alpha = 0.7
    buffer.set_alpha(0.6)
    for mass, new in zip(masses, buffer.tree[:].tolist(), strict=True):
        assert abs(Decimal(new) / exact_power(mass, (0.6, 0.7)) - 1) <= Decimal(2) ** -52


def test_priorities_give_the_very_masses_of_a_buffer_made_so() -> None:
    priorities = np.random.default_rng(0).random(7)
    buffer = buffer_of(priorities, capacity=5)
    buffer.set_alpha(0.9, priorities[2:])
    assert (
        buffer.tree[:].tobytes() == buffer_of(priorities, capacity=5, alpha=0.9).tree[:].tobytes()
    )
    buffer.set_alpha(0.3, 2.0)
    assert (buffer.tree[:] == 2.0**0.3).all()


def test_the_same_alpha_changes_no_bit() -> None:
    buffer = buffer_of(np.random.default_rng(0).random(50))
    before = state_of(buffer)
    buffer.set_alpha(0.6)
    assert state_of(buffer) == before


def test_new_priorities_are_taken_to_the_new_alpha() -> None:
    buffer = buffer_of([4.0, 9.0], capacity=3, alpha=1.0)
    buffer.set_alpha(0.5)
    assert buffer.tree[:].tolist() == [2.0, 3.0, 0.0]
    buffer.update_priorities([0], [25.0])
    buffer.add(np.zeros(1, RECORD))
    assert buffer.tree[:].tolist() == [5.0, 3.0, 5.0]


def test_the_withdrawn_stay_without_mass() -> None:
    buffer = buffer_of([1.0, 2.0, 3.0, 4.0], max_age=2)
    buffer.set_alpha(1.0, [5.0, 6.0, 7.0, 8.0])
    assert buffer.tree[:].tolist() == [0.0, 0.0, 7.0, 8.0]


def test_bare_frames_stay_without_mass() -> None:
    layout = FrameLayout(2, (2,), [("action", "i8")])
    writer = FrameWriter(layout)
    writer.reset(np.zeros(2, np.uint8))
    for _ in range(3):
        writer.append(np.ones(2, np.uint8))
        writer.transition({"action": 1})
    buffer = st.PrioritizedReplayBuffer(10, layout.record, 1.0)
    buffer.add(writer.take().transitions)
    buffer.set_alpha(0.5, 9.0)
    assert buffer.tree[:4].tolist() == [3.0, 3.0, 3.0, 0.0]


def test_an_exception_at_any_moment_leaves_masses_that_fit_alpha() -> None:
    class InterruptError(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise InterruptError

    buffer = buffer_of(np.full(3000, 4.0), capacity=2000, alpha=1.0)
    buffer.add(np.zeros(500, RECORD), 4.0)
    rng = np.random.default_rng(2)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(5e-5, 5e-4))
                while True:
                    buffer.set_alpha(0.5)
                    buffer.set_alpha(1.0)
            except InterruptError:
                pass
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            assert (buffer.tree[:] == 4.0**buffer.alpha).all()
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_checkpoint_after_another_alpha_is_a_full_one(tmp_path: Path) -> None:
    buffer = buffer_of(np.ones(40), capacity=64)
    with buffer.snapshot() as snapshot:
        base = snapshot.write(tmp_path / "replay-000000000001.h5")
    buffer.set_alpha(0.8)  # every mass stays 1: nothing else would make a difference
    with buffer.snapshot(base) as snapshot:
        assert not snapshot.incremental
        base = snapshot.write(tmp_path / "replay-000000000002.h5")
    buffer.update_priorities([3], [2.0])
    with buffer.snapshot(base) as snapshot:
        assert snapshot.incremental
        snapshot.write(tmp_path / "replay-000000000003.h5")
    loaded = st.PrioritizedReplayBuffer.load(tmp_path / "replay-000000000003.h5")
    assert loaded.alpha == 0.8
    assert np.array_equal(loaded.tree[:], buffer.tree[:])


# ---- diagnostics ----


def test_probabilities_are_of_ids() -> None:
    buffer = buffer_of([7.0, 1.0, 2.0, 5.0], capacity=3, alpha=1.0)
    assert buffer.probabilities(3) == 5.0 / 8.0
    assert isinstance(buffer.probabilities(3), float)
    assert buffer.probabilities([[1, 2], [3, 1]]).tolist() == [[0.125, 0.25], [0.625, 0.125]]
    with pytest.raises(StaleIdError):
        buffer.probabilities([1, 0])
    with pytest.raises(IdError):
        buffer.probabilities(4)


def test_the_effective_sample_size_is_between_one_and_the_size() -> None:
    assert buffer_of([3.0, 3.0, 3.0, 0.0], alpha=1.0).effective_sample_size() == 3.0
    assert buffer_of([1e-300, 1e150], alpha=1.0).effective_sample_size() == 1.0
    assert st.PrioritizedReplayBuffer(4, RECORD).effective_sample_size() == 0.0


# ---- draws without replacement ----


def test_a_draw_without_replacement_is_of_one_piece() -> None:
    buffer = buffer_of(np.arange(1.0, 14.0), capacity=10, alpha=1.0)
    tree = st.reference.PriorityTree(10, seed=0)
    tree[:] = buffer.tree[:]
    drawn = buffer.sample(7, beta=0.5, replace=False)
    expected = tree.sample(7, 0.5, replace=False)
    assert isinstance(drawn, st.DistinctSample)
    assert np.array_equal(drawn.indices, expected.indices)
    assert np.array_equal(drawn.expansions, expected.expansions)
    assert np.array_equal(drawn.indices, drawn.ids % 10)
    assert np.array_equal(drawn.masses, buffer.tree[drawn.indices])
    np.testing.assert_array_max_ulp(drawn.weights, (4.0 / drawn.masses) ** 0.5, 4)
    assert np.array_equal(drawn.transitions, buffer[drawn.ids])
    assert buffer.sampled == 1


def test_beta_of_draws_without_replacement_moves_as_of_others() -> None:
    schedule = st.BetaSchedule(0.0, 1.0, 2)
    buffer = buffer_of([1.0, 4.0], alpha=1.0, beta=schedule)
    for beta in (0.0, 0.5, 1.0):
        drawn = buffer.sample(2, replace=False)
        assert np.array_equal(drawn.weights, (1.0 / drawn.masses) ** beta)
