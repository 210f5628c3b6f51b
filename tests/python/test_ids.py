"""Ids alone: what was issued, what is held, and what no buffer ever issued."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from libsumtree.errors import ArgumentTypeError, IdError, IdsExhaustedError
from libsumtree.ids import MAX_EPOCH, MAX_NUMBER, NUMBER_BITS, Ids


def name_of(epoch: int, number: int) -> int:
    return epoch << NUMBER_BITS | number


def test_numbers_and_epochs_fill_an_int64() -> None:
    assert MAX_NUMBER == 2**40
    assert name_of(MAX_EPOCH, MAX_NUMBER - 1) == np.iinfo(np.int64).max


def test_issue_counts_on() -> None:
    ids = Ids()
    assert ids.issue(3).tolist() == [0, 1, 2]
    assert ids.issue(0).tolist() == []
    assert ids.next_id == 3
    assert ids.issue(2).tolist() == [3, 4]
    assert ids.issue(1).dtype == np.int64


def test_numbers_go_on_through_epochs() -> None:
    ids = Ids()
    ids.issue(3)
    ids.open_epoch(5)
    assert ids.issue(2).tolist() == [name_of(5, 3), name_of(5, 4)]
    ids.open_epoch(6)
    ids.open_epoch(9)
    assert ids.issue(1).tolist() == [name_of(9, 5)]
    assert ids.history.tolist() == [[0, 0], [5, 3], [6, 5], [9, 5]]
    assert ids.of_numbers(np.arange(6)).tolist() == [
        *[0, 1, 2, name_of(5, 3), name_of(5, 4), name_of(9, 5)]
    ]


def test_history_brings_back_the_same_ids() -> None:
    ids = Ids()
    ids.issue(4)
    ids.open_epoch(2)
    ids.issue(4)
    again = Ids(ids.history, ids.next_number)
    assert again.next_id == ids.next_id
    assert again.of_numbers(np.arange(8)).tolist() == ids.of_numbers(np.arange(8)).tolist()


def test_an_id_lost_with_a_restart_is_stale_for_ever() -> None:
    lost = Ids()
    lost.issue(10)
    restored = Ids(history=[(0, 0)], next_number=4)
    restored.open_epoch(1)
    restored.issue(20)
    numbers, live = restored.resolve(np.arange(10), oldest=0)
    assert numbers.tolist() == list(range(10))
    assert live.tolist() == [True] * 4 + [False] * 6


def test_an_id_of_an_epoch_that_another_restore_opened_is_stale() -> None:
    ids = Ids(history=[(0, 0), (3, 4)], next_number=9)
    _, live = ids.resolve([name_of(1, 4), name_of(2, 99)], oldest=0)
    assert live.tolist() == [False, False]


@pytest.mark.parametrize(
    "never",
    [
        -1,
        -(2**63),
        name_of(3, 9),
        name_of(3, 3),
        name_of(4, 0),
        name_of(MAX_EPOCH, 0),
        2**63,
        2**63 + 5,
        -(2**63) - 1,
        2**100,
    ],
)
def test_an_id_never_issued_is_named(never: int) -> None:
    ids = Ids(history=[(0, 0), (3, 4)], next_number=9)
    with pytest.raises(IdError, match=rf"^ids\[2\] is {never}:"):
        ids.resolve([0, name_of(3, 5), never, -7], oldest=0)
    with pytest.raises(IdError, match=rf"^ids is {never}:"):
        ids.resolve(never, oldest=0)


def test_the_place_of_a_bad_id_has_the_axes_of_the_argument() -> None:
    with pytest.raises(IdError, match=r"^ids\[1, 0\] is 7:"):
        Ids(next_number=3).resolve(np.array([[0, 1], [7, 2]]), oldest=0)


def test_unsigned_ids_beyond_int64_do_not_wrap() -> None:
    ids = Ids(next_number=3)
    with pytest.raises(IdError, match=str(2**64 - 1)):
        ids.resolve(np.array([0, 2**64 - 1], np.uint64), oldest=0)
    _, live = ids.resolve(np.array([0, 2], np.uint8), oldest=1)
    assert live.tolist() == [False, True]


@pytest.mark.parametrize("ids", [[0.0], [True], ["0"], [None], 1.0, np.zeros(1, "M8[s]")])
def test_ids_are_integers(ids: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="ids"):
        Ids(next_number=3).resolve(ids, oldest=0)


def test_an_epoch_has_2_to_the_40_numbers() -> None:
    ids = Ids(history=[(0, 0), (7, 0)], next_number=MAX_NUMBER - 2)
    ids.check_room(2)
    with pytest.raises(IdsExhaustedError, match="3 ids were asked for where 2 "):
        ids.check_room(3)
    assert ids.issue(2).tolist() == [name_of(7, MAX_NUMBER - 2), name_of(7, MAX_NUMBER - 1)]
    with pytest.raises(IdsExhaustedError, match="1 ids were asked for where 0 "):
        ids.check_room(1)
    _, live = ids.resolve(name_of(7, MAX_NUMBER - 1), oldest=0)
    assert live


@given(
    runs=some.lists(some.tuples(some.integers(0, 5), some.integers(1, 3)), max_size=6),
    held=some.integers(0, 40),
    asked=some.lists(some.tuples(some.integers(0, 12), some.integers(0, 30)), max_size=20),
)
def test_resolve_agrees_with_a_list_of_what_was_issued(
    runs: list[tuple[int, int]], held: int, asked: list[tuple[int, int]]
) -> None:
    ids = Ids()
    issued: list[int] = []
    for count, step in runs:
        issued.extend(ids.issue(count).tolist())
        ids.open_epoch(ids.epoch + step)
    issued.extend(ids.issue(2).tolist())
    assert issued == sorted(set(issued))
    assert ids.of_numbers(np.arange(len(issued))).tolist() == issued
    oldest = max(len(issued) - held, 0)
    epochs = {epoch for epoch, _ in ids.history.tolist()}
    starts = dict(ids.history.tolist())
    for epoch, number in asked:
        name = name_of(epoch, number)
        below = epoch in epochs and number < starts[epoch]
        if epoch > ids.epoch or below or (epoch == ids.epoch and number >= len(issued)):
            with pytest.raises(IdError):
                ids.resolve(name, oldest)
        else:
            assert ids.resolve(name, oldest)[1] == (name in issued[oldest:])


@given(
    some.lists(some.integers(0, 6), min_size=1, max_size=4),
    some.integers(0, 12),
    some.lists(some.integers(-2, 26), max_size=5),
    some.integers(0, 5),
)
def test_ids_that_are_all_held_are_told_as_one_by_one(
    epochs: list[int], oldest: int, numbers: list[int], epoch: int
) -> None:
    ids = Ids()
    for place, count in enumerate(epochs):
        if place:
            ids.open_epoch(place)
        ids.issue(count)
    given_ids = np.array([name_of(epoch, 0) + number for number in numbers], np.int64)
    found = ids.numbers_of_held(given_ids, oldest)
    try:
        resolved, live = ids.resolve(given_ids, oldest)
    except IdError:
        assert found is None
        return
    of_this_epoch = bool(numbers) and epoch == ids.epoch
    assert (found is not None) == (of_this_epoch and bool(live.all()))
    if found is not None:
        assert found.tolist() == resolved.tolist()
        assert found.dtype == np.int64


@pytest.mark.parametrize(
    "ids", [[0, 1], np.array([0, 1], np.int32), np.array([0, 1], ">i8"), np.array([0.0])]
)
def test_other_ids_than_plain_arrays_have_another_way(ids: Any) -> None:
    own = Ids()
    own.issue(5)
    assert own.numbers_of_held(ids, 0) is None
    assert own.numbers_of_held(np.array([0, 1]), 0) is not None
