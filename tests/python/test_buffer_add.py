"""Adding to the buffer: the ring, ids, the mass of new transitions, intakes, what is refused."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import libsumtree as st
from libsumtree.errors import (
    ArgumentError,
    ArgumentTypeError,
    CapacityError,
    EmptyTreeError,
    ExponentError,
    OutOfMemoryError,
    PriorityError,
    ShapeError,
    StaleIdError,
)

RECORD = np.dtype([("value", "<i8"), ("copies", "<f4", (2,))])


def buffer_of(capacity: int, alpha: float = 1.0, **options: Any) -> st.PrioritizedReplayBuffer:
    return st.PrioritizedReplayBuffer(capacity, RECORD, alpha=alpha, seed=0, **options)


def rows(*values: int) -> np.ndarray:
    made = np.zeros(len(values), RECORD)
    made["value"] = values
    made["copies"] = np.array(values)[:, np.newaxis]
    return made


def snapshot(buffer: st.PrioritizedReplayBuffer) -> tuple[Any, ...]:
    with buffer.snapshot() as taken:
        datasets = taken.datasets()
        kept = [block.tobytes() for block in taken.rows.blocks()]
        kept += [datasets[name][0].tobytes() for name in ("tree/masses", "ids/epochs")]
        said = {k: np.asarray(v).tolist() for k, v in taken.attributes.items() if k != "created"}
        return said, kept


# ---- the ring ----


def test_ids_count_up_and_name_their_transitions() -> None:
    buffer = buffer_of(4)
    ids = buffer.add(rows(10, 11, 12))
    assert ids.tolist() == [0, 1, 2]
    assert ids.dtype == np.int64
    assert buffer[ids]["value"].tolist() == [10, 11, 12]
    assert buffer[[2, 0]]["copies"].tolist() == [[12, 12], [10, 10]]
    assert (len(buffer), buffer.inserted, buffer.next_id, buffer.epoch) == (3, 3, 3, 0)


def test_the_oldest_are_replaced_and_their_ids_are_stale() -> None:
    buffer = buffer_of(4)
    buffer.add(rows(0, 1, 2))
    assert buffer.add(rows(3, 4, 5)).tolist() == [3, 4, 5]
    assert buffer[[2, 3, 4, 5]]["value"].tolist() == [2, 3, 4, 5]
    with pytest.raises(StaleIdError, match=r"^ids\[1\] is 1:"):
        buffer[[2, 1, 0]]
    with pytest.raises(StaleIdError, match=r"^ids is 0:"):
        buffer[0]
    assert (len(buffer), buffer.inserted) == (4, 6)


def test_priorities_go_with_their_transitions_where_the_ring_wraps() -> None:
    buffer = buffer_of(5)
    buffer.add(rows(0, 1, 2))
    buffer.add(rows(3, 4, 5, 6), [3.0, 4.0, 5.0, 6.0])
    assert buffer.tree[:].tolist() == [5.0, 6.0, 1.0, 3.0, 4.0]
    assert buffer.tree.total == 19.0
    drawn = buffer.sample(50)
    old = drawn.transitions["value"] == 2
    assert np.array_equal(drawn.masses[~old], drawn.transitions["value"][~old])


@pytest.mark.parametrize("capacity", [1, 2, 3, 5, 8])
def test_a_batch_longer_than_the_ring_keeps_its_last_rows(capacity: int) -> None:
    buffer = buffer_of(capacity)
    buffer.add(rows(100))
    count = 2 * capacity + 1
    values = np.arange(count)
    ids = buffer.add(rows(*values), 1.0 + values)
    assert ids.tolist() == list(range(1, 1 + count))
    kept = ids[-capacity:]
    assert buffer[kept]["value"].tolist() == values[-capacity:].tolist()
    assert buffer.tree[kept % capacity].tolist() == (1.0 + values[-capacity:]).tolist()
    assert buffer.update_priorities(ids, 1.0) == count - capacity
    assert (len(buffer), buffer.next_id) == (capacity, 1 + count)


def test_an_id_takes_the_shape_of_the_transition() -> None:
    buffer = buffer_of(100)
    one = buffer.add(rows(5)[0])
    assert type(one) is int
    assert buffer.add(rows(6).reshape(())) == 1
    assert buffer.add((7, (7.0, 7.0))) == 2
    assert buffer[[0, 1, 2]]["value"].tolist() == [5, 6, 7]
    grid = buffer.add(rows(*range(6)).reshape(2, 3), np.arange(6.0).reshape(2, 3))
    assert grid.tolist() == [[3, 4, 5], [6, 7, 8]]
    assert buffer[grid]["value"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert buffer.tree[grid].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert buffer.add(rows()).shape == (0,)
    assert buffer.add(np.zeros((3, 0), RECORD), np.zeros((3, 0))).shape == (3, 0)
    assert buffer.next_id == 9


def test_transitions_may_be_strided_read_only_and_byte_swapped() -> None:
    buffer = buffer_of(8)
    source = rows(*range(8)).astype(RECORD.newbyteorder(">"))
    source.flags.writeable = False
    before = source.tobytes()
    ids = buffer.add(source[::-2])
    assert buffer[ids]["value"].tolist() == [7, 5, 3, 1]
    assert buffer[ids].dtype == RECORD
    assert source.tobytes() == before


def test_the_buffer_keeps_copies() -> None:
    buffer = buffer_of(4)
    source = rows(1, 2)
    ids = buffer.add(source)
    source["value"] = -1
    buffer[ids]["value"] = -2
    buffer.sample(4).transitions["value"] = -3
    assert buffer[ids]["value"].tolist() == [1, 2]


@pytest.mark.parametrize("of", [int, np.int64, np.asarray])
def test_one_transition_is_a_copy_too(of: Any) -> None:
    buffer = buffer_of(1)
    name = of(buffer.add(rows(1)[0]))
    read = buffer[name]
    read["value"] = -1
    assert buffer[name]["value"] == 1
    kept = buffer[name]
    buffer.add(rows(2))
    assert kept["value"] == 1


def test_clear_drops_all_and_issues_no_id_again() -> None:
    buffer = buffer_of(4)
    ids = buffer.add(rows(0, 1, 2), [5.0, 6.0, 7.0])
    buffer.clear()
    assert len(buffer) == 0
    assert (buffer.tree.total, buffer.tree.max, buffer.tree.min) == (0.0, 0.0, np.inf)
    assert buffer.update_priorities(ids, 9.0) == 3
    with pytest.raises(EmptyTreeError):
        buffer.sample(1)
    assert buffer.add(rows(8)).tolist() == [3]
    assert buffer.tree[3] == 1.0
    assert buffer.sample(5).ids.tolist() == [3] * 5


# ---- the mass of transitions without a priority ----


def test_new_transitions_take_the_largest_mass_held_now() -> None:
    buffer = buffer_of(4)
    first = buffer.add(rows(0))
    assert buffer.tree[0] == 1.0, "1.0 where nothing is held"
    buffer.update_priorities(first, 50.0)
    buffer.add(rows(1))
    assert buffer.tree[1] == 50.0
    buffer.update_priorities([0, 1], [3.0, 2.0])
    buffer.add(rows(2))
    assert buffer.tree[2] == 3.0, "not the largest that ever was"
    buffer.update_priorities([0, 1, 2], 0.0)
    buffer.add(rows(3))
    assert buffer.tree[3] == 1.0, "1.0 where no mass is positive"


def test_the_largest_mass_is_that_before_the_call() -> None:
    buffer = buffer_of(3)
    buffer.add(rows(0, 1, 2), [7.0, 1.0, 2.0])
    buffer.add(rows(3))
    assert buffer.tree[:].tolist() == [7.0, 1.0, 2.0], "the transition it replaces counts"
    buffer = buffer_of(3)
    buffer.add(rows(0, 1, 2), [7.0, 1.0, 2.0])
    buffer.add(rows(3, 4, 5, 6))
    assert buffer.tree[:].tolist() == [7.0] * 3


def test_alpha_is_applied_once() -> None:
    buffer = buffer_of(4, alpha=0.5)
    ids = buffer.add(rows(0, 1), [16.0, 81.0])
    assert buffer.tree[:2].tolist() == [4.0, 9.0]
    buffer.add(rows(2))
    assert buffer.tree[2] == 9.0, "the largest mass, not its power"
    buffer.update_priorities(ids, [25.0, 100.0])
    assert buffer.tree[:3].tolist() == [5.0, 10.0, 9.0]
    buffer.add(rows(3), 36.0)
    assert buffer.tree[3] == 6.0
    assert buffer.alpha == 0.5


def test_alpha_zero_makes_all_alike_but_priority_zero() -> None:
    buffer = buffer_of(4, alpha=0.0)
    ids = buffer.add(rows(0, 1, 2, 3), [0.0, 5e-324, 3.0, -0.0])
    assert buffer.tree[:].tolist() == [0.0, 1.0, 1.0, 0.0]
    assert not np.signbit(buffer.tree[:]).any()
    assert set(buffer.sample(64).ids.tolist()) == {1, 2}
    buffer.update_priorities(ids, [2.0, 0.0, 0.0, 0.0])
    assert buffer.tree[:].tolist() == [1.0, 0.0, 0.0, 0.0]


def test_nothing_is_added_to_a_priority() -> None:
    buffer = buffer_of(2, alpha=0.6)
    buffer.add(rows(0, 1), [0.0, 1e-12])
    assert buffer.tree[0] == 0.0
    np.testing.assert_array_max_ulp(buffer.tree[1], 1e-12**0.6, 4)


# ---- an intake ----


def test_an_intake_retires_fills_and_commits() -> None:
    buffer = buffer_of(5)
    buffer.add(rows(0, 1, 2, 3), [1.0, 2.0, 4.0, 8.0])
    intake = buffer.begin_add(3)
    assert intake.count == 3
    assert [len(segment) for segment in intake.segments] == [1, 2]
    assert buffer.tree[:].tolist() == [0.0, 0.0, 4.0, 8.0, 0.0]
    assert (len(buffer), buffer.next_id) == (2, 4)
    assert buffer.update_priorities([0, 1, 2, 3], 5.0) == 2
    assert set(buffer.sample(40).ids.tolist()) == {2, 3}
    intake.segments[0][...] = rows(4)
    intake.segments[1][...] = rows(5, 6)
    assert intake.commit([40.0, 50.0, 60.0]).tolist() == [4, 5, 6]
    assert buffer.tree[:].tolist() == [50.0, 60.0, 5.0, 5.0, 40.0]
    assert (buffer.tree.total, buffer.tree.min, buffer.tree.max) == (160.0, 5.0, 60.0)
    buffer.tree.validate()
    assert buffer[[4, 5, 6]]["value"].tolist() == [4, 5, 6]
    assert len(buffer) == 5


def test_an_intake_takes_the_largest_mass_held_before_it_began() -> None:
    buffer = buffer_of(3)
    buffer.add(rows(0, 1, 2), [9.0, 1.0, 2.0])
    intake = buffer.begin_add(1)
    buffer.update_priorities([1, 2], 100.0)
    intake.commit()
    assert buffer.tree[:].tolist() == [9.0, 100.0, 100.0]


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 11])
def test_an_abandoned_intake_leaves_empty_slots(count: int) -> None:
    buffer = buffer_of(4)
    buffer.add(rows(0, 1, 2, 3, 4, 5))
    intake = buffer.begin_add(count)
    segments = intake.segments
    for segment in segments:
        segment.view(np.uint8)[...] = 0xFF
    intake.abandon()
    kept = min(count, 4)
    assert not any(segment.view(np.uint8).any() for segment in segments)
    assert (len(buffer), buffer.next_id, buffer.inserted) == (4 - kept, 6, 6)
    assert np.count_nonzero(buffer.tree[:]) == 4 - kept
    assert buffer.update_priorities(np.arange(6), 1.0) == 2 + kept
    assert buffer.add(rows(9)).tolist() == [6]
    assert buffer[6]["value"] == 9
    assert buffer.sample(9).ids.min() >= min(2 + kept, 6)


def test_an_intake_ends_once() -> None:
    for ends in ("commit", "abandon"):
        buffer = buffer_of(4)
        intake = buffer.begin_add(2)
        getattr(intake, ends)()
        for again in (intake.commit, intake.abandon):
            with pytest.raises(ArgumentError, match="begin a new one"):
                again()
        assert buffer.next_id == (2 if ends == "commit" else 0)
        assert len(buffer) == buffer.next_id


def test_one_intake_at_a_time() -> None:
    buffer = buffer_of(4)
    intake = buffer.begin_add(1)
    for meanwhile in (lambda: buffer.begin_add(1), lambda: buffer.add(rows(1))):
        with pytest.raises(ArgumentError, match="intake"):
            meanwhile()
    intake.abandon()
    assert buffer.add(rows(1)).tolist() == [0]


def test_a_refused_commit_leaves_the_intake_open() -> None:
    buffer = buffer_of(4)
    intake = buffer.begin_add(2)
    with pytest.raises(PriorityError, match=r"^priorities\[1\] is -1\.0:"):
        intake.commit([1.0, -1.0])
    with pytest.raises(ShapeError):
        intake.commit([1.0])
    assert (buffer.tree.total, buffer.next_id) == (0.0, 0)
    assert intake.commit([1.0, 2.0]).tolist() == [0, 1]


def test_a_sample_never_gives_a_retired_slot() -> None:
    buffer = buffer_of(8)
    buffer.add(rows(*range(8)), np.arange(1.0, 9.0))
    for count in range(1, 8):
        intake = buffer.begin_add(count)
        retired = {int(v) for segment in intake.segments for v in segment["value"]}
        drawn = buffer.sample(200, stratified=False)
        assert retired.isdisjoint(drawn.transitions["value"].tolist())
        intake.commit()
    intake = buffer.begin_add(8)
    with pytest.raises(EmptyTreeError):
        buffer.sample(1)
    intake.abandon()


@pytest.mark.parametrize("count", [-1, 1.0, True, None, "1"])
def test_a_count_is_a_whole_number(count: Any) -> None:
    with pytest.raises((ArgumentError, ArgumentTypeError), match="count"):
        buffer_of(4).begin_add(count)


# ---- what is refused, with nothing changed ----


@pytest.mark.parametrize(
    ("priorities", "error", "message"),
    [
        ([1.0, np.nan, -1.0], PriorityError, r"^priorities\[1\] is nan:"),
        ([1.0, 2.0, -1e-300], PriorityError, r"^priorities\[2\] is -1e-300:"),
        ([np.inf, 2.0, 3.0], PriorityError, r"^priorities\[0\] is inf:"),
        ([1.0, 1e308, 1.0], PriorityError, r"^priorities\[1\] is 1e\+308:"),
        (-2.5, PriorityError, r"^priorities is -2\.5:"),
        ([1.0, 2.0], ShapeError, r"\(2,\).*\(3,\)"),
        ([[1.0], [2.0], [3.0]], ShapeError, r"\(3, 1\).*\(3,\)"),
        ([True, True, True], ArgumentTypeError, "bool"),
        ([1j, 1j, 1j], ArgumentTypeError, "complex"),
        (["1", "2", "3"], ArgumentTypeError, "priorities"),
        ([None, None, None], ArgumentTypeError, "priorities"),
    ],
)
def test_bad_priorities_change_nothing(priorities: Any, error: Any, message: str) -> None:
    buffer = buffer_of(4)
    buffer.add(rows(0, 1, 2), [3.0, 4.0, 5.0])
    before = snapshot(buffer)
    with pytest.raises(error, match=message):
        buffer.add(rows(7, 8, 9), priorities)
    with pytest.raises(error, match=message):
        buffer.update_priorities([0, 1, 2], priorities)
    assert snapshot(buffer) == before
    buffer.tree.validate()


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype("f8"),
        np.dtype([("copies", "<f4", (2,)), ("value", "<i8")]),
        np.dtype([("value", "<i8")]),
        np.dtype([("value", "<i8"), ("copies", "<f4", (2,)), ("more", "?")]),
        np.dtype([("value", "<i8"), ("copies", "<f4", (3,))]),
        np.dtype([("value", "<i8"), ("copies", "<f8", (2,))]),
        np.dtype([("value", "<u8"), ("copies", "<f4", (2,))]),
        np.dtype([("value", "O"), ("copies", "<f4", (2,))]),
    ],
)
def test_records_of_another_dtype_change_nothing(dtype: np.dtype[Any]) -> None:
    buffer = buffer_of(4)
    buffer.add(rows(0, 1))
    before = snapshot(buffer)
    with pytest.raises(ArgumentTypeError, match="dtype"):
        buffer.add(np.zeros(2, dtype))
    assert snapshot(buffer) == before


def test_a_list_does_not_hide_another_order_of_fields() -> None:
    buffer = st.PrioritizedReplayBuffer(4, [("reward", "f4"), ("value", "f4")])
    swapped = np.array([(1.0, 2.0)], [("value", "f4"), ("reward", "f4")])
    with pytest.raises(ArgumentTypeError, match="dtype"):
        buffer.add([swapped[0]])


@pytest.mark.parametrize("transitions", ["ab", None, {"value": 1}, [(1,)], [(1, 2, 3)], object()])
def test_what_makes_no_records_is_refused(transitions: Any) -> None:
    buffer = buffer_of(4)
    with pytest.raises(ArgumentTypeError, match="transitions"):
        buffer.add(transitions)
    assert buffer.next_id == 0


@pytest.mark.parametrize("capacity", [0, -1, 2**40 + 1, 2**70])
def test_a_capacity_is_in_its_range(capacity: int) -> None:
    with pytest.raises(CapacityError, match=str(capacity)):
        buffer_of(capacity)


@pytest.mark.parametrize("alpha", [-0.1, np.nan, np.inf])
def test_alpha_is_finite_and_not_negative(alpha: float) -> None:
    with pytest.raises(ExponentError, match="alpha"):
        buffer_of(4, alpha=alpha)


@pytest.mark.parametrize(
    ("capacity", "itemsize"), [(2**40, 1), (2**36, 1), (2**24, 2**24), (2**20, 2**30)]
)
def test_what_memory_cannot_hold_is_refused_at_once(capacity: int, itemsize: int) -> None:
    """Before the tree is made, which takes seconds where there is room for that alone."""
    with pytest.raises(
        OutOfMemoryError, match=f"^{capacity} transitions of {itemsize} bytes"
    ) as caught:
        st.PrioritizedReplayBuffer(capacity, [("blob", f"V{itemsize}")])
    assert isinstance(caught.value, MemoryError)


def test_a_buffer_is_not_pickled() -> None:
    buffer = buffer_of(4)
    for make_copy in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(ArgumentTypeError, match="save and load"):
            make_copy(buffer)
