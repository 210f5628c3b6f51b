"""Writers that meet: on one path, in one folder, in a folder that was removed and made again."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from libsumtree import PrioritizedReplayBuffer, checkpoint
from libsumtree.errors import ArgumentError, ArgumentTypeError, CheckpointError
from libsumtree.files import remove_leftovers
from libsumtree.replay import ReplayConfig
from libsumtree.replay.checkpoints import CheckpointFolder, Progress

RECORD = np.dtype([("x", "<f8")])


def make_buffer(count: int = 5) -> PrioritizedReplayBuffer:
    buffer = PrioritizedReplayBuffer(8, RECORD, seed=0)
    buffer.add(np.zeros(count, RECORD), np.arange(1.0, count + 1))
    return buffer


def before_the_first_lock(
    monkeypatch: pytest.MonkeyPatch, action: Callable[[Any], object]
) -> list[Any]:
    """Have `action` run between the opening of a file and its first lock; return what it gave."""
    real, done = fcntl.flock, []

    def flock(file: Any, operation: int) -> None:
        if not done:
            done.append(None)
            done[0] = action(real)
        real(file, operation)

    monkeypatch.setattr("fcntl.flock", flock)
    return done


# ---- one path ----


def test_a_file_taken_for_a_leftover_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer looks for leftovers just after this one has made its file."""
    done = before_the_first_lock(monkeypatch, lambda _: remove_leftovers(tmp_path))
    make_buffer().save(tmp_path / "replay.h5")
    assert done
    assert [path.name for path in tmp_path.iterdir()] == ["replay.h5"]
    checkpoint.check(tmp_path / "replay.h5")


def test_a_file_about_to_be_removed_as_a_leftover_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer has locked it, and will remove it whatever happens now."""

    def hold(flock: Callable[[Any, int], None]) -> Any:
        (leftover,) = tmp_path.glob(".replay.h5.*")
        file = leftover.open("rb+")
        flock(file, fcntl.LOCK_EX)
        return file

    done = before_the_first_lock(monkeypatch, hold)
    make_buffer().save(tmp_path / "replay.h5")
    with done[0] as held:
        assert os.fstat(held.fileno()).st_nlink == 0
    assert [path.name for path in tmp_path.iterdir()] == ["replay.h5"]


SAVE_AGAIN_AND_AGAIN = """
import os, sys
import numpy as np
from libsumtree import checkpoint
os.fsync = lambda file: None  # the disk is not in question, and it would be waited for
for turn in range(150):
    checkpoint.write(sys.argv[1], {"turn": turn}, {"x": [np.arange(9)]})
"""


def test_savers_on_one_path_do_not_fail(tmp_path: Path) -> None:
    path = tmp_path / "replay.h5"
    command = [sys.executable, "-c", SAVE_AGAIN_AND_AGAIN, str(path)]
    savers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    assert [saver.communicate()[1] for saver in savers] == [""] * 3
    assert [saver.returncode for saver in savers] == [0] * 3
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    checkpoint.check(path)


# ---- one folder ----


def test_a_folder_made_again_has_one_writer(tmp_path: Path) -> None:
    first = CheckpointFolder(tmp_path / "files", keep=1)
    first.publish(make_buffer(), Progress())
    shutil.rmtree(tmp_path / "files")
    second = CheckpointFolder(tmp_path / "files", keep=1)
    with pytest.raises(CheckpointError, match=rf"another process \(process {os.getpid()} on"):
        first.publish(make_buffer(), Progress())
    assert first.files() == []
    second.publish(make_buffer(), Progress())
    second.close()
    first.publish(make_buffer(), Progress())
    with pytest.raises(CheckpointError, match="another process"):
        CheckpointFolder(tmp_path / "files", keep=1)
    first.close()


def test_a_folder_made_again_is_locked_anew(tmp_path: Path) -> None:
    first = CheckpointFolder(tmp_path / "files", keep=1)
    shutil.rmtree(tmp_path / "files")
    (tmp_path / "files").mkdir()
    first.publish(make_buffer(), Progress())
    with pytest.raises(CheckpointError, match="another process"):
        CheckpointFolder(tmp_path / "files", keep=1)
    first.close()


def test_a_lock_of_a_file_that_is_gone_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is removed and made again between the opening of the file and its lock."""
    name = ".libsumtree.lock"
    done = before_the_first_lock(monkeypatch, lambda _: (tmp_path / name).unlink())
    lock = checkpoint.FolderLock(tmp_path)
    assert done
    with pytest.raises(CheckpointError, match="another process"):
        checkpoint.FolderLock(tmp_path)
    lock.close()
    checkpoint.FolderLock(tmp_path).close()


# ---- chains that can be read ----

CHAIN = """
import os, resource, sys
from pathlib import Path
import numpy as np
from libsumtree import PrioritizedReplayBuffer, checkpoint
os.fsync = lambda file: None  # the disk is not in question, and it would be waited for
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
folder, record = Path(sys.argv[1]), np.dtype([("x", "<f8")])
buffer, base, full = PrioritizedReplayBuffer(400, record, seed=0), None, []
buffer.add(np.zeros(400, record))
for turn in range(300):
    buffer.update_priorities([turn], 2.0 + turn)
    with buffer.snapshot(base) as snapshot:
        full.append(not snapshot.incremental)
        base = snapshot.write(folder / f"{turn}.h5")
loaded = PrioritizedReplayBuffer.load(folder / f"{turn}.h5")
assert np.array_equal(loaded.tree[:], buffer.tree[:])
assert [turn for turn in range(300) if full[turn]] == [0, 128, 256], full
with checkpoint.read_chain(folder / "127.h5") as chain:
    assert len(chain.links) == checkpoint.MOST_FILES == 128
"""


def test_no_chain_needs_more_files_than_a_process_may_open(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHAIN, str(tmp_path)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_longer_chains_are_refused_where_they_are_asked_for() -> None:
    assert ReplayConfig(8, full_every=128).full_every == 128
    with pytest.raises(ArgumentError, match="full_every is 129: at most 128, for a state is read"):
        ReplayConfig(8, full_every=129)


@pytest.mark.parametrize("aside", [-1, 1.5, "64", True, None])
def test_what_may_stand_aside_is_a_number_of_bytes(aside: Any) -> None:
    buffer = make_buffer()
    with pytest.raises((ArgumentError, ArgumentTypeError), match="aside_bytes"):
        buffer.snapshot(aside_bytes=aside)
    assert buffer._snapshots == []
    buffer.snapshot(aside_bytes=np.int64(0)).close()
