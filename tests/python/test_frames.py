"""Frames stored once: draws are those of a buffer that stores every stack, bit for bit."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from framing import (
    FIELDS,
    SHAPE,
    Stream,
    assert_same_draws,
    layout_with,
    naive_priorities,
)

from libsumtree import PrioritizedReplayBuffer
from libsumtree.errors import (
    ArgumentError,
    ArgumentTypeError,
    IdError,
    PriorityError,
    ShapeError,
    StaleIdError,
)
from libsumtree.frames import FrameLayout, FrameWriter, layout_of
from libsumtree.records import dtype_from_text, dtype_to_text
from libsumtree.redistribution import redistribute


def pair(
    layout: FrameLayout, capacity: int, **options: Any
) -> tuple[PrioritizedReplayBuffer, PrioritizedReplayBuffer]:
    """Return a buffer that stores frames once, and one that stores every stack."""
    options = {"seed": 5, "alpha": 1.0, "backend": "cpu", **options}
    return (
        PrioritizedReplayBuffer(capacity, layout.record, **options),
        PrioritizedReplayBuffer(capacity, layout.stacked, **options),
    )


def filled(capacity: int = 50, episodes: tuple[int, ...] = (9, 1, 30, 4), **options: Any) -> Any:
    """Return such a pair with episodes of one stream in it, and all ids."""
    one, naive = pair(layout_with(), capacity, **options)
    stream, ids = Stream(layout_with(), 1), []
    for steps in episodes:
        for batch, rows in stream.play(steps):
            ids += one.add(*batch).tolist()
            naive.add(rows, batch.priorities)
    return one, naive, ids


# ---- exact reconstruction ----

layouts = st.builds(
    layout_with,
    st.integers(1, 6),
    st.sampled_from(["repeat", "zero"]),
    st.sampled_from(["u1", ">u2", "f4"]),
)
episodes = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 14), st.booleans()), min_size=1, max_size=12
)


@settings(max_examples=150, deadline=None)
@given(
    layouts,
    st.integers(1, 60),
    episodes,
    st.integers(1, 9),
    st.integers(1, 4),
    st.booleans(),
)
def test_draws_are_those_of_the_naive_buffer(
    layout: FrameLayout,
    capacity: int,
    plan: list[tuple[int, int, bool]],
    length: int,
    steps: int,
    priorities: bool,
) -> None:
    """Three streams whose batches interleave, one-step episodes, stacks longer than episodes,

    rings that wrap many times and rings smaller than a batch, n-step transitions; all that is
    drawn, and what becomes of stale ids.
    """
    one, naive = pair(layout, capacity)
    streams = [Stream(layout, seed, length, steps) for seed in range(3)]
    seen: list[int] = []
    for which, episode, flush in plan:
        stream = streams[which]
        batches = stream.play(episode, priorities)
        if flush:
            batches.append(stream.take())
        for batch, rows in batches:
            ids = one.add(*batch)
            assert ids.tolist() == naive.add(rows, naive_priorities(naive, batch)).tolist()
            drawn = assert_same_draws(one, naive, 8)
            if drawn is None:
                continue
            seen += drawn.ids.tolist()
            values = np.arange(len(seen)) % 5
            assert one.update_priorities(seen, values) == naive.update_priorities(seen, values)
            assert_same_draws(one, naive, 8)
            assert one[drawn.ids].tobytes() == drawn.transitions.tobytes()
    assert all(stream.taken == len(stream.naive) - len(stream.writer) for stream in streams)


def test_every_transition_is_there_once() -> None:
    """Not only what was drawn: all transitions of a stream, in order, from one buffer."""
    stream, layout = Stream(layout_with(), 3, steps=3), layout_with()
    one, _ = pair(layout, 10_000)
    ids: list[int] = []
    for steps in (1, 2, 3, 4, 5, 40, 7, 1, 64):
        for batch, _ in stream.play(steps):
            ids += one.add(*batch)[batch.transitions["ahead"] > 0].tolist()
    ids += one.add(*(batch := stream.take()[0]))[batch.transitions["ahead"] > 0].tolist()
    assert len(ids) == len(stream.naive) == 127
    assert one[ids].tobytes() == np.stack(stream.naive).tobytes()


def test_capacity_one_still_has_the_whole_stack() -> None:
    one, naive = pair(layout_with(), 1)
    stream = Stream(layout_with(), 4)
    for batch, rows in (*stream.play(9), stream.take(), *stream.play(1), stream.take()):
        at = np.flatnonzero(batch.transitions["ahead"])[-1] + 1
        # The last record of a batch is bare, so a ring of one record holds no transition.
        one.add(*batch)
        naive.add(rows, batch.priorities)
        assert (one.tree.total, naive.tree.total) == (0.0, 0.0)
        assert at < len(rows)


# ---- the ring, and stale ids ----


def test_a_transition_goes_when_its_record_does_and_never_before() -> None:
    """Capacity 5: the oldest transition reaches 3 records further back, and is whole."""
    one, _ = pair(layout_with(), 5)
    stream = Stream(layout_with(), 2, length=20)
    ((batch, rows),) = (*stream.play(19), stream.take())
    ids = one.add(*batch)
    begins = batch.transitions["ahead"] > 0
    assert one[ids[-5:-1]].tobytes() == rows[-5:-1].tobytes()
    assert begins[-5:].tolist() == [True] * 4 + [False]
    with pytest.raises(StaleIdError, match=r"ids is 14"):
        one[ids[-6]]
    assert one.update_priorities(ids[begins], 1.0) == 15
    stream.play(1)
    one.add(*stream.take()[0])
    assert one[ids[-3:-1]].tobytes() == rows[-3:-1].tobytes()
    assert one.update_priorities(ids[begins], 1.0) == 17


def test_an_intake_that_is_given_up_leaves_the_others_whole() -> None:
    one, naive, ids = filled(20)
    live = [i for i in ids[-13:] if one._storage["ahead"][i % 23]]
    before = one[live]
    one.begin_add(7).abandon()
    assert one[live].tobytes() == before.tobytes() == naive[live].tobytes()
    with pytest.raises(StaleIdError):
        one[ids[-14]]


def test_clear_keeps_no_frame_of_before() -> None:
    one, naive, ids = filled()
    for buffer in (one, naive):
        buffer.clear()
    assert one.update_priorities(ids, 1.0) == len(ids)
    stream = Stream(layout_with(), 8)
    for batch, rows in stream.play(21):
        one.add(*batch)
        naive.add(rows, batch.priorities)
        assert_same_draws(one, naive, 16)


def test_bare_records_are_no_transitions() -> None:
    one, _, ids = filled(200)
    bare = [i for i in ids if not one._storage["ahead"][i]]
    assert bare
    total = one.tree.total
    with pytest.raises(IdError, match=r"ids\[1\] names a frame that begins no transition"):
        one.update_priorities([ids[1], bare[0]], 7.0)
    with pytest.raises(IdError, match="begins no transition"):
        one[bare[0]]
    assert one.tree.total == total
    batch = Stream(layout_with(), 9).play(20)[0][0].transitions
    assert np.count_nonzero(one.tree[one.add(batch, 3.0)]) == 7


# ---- checkpoints ----


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.lists(st.integers(1, 12), min_size=1, max_size=9), st.integers(1, 5))
def test_saved_and_loaded_it_goes_on_alike(
    tmp_path_factory: pytest.TempPathFactory, capacity: int, plan: list[int], stack: int
) -> None:
    layout = layout_with(stack)
    one, naive = pair(layout, capacity)
    stream = Stream(layout, 1)
    folder = tmp_path_factory.mktemp("saved")
    for steps in plan:
        for batch, rows in (*stream.play(steps), stream.take()):
            for buffer, records in ((one, batch.transitions), (naive, rows)):
                buffer.add(records, batch.priorities)
    (folder / "naive").mkdir()
    one.save(folder / "one.h5")
    naive.save(folder / "naive" / "naive.h5")
    again = PrioritizedReplayBuffer.load(folder / "one.h5", backend="cpu")
    assert again.dtype == one.dtype
    np.testing.assert_array_equal(again.tree[:], one.tree[:])
    for number in range(one._oldest_record, one.inserted):
        slot = number % len(one._storage)
        assert again._storage[slot].tobytes() == one._storage[slot].tobytes()
    naive = PrioritizedReplayBuffer.load(folder / "naive" / "naive.h5", backend="cpu")
    assert_same_draws(again, naive, 16)
    for batch, rows in stream.play(30):
        again.add(*batch)
        naive.add(rows, batch.priorities)
        assert_same_draws(again, naive, 16)


@pytest.mark.parametrize("capacity", [7, 30, 90])
def test_loaded_with_another_capacity(tmp_path: Path, capacity: int) -> None:
    one, naive, ids = filled()
    one.save(tmp_path / "one.h5")
    with pytest.warns(UserWarning, match="dropped") if capacity < len(one) else nullcontext():
        other = PrioritizedReplayBuffer.load(tmp_path / "one.h5", "cpu", capacity)
    kept = [i for i in ids[-min(capacity, 50) :] if one._storage["ahead"][i % 53]]
    assert other[kept].tobytes() == naive[kept].tobytes()


def test_incremental_checkpoints(tmp_path: Path) -> None:
    """Written while new frames replace old ones: full, then what was added, then that again."""
    one, naive = pair(layout_with(), 40)
    stream, base, links = Stream(layout_with(), 6), None, 0
    for step in range(30):
        batch, rows = (*stream.play(5), stream.take())[-1]
        path = tmp_path / f"{step}.h5"
        for buffer, records in ((one, batch.transitions), (naive, rows)):
            buffer.add(records, batch.priorities)
        with one.snapshot(base) as snapshot:
            links += snapshot.incremental
            later, after = (*stream.play(5), stream.take())[-1]
            one.add(*later)
            base = snapshot.write(path)
        seen = PrioritizedReplayBuffer.load(path, "cpu")
        naive.save(tmp_path / "naive.h5")
        assert_same_draws(seen, PrioritizedReplayBuffer.load(tmp_path / "naive.h5", "cpu"), 32)
        naive.add(after, later.priorities)
        assert_same_draws(one, naive, 3)
    assert 10 < links < 30


def test_frames_are_not_dealt_out_to_other_shards(tmp_path: Path) -> None:
    one, *_ = filled()
    one.save(tmp_path / "one.h5")
    with pytest.raises(ArgumentError, match="holds records of frames"):
        redistribute([tmp_path / "one.h5"], 2, 50)


# ---- bytes ----


def test_footprint() -> None:
    layout = FrameLayout(4, (84, 84), FIELDS)
    assert layout.record.itemsize == 84 * 84 + 18
    assert layout.stacked.itemsize == 8 * 84 * 84 + 16
    one, _ = pair(layout, 1000)
    stream = Stream(layout, 1, length=100)
    for batch, _ in stream.play(500):
        one.add(*batch)
    found = one.footprint()
    assert found.transitions == 500
    assert found.records == 500 + 4 * 3 + 5  # 3 frames of the batch before, 1 of the one after
    assert found.held_bytes == found.records * layout.record.itemsize
    assert found.naive_bytes == 500 * layout.stacked.itemsize
    assert found.naive_bytes / found.held_bytes > 7.7
    _, naive = pair(layout, 10)
    naive.add(np.zeros(4, layout.stacked))
    assert naive.footprint() == (4, 4, 4 * layout.stacked.itemsize, 4 * layout.stacked.itemsize)


def test_footprint_counts_what_is_kept_for_its_frames() -> None:
    one, _, _ = filled(20)
    live = [one._storage["ahead"][n % 23] > 0 for n in range(one.inserted - 20, one.inserted)]
    assert one.footprint()[:3] == (23, sum(live), 23 * one.dtype.itemsize)


# ---- what is refused ----


def batch_of_seven() -> Any:
    return Stream(layout_with(), 1).play(12)[0][0].transitions


@pytest.mark.parametrize(
    ("at", "name", "value", "text"),
    [
        (0, "age", 1, r"transitions\[0\] has age 1"),
        (3, "age", 2, r"transitions\[3\] has age 2: 0 where .* one more than the record before"),
        (6, "age", 5, r"transitions\[6\] has age 5"),
        (0, "ahead", 8, r"transitions\[0\] ends 8 records further, where its episode has no frame"),
        (6, "ahead", 2, r"transitions\[6\] ends 2 records further"),
        (7, "ahead", 1, r"transitions\[7\] ends 1 records further"),
        (5, "age", 0, r"transitions\[4\] ends 1 records further|transitions\[6\] has age"),
    ],
)
def test_batches_that_do_not_stand_by_themselves(at: int, name: str, value: int, text: str) -> None:
    one, naive, _ = filled()
    batch = batch_of_seven()
    batch[name][at] = value
    with pytest.raises(ArgumentError, match=text):
        one.add(batch, 1.0)
    assert_same_draws(one, naive, 32)
    intake = one.begin_add(len(batch))
    intake.fill(batch)
    with pytest.raises(ArgumentError, match=text):
        intake.commit(1.0)
    intake.fill(batch_of_seven())
    assert len(intake.commit(1.0)) == 8


def test_an_episode_is_not_reached_across_another() -> None:
    """Two episodes of one batch: a transition may not end in the other one."""
    stream = Stream(layout_with(), 1, length=6)
    (*_, (batch, _)) = (*stream.play(3), *stream.play(3))
    assert batch.transitions["age"].tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    one, _ = pair(layout_with(), 50)
    batch.transitions["ahead"][2] = 2
    with pytest.raises(ArgumentError, match=r"transitions\[2\] ends 2 records further"):
        one.add(*batch)
    assert len(one) == 0


def test_records_of_another_layout() -> None:
    one, naive, _ = filled()
    other = np.zeros(3, layout_with(4, dtype="f4").record)
    with pytest.raises(ArgumentTypeError, match="transitions have dtype"):
        one.add(other)
    with pytest.raises(ArgumentTypeError, match="transitions have dtype"):
        one.add(np.zeros(3, one.sample_dtype))
    with pytest.raises(PriorityError):
        one.add(batch_of_seven(), -1.0)
    assert_same_draws(one, naive, 16)


def test_layouts_that_are_refused() -> None:
    for stack in (0, -1, 256):
        with pytest.raises(ArgumentError, match=rf"stack is {stack}: 1 .. 255"):
            FrameLayout(stack, SHAPE, FIELDS)
    with pytest.raises(ArgumentError, match="padding is 'mirror'"):
        FrameLayout(4, SHAPE, FIELDS, padding="mirror")
    with pytest.raises(ArgumentError, match=r"shape is \(84, 0\)"):
        FrameLayout(4, (84, 0), FIELDS)
    with pytest.raises(ArgumentError, match="field 'age'"):
        FrameLayout(4, SHAPE, [("age", "i4")])
    with pytest.raises(ArgumentTypeError, match="frames of dtype"):
        FrameLayout(4, SHAPE, FIELDS, "U3")
    with pytest.raises(ArgumentTypeError, match="no fields"):
        FrameLayout(4, SHAPE, "f8")


def test_a_writer_refuses_and_loses_nothing() -> None:
    layout = layout_with()
    writer, frame = FrameWriter(layout), np.zeros(SHAPE, np.uint8)
    values = {"action": 1, "reward": 0.5, "discount": 1.0}
    with pytest.raises(ArgumentError, match="before any reset"):
        writer.append(frame)
    with pytest.raises(ArgumentError, match="steps is 1"):
        writer.transition(values)
    writer.reset(frame)
    with pytest.raises(ArgumentTypeError, match="a frame is float64: uint8"):
        writer.append(frame.astype(float))
    with pytest.raises(ShapeError, match=r"a frame has shape \(2, 3\)"):
        writer.append(frame.T)
    with pytest.raises(ArgumentTypeError, match="a frame is int64"):
        writer.reset(frame.astype(np.int64))
    with pytest.raises(ArgumentError, match="0 are there"):
        writer.transition(values)
    writer.append(frame + 1)
    writer.append(frame + 2)
    for steps in (0, -1, 3, 256):
        with pytest.raises(ArgumentError, match=rf"steps is {steps}"):
            writer.transition(values, steps)
    with pytest.raises(ArgumentError, match="'discount' is missing or unknown"):
        writer.transition({"action": 1, "reward": 0.5})
    with pytest.raises(ArgumentError, match="'extra' is missing or unknown"):
        writer.transition({**values, "extra": 1})
    with pytest.raises(ShapeError, match=r"'reward' has shape \(2,\)"):
        writer.transition({**values, "reward": [0.5, 1.0]})
    with pytest.raises(ArgumentTypeError, match="'reward' is 'much'"):
        writer.transition({**values, "reward": "much"})
    with pytest.raises(PriorityError, match="priority is nan"):
        writer.transition(values, priority=float("nan"))
    assert len(writer) == 0
    writer.transition(values, 2, priority=1.0)
    with pytest.raises(ArgumentError, match="either all transitions"):
        writer.transition(values)
    with pytest.raises(ArgumentError, match="a transition has begun at that frame"):
        writer.transition(values, 2, priority=1.0)
    batch = writer.take()
    assert batch.transitions["frame"][:, 0, 0].tolist() == [0, 1, 2]
    assert batch.transitions["ahead"].tolist() == [2, 0, 0]
    assert batch.priorities is not None
    assert batch.priorities.tolist() == [1.0, 0.0, 0.0]
    assert len(writer.take().transitions) == 0
    with pytest.raises(ArgumentError, match="a transition has begun at that frame"):
        writer.transition(values, 2)
    writer.transition(values)
    assert writer.take().transitions["frame"][:, 0, 0].tolist() == [0, 1, 2]


def test_a_layout_is_found_again_in_its_dtype() -> None:
    for layout in (layout_with(), layout_with(1, "zero", ">f4"), FrameLayout(9, (), FIELDS)):
        text = dtype_to_text(layout.record)
        assert layout_of(dtype_from_text(text)) == layout
    assert layout_of(layout_with().stacked) is None
    assert layout_with(3).record != layout_with(4).record
    for text in ("stacks of 0 frames, padding zero", "stacks of 4 frames, padding x", "frames"):
        made_up = [((f"libsumtree: {text}", "frame"), "u1", (2,)), ("age", "u1"), ("ahead", "u1")]
        assert layout_of(np.dtype([*made_up, ("x", "f4")])) is None
    title = "libsumtree: stacks of 4 frames, padding zero"
    swapped = [((title, "frame"), "u1", (2,)), ("ahead", "u1"), ("age", "u1"), ("x", "f4")]
    assert layout_of(np.dtype(swapped)) is None
    assert layout_of(np.dtype([((title, "frame"), "u1")])) is None
