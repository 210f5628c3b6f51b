"""The flag that signals set, and flags within flags."""

from __future__ import annotations

import signal

import pytest

from libsumtree.replay.signals import SIGNALS, install_signal_flag


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_names_the_flag_and_handlers_come_back(number: signal.Signals) -> None:
    before = {each: signal.getsignal(each) for each in SIGNALS}
    with install_signal_flag() as flag:
        assert not flag
        signal.raise_signal(number)
        signal.raise_signal(signal.SIGTERM)
        assert flag
        assert flag.name == number.name
    assert {each: signal.getsignal(each) for each in SIGNALS} == before


def test_a_signal_to_the_inner_flag_sets_the_outer_one() -> None:
    with install_signal_flag() as outer:
        with install_signal_flag() as inner:
            signal.raise_signal(signal.SIGUSR1)
            assert inner
        assert outer.name == "SIGUSR1"


def test_a_signal_that_came_before_counts_for_the_inner_flag() -> None:
    with install_signal_flag() as outer:
        signal.raise_signal(signal.SIGTERM)
        with install_signal_flag() as inner:
            assert inner.name == outer.name == "SIGTERM"
