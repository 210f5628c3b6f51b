"""Learners make way for actors: when requests wait, and when they never do."""

from __future__ import annotations

import pytest

pytest.importorskip("mpi4py")

from libsumtree.errors import ArgumentError, ArgumentTypeError
from libsumtree.replay import ReplayConfig
from libsumtree.replay import share as module
from libsumtree.replay.share import LearnerShare

MS = 1_000_000


class Clock:
    """The time that a share sees."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000 * MS
        monkeypatch.setattr(module.time, "perf_counter_ns", lambda: self.now)

    def serve(self, share: LearnerShare, cost: int) -> None:
        self.now += cost
        share.served(self.now - cost)

    def flood(self, share: LearnerShare, until: int) -> None:
        """An actor has most of its credits in use, again and again."""
        while self.now < until:
            self.now = min(until, self.now + MS // 10)
            share.came(self.now, pressed=True)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_requests_wait_until_their_time_is_the_share(clock: Clock) -> None:
    share = LearnerShare(0.2)
    assert not share.is_spent(coming=True)
    clock.serve(share, MS)
    end = clock.now
    clock.flood(share, end + 4 * MS - 1)
    assert share.is_spent(coming=False)
    clock.flood(share, end + 4 * MS)
    assert not share.is_spent(coming=True)


def test_no_request_waits_long(clock: Clock) -> None:
    share = LearnerShare(0.01)
    clock.serve(share, 100 * MS)
    end = clock.now
    clock.flood(share, end + 4 * MS)
    assert share.is_spent(coming=True)
    clock.flood(share, end + 5 * MS)
    assert not share.is_spent(coming=True)


def test_what_was_given_freely_is_not_asked_back(clock: Clock) -> None:
    share = LearnerShare(0.5)
    for _ in range(20):
        clock.serve(share, MS)
    end = clock.now
    clock.flood(share, end + MS)
    assert not share.is_spent(coming=True)


def test_updates_count(clock: Clock) -> None:
    share = LearnerShare(0.5)
    clock.now += MS
    share.spent(clock.now - MS)
    clock.serve(share, MS)
    end = clock.now
    clock.flood(share, end + MS)
    assert share.is_spent(coming=False)
    clock.flood(share, end + 2 * MS)
    assert not share.is_spent(coming=False)


def test_nobody_waits_for_actors_that_lack_nothing(clock: Clock) -> None:
    share = LearnerShare(0.2)
    clock.serve(share, 10 * MS)
    share.came(clock.now, pressed=False)
    assert not share.is_spent(coming=True)


def test_nobody_waits_once_batches_have_ended(clock: Clock) -> None:
    share = LearnerShare(0.2)
    clock.serve(share, 10 * MS)
    clock.flood(share, clock.now + MS)
    assert share.is_spent(coming=False)
    clock.now += 2 * MS
    assert share.is_spent(coming=True)
    assert not share.is_spent(coming=False)


def test_a_share_of_one_has_nobody_wait(clock: Clock) -> None:
    share = LearnerShare(1.0)
    clock.serve(share, 10 * MS)
    clock.flood(share, clock.now + MS)
    assert not share.is_spent(coming=True)


@pytest.mark.parametrize("share", [0.0, -0.1, 1.01, float("nan")])
def test_a_share_is_above_0_and_at_most_1(share: float) -> None:
    with pytest.raises(ArgumentError, match="learner_share is"):
        ReplayConfig(10, learner_share=share)
    with pytest.raises(ArgumentTypeError):
        ReplayConfig(10, learner_share="0.2")  # type: ignore[arg-type]


def test_a_share_near_0_is_a_share(clock: Clock) -> None:
    share = LearnerShare(5e-324)
    share.came(clock.now, pressed=True)
    clock.serve(share, 0)
    assert not share.is_spent(coming=True)
    clock.serve(share, 1)
    assert share.is_spent(coming=True)
