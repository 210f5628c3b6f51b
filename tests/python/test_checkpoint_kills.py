"""SIGKILL while saving under load: what is on disk is always the run as it was at some step."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import saving

from libsumtree import PrioritizedReplayBuffer, checkpoint


class Uninterrupted:
    """The run that nobody kills, as far as it is needed."""

    def __init__(self) -> None:
        self.buffer = saving.new_buffer()
        self.number = 0

    def advance(self, number: int) -> None:
        while self.number < number:
            saving.step(self.buffer, self.number)
            self.number += 1


def held(buffer: PrioritizedReplayBuffer) -> tuple[bytes, ...]:
    """Give all that a buffer holds, but for the epochs, as bytes."""
    numbers = np.arange(buffer.inserted - len(buffer), buffer.inserted)
    slots = numbers % buffer.capacity
    state = buffer.tree.rng_state
    return (
        numbers.tobytes(),
        buffer.tree[slots].tobytes(),
        buffer._storage[slots].tobytes(),
        buffer.tree.nodes("sum").tobytes(),
        state["state"]["counter"].tobytes(),
        repr((state["buffer_pos"], buffer.sampled, buffer.beta, buffer.alpha)).encode(),
    )


def gone(process: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, 0)
        return False
    return True


def kill_often(folder: Path, kills: int) -> None:
    log = folder.with_name("log")
    generator = random.Random(kills)
    plain = Uninterrupted()
    last, leftovers, incremental = 0, 0, 0
    command = [sys.executable, saving.__file__]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        for _ in range(kills):
            log.write_text("")
            print(folder, log, file=parent.stdin, flush=True)
            process = int(parent.stdout.readline())
            begun = generator.randrange(1, 7)
            wait_until(lambda begun=begun: log.read_text().count("begun") >= begun)
            time.sleep(generator.uniform(0.0, 0.03))
            os.kill(process, signal.SIGKILL)
            wait_until(lambda process=process: gone(process))
            leftovers += len(list(folder.glob(".replay-*.tmp")))
            saved = [int(line.split()[1]) for line in log.read_text().splitlines() if " " in line]
            newest = max(folder.glob("replay-*.h5"), default=None)
            if newest is None:
                assert not saved
                continue
            last, links = check(newest, plain, max([last, *saved]))
            incremental += links > 1
        parent.stdin.close()
    assert leftovers > kills // 10, "too few kills hit a write"
    assert kills // 10 < incremental < kills, "too few kills of either kind of file"
    assert last > 10 * kills


def wait_until(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def check(newest: Path, plain: Uninterrupted, at_least: int) -> tuple[int, int]:
    """Compare the newest file with the run at its step; return the step and its files."""
    with checkpoint.read_chain(newest) as chain:
        number = int(chain.newest.datasets["learner/step"].read())
        buffer = PrioritizedReplayBuffer.from_checkpoint(chain)
        links = len(chain.links)
    assert number >= at_least, "a file that was on disk is lost"
    plain.advance(number)
    assert held(buffer) == held(plain.buffer)
    return number, links


def test_twenty_kills_while_saving_under_load(tmp_path: Path) -> None:
    kill_often(tmp_path / "files", 20)


@pytest.mark.long
def test_two_hundred_kills_while_saving_under_load(tmp_path: Path) -> None:
    kill_often(tmp_path / "files", 200)


def test_a_resumed_run_draws_as_one_that_was_never_interrupted(tmp_path: Path) -> None:
    plain = Uninterrupted()
    interrupted = saving.new_buffer()
    for number in range(40):
        saving.step(interrupted, number)
    base = interrupted.snapshot().write(tmp_path / "full.h5")
    for number in range(40, 55):
        saving.step(interrupted, number)
    interrupted.snapshot(base).write(tmp_path / "incremental.h5")
    del interrupted
    resumed = PrioritizedReplayBuffer.load(tmp_path / "incremental.h5")
    plain.advance(55)
    for number in range(55, 120):
        one, other = saving.step(resumed, number), saving.step(plain.buffer, number)
        for name in ("indices", "masses", "weights", "transitions"):
            assert getattr(one, name).tobytes() == getattr(other, name).tobytes()
    assert resumed.beta == plain.buffer.beta > 0.4
