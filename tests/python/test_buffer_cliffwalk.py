"""The example that shows what prioritization is for: it runs, and shows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "blind_cliffwalk.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLE), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_proportional_replay_needs_a_fifth_of_the_updates(tmp_path: Path) -> None:
    output = tmp_path / "cliffwalk.png"
    done = run("10", "--runs", "5", "--at-least", "5", "--output", str(output))
    assert done.returncode == 0, done.stdout + done.stderr
    assert output.read_bytes().startswith(b"\x89PNG")


def test_a_ratio_that_is_missed_is_told() -> None:
    done = run("10", "--runs", "1", "--agents", "uniform", "proportional", "--at-least", "1e9")
    assert done.returncode == 1
    assert "n = 10: uniform / proportional is " in done.stderr


@pytest.mark.parametrize("arguments", [["1"], ["21"], ["8", "--runs", "0"]])
def test_bad_options_are_refused(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "must be" in done.stderr
