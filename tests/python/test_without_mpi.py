"""mpi4py is installed and finds no MPI: one line that says what to do, not a traceback."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

COMMANDS = {
    "replay": ["-m", "libsumtree", "replay", "--capacity", "10", "--ranks", "2"],
    "apex": ["-m", "libsumtree", "apex"],
    "import": ["-c", "import libsumtree.replay"],
}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "MPI4PY_LIBMPI": "/nonexistent/libmpi.so"},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_no_mpi_library(name: str) -> None:
    if run("-c", "import mpi4py.MPI").returncode == 0:
        pytest.skip("this mpi4py is linked with its MPI library, which is there")
    done = run(*COMMANDS[name])
    assert done.returncode != 0
    last = done.stderr.strip().split("\n")[-1]
    assert "cannot load MPI library" in last
    assert "pip install mpich" in last
    if name != "import":
        assert done.stderr.count("\n") == 1
