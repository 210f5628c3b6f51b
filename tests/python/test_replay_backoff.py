"""Waiting for messages: when a look is followed by a sleep, by what the kernel counts of sleeps."""

from __future__ import annotations

import resource
import time

import pytest

pytest.importorskip("mpi4py")

from libsumtree.replay import channel
from libsumtree.replay.channel import Backoff

LOOKS = 9_000


def sleeps() -> int:
    """Return how often this thread has let the processor go; a yield is none of these."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def looks_before_a_sleep(backoff: Backoff, moving: bool) -> int:
    """Return how many looks in vain go by without a sleep, `LOOKS` at most."""
    for look in range(LOOKS):
        before = sleeps()
        backoff.turn(busy=False, moving=moving)
        if sleeps() > before:
            return look
    return LOOKS


def test_who_waits_long_for_a_long_message_lets_others_run() -> None:
    backoff = Backoff(0.001)
    assert 50 < looks_before_a_sleep(backoff, moving=True) < LOOKS
    backoff.turn(busy=True, moving=True)
    assert 50 < looks_before_a_sleep(backoff, moving=True) < LOOKS


def test_without_a_long_message_there_are_50_looks() -> None:
    assert looks_before_a_sleep(Backoff(0.001), moving=False) <= 50


@pytest.mark.parametrize("moving", [False, True])
def test_who_is_never_to_sleep_does_not(moving: bool) -> None:
    assert looks_before_a_sleep(Backoff(0.0), moving) == LOOKS


def test_sleeps_grow_once_a_long_message_has_not_moved_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its sender may be dead: sleeps are then no shorter than without it."""
    slept: list[float] = []
    monkeypatch.setattr(channel, "_AWAKE_MOVING", 0.0)
    monkeypatch.setattr(channel, "_HOPE_MOVING", 0.0)
    monkeypatch.setattr(time, "sleep", slept.append)
    backoff = Backoff(0.005)
    for _ in range(100):
        backoff.turn(busy=False, moving=True)
    assert slept == sorted(slept)
    assert slept[-1] == 0.005
