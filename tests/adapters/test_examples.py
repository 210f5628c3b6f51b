"""The example programs that need PyTorch."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from launch import environment, launcher

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_a_dqn_learns_through_the_replay_rank() -> None:
    program = [sys.executable, "-m", "mpi4py", str(EXAMPLES / "pytorch_dqn.py")]
    done = subprocess.run(
        [*launcher(), "-n", "4", *program, "--updates", "4000"],
        capture_output=True,
        text=True,
        timeout=600,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"4000 updates, (\d+) transitions, .* episodes: ([\d.]+)", done.stdout)
    assert found, done.stdout
    # 64 drawn an update, 16 for each inserted, whatever the machine's speed.
    assert 15_000 < int(found[1]) < 20_000
    assert float(found[2]) > 60.0, "an untrained network stands for some 10 steps"


def test_two_ranks_are_too_few() -> None:
    done = subprocess.run(
        [*launcher(), "-n", "2", sys.executable, str(EXAMPLES / "pytorch_dqn.py")],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(),
    )
    assert done.returncode != 0
    assert "needs 3 ranks or more" in done.stderr


def test_the_gpu_example_says_what_is_missing() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "gpu_torch.py")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0
    assert "libsumtree.errors." in done.stderr.splitlines()[-1]
    assert "gpu" in done.stderr.splitlines()[-1]
