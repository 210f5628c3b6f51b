"""The folder of a replay rank: newest valid file, numbers that only grow, one writer."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_examples import rewrite_sealed

from libsumtree import PrioritizedReplayBuffer, checkpoint
from libsumtree.errors import CheckpointCorruptError, CheckpointError, CheckpointMismatchError
from libsumtree.replay.checkpoints import CheckpointFolder
from libsumtree.replay.restored import Place, Progress, read_file, read_state

RECORD = np.dtype([("x", "<f8")])


def make_buffer(count: int = 5) -> PrioritizedReplayBuffer:
    buffer = PrioritizedReplayBuffer(8, RECORD, seed=0)
    buffer.add(np.zeros(count, RECORD), np.arange(1.0, count + 1))
    return buffer


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    return CheckpointFolder(tmp_path / "deep" / "files", keep=2)


def names(folder: CheckpointFolder) -> list[str]:
    return [path.name for _, path in folder.files()]


def test_serials_grow_and_the_oldest_go(folder: CheckpointFolder) -> None:
    assert folder.newest("cpu") is None
    for _ in range(4):
        folder.publish(make_buffer(), Progress())
    assert names(folder) == ["replay-000000000004.h5", "replay-000000000003.h5"]


def test_progress_comes_back(folder: CheckpointFolder) -> None:
    learner = {"network/layer0.weight": np.ones((2, 3)), "step": np.array(7)}
    folder.publish(make_buffer(), Progress(11, 2, -3.5, learner))
    restored = folder.newest("cpu")
    assert restored is not None
    found = restored.progress
    assert (found.sampled, found.stale, found.surplus) == (11, 2, -3.5)
    assert found.learner is not None
    assert found.learner.keys() == learner.keys()
    assert found.learner["network/layer0.weight"].tobytes() == np.ones((2, 3)).tobytes()


def test_every_restore_opens_an_epoch_of_its_own(folder: CheckpointFolder) -> None:
    path = folder.publish(make_buffer(), Progress())
    assert [read_file(path, "cpu").buffer.epoch for _ in range(3)] == [1, 2, 3]


def test_file_of_a_buffer_alone_is_taken(folder: CheckpointFolder) -> None:
    make_buffer().save(folder.folder / "replay-000000000005.h5")
    restored = folder.newest("cpu")
    assert restored is not None
    assert restored.progress == Progress()


def test_damaged_files_are_passed_over(
    folder: CheckpointFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    first = folder.publish(make_buffer(3), Progress())
    second = folder.publish(make_buffer(4), Progress())
    second.write_bytes(second.read_bytes()[:-9])
    restored = folder.newest("cpu")
    assert restored is not None
    assert restored.path == first
    assert len(restored.buffer) == 3
    assert "passing over a damaged checkpoint" in capsys.readouterr().err
    first.write_bytes(b"")
    with pytest.raises(CheckpointCorruptError, match="every checkpoint in"):
        folder.newest("cpu")
    assert folder.publish(make_buffer(), Progress()).name == "replay-000000000003.h5"


def test_spared_files_stay(folder: CheckpointFolder) -> None:
    old = [folder.publish(make_buffer(), Progress()) for _ in range(2)]
    folder.spare_existing()
    for _ in range(4):
        folder.publish(make_buffer(), Progress())
    assert all(path.exists() for path in old)
    assert len(names(folder)) == 4


def test_leftovers_of_killed_writers_are_removed(tmp_path: Path) -> None:
    left = tmp_path / ".replay-000000000009.h5.123.0123456789abcdef.tmp"
    other = tmp_path / ".someone-else.tmp"
    left.touch()
    other.touch()
    CheckpointFolder(tmp_path, keep=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".libsumtree.lock", other.name]


def test_folder_has_one_writer(tmp_path: Path) -> None:
    first = CheckpointFolder(tmp_path, keep=1)
    with pytest.raises(CheckpointError, match=rf"another process \(process {os.getpid()} on"):
        CheckpointFolder(tmp_path, keep=1)
    first.close()
    CheckpointFolder(tmp_path, keep=1).close()


def test_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match=r"file/below cannot be written"):
        CheckpointFolder(tmp_path / "file" / "below", keep=1)


def test_full_disk_changes_nothing_and_the_next_try_succeeds(folder: CheckpointFolder) -> None:
    buffer = make_buffer()
    kept = folder.publish(buffer, Progress())
    before = kept.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(CheckpointError, match="cannot write"):
            folder.publish(buffer, Progress())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert kept.read_bytes() == before
    assert [path.name for path in folder.folder.glob("replay-*")] == [kept.name]
    buffer.add(np.ones(20, RECORD))
    assert folder.publish(buffer, Progress()).name == "replay-000000000002.h5"


def test_a_folder_that_vanished_is_an_error_and_a_new_one_gets_full_files(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path / "files", keep=2, full_every=9)
    buffer = make_buffer()
    folder.publish(buffer, Progress())
    for path in folder.folder.iterdir():
        path.unlink()
    folder.folder.rmdir()
    with pytest.raises(CheckpointError, match="cannot write a checkpoint into"):
        folder.publish(buffer, Progress())
    folder.folder.mkdir()
    assert checkpoint.read_header(folder.publish(buffer, Progress())).parent is None


# ---- full and incremental files ----


def parents(folder: CheckpointFolder) -> list[bool]:
    """Tell which files are incremental, the oldest first."""
    return [checkpoint.read_header(path).parent is not None for _, path in folder.files()[::-1]]


def test_one_of_so_many_files_is_full(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep=100, full_every=3)
    buffer = make_buffer(8)
    for _ in range(7):
        folder.publish(buffer, Progress())
    assert parents(folder) == [False, True, True, False, True, True, False]
    alone = CheckpointFolder(tmp_path / "alone", keep=100, full_every=1)
    for _ in range(3):
        alone.publish(buffer, Progress())
    assert parents(alone) == [False] * 3


def test_what_kept_states_need_is_kept(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep=2, full_every=4)
    buffer = make_buffer(8)
    for turn in range(14):
        buffer.add(np.zeros(1, RECORD))
        folder.publish(buffer, Progress())
        held = names(folder)
        assert len(held) <= 2 + 3 + 4
        for _, path in folder.files()[:2]:
            with checkpoint.read_chain(path) as chain:
                loaded = PrioritizedReplayBuffer.from_checkpoint(chain)
            assert loaded.inserted == buffer.inserted - (path.name != held[0])
        if turn > 3:
            roots = {root_of(path) for path in readable(folder)}
            assert len(roots) > 1, "one damaged file would make all states useless"


def readable(folder: CheckpointFolder) -> list[Path]:
    return [path for _, path in folder.files()]


def root_of(path: Path) -> str:
    with checkpoint.read_chain(path) as chain:
        return chain.links[0].path.name


def test_a_damaged_full_file_costs_its_own_chain_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = CheckpointFolder(tmp_path, keep=3, full_every=3)
    buffer = make_buffer(8)
    for _ in range(6):
        buffer.add(np.zeros(1, RECORD))
        folder.publish(buffer, Progress(sampled=buffer.inserted))
    assert parents(folder) == [False, True, True, False, True, True]
    full = tmp_path / "replay-000000000004.h5"
    content = bytearray(full.read_bytes())
    content[-1] ^= 1
    full.write_bytes(content)
    restored = folder.newest("cpu")
    assert restored is not None
    assert restored.path.name == "replay-000000000003.h5"
    assert restored.buffer.inserted == restored.progress.sampled == 11
    told = capsys.readouterr().err
    for serial in (4, 5, 6):
        assert f"replay-00000000000{serial}.h5" in told
    assert told.count("passing over a damaged checkpoint") == 3


def test_after_a_restore_the_first_file_is_full(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep=9, full_every=9)
    buffer = make_buffer(8)
    folder.publish(buffer, Progress())
    folder.close()
    again = CheckpointFolder(tmp_path, keep=9, full_every=9)
    restored = again.newest("cpu")
    assert restored is not None
    for _ in range(2):
        again.publish(restored.buffer, restored.progress)
    assert parents(again) == [False, False, True]


# ---- who may write, and who may read ----

HOLD = """
import mpi4py, os, sys, time
mpi4py.rc.initialize = False
from pathlib import Path
from libsumtree.replay.checkpoints import CheckpointFolder
folder = CheckpointFolder(Path(sys.argv[1]), keep=1)
if os.fork() == 0:
    print(os.getpid(), flush=True)
time.sleep(60)
"""


def test_a_killed_holder_lets_go_even_if_its_children_live(tmp_path: Path) -> None:
    """A requeued job takes over: the lock does not outlive the process that had it."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        try:
            with pytest.raises(CheckpointError, match=rf"process {holder.pid} on"):
                CheckpointFolder(tmp_path, keep=1)
            holder.send_signal(signal.SIGKILL)
            holder.wait()
            os.kill(child, 0)
            CheckpointFolder(tmp_path, keep=1).close()
        finally:
            os.kill(child, signal.SIGKILL)


def test_without_locks_where_the_environment_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = CheckpointFolder(tmp_path, keep=1)
    monkeypatch.setenv("HDF5_USE_FILE_LOCKING", "FALSE")
    second = CheckpointFolder(tmp_path, keep=1)
    path = second.publish(make_buffer(), Progress())
    assert read_file(path, "cpu").buffer.epoch == 1
    second.close()
    first.close()


def no_locks(*_: object) -> None:
    raise OSError(37, "No locks available")


def test_a_file_system_without_locks_is_named_with_the_switch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No such file system can be mounted here: the call fails as it does there."""
    path = tmp_path / "b.h5"
    make_buffer().save(path)
    monkeypatch.setattr("fcntl.flock", no_locks)
    switch = "HDF5_USE_FILE_LOCKING=FALSE"
    with pytest.raises(CheckpointError, match=switch):
        CheckpointFolder(tmp_path / "files", keep=1)
    with pytest.raises(CheckpointError, match=switch):
        PrioritizedReplayBuffer.load(path)
    for value in ("FALSE", "BEST_EFFORT"):
        monkeypatch.setenv("HDF5_USE_FILE_LOCKING", value)
        CheckpointFolder(tmp_path / "files", keep=1).publish(make_buffer(), Progress())
        PrioritizedReplayBuffer.load(path)


def test_files_and_folders_are_their_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = CheckpointFolder(tmp_path / "files", keep=1)
        path = folder.publish(make_buffer(), Progress())
        read_file(path, "cpu")
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.folder.stat().st_mode) == 0o700
    for file in folder.folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_saving_goes_on_beside_the_caller(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep=1)
    buffer = PrioritizedReplayBuffer(1 << 16, RECORD, seed=0)
    buffer.add(np.zeros(1 << 16, RECORD), 3.0)
    saving = folder.begin(buffer, Progress(stale=5))
    added = 0
    while not saving.done:
        buffer.add(np.ones(100, RECORD), 8.0)
        added += 100
    assert added > 0
    restored = read_file(folder.finish(saving), "cpu")
    assert restored.progress.stale == 5
    assert restored.buffer.inserted == 1 << 16
    assert (restored.buffer.tree.min, restored.buffer.tree.max) == (3.0**0.6, 3.0**0.6)


@pytest.mark.parametrize("shards", [0, 1, 2])
def test_another_record_dtype_is_refused_before_memory_is_taken(
    folder: CheckpointFolder, shards: int
) -> None:
    """By a service alone that takes the newest, or a file; and by shards that deal one out."""
    path = folder.publish(make_buffer(), Progress())
    capacity, other = 1 << 40, np.dtype([("y", "<f4")])

    def read() -> object:
        if shards == 0:
            return folder.newest("cpu", capacity, other)
        return read_state(path, "cpu", capacity, Place(0, shards, dtype=other))

    with pytest.raises(CheckpointMismatchError, match="f4.* is asked for: give the same dtype"):
        read()


def test_a_record_dtype_is_compared_as_one_not_as_its_text(folder: CheckpointFolder) -> None:
    """Other blanks, as another writer may leave them, are no other dtype."""
    path = folder.publish(make_buffer(), Progress())

    def respell(file: Any) -> None:
        file.attrs["dtype"] = json.dumps(json.loads(file.attrs["dtype"]), indent=1)

    rewrite_sealed(path, respell)
    restored = read_file(path, "cpu", place=Place(dtype=RECORD))
    assert restored.buffer.dtype == RECORD
    assert len(restored.buffer) == 5
