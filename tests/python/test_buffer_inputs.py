"""Any record dtype, in any memory layout, in batches of any length: what goes in is held."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from hypothesis.extra import numpy as arrays

import libsumtree as st
from libsumtree.errors import ArgumentTypeError, PriorityError, ShapeError

BASES = some.sampled_from(
    ["?", "u1", "<i8", ">i4", "<f4", ">f8", "<c8", ">c16", "S3", "<U2", ">U2", "V5", "<M8[us]"]
)
SHAPES = some.sampled_from([(), (), (1,), (3,), (2, 0), (2, 3)])


@some.composite
def records(draw: some.DrawFn, depth: int = 2) -> np.dtype[Any]:
    """Draw a structured dtype: nested, of arrays, of any byte order, packed or with gaps."""
    count = draw(some.integers(1, 3))
    formats = []
    for _ in range(count):
        nested = depth > 1 and draw(some.integers(0, 3)) == 0
        base = draw(records(depth - 1)) if nested else np.dtype(draw(BASES))
        formats.append(np.dtype((base, draw(SHAPES))))
    names = [f"f{at}" for at in range(count)]
    how = draw(some.sampled_from(["packed", "aligned", "gaps"]))
    if how != "gaps":
        fields = list(zip(names, formats, strict=True))
        return np.dtype(fields, align=how == "aligned")
    gaps = draw(some.lists(some.integers(0, 9), min_size=count + 1, max_size=count + 1))
    offsets, end = [], 0
    for gap, one in zip(gaps, formats, strict=False):
        offsets.append(end + gap)
        end += gap + one.itemsize
    return np.dtype(
        {"names": names, "formats": formats, "offsets": offsets, "itemsize": end + gaps[-1] or 1}
    )


def other_layout(dtype: np.dtype[Any], align: bool) -> np.dtype[Any]:
    """Give the same fields in the other byte order, and packed or aligned."""
    fields = []
    for name in dtype.names or ():
        base, shape = dtype[name].base, dtype[name].shape
        base = base.newbyteorder("S") if base.names is None else other_layout(base, align)
        fields.append((name, base, shape))
    return np.dtype(fields, align=align)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Compare values bit for bit, whatever their byte order and padding."""
    if a.dtype.names is None:
        return a.astype(b.dtype).tobytes() == b.tobytes()
    return a.dtype.names == b.dtype.names and all(same(a[n], b[n]) for n in a.dtype.names)


def laid_out(rows: np.ndarray, how: str) -> np.ndarray:
    """Give the same records in another place in memory."""
    if how == "swapped":
        rows = converted(rows, other_layout(rows.dtype, align=False))
    elif how == "aligned":
        rows = converted(rows, other_layout(rows.dtype, align=True))
    elif how == "backwards":
        rows = rows[::-1].copy()[::-1]
    elif how == "strided":
        rows = np.repeat(rows, 3)[1::3]
    elif how == "unaligned":
        memory = np.zeros(rows.nbytes + 1, np.uint8)
        memory[1:] = rows.view(np.uint8)
        rows = memory[1:].view(rows.dtype)
    elif how == "record array":
        rows = rows.view(np.recarray)
    rows.flags.writeable = how not in ("read-only", "swapped")
    return rows


def converted(rows: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    made = np.zeros(rows.shape, dtype)
    for name in dtype.names or ():
        if dtype[name].base.names is None:
            made[name] = rows[name]
        else:
            made[name] = converted(rows[name], dtype[name].base)
    return made


LAYOUTS = ["plain", "swapped", "aligned", "backwards", "strided", "unaligned", "record array"]


@settings(max_examples=200, deadline=None)
@given(some.data())
def test_what_goes_in_is_what_is_held(data: some.DataObject) -> None:
    dtype = data.draw(records().filter(lambda d: d.itemsize > 0))
    capacity = data.draw(some.integers(1, 7))
    buffer = st.PrioritizedReplayBuffer(capacity, dtype, alpha=1.0, seed=1)
    everything = np.zeros(0, dtype)
    masses = np.zeros(0)
    for _ in range(data.draw(some.integers(1, 4))):
        count = data.draw(some.integers(0, 3 * capacity))
        memory = data.draw(arrays.arrays(np.uint8, count * dtype.itemsize))
        rows = canonical(memory.view(dtype)) if count else np.zeros(0, dtype)
        priorities = np.arange(1.0, count + 1)
        given = laid_out(rows, data.draw(some.sampled_from([*LAYOUTS, "read-only"])))
        before = given.copy()
        ids = buffer.add(given, priorities)
        assert same(given, before)
        assert ids.tolist() == list(range(len(everything), len(everything) + count))
        everything, masses = np.concatenate([everything, rows]), np.append(masses, priorities)
    held = np.arange(buffer.inserted - len(buffer), buffer.inserted)
    assert len(held) == min(len(everything), capacity)
    assert same(buffer[held], everything[held])
    assert np.array_equal(buffer.tree[held % capacity], masses[held])
    if len(held):
        drawn = buffer.sample(9)
        assert drawn.transitions.dtype == dtype
        assert same(drawn.transitions, everything[drawn.ids])


def canonical(rows: np.ndarray) -> np.ndarray:
    """Give records of these bits whose values survive a change of byte order: text that is text."""
    made = np.zeros(rows.shape, rows.dtype)
    for name in rows.dtype.names or ():
        base = rows.dtype[name].base
        if base.names is not None:
            made[name] = canonical(rows[name])
        elif base.kind in "US":
            made[name] = "ab"[: len(rows) % 3]
        elif base.kind == "b":
            made[name] = np.ascontiguousarray(rows[name]).view(np.uint8) > 127
        else:
            made[name] = rows[name]
    return made


# ---- what is refused changes nothing ----


def state_of(buffer: Any) -> tuple[Any, ...]:
    return (buffer._storage.tobytes(), buffer.tree.nodes("sum").tobytes(), buffer.inserted)


RECORD = np.dtype([("a", "<i4"), ("b", "<f8", (2,))])


def with_last(count: int, last: Any) -> np.ndarray:
    values = np.ones(count)
    values[-1] = last
    return values


@pytest.mark.parametrize("count", [1, 3, 5, 6, 40])
@pytest.mark.parametrize(
    "last", [np.nan, -1.0, np.inf, -np.inf, 2.0**961, -5e-324], ids=lambda value: f"{value:g}"
)
def test_a_bad_priority_in_the_last_row_changes_nothing(count: int, last: float) -> None:
    """Whatever the batch: in one piece, around the end, longer than the ring."""
    buffer = st.PrioritizedReplayBuffer(6, RECORD, alpha=1.0)
    buffer.add(np.ones(4, RECORD), 2.0)
    before = state_of(buffer)
    with pytest.raises(PriorityError, match=rf"priorities\[{count - 1}\] is"):
        buffer.add(np.zeros(count, RECORD), with_last(count, last))
    with pytest.raises(PriorityError, match=r"priorities\[0\] is"):
        buffer.add(np.zeros(count, RECORD), with_last(count, last)[::-1])
    with pytest.raises(ShapeError):
        buffer.add(np.zeros(count, RECORD), np.ones(count + 1))
    assert state_of(buffer) == before
    ids = buffer.add(np.zeros(count, RECORD), 3.0)
    assert ids.tolist() == list(range(4, 4 + count))


def endless() -> list[Any]:
    inside: list[Any] = []
    inside.append(inside)
    return inside


def deep(levels: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(levels):
        made = [made]
    return made


@pytest.mark.parametrize(
    "transitions",
    [
        endless(),
        deep(100_000),
        deep(70),
        [(1, (2.0,) * 3)],
        [(1, 2.0, 3.0)],
        [(1, "x")],
        None,
        object(),
    ],
    ids=["endless", "deep", "too many axes", "shape", "fields", "text", "none", "object"],
)
def test_what_is_no_transition_changes_nothing(transitions: Any) -> None:
    buffer = st.PrioritizedReplayBuffer(6, RECORD)
    before = state_of(buffer)
    with pytest.raises(ArgumentTypeError):
        buffer.add(transitions)
    assert state_of(buffer) == before


def test_records_of_the_ring_itself_are_copied_first() -> None:
    """A caller may keep a segment of an intake, and add it again."""
    buffer = st.PrioritizedReplayBuffer(8, [("a", "<i8")])
    intake = buffer.begin_add(8)
    (kept,) = intake.segments
    kept["a"] = np.arange(8)
    intake.commit()
    for rows in (kept[:5], kept[::-1], kept[2:7], np.tile(kept, 3)[5:]):
        expected = rows["a"].tolist()
        ids = buffer.add(rows)
        assert buffer[ids[-8:]]["a"].tolist() == expected[-8:]
