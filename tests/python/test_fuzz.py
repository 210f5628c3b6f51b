"""Fuzzing, briefly: each input that failed once, the seeds, and a second of mutations of them.

`sh tests/run.sh fuzz` does it for as long as it is told.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
TARGETS = ("messages", "checkpoints", "manifests", "sites", "command_line", "arrays")
SECONDS = "1"


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_fails_that_failed_once_and_nothing_else_soon(target: str, tmp_path: Path) -> None:
    kept = sorted((TESTS / "data" / "fuzz" / target).glob("*"))
    failure = tmp_path / "failure"
    inputs = ["--inputs", *map(str, kept)] if kept else []
    command = [str(TESTS / "fuzz" / "execute.py"), target, "--seconds", SECONDS, *inputs]
    done = subprocess.run(
        [sys.executable, *command, "--failure", str(failure)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    found = failure.read_bytes().rstrip(b"\0") if failure.exists() else b""
    assert done.returncode == 0, f"{done.stderr}\n{found!r:.3000}"
    assert f"{target}: " in done.stdout
