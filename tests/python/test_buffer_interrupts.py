"""Exceptions and forks at any moment: the buffer is never seen in between."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import libsumtree as st
from libsumtree.errors import ArgumentTypeError, ShapeError

RECORD = np.dtype([("number", "i8")])
CAPACITY = 64


class InterruptError(Exception):
    pass


def interrupt(*_: object) -> None:
    raise InterruptError


def add_until_interrupted(buffer: st.PrioritizedReplayBuffer, seconds: float) -> None:
    rows = np.zeros(20, RECORD)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        while True:
            rows["number"] = buffer.inserted + np.arange(20)
            buffer.add(rows)
    except InterruptError:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def test_an_exception_out_of_a_signal_handler_leaves_a_sound_buffer() -> None:
    before = signal.signal(signal.SIGALRM, interrupt)
    rng = np.random.default_rng(1)
    try:
        for _ in range(600):
            buffer = st.PrioritizedReplayBuffer(CAPACITY, RECORD, seed=0)
            add_until_interrupted(buffer, rng.uniform(2e-4, 1e-3))
            masses = buffer.tree[:]
            held = np.arange(buffer.inserted - len(buffer), buffer.inserted)
            free = np.ones(CAPACITY, bool)
            free[held % CAPACITY] = False
            assert not masses[free].any()
            assert buffer[held]["number"].tolist() == held.tolist()
            again = buffer.add(np.full(CAPACITY, 7, RECORD))
            assert buffer[again]["number"].tolist() == [7] * CAPACITY
    finally:
        signal.signal(signal.SIGALRM, before)


FORK = """
import os, sys, threading, time
import numpy as np
import libsumtree as st
what = sys.argv[1]
on_gpu = st.SumTree(1).backend == "gpu"     # then a child is told that it cannot use it
if what == "tree":
    tree = st.SumTree(2**16)
    indices = np.random.default_rng(0).integers(0, 2**16, 300_000)
    work, child = lambda: tree.update(indices, 1.0), lambda: tree.validate()
else:
    buffer = st.PrioritizedReplayBuffer(2**16, [("x", "f4")])
    ids = np.tile(buffer.add(np.ones(2**16, buffer.dtype)), 4)
    work, child = lambda: buffer.update_priorities(ids, 1.0), lambda: buffer.sample(4)
work()
done = threading.Event()
def loop():
    while not done.is_set(): work()
thread = threading.Thread(target=loop)
thread.start()
for _ in range(10):
    pid = os.fork()
    if pid == 0:
        try: child()
        except st.errors.DeviceError: os._exit(0 if on_gpu else 1)
        os._exit(1 if on_gpu else 0)
    assert os.waitpid(pid, 0)[1] == 0
done.set()
thread.join()
"""


@pytest.mark.parametrize("what", ["tree", "buffer"])
def test_a_fork_waits_for_the_threads_inside(what: str) -> None:
    subprocess.run([sys.executable, "-c", FORK, what], check=True, timeout=60)


def test_an_array_that_another_thread_changes_does_no_harm() -> None:
    indices = np.zeros(2**20, np.int64)
    tree = st.SumTree(1024)
    done = threading.Event()

    def toggle() -> None:
        while not done.is_set():
            indices[-1] = 2**50
            indices[-1] = 0

    thread = threading.Thread(target=toggle)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    thread.start()
    try:
        for _ in range(60):
            try:
                tree.update(indices, 1.0)
            except IndexError:
                continue
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(interval)
    tree.validate()


TOO_MANY = """
import resource
import numpy as np, libsumtree as st
buffer = st.PrioritizedReplayBuffer(4, [("frame", "u1", 2**20)], seed=0)
buffer.add(np.zeros(4, buffer.dtype))
resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33))
before = str(buffer.tree.rng_state), buffer.sampled
try:
    buffer.sample(10**6)
except st.errors.OutOfMemoryError as error:
    print(error)
assert (str(buffer.tree.rng_state), buffer.sampled) == before
"""


def test_a_sample_that_memory_cannot_hold_draws_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TOO_MANY], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("n is 1000000: the memory cannot hold so many transitions")


def test_an_intake_is_filled_whole() -> None:
    buffer = st.PrioritizedReplayBuffer(8, RECORD)
    intake = buffer.begin_add(2)
    for count in (1, 3):
        with pytest.raises(ShapeError, match=f"{count} transitions are not the 2 of the intake"):
            intake.fill(np.zeros(count, RECORD))
    intake.fill(np.ones(2, RECORD))
    assert len(intake.commit()) == 2


def test_a_value_too_large_for_its_field_is_refused() -> None:
    buffer = st.PrioritizedReplayBuffer(8, [("small", "u1")])
    with pytest.raises(ArgumentTypeError, match="cannot be made records"):
        buffer.add([(300,)])
    assert len(buffer) == 0


@pytest.mark.parametrize(("start", "stop"), [(-1e308, 1e308), (1e308, -1e308)])
def test_a_schedule_of_huge_ends_stays_in_0_to_1(start: float, stop: float) -> None:
    schedule = st.BetaSchedule(start, stop, 10)
    assert all(0.0 <= schedule.at(sampled) <= 1.0 for sampled in range(12))


def test_one_ledger_for_a_file_and_the_links_to_it(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    buffer = st.PrioritizedReplayBuffer(8, RECORD)
    buffer.add(np.zeros(3, RECORD))
    buffer.save(tmp_path / "a" / "1.h5")
    (tmp_path / "b" / "latest.h5").symlink_to(tmp_path / "a" / "1.h5")
    first = st.PrioritizedReplayBuffer.load(tmp_path / "a" / "1.h5")
    second = st.PrioritizedReplayBuffer.load(tmp_path / "b" / "latest.h5")
    assert first.epoch != second.epoch
