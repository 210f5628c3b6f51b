"""An exception at any line of any call, as Ctrl-C and a lack of memory are: all stays sound."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import libsumtree as st

RECORD = np.dtype([("number", "<i8"), ("pad", "u1", 3)])
PACKAGE = str(Path(st.__file__).parent)
CAPACITY = 8
OWN = ("buffer.py", "ring.py", "intake.py", "withdrawal.py", "ids.py", "persistence.py")


class StruckError(Exception):
    pass


class Striker:
    """Raises before the n-th line that is run of the buffer's own files."""

    def __init__(self, line: int) -> None:
        self.left = line

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        path = Path(frame.f_code.co_filename)
        if str(path.parent) != PACKAGE or path.name not in OWN:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise StruckError(f"{path.name}, line {frame.f_lineno}")
        return self


def struck(call: Callable[[], object], line: int) -> bool:
    """Run a call that is struck at a line; tell whether it was, and not over before."""
    before = sys.gettrace()
    striker = Striker(line)
    sys.settrace(striker)
    try:
        call()
    except StruckError:
        return True
    finally:
        sys.settrace(before)
    return striker.left <= 0


def rows(first: int, count: int) -> np.ndarray:
    made = np.zeros(count, RECORD)
    made["number"] = np.arange(first, first + count)
    return made


def add(buffer: Any, count: int, priorities: Any = None) -> Any:
    return buffer.add(rows(buffer.inserted, count), priorities)


def packed(buffer: Any, count: int) -> None:
    """Add as a replay rank does whose message holds priorities and records."""
    priorities = np.arange(1.0, count + 1).view(np.uint8)
    message = np.append(priorities, rows(buffer.inserted, count).view(np.uint8))
    if not buffer.append_packed(message, 0, count):
        add(buffer, count, np.arange(1.0, count + 1))


def fresh(inserted: int = 13, **limits: Any) -> Any:
    buffer = st.PrioritizedReplayBuffer(CAPACITY, RECORD, alpha=1.0, seed=3, **limits)
    add(buffer, inserted, 1.0 + np.arange(inserted))
    return buffer


def check(buffer: Any, where: str) -> None:
    """Check all that holds of any buffer; then that it goes on."""
    buffer.tree.validate()
    held = np.arange(buffer.inserted - len(buffer), buffer.inserted)
    masses = buffer.tree[:]
    free = np.ones(CAPACITY, bool)
    free[held % CAPACITY] = False
    assert not masses[free].any(), where
    assert buffer[held]["number"].tolist() == held.tolist(), where
    if buffer.max_times_sampled is not None:  # or no file of it could be loaded
        spent = held[buffer.times_sampled(held) >= buffer.max_times_sampled]
        assert not masses[spent % CAPACITY].any(), where
    ids = add(buffer, 3)
    assert buffer[ids]["number"].tolist() == ids.tolist(), where
    assert (buffer.tree[ids % CAPACITY] > 0).all(), where
    buffer.sample(2)


def prefixes(make: Callable[[], Any], call: Callable[[Any], object]) -> Iterator[tuple[Any, int]]:
    """Yield a buffer on which a call was struck at each of its lines."""
    for line in range(1, 2000):
        buffer = make()
        if not struck(lambda buffer=buffer: call(buffer), line):
            return
        yield buffer, line
    raise AssertionError("the call does not end")


CALLS: dict[str, Callable[[Any], object]] = {
    "add in one piece": lambda b: add(b, 2, [5.0, 6.0]),
    "append a message": lambda b: packed(b, 2),
    "add around the end": lambda b: add(b, 5, np.arange(1.0, 6.0)),
    "add more than there is room for": lambda b: add(b, 2 * CAPACITY + 3),
    "sample": lambda b: b.sample(4),
    "sample without replacement": lambda b: b.sample(3, replace=False),
    "update": lambda b: b.update_priorities(np.arange(7, 13), 3.0),
    "set alpha": lambda b: b.set_alpha(0.5),
    "clear": lambda b: b.clear(),
    "read": lambda b: b[[6, 7]],
    "snapshot": lambda b: b.snapshot().close(),
}
LIMITS: list[dict[str, int]] = [{}, {"max_times_sampled": 1}, {"max_age": 3}]


@pytest.mark.parametrize("limits", LIMITS, ids=["none", "times", "age"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_call_that_is_struck_leaves_a_sound_buffer(
    call: Callable[[Any], object], limits: dict[str, int]
) -> None:
    lines = 0
    for buffer, line in prefixes(lambda: fresh(**limits), call):
        check(buffer, f"struck at line {line} of the call")
        lines = line
    assert lines > 2


@pytest.mark.parametrize("replace", [True, False])
def test_a_draw_that_is_struck_before_its_doubles_takes_none(replace: bool) -> None:
    """Either the draw is noted and its doubles are gone, or nothing has happened."""
    for buffer, line in prefixes(fresh, lambda b: b.sample(4, replace=replace)):
        taken = buffer.tree.rng_state["state"]["counter"][0] > 0
        assert taken or buffer.sampled == 0, line
        assert np.array_equal(np.sort(buffer.tree[:]), np.arange(6.0, 14.0)), line
