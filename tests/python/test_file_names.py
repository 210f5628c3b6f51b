"""Files whose names are no text: bytes that are not UTF-8, line ends, what terminals obey.

They are written, read, listed and told of like any other; what is printed is one line a file, and
the very bytes of a name where a script may want to open it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from metrics_lines import service

from libsumtree import PrioritizedReplayBuffer
from libsumtree.cli import main
from libsumtree.metrics import encode_line

NO_TEXT = os.fsdecode(b"caf\xe9")  # Latin-1
SECONDS = 60.0


class Outcome:
    """What one command, run in this process, printed: standard output takes no odd text."""

    def __init__(self, *words: object, encoding: str = "utf-8") -> None:
        out, err = (io.TextIOWrapper(io.BytesIO(), name) for name in (encoding, "utf-8"))
        err.reconfigure(errors="backslashreplace")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            self.status = main(list(map(str, words)))
        out.flush()
        err.flush()
        assert isinstance(out.buffer, io.BytesIO)
        assert isinstance(err.buffer, io.BytesIO)
        self.out, self.err = out.buffer.getvalue(), err.buffer.getvalue()

    def succeed(self) -> bytes:
        assert (self.status, self.err) == (0, b"")
        return self.out

    def refuse(self) -> bytes:
        assert self.status == 2
        assert self.err.startswith(b"libsumtree: error: ")
        assert self.err.count(b"\n") == 1
        return self.err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder and a file in it, both with names that are no text."""
    path = tmp_path / NO_TEXT
    path.mkdir()
    buffer = PrioritizedReplayBuffer(8, [("x", "<f8")], seed=1)
    buffer.add(np.zeros(5, buffer.dtype), np.arange(1.0, 6.0))
    base = buffer.snapshot().write(path / "replay-000000000001.h5")
    buffer.add(np.zeros(1, buffer.dtype))
    buffer.snapshot(base).write(path / f"{NO_TEXT}.h5")
    return path


def test_checkpoints_load_and_go_on(folder: Path) -> None:
    for path in folder.glob("*.h5"):
        assert len(PrioritizedReplayBuffer.load(path)) in (5, 6)


@pytest.mark.parametrize("machine", [[], ["--json"]], ids=["plain", "json"])
@pytest.mark.parametrize(
    "words",
    [
        ["list", "."],
        ["show", "NAME"],
        ["verify", "."],
        ["verify", "--newest", "."],
        ["verify", "NAME"],
        ["diff", "NAME", "NAME"],
        ["prune", ".", "--keep", "1"],
        ["export", "NAME", "out"],
    ],
    ids=" ".join,
)
def test_commands_of_checkpoints(folder: Path, words: list[str], machine: list[str]) -> None:
    places = {".": folder, "NAME": folder / f"{NO_TEXT}.h5", "out": folder / f"{NO_TEXT}.npz"}
    out = Outcome("checkpoint", *(places.get(word, word) for word in words), *machine).succeed()
    if machine:
        json.loads(out)


def test_a_script_gets_the_very_name(folder: Path) -> None:
    path = folder / f"{NO_TEXT}.h5"
    newest = Outcome("checkpoint", "verify", "--newest", folder).succeed()
    assert newest == os.fsencode(folder / "replay-000000000001.h5") + b"\n"
    out = Outcome("checkpoint", "verify", path).succeed()
    assert out == os.fsencode(path) + b": whole\n"
    out = Outcome("checkpoint", "verify", path, "--json").succeed()
    assert json.loads(out) == {str(path): None}


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_nothing_that_is_printed_fails_in_any_encoding(folder: Path, encoding: str) -> None:
    other = folder / "\N{SNOWMAN}.h5"
    (folder / f"{NO_TEXT}.h5").rename(other)
    out = Outcome("checkpoint", "verify", other, encoding=encoding).succeed()
    shown = "\N{SNOWMAN}".encode() if encoding == "utf-8" else rb"\u2603"
    assert out == os.fsencode(folder) + b"/" + shown + b".h5: whole\n"


def test_the_stream_of_a_process_is_as_it_was_before(tmp_path: Path) -> None:
    program = (
        "import sys; from libsumtree.cli import main; main(['info']); print(sys.stdout.errors)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        timeout=SECONDS,
        env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"},
    )
    assert done.stdout.endswith(b"\nstrict\n")


@pytest.mark.parametrize(
    "words",
    [
        ["checkpoint", "show", "NAME"],
        ["checkpoint", "verify", "NAME"],
        ["checkpoint", "list", "NAME"],
        ["checkpoint", "prune", "NAME", "--keep", "1"],
        ["stats", "NAME"],
        ["jobs", "render", "--site", "./NAME", "--scheduler", "slurm", "apex"],
        ["jobs", "render", "--site", "workstation", "--scheduler", "NAME", "apex"],
        ["info", "NAME"],
        ["NAME"],
    ],
    ids=" ".join,
)
def test_what_is_not_there_is_one_line(tmp_path: Path, words: list[str]) -> None:
    missing = str(tmp_path / NO_TEXT)
    Outcome(*(word.replace("NAME", missing) for word in words)).refuse()


@pytest.mark.parametrize("name", [NO_TEXT, "$a_{", "a\nb"], ids=ascii)
def test_metrics_and_pictures(tmp_path: Path, folder: Path, name: str) -> None:
    metrics = tmp_path / f"{name}.jsonl"
    metrics.write_bytes(b"".join(map(encode_line, service(3))))
    picture = tmp_path / f"{name}.png"
    for words in ([], ["--json"], ["--output", picture]):
        Outcome("stats", metrics, *words).succeed()
    assert picture.stat().st_size > 1000
    path = folder / f"{NO_TEXT}.h5"
    path = path.rename(path.with_name(f"{name}.h5"))
    Outcome("checkpoint", "show", path, "--output", picture).succeed()


def test_scripts_are_written_where_no_text_says(tmp_path: Path) -> None:
    script = tmp_path / f"{NO_TEXT}.sh"
    words = ["--site", "workstation", "--scheduler", "slurm", "--output", script, "apex"]
    out = Outcome("jobs", "render", *words).succeed()
    assert out == b"written: " + os.fsencode(script) + b"\n"
    assert script.stat().st_mode & 0o100


@pytest.mark.parametrize(
    "name",
    ["a\nreplay-000000000009.h5", "a\x1b[2Jb", "a\x9b2Jb", "a\udc9b2Jb", "a\rb"],
    ids=ascii,
)
def test_a_name_is_one_line_and_moves_no_cursor(folder: Path, name: str) -> None:
    """Others may write to a folder, and a listing must not be what they make of it."""
    path = folder / f"{name}.h5"
    path.write_bytes((folder / "replay-000000000001.h5").read_bytes())
    count = len(list(folder.glob("*.h5")))
    for words in (["list", folder], ["verify", folder], ["verify", path]):
        lines = os.fsdecode(Outcome("checkpoint", *words).succeed()).split("\n")
        assert len(lines) == (2 if words[1] == path else count + 1)
        assert all(letter.isprintable() or letter >= "\udca0" for letter in "".join(lines))
    path.write_bytes(b"no checkpoint")
    said = Outcome("checkpoint", "show", path).refuse()
    assert said.strip().decode().isprintable()
