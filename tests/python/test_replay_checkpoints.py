"""The folder of a replay rank: newest valid file, numbers that only grow, one writer."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import numpy as np
import pytest

from libsumtree import PrioritizedReplayBuffer
from libsumtree.errors import CheckpointCorruptError, CheckpointError
from libsumtree.replay.checkpoints import CheckpointFolder, Progress, read_file

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


def test_full_disk_changes_nothing(folder: CheckpointFolder) -> None:
    kept = folder.publish(make_buffer(), Progress())
    before = kept.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(CheckpointError, match="cannot write"):
            folder.publish(make_buffer(), Progress())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert kept.read_bytes() == before
    assert [path.name for path in folder.folder.glob("replay-*")] == [kept.name]
