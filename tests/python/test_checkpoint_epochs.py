"""The epochs of a folder: none is ever given out twice."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from checkpoint_examples import run_script

from libsumtree import checkpoint
from libsumtree.errors import (
    ArgumentTypeError,
    CheckpointCorruptError,
    CheckpointError,
)


def test_epochs_only_grow(tmp_path: Path) -> None:
    first, second = tmp_path / "first.h5", tmp_path / "second.h5"
    assert checkpoint.open_epoch(first, 0) == 1
    assert checkpoint.open_epoch(first, 0) == 2
    assert checkpoint.open_epoch(second, 1) == 3
    assert checkpoint.open_epoch(first, 40) == 41
    assert checkpoint.open_epoch(second, 3) == 42
    (tmp_path / "elsewhere").mkdir()
    assert checkpoint.open_epoch(tmp_path / "elsewhere" / "first.h5", 0) == 1


def open_many(arguments: tuple[Path, int]) -> list[int]:
    path, count = arguments
    return [checkpoint.open_epoch(path, 0) for _ in range(count)]


def test_simultaneous_callers_never_get_the_same_epoch(tmp_path: Path) -> None:
    path = tmp_path / "replay.h5"
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        epochs = [epoch for part in pool.map(open_many, [(path, 25)] * 4) for epoch in part]
    assert sorted(epochs) == list(range(1, 101))


OPEN_FOREVER = """
import sys
from libsumtree import checkpoint
while True:
    print(checkpoint.open_epoch(sys.argv[1], 0), flush=True)
"""


def test_sigkill_never_gives_an_epoch_twice(tmp_path: Path) -> None:
    path = tmp_path / "replay.h5"
    generator = random.Random(5)
    epochs: list[int] = []
    for _ in range(8):
        command = [sys.executable, "-c", OPEN_FOREVER, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            epochs.append(int(process.stdout.readline()))
            time.sleep(generator.uniform(0.0, 0.03))
            process.send_signal(signal.SIGKILL)
            epochs += [int(line) for line in process.stdout.read().splitlines(keepends=True)]
    epochs.append(checkpoint.open_epoch(path, 0))
    assert epochs == sorted(set(epochs))
    left = {entry.name for entry in tmp_path.iterdir()}
    assert left == {"libsumtree.epoch", ".libsumtree.epoch.lock"}


@pytest.mark.parametrize("part", ["empty", "cut", "flipped", "longer", "zeros"])
def test_a_garbled_ledger_gives_no_epoch(tmp_path: Path, part: str) -> None:
    checkpoint.open_epoch(tmp_path / "replay.h5", 6)
    ledger = tmp_path / checkpoint.LEDGER_NAME
    text = ledger.read_bytes()
    garbled = {
        "empty": b"",
        "cut": text[:-3],
        "flipped": text.replace(b"7", b"6", 1),
        "longer": text + b"\n",
        "zeros": bytes(len(text)),
    }[part]
    ledger.write_bytes(garbled)
    with pytest.raises(CheckpointCorruptError, match="highest epoch"):
        checkpoint.open_epoch(tmp_path / "replay.h5", 6)
    assert ledger.read_bytes() == garbled


def test_epochs_end(tmp_path: Path) -> None:
    path = tmp_path / "replay.h5"
    assert checkpoint.open_epoch(path, checkpoint.MAX_EPOCH - 1) == checkpoint.MAX_EPOCH
    with pytest.raises(CheckpointError, match="all epochs"):
        checkpoint.open_epoch(path, 0)
    for wrong in [-1, 1.0, True, "1", checkpoint.MAX_EPOCH + 1]:
        with pytest.raises(ArgumentTypeError):
            checkpoint.open_epoch(path, wrong)  # type: ignore[arg-type]


def test_a_read_only_folder_says_why_and_what_to_do(tmp_path: Path) -> None:
    """The permission is a real one: root gives its own up, having entered the folder."""
    script = """
import os, sys
from pathlib import Path
from libsumtree import checkpoint
from libsumtree.errors import CheckpointError
import h5py
os.chdir(sys.argv[1])
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
calls = [lambda: checkpoint.open_epoch("replay.h5", 0), lambda: checkpoint.write("x.h5", {}, {})]
for call in calls:
    try:
        call()
    except CheckpointError as error:
        print(error)
"""
    folder = tmp_path / "read-only"
    folder.mkdir()
    folder.chmod(0o555)
    done = run_script(script, folder)
    folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    epoch, writing = done.stdout.splitlines()
    assert "Permission denied. Without the note, ids" in epoch
    assert "Copy the checkpoint replay.h5 to a folder that can be written" in epoch
    assert writing == "cannot write checkpoint x.h5: Permission denied"
    assert list(folder.iterdir()) == []
