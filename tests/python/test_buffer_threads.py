"""Several threads add to, draw from and write to one buffer."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count

import numpy as np
import pytest

import libsumtree as st
from libsumtree.errors import EmptyTreeError

RECORD = np.dtype([("name", "<i8"), ("copies", "<i8", (15,))])
CAPACITY = 64
DRAWS = 40_000


@pytest.fixture(autouse=True)
def switch_threads_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def rows_named(first: int, number: int) -> np.ndarray:
    rows = np.zeros(number, RECORD)
    rows["name"] = np.arange(first, first + number)
    rows["copies"] = rows["name"][:, np.newaxis]
    return rows


def run_beside(
    step: Callable[[], None], until: Callable[[], bool], *others: Callable[[], None]
) -> None:
    """Repeat `step` here and each of `others` in a thread; raise what any of them raised."""
    done = threading.Event()
    raised: list[BaseException] = []

    def repeat(other: Callable[[], None]) -> None:
        try:
            while not done.is_set():
                other()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=repeat, args=(other,)) for other in others]
    for thread in threads:
        thread.start()
    try:
        while not raised and not until():
            step()
    finally:
        done.set()
        for thread in threads:
            thread.join()
    if raised:
        raise raised[0]


class Drawer:
    """Draws from a buffer whose records hold their own ids, and checks them."""

    def __init__(self, buffer: st.PrioritizedReplayBuffer) -> None:
        self.buffer = buffer
        self.checked = 0

    def draw(self) -> None:
        try:
            drawn = self.buffer.sample(32)
        except EmptyTreeError:
            return
        assert np.array_equal(drawn.transitions["name"], drawn.ids), "the id of another transition"
        assert (drawn.ids == drawn.transitions["copies"].T).all(), "a torn record"
        self.checked += 1
        if self.checked % 8 == 0:
            self.buffer.update_priorities(drawn.ids, 0.5 + drawn.ids % 7)


def test_samples_beside_add_are_whole() -> None:
    buffer = st.PrioritizedReplayBuffer(CAPACITY, RECORD, seed=1)
    drawer, batches = Drawer(buffer), count()

    def add() -> None:
        buffer.add(rows_named(buffer.next_id, next(batches) % 50))

    run_beside(add, lambda: drawer.checked > DRAWS, drawer.draw, drawer.draw)
    buffer.tree.validate()


def test_samples_beside_an_intake_are_whole() -> None:
    buffer = st.PrioritizedReplayBuffer(CAPACITY, RECORD, seed=1)
    drawer, batches = Drawer(buffer), count()

    def add() -> None:
        batch = next(batches)
        intake = buffer.begin_add(batch % 50)
        rows = rows_named(buffer.next_id, intake.count)
        for segment in intake.segments:
            segment[...] = rows[: len(segment)]
            rows = rows[len(segment) :]
        if batch % 5:
            intake.commit()
        else:
            intake.abandon()

    run_beside(add, lambda: drawer.checked > DRAWS, drawer.draw, drawer.draw)
    buffer.tree.validate()


def test_ids_of_several_threads_are_all_different() -> None:
    buffer = st.PrioritizedReplayBuffer(CAPACITY, RECORD, seed=1)
    issued: list[int] = []

    def add() -> None:
        issued.extend(buffer.add(rows_named(0, 3)).tolist())

    run_beside(add, lambda: len(issued) > DRAWS, add, add)
    assert sorted(issued) == list(range(buffer.inserted))
    assert len(buffer) == CAPACITY
