"""Fuzzing, briefly: each input that failed once, the seeds, and a second of mutations of them.

`sh tests/run.sh fuzz` does it for as long as it is told.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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


# ---- what a run keeps ----

PLANTED = """
def one(data):
    if data[:1] == b"a":
        raise ValueError(f"{len(data)} bytes, {data!a}")
    if data[:1] == b"b":
        raise KeyError("another")

def seeds():
    return SEEDS
"""


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The module tests/fuzz/run.py, which keeps what fails in a folder of this test."""
    monkeypatch.syspath_prepend(str(TESTS / "fuzz"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    spec = importlib.util.spec_from_file_location("run", TESTS / "fuzz" / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "run", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "KEPT", tmp_path / "kept")
    return module


def test_what_fails_in_one_way_is_kept_once_and_small(
    runner: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """However many processes fail, and whatever the numbers in what they say."""
    (tmp_path / "planted.py").write_text(PLANTED.replace("SEEDS", "[b'axxxxxx', b'axx']"))
    run = runner.Run("planted", tmp_path / "logs", tmp_path / "corpus")
    run.folder.mkdir()
    run.start(1.0, 3)
    assert not run.end()
    assert [path.read_bytes() for path in (tmp_path / "kept" / "planted").iterdir()] == [b"a"]
    assert "planted: 3 processes failed: ValueError: N bytes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("ShapeError: a has shape (0,)", "ShapeError: a has shape (17,)", True),
        ("ShapeError: a has shape (0,)", "ShapeError: b has shape (0,)", False),
        ("KeyError: 'x'", "KeyError: 'another'", True),
        ("KeyError: 'x'", "LookupError: 'x'", False),
        ("SUMMARY: libFuzzer: timeout", "SUMMARY: libFuzzer: out-of-memory", False),
        ('  File "/a/b.py", line 3\nKeyError: 1', '  File "/c/b.py", line 3\nKeyError: 2', True),
        ('  File "/a/b.py", line 3\nKeyError: 1', '  File "/a/b.py", line 4\nKeyError: 1', False),
    ],
)
def test_summaries_tell_faults_apart(runner: Any, one: str, other: str, same: bool) -> None:
    frame = "Traceback\n"
    assert (runner.summary(frame + one) == runner.summary(frame + other)) is same
