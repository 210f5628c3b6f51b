"""Checkpoint files that cannot be written or filled: what stood there stays, and it is said why."""

from __future__ import annotations

import fcntl
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_examples import run_script, write_example

from libsumtree import checkpoint
from libsumtree.errors import (
    ArgumentError,
    ArgumentTypeError,
    CheckpointError,
    ShapeError,
)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "replay.h5"
    write_example(path)
    return path


TEMPORARY = ".replay.h5.*.tmp"
REWRITE = """
import sys
import numpy as np
from libsumtree import checkpoint
print("ready", flush=True)
for version in range(1, 1 << 30):
    values = np.full(1 << 18, version)
    checkpoint.write(sys.argv[1], {"version": version}, {"x": [values[1000:], values[:1000]]})
"""


def test_sigkill_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "replay.h5"
    generator = random.Random(3)
    versions = []
    leftovers = 0
    for _ in range(10):
        checkpoint.write(path, {"version": 0}, {"x": [np.zeros(1 << 18, np.int64)]})
        command = [sys.executable, "-c", REWRITE, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            while process.poll() is None and not list(tmp_path.glob(TEMPORARY)):
                pass
            time.sleep(generator.uniform(0.0, 0.01))
            process.send_signal(signal.SIGKILL)
        leftovers += len(list(tmp_path.glob(TEMPORARY)))
        with checkpoint.read(path) as found:
            versions.append(found.attributes["version"])
            assert (found.datasets["x"].read() == found.attributes["version"]).all()
    assert leftovers > 0, "no try hit a write: the kills prove nothing"
    write_example(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["replay.h5"]


def test_a_living_writers_temporary_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "replay.h5"
    living = tmp_path / f".replay.h5.1.{'0' * 16}.tmp"
    others = [tmp_path / ".replay.h5.notes.tmp", tmp_path / f".other.h5.1.{'0' * 16}.tmp"]
    for file in others:
        file.touch()
    with living.open("wb") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        write_example(path)
        assert living.exists()
    write_example(path)
    assert sorted(tmp_path.iterdir()) == sorted([*others, path])


FILL_THE_DISK = """
import sys
from pathlib import Path
import numpy as np
from libsumtree import checkpoint
from libsumtree.errors import CheckpointError
path = Path(sys.argv[1]) / "replay.h5"
checkpoint.write(path, {}, {"x": [np.arange(1000)]})
before = path.read_bytes()
for size in [*range(100_000, 140_000, 487), 1 << 20, 1 << 22]:
    try:
        checkpoint.write(path, {}, {"x": [np.arange(size), np.arange(5)], "y": [np.ones(3)]})
    except CheckpointError as error:
        failed = str(error)
    else:
        checkpoint.write(path, {}, {"x": [np.arange(1000)]})
    assert [entry.name for entry in path.parent.iterdir()] == ["replay.h5"]
    assert path.read_bytes() == before
checkpoint.read(path).close()
print(failed)
"""
ON_A_TINY_DISK = 'mount -t tmpfs -o size=1m,mode=700 none "$1" && exec "$2" -c "$3" "$1"'


def test_a_full_disk_keeps_the_old_file(tmp_path: Path) -> None:
    """A real tmpfs of 1 MiB where the kernel lets this user mount one, else a file size limit."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    private = ["unshare", *user, "--mount", "sh", "-c"]
    if subprocess.run([*private, "mount -t tmpfs none /mnt"], capture_output=True).returncode == 0:
        command = [*private, ON_A_TINY_DISK, "sh", str(tmp_path), sys.executable, FILL_THE_DISK]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        reason = "No space left on device"
    else:
        done = run_under_file_limit(tmp_path)
        reason = "File too large"
    assert (done.returncode, done.stderr) == (0, "")
    assert f"cannot write checkpoint {tmp_path}/replay.h5: {reason}" in done.stdout


def run_under_file_limit(folder: Path) -> subprocess.CompletedProcess[str]:
    return run_script(
        FILL_THE_DISK,
        folder,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
    )


def test_a_file_limit_keeps_the_old_file(tmp_path: Path) -> None:
    done = run_under_file_limit(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "File too large" in done.stdout


def test_ctrl_c_while_writing_keeps_the_old_file(saved: Path, tmp_path: Path) -> None:
    before = saved.read_bytes()

    def interrupted() -> Iterator[np.ndarray]:
        yield np.zeros(1 << 14)
        raise KeyboardInterrupt

    stream = checkpoint.Stream(np.dtype("f8"), (1 << 15,), interrupted)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.write(saved, {}, {"a": [np.zeros(9)], "b": stream})
    assert saved.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["replay.h5"]


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is a folder"):
        write_example(tmp_path)
    with pytest.raises(CheckpointError, match="make the folder"):
        write_example(tmp_path / "none" / "replay.h5")
    with pytest.raises(CheckpointError, match="File name too long"):
        write_example(tmp_path / ("x" * 254))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("attributes", "datasets", "error"),
    [
        ({"format": 1}, {}, ArgumentTypeError),
        ({"parent": "none"}, {}, ArgumentTypeError),
        ({"": 1}, {}, ArgumentTypeError),
        ({"a": None}, {}, ArgumentTypeError),
        ({"a": "\0"}, {}, ArgumentTypeError),
        ({"a": "\ud800"}, {}, ArgumentTypeError),
        ({"a": 1j}, {}, ArgumentTypeError),
        ({"a": 2**64}, {}, ArgumentTypeError),
        ({"a": np.zeros(5000)}, {}, ArgumentTypeError),
        ({}, {"/x": [np.zeros(1)]}, ArgumentTypeError),
        ({}, {"": [np.zeros(1)]}, ArgumentTypeError),
        ({}, {"a.b": [np.zeros(1)]}, ArgumentTypeError),
        ({}, {"a": [np.zeros(1)], "a/b": [np.zeros(1)]}, ArgumentTypeError),
        ({}, {"a": [[1.0]]}, ArgumentTypeError),
        ({}, {"a": [np.zeros(1, object)]}, ArgumentTypeError),
        ({}, {"a": [np.zeros(1, "U2")]}, ArgumentTypeError),
        ({}, {"a": [np.zeros(1, np.longdouble)]}, ArgumentTypeError),
        ({}, {"a": []}, ShapeError),
        ({}, {"a": [np.zeros(1), np.zeros(1, "f4")]}, ShapeError),
        ({}, {"a": [np.zeros((1, 2)), np.zeros((1, 3))]}, ShapeError),
        ({}, {"a": [np.array(1.0), np.array(1.0)]}, ShapeError),
    ],
)
def test_what_cannot_be_stored_is_refused(
    saved: Path, attributes: Any, datasets: Any, error: type[Exception]
) -> None:
    before = saved.read_bytes()
    with pytest.raises(error):
        checkpoint.write(saved, attributes, datasets)
    assert saved.read_bytes() == before


def test_what_cannot_be_filled_is_refused(saved: Path) -> None:
    target = np.zeros(50)
    with checkpoint.read(saved) as found:
        masses = found.datasets["tree/masses"]
        for wrong in [np.zeros(49), np.zeros(50, ">f8"), np.zeros((50, 1))]:
            with pytest.raises(ShapeError):
                masses.read_into(wrong)
        with pytest.raises(ShapeError):
            masses.read_into()
        read_only = np.zeros(20)
        read_only.flags.writeable = False
        with pytest.raises(ArgumentError, match="read-only"):
            masses.read_into(target[:30], read_only)
    assert not target.any()
    with pytest.raises(CheckpointError, match="closed"):
        masses.read()


def test_long_texts_are_stored(tmp_path: Path) -> None:
    text = '["ä"]' * 50_000
    checkpoint.write(tmp_path / "long.h5", {"dtype": text}, {})
    with checkpoint.read(tmp_path / "long.h5") as found:
        assert found.attributes == {"dtype": text}


def test_a_missing_h5py_names_the_extra(tmp_path: Path) -> None:
    script = """
import sys
sys.modules["h5py"] = None
from libsumtree import checkpoint
for call in (lambda: checkpoint.write(sys.argv[1], {}, {}), lambda: checkpoint.read(sys.argv[1])):
    try:
        call()
    except ImportError as error:
        assert "pip install 'libsumtree[hdf5]'" in str(error)
    else:
        raise AssertionError("no error")
"""
    done = run_script(script, tmp_path / "replay.h5")
    assert done.returncode == 0, done.stderr
