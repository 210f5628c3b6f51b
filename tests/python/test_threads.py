"""Threads and processes: any number of readers or one writer, and who holds the GIL."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest

import libsumtree as st

LONG = 3 * 4096  # batches above 4096 give the GIL up


def run_all(*works: Callable[[], object]) -> None:
    """Run all at once, started together; the first exception of any is raised."""
    start = threading.Barrier(len(works))

    def started(work: Callable[[], object]) -> None:
        start.wait()
        work()

    with ThreadPoolExecutor(len(works)) as pool:
        for future in [pool.submit(started, work) for work in works]:
            future.result()


@pytest.mark.parametrize("count", [7, LONG])
def test_writers_of_their_own_leaves(count: int) -> None:
    """Each writer has its leaves: whatever the order, the end is that of any serial order."""
    writers, rounds = 4, 30
    tree = st.PriorityTree(writers * count, seed=1)
    done = threading.Event()

    def write(writer: int) -> None:
        rng = np.random.default_rng(writer)
        own = np.arange(writer, writers * count, writers)
        for _ in range(rounds):
            rng.shuffle(own)
            tree.update(own, rng.random(count))

    def read() -> None:
        while not done.is_set():
            nodes = tree.nodes("sum")
            inner = nodes[1 : tree.padded_capacity]
            assert np.array_equal(inner, nodes[2::2] + nodes[3::2])
            tree.validate()
            leaves = tree[:]
            assert np.all((leaves >= 0) & (leaves < 1))
            if tree.total > 0:
                tree.find(np.zeros(count))

    def write_all() -> None:
        with ThreadPoolExecutor(writers) as pool:
            list(pool.map(write, range(writers)))
        done.set()

    def write_and_stop() -> None:
        try:
            write_all()
        finally:
            done.set()

    run_all(write_and_stop, read, read)
    serial = st.PriorityTree(writers * count)
    for writer in range(writers):
        rng = np.random.default_rng(writer)
        own = np.arange(writer, writers * count, writers)
        for _ in range(rounds):
            rng.shuffle(own)
            serial.update(own, rng.random(count))
    for plane in ("sum", "min", "max"):
        assert tree.nodes(plane).tobytes() == serial.nodes(plane).tobytes()


def test_a_batch_is_seen_whole_or_not_at_all() -> None:
    tree = st.SumTree(LONG)
    indices = np.arange(LONG)
    done = threading.Event()

    def write(mass: float) -> None:
        for k in range(60):
            if k % 2:
                tree.update(indices, np.full(LONG, mass))
            else:
                tree[:] = mass

    def write_all() -> None:
        try:
            run_all(lambda: write(1.0), lambda: write(2.0))
        finally:
            done.set()

    def read() -> None:
        while not done.is_set():
            seen = set(tree[:].tolist()) | {float(tree.total) / LONG}
            assert seen <= {0.0, 1.0, 2.0}
            assert len(set(tree[:].tolist())) == 1

    run_all(write_all, read, read)
    tree.validate()


def test_draws_of_many_threads_are_those_of_one() -> None:
    """A sample is a writer: the blocks are a serial stream's, each given out once."""
    threads, rounds, n = 6, 20, 100
    masses = np.random.default_rng(0).random(5000)
    tree, serial = st.PriorityTree(5000, seed=4), st.PriorityTree(5000, seed=4)
    tree[:] = masses
    serial[:] = masses
    drawn: list[tuple[int, ...]] = []

    def draw() -> None:
        for _ in range(rounds):
            drawn.append(tuple(tree.sample(n).indices.tolist()))

    run_all(*[draw] * threads)
    expected = [tuple(serial.sample(n).indices.tolist()) for _ in range(threads * rounds)]
    assert sorted(drawn) == sorted(expected)
    assert str(tree.rng_state) == str(serial.rng_state)


def test_readers_that_come_later_wait_behind_a_writer() -> None:
    """However many readers there are, a writer waits for those before it alone."""
    tree = st.SumTree(2**16)
    readers = 4
    done = threading.Event()
    read = [0] * readers

    def keep_reading(reader: int) -> None:
        while not done.is_set():
            tree.validate()
            read[reader] += 1

    def write() -> None:
        try:
            while min(read) == 0:
                time.sleep(0.001)
            for _ in range(10):
                before = sum(read)
                tree.update(0, 1.0)
                waited.append(sum(read) - before)
        finally:
            done.set()

    waited: list[int] = []
    run_all(write, *(lambda reader=reader: keep_reading(reader) for reader in range(readers)))
    assert sorted(waited)[len(waited) // 2] <= 3 * readers


def test_everything_at_once_stays_sound() -> None:
    tree = st.PriorityTree(1000, seed=2)
    tree[:] = 1.0
    rng = np.random.default_rng(3)
    batches = [(rng.integers(0, 1000, 64), rng.random(64)) for _ in range(200)]

    def write() -> None:
        for indices, masses in batches:
            tree.update(indices, masses)
            with pytest.raises(st.errors.MassError):
                tree.update(indices, -1.0)

    def draw() -> None:
        for _ in range(200):
            drawn = tree.sample(64)
            assert np.all(drawn.masses > 0)
            assert np.all(drawn.weights <= 1)

    def read() -> None:
        for _ in range(200):
            assert 0 < tree.min <= tree.max < 2
            assert tree.sum(10, 900) <= 1000
            tree.validate()

    run_all(write, write, draw, draw, read, read)
    tree.validate()


# ---- the GIL ---------------------------------------------------------------------------


@contextmanager
def another_thread() -> Iterator[list[int]]:
    """Count in another thread, which gets the GIL only where it is given up, never by a switch."""
    counted = [0]
    stop = threading.Event()

    def count() -> None:
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0)

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=count)
    thread.start()
    sys.setswitchinterval(1e6)
    try:
        # One that waited for the GIL by then still asks for it after the old interval, once.
        waited = counted[0] + 2
        while counted[0] < waited:
            time.sleep(0.001)
        yield counted
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()


@pytest.mark.parametrize("work", ["update", "slice", "find", "get", "sample", "nodes", "validate"])
def test_long_batches_give_the_gil_up(work: str) -> None:
    size = 2**20
    tree = st.PriorityTree(size, seed=0)
    tree[:] = 1.0
    indices, masses = np.arange(size)[::-1].copy(), np.ones(size)
    calls: dict[str, Callable[[], object]] = {
        "update": lambda: tree.update(indices, masses),
        "slice": lambda: tree.__setitem__(slice(None), masses),
        "find": lambda: tree.find(masses),
        "get": lambda: tree[indices],
        "sample": lambda: tree.sample(size),
        "nodes": lambda: tree.nodes("sum"),
        "validate": tree.validate,
    }
    with another_thread() as counted:
        # As often as it takes until the other thread was seen to run during a call.
        for _ in range(1000):
            before = counted[0]
            calls[work]()
            if counted[0] > before:
                return
    pytest.fail(f"no other thread ran during 1000 calls of {work}")


def test_short_batches_keep_the_gil_where_they_are_short(backend: str) -> None:
    """The calls of a GPU, which wait for it, always give it up."""
    tree = st.PriorityTree(2**20, seed=0)
    tree[:] = 1.0
    indices, masses = np.arange(512), np.ones(512)
    with another_thread() as counted:
        before = counted[0]
        for _ in range(2000):
            tree.update(indices, masses)
            tree.find(masses)
            tree.sample(512)
        assert (counted[0] > before) == (backend == "gpu")


# ---- processes -------------------------------------------------------------------------

FORKS = """
import os
import numpy as np
import libsumtree as st

tree = st.PriorityTree(50_000, seed=1)
tree[:] = np.arange(50_000.0)
tree.sample(10_000)
expected = st.PriorityTree(50_000, seed=1)
expected[:] = tree[:]
expected.rng_state = tree.rng_state
child = os.fork()
if child == 0:
    tree.update(np.arange(50_000), np.ones(50_000))
    other = st.SumTree(50_000)
    other[:] = 2.0
    other.validate()
    tree.validate()
    drawn = tree.sample(50_000).indices
    os._exit(0 if tree.total == 50_000 and other.total == 100_000 and len(drawn) == 50_000 else 3)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
tree.validate()
assert tree.sample(100).indices.tolist() == expected.sample(100).indices.tolist()
print("parent and child went on")
"""


GPU_FORKS = """
import os
import libsumtree as st
from libsumtree.errors import DeviceError

tree = st.PriorityTree(50_000, seed=1)
tree[:] = 1.0
child = os.fork()
if child == 0:
    refused = 0
    for use in (lambda: tree.total, lambda: tree[3], lambda: tree.update(3, 2.0), tree.validate,
                lambda: tree.sample(5), lambda: st.SumTree(4)):
        try: use()
        except DeviceError as error: refused += "spawn" in str(error)
    host = st.SumTree(4, backend="cpu")
    host[:] = 1.0
    tree.close()
    del tree
    os._exit(0 if refused == 6 and host.total == 4.0 else 3)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
tree.validate()
assert tree.total == 50_000
print("parent and child went on")
"""


def test_fork(backend: str) -> None:
    """A GPU is the parent's alone: its child is told so, and uses the cpu backend."""
    program = GPU_FORKS if backend == "gpu" else FORKS
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "parent and child went on\n"


def test_two_processes_draw_alike() -> None:
    """Nothing depends on hash seeds, addresses or the environment."""
    program = (
        "import libsumtree as st\n"
        "tree = st.PriorityTree(1000, seed=5)\n"
        "tree[:] = [k % 7 for k in range(1000)]\n"
        "print(tree.sample(200).indices.tolist(), tree.total.hex())\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
