"""By hand before a claim is made (`sh tests/run.sh long`): large buffers and trees, many seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import libsumtree as st

pytestmark = pytest.mark.long

LARGE_BYTES = 12 << 30
SAVE_A_LARGE_BUFFER = """
import resource, sys
import numpy as np, libsumtree as st, h5py
path, nbytes = sys.argv[1], int(sys.argv[2])
dtype = np.dtype([("frames", "u1", (84, 84, 4)), ("action", "<i4"), ("reward", "<f4")])
buffer = st.PrioritizedReplayBuffer(nbytes // dtype.itemsize, dtype, seed=0)
rows = np.zeros(1000, dtype)
def fill(count):
    for start in range(0, count, 1000):
        rows["frames"] = buffer.inserted % 251
        rows["action"] = buffer.inserted + np.arange(1000)
        buffer.add(rows, 1.0 + buffer.inserted % 7)
fill(buffer.capacity + 5000)
own = buffer._storage.nbytes + 3 * 16 * buffer.tree.padded_capacity
base = buffer.snapshot().write(path + "/full.h5")
fill(1000)
buffer.snapshot(base).write(path + "/next.h5")
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
print(peak / own, buffer.inserted, buffer.tree.total.hex())
"""
LOAD_A_LARGE_BUFFER = """
import resource, sys
import numpy as np, libsumtree as st
buffer = st.PrioritizedReplayBuffer.load(sys.argv[1] + "/next.h5")
own = buffer._storage.nbytes + 3 * 16 * buffer.tree.padded_capacity
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
actions = buffer._storage["action"]
number = buffer.inserted - 1
assert actions[number % buffer.capacity] == number
assert set(np.unique(np.diff(actions)).tolist()) <= {1, 1 - buffer.capacity}
assert (buffer._storage["frames"][:, 0, 0, 0] == actions // 1000 * 1000 % 251).all()
print(peak / own, buffer.inserted, buffer.tree.total.hex())
"""


def test_a_buffer_larger_than_half_of_memory(tmp_path: Path) -> None:
    """12 GiB: saved, saved incrementally and loaded within 1.2x of its own memory."""
    told = []
    for script in (SAVE_A_LARGE_BUFFER, LOAD_A_LARGE_BUFFER):
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path), str(LARGE_BYTES)],
            capture_output=True,
            text=True,
            check=True,
        )
        ratio, *state = done.stdout.split()
        assert float(ratio) <= 1.2, done.stdout
        told.append(state)
    assert told[0] == told[1]


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
