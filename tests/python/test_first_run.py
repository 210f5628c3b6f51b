"""The scripts of a checkout, as they are before anything is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = ["", " of mine", "'s"]


@pytest.fixture(params=WORDS)
def checkout(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Copy the scripts into a folder in which nothing is installed."""
    folder = tmp_path / f"checkout{request.param}"
    shutil.copytree(ROOT / "jobs", folder / "jobs")
    return folder


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", *map(str, words)], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_installs_nothing(checkout: Path, word: str) -> None:
    done = run(checkout / "jobs" / "local.sh", word)
    assert (done.returncode, done.stderr) == (0, "")
    assert "sh jobs/local.sh [--find-links DIR]" in done.stdout
    assert "README.md" in done.stdout
    assert [path.name for path in checkout.iterdir()] == ["jobs"]


def test_help_has_all_options_once_they_are_installed(checkout: Path) -> None:
    environment = checkout / ".venv"
    (environment / "bin").mkdir(parents=True)
    python = environment / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (environment / "libsumtree-installed").touch()
    done = run(checkout / "jobs" / "local.sh", "--actors", "2", "--help")
    assert done.returncode == 0, done.stderr
    assert "sh jobs/local.sh [--find-links DIR]" in done.stdout
    assert "--samples-per-insert X" in done.stdout


def test_checkout_that_cannot_be_written_is_said(checkout: Path) -> None:
    (checkout / ".venv.lock").mkdir()  # which not even root can open for writing
    done = run(checkout / "jobs" / "local.sh")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"libsumtree: {checkout} cannot be written: clone into a folder of yours\n"
    )
