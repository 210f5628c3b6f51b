"""The rate limiter holds the ratio, and never makes learner and actors wait for each other."""

from __future__ import annotations

import math
from typing import Any

import pytest

from libsumtree.errors import ArgumentError, ArgumentTypeError, CapacityError
from libsumtree.replay import RateLimit, RateLimiter, ReplayConfig
from libsumtree.replay.limiter import shared_out


def test_without_a_ratio_only_the_size_counts() -> None:
    limiter = RateLimiter(min_size_to_sample=10)
    assert not limiter.may_sample(1, size=9)
    assert limiter.may_sample(10**9, size=10)
    assert limiter.may_insert(size=10**9)
    assert limiter.surplus is None


def test_bounds_are_those_of_reverb() -> None:
    """SampleToInsertRatio: min_size 100, 4 samples per insert, error buffer 40."""
    limiter = RateLimiter(100, 4.0, 40.0)
    limiter.inserted(100)
    assert limiter.may_sample(40, size=100)
    assert not limiter.may_sample(41, size=100)
    assert limiter.may_insert(size=100)
    limiter.inserted(10)
    assert limiter.may_insert(size=110)
    limiter.inserted(1)
    assert not limiter.may_insert(size=111)
    limiter.sampled(4)
    assert limiter.may_insert(size=111)


def test_inserts_are_free_below_the_minimum_size() -> None:
    limiter = RateLimiter(100, 4.0, 40.0)
    limiter.inserted(10_000)
    assert limiter.may_insert(size=99)
    assert not limiter.may_insert(size=100)


@pytest.mark.parametrize("ratio", [0.01, 0.5, 1.0, 8.0, 64.0, 1000.0])
@pytest.mark.parametrize(("batch", "request_"), [(1, 1), (50, 512), (4096, 7), (1, 4096)])
@pytest.mark.parametrize("minimum", [1, 1000])
def test_learner_and_actors_never_both_wait(
    ratio: float, batch: int, request_: int, minimum: int
) -> None:
    """The default error buffer, whoever comes first, and whatever the sizes."""
    limiter = RateLimiter(minimum, ratio)
    size = inserted = sampled = 0
    limiter.expect_sample(request_)
    for _ in range(3000):
        moved = False
        if limiter.may_insert(size):
            limiter.inserted(batch)
            size += batch
            inserted += batch
            moved = True
        if limiter.may_sample(request_, size):
            limiter.sampled(request_)
            sampled += request_
            moved = True
        assert moved
    width = limiter.error_buffer + max(request_, batch * ratio)
    assert abs((inserted - minimum) * ratio - sampled) <= width


@pytest.mark.parametrize("ratio", [2.0**-53, 2.0**53])
def test_the_most_extreme_limits_can_be_told(ratio: float) -> None:
    """A replay rank says what its clients wait for, whatever a learner has set."""
    limiter = RateLimiter()
    for buffer in (None, 2.0**53):
        limiter.change(RateLimit(1, ratio, buffer), 1 << 40)
        for count in (1, 1 << 20, 1 << 40):
            limiter.inserted(count)
            limiter.expect_sample(count)
            limiter.why_no_insert(count)
            assert "transitions must come first" in limiter.why_no_sample(2.0**106, count)
            assert math.isfinite(limiter.surplus or math.nan)


@pytest.mark.parametrize(
    ("ratio", "buffer"),
    [(5e-324, None), (2.0**-54, 1.0), (2.0**54, None), (1e308, 1.7e308), (1.0, 1e308)],
)
def test_limits_beyond_any_balance_are_refused(ratio: float, buffer: float | None) -> None:
    with pytest.raises(ArgumentError, match="53"):
        RateLimit(1, ratio, buffer)


def test_smallest_error_buffer_that_admits_a_request_serves_it() -> None:
    limiter = RateLimiter(1, 2.0, 32.0)
    assert limiter.admits(64)
    assert not limiter.admits(65)
    size = 0
    while not limiter.may_sample(64, size):
        assert limiter.may_insert(size)
        limiter.inserted(1)
        size += 1
    assert size == 17


def test_restored_limiter_goes_on_where_it_was() -> None:
    before = RateLimiter(100, 4.0, 400.0)
    before.inserted(150)
    before.sampled(64)
    after = RateLimiter(100, 4.0, 400.0, 150, before.surplus)
    assert after.surplus == before.surplus == 4.0 * 50 - 64


@pytest.mark.parametrize("surplus", [-1e9, 1e9, None])
def test_restored_limiter_with_other_settings_blocks_nobody_for_long(surplus: float | None) -> None:
    limiter = RateLimiter(100, 4.0, 400.0, 10**6, surplus)
    assert abs(limiter.surplus or 0.0) <= 400.0
    early = RateLimiter(100, 4.0, 400.0, 30, surplus)
    early.inserted(70)
    assert early.may_sample(1, size=100)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((0,), "min_size_to_sample is 0"),
        ((1, 0.0), "samples_per_insert is 0.0"),
        ((1, -1.0), "samples_per_insert is -1.0"),
        ((1, float("nan")), "samples_per_insert is nan"),
        ((1, float("inf")), "samples_per_insert is inf"),
        ((1, None, 5.0), "no meaning without samples_per_insert"),
        ((1, 8.0, 7.9), "error_buffer is 7.9"),
        ((1, 0.5, 0.9), "error_buffer is 0.9"),
        ((1, 1.0, float("nan")), "error_buffer is nan"),
    ],
)
def test_pacing_that_cannot_be_is_refused(arguments: tuple[Any, ...], text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        RateLimiter(*arguments)


@pytest.mark.parametrize(
    ("settings", "kind", "text"),
    [
        ({"capacity": 0}, ArgumentError, "capacity is 0"),
        ({"capacity": 2.5}, ArgumentTypeError, "capacity is 2.5"),
        ({"keep": 0}, ArgumentError, "keep is 0"),
        ({"actor_credits": 0}, ArgumentError, "actor_credits is 0"),
        ({"sample_credits": -1}, ArgumentError, "sample_credits is -1"),
        ({"update_credits": True}, ArgumentTypeError, "update_credits is True"),
        ({"max_batch": 2**31}, ArgumentError, "max_batch is"),
        ({"clients": 0}, ArgumentError, "clients is 0"),
        ({"idle_sleep": -0.1}, ArgumentError, "idle_sleep is -0.1"),
        ({"idle_sleep": 2.0}, ArgumentError, "idle_sleep is 2.0"),
        ({"grace": -1.0}, ArgumentError, "grace is -1.0"),
        ({"grace": "5"}, ArgumentTypeError, "grace is '5'"),
        ({"checkpoint_interval": 0.0}, ArgumentError, "checkpoint_interval is 0.0"),
        ({"checkpoint_interval": float("nan")}, ArgumentError, "checkpoint_interval is nan"),
        ({"resume": ""}, ArgumentTypeError, "resume is ''"),
        ({"dtype": "f8"}, ArgumentTypeError, "no fields"),
        ({"min_size_to_sample": 101}, ArgumentError, "more than the capacity of 100"),
        ({"samples_per_insert": -2.0}, ArgumentError, "samples_per_insert is -2.0"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    settings: dict[str, Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        ReplayConfig(**{"capacity": 100, **settings})


@pytest.mark.parametrize("value", ["[]", "[8.0]", "[[]]", '"8"', "true", "{}"])
@pytest.mark.parametrize("name", ["min_size_to_sample", "samples_per_insert", "error_buffer"])
def test_rate_limit_of_another_process_is_of_numbers_or_refused(name: str, value: str) -> None:
    """What a replay rank answers with a refusal, and does not end on."""
    fields = {"min_size_to_sample": "1", "samples_per_insert": "1.0", "error_buffer": "8.0"}
    text = ", ".join(f'"{n}": {v}' for n, v in {**fields, name: value}.items())
    with pytest.raises(ArgumentTypeError, match=name):
        RateLimit.from_json(f"{{{text}}}")


def test_capacity_is_the_buffer_s_to_refuse() -> None:
    assert issubclass(CapacityError, ValueError)
    assert ReplayConfig(capacity=2**50).capacity == 2**50


# ---- changes at run time ----


def test_change_keeps_the_surplus_within_the_new_bounds() -> None:
    limiter = RateLimiter(100, 4.0, 400.0)
    limiter.inserted(150)
    limiter.sampled(64)
    limiter.change(RateLimit(50, 2.0, 500.0), inserted=150)
    assert limiter.surplus == 4.0 * 50 - 64
    limiter.change(RateLimit(50, 2.0, 100.0), inserted=150)
    assert limiter.surplus == 100.0
    assert limiter.changes == 2


def test_change_below_the_minimum_begins_in_balance() -> None:
    limiter = RateLimiter(1000, 4.0, 400.0)
    limiter.inserted(120)
    limiter.change(RateLimit(100, 4.0, 400.0), inserted=120)
    assert limiter.surplus == 0.0
    assert limiter.may_sample(64, size=120)


def test_change_lets_what_waits_pass_by_default() -> None:
    """The default error buffer knows of the requests and batches that came before the change."""
    limiter = RateLimiter()
    limiter.expect_sample(4096)
    limiter.inserted(300)
    limiter.change(RateLimit(1, 0.5), inserted=300)
    assert limiter.error_buffer == 4096.0
    assert limiter.may_sample(4096, size=300)
    limiter.change(RateLimit(1, 64.0), inserted=300)
    assert limiter.error_buffer == 300 * 64.0


def test_pacing_may_be_given_up_and_taken_up_again() -> None:
    limiter = RateLimiter(10, 1.0, 50.0)
    limiter.inserted(10_000)
    assert not limiter.may_insert(size=100)
    limiter.change(RateLimit(10), inserted=10_000)
    assert limiter.may_insert(size=100)
    assert limiter.surplus is None
    limiter.change(RateLimit(10, 1.0, 50.0), inserted=10_000)
    assert limiter.surplus == 0.0


def test_changes_hold_on_as_long_as_the_same_is_asked_for() -> None:
    limiter = RateLimiter(1000, 4.0)
    assert limiter.saved() is None
    limiter.change(RateLimit(100, 2.0, 64.0), inserted=0)
    saved = limiter.saved()
    assert saved is not None
    again = RateLimiter(1000, 4.0)
    assert again.go_on(saved, inserted=500, surplus=7.0, capacity=5000)
    assert (again.limit, again.surplus, again.changes) == (RateLimit(100, 2.0, 64.0), 7.0, 1)
    assert again.saved() == saved
    for other, capacity in ((RateLimiter(1000, 4.5), 5000), (RateLimiter(1000, 4.0), 99)):
        before = other.limit
        assert not other.go_on(saved, inserted=500, surplus=7.0, capacity=capacity)
        assert (other.limit, other.changes) == (before, 0)


@pytest.mark.parametrize(
    "saved",
    [
        *("", "[]", "{}", '{"asked": {}, "in_force": {}, "changes": "x"}'),
        '{"asked": {}, "in_force": {}, "changes": Infinity}',
        '{"asked": {"min_size_to_sample": 0}, "in_force": {}, "changes": 1}',
        '{"asked": {"other": 1}, "in_force": {}, "changes": 1}',
    ],
)
def test_saved_limit_that_is_none_is_refused(saved: str) -> None:
    with pytest.raises(ArgumentError, match="no rate limit"):
        RateLimiter().go_on(saved, 0, None, 10)


def test_why_says_how_much_is_missing() -> None:
    limiter = RateLimiter(1000, 4.0, 40.0)
    assert limiter.why_no_sample(1, 120) == "waits for the rate limiter: 120 of 1000 transitions"
    limiter.inserted(1000)
    assert limiter.why_no_sample(40, 1000) == ""
    assert limiter.why_no_sample(49, 1000).startswith("waits for the rate limiter: 3 more trans")
    limiter.inserted(3)
    assert limiter.may_sample(49, 1000)
    assert limiter.why_no_insert(1003) == ""
    limiter.inserted(10)
    assert limiter.why_no_insert(1013).startswith("waits for the rate limiter: 12 more samples")
    limiter.sampled(12)
    assert limiter.may_insert(1013)


# ---- shared out ----


def changed_at_run_time(asked: RateLimit, now: RateLimit) -> str:
    limiter = RateLimiter(asked.min_size_to_sample, asked.samples_per_insert, asked.error_buffer)
    limiter.change(now, 0)
    saved = limiter.saved()
    assert saved is not None
    return saved


@pytest.mark.parametrize(("minimum", "part"), [(60, 20), (61, 21), (1, 1)])
def test_parts_of_a_rate_limit(minimum: int, part: int) -> None:
    whole = RateLimit(minimum, 2.0, 30.0)
    assert whole.part(3) == RateLimit(part, 2.0, 10.0)
    assert whole.part(3).whole(3) == RateLimit(3 * part, 2.0, 30.0)
    assert RateLimit(minimum).part(3) == RateLimit(part)


@pytest.mark.parametrize("after", [1, 3, 4])
def test_a_change_is_shared_out_anew(after: int) -> None:
    """To what the limiters of another number of shards take over as their own."""
    asked, now = RateLimit(61, 1.0, 300.0), RateLimit(80, 2.0, 400.0)
    shared = shared_out(changed_at_run_time(asked.part(2), now.part(2)), asked, 2, after)
    assert shared is not None
    part = asked.part(after)
    limiter = RateLimiter(part.min_size_to_sample, part.samples_per_insert, part.error_buffer)
    assert limiter.go_on(shared, 0, None, 100)
    assert limiter.limit == now.part(after)
    assert limiter.changes == 1


def test_a_change_that_cannot_be_shared_out() -> None:
    asked, now = RateLimit(10, 1.0, 8.0), RateLimit(10, 4.0, 8.0)
    saved = changed_at_run_time(asked.part(2), now.part(2))
    assert shared_out(saved, asked, 2, 4) is None  # an error buffer of 2 for 4 samples per insert
    assert shared_out(saved, RateLimit(12, 1.0, 8.0), 2, 1) is None  # something else is asked for
    with pytest.raises(ArgumentError, match="no rate limit"):
        shared_out("{}", asked, 2, 1)
