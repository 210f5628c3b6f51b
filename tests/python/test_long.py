"""By hand before a claim is made (`sh tests/run.sh long`): kills, a large tree, many seeds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import libsumtree as st

pytestmark = pytest.mark.long

SAVING = """
import sys
import numpy as np, libsumtree as st
buffer = st.PrioritizedReplayBuffer(2**15, [("x", "f8", 4)], seed=0)
buffer.add(np.zeros(2**15, buffer.dtype))
print("ready", flush=True)
while True:
    rows = np.zeros(100, buffer.dtype)
    rows["x"] = buffer.inserted
    buffer.add(rows, float(buffer.inserted % 7))
    buffer.save(sys.argv[1])
"""


def test_two_hundred_kills_while_saving(tmp_path: Path) -> None:
    path = tmp_path / "replay.h5"
    rng = np.random.default_rng(1)
    newest = 0
    for _ in range(200):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVING, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0.0, 0.1))
        process.send_signal(signal.SIGKILL)
        process.wait()
        if not path.exists():
            continue
        buffer = st.PrioritizedReplayBuffer.load(path)
        buffer.tree.validate()
        assert len(buffer) == 2**15
        newest += buffer.inserted > 2**15
        path.unlink()
    assert newest > 100


def test_a_tree_of_2_to_the_26(backend: str) -> None:
    capacity = 2**26
    tree = st.SumTree(capacity, backend=backend)
    rng = np.random.default_rng(2)
    masses = rng.integers(0, 1000, capacity).astype(np.float64)
    tree[:] = masses
    for _ in range(20):
        indices = rng.integers(0, capacity, 100_000)
        masses[indices] = indices % 997
        tree.update(indices, (indices % 997).astype(np.float64))
    assert tree.total == masses.sum()
    sums = np.cumsum(masses)
    targets = rng.integers(0, int(tree.total), 1_000_000).astype(np.float64)
    assert np.array_equal(tree.find(targets), np.searchsorted(sums, targets, side="right"))
    tree.validate()


@pytest.mark.parametrize("seed", range(3))
def test_cartpole_is_learned(tmp_path: Path, seed: int) -> None:
    launcher = os.environ.get("SUMTREE_MPIEXEC", "mpiexec").split()
    program = [sys.executable, "-m", "mpi4py", "-m", "libsumtree", "apex", "--seed", str(seed)]
    done = subprocess.run(
        [*launcher, "-n", "6", *program, "--output-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert float(done.stdout.splitlines()[-1].split()[3]) >= 475.0
