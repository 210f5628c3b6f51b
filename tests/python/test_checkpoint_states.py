"""The states of a folder: files of one shard, manifests of several, what is kept and removed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from libsumtree import PrioritizedReplayBuffer, checkpoint
from libsumtree.errors import CheckpointCorruptError
from libsumtree.inspection import check_state, list_folder, newest_whole


def file_at(folder: Path, serial: int, parent: str | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = checkpoint.file_of(folder, serial)
    checkpoint.write(path, {"serial": serial, "folder": ascii(folder)}, {}, parent=parent)
    return path


def state(folder: Path, serial: int, shards: int = 2, parent: int | None = None) -> Path:
    """Write a state of several shards, each file of which goes on from that of another state."""
    files = []
    for shard in range(shards):
        place, digest = checkpoint.shard_folder(folder, shard), None
        if parent is not None:
            digest = checkpoint.read_header(checkpoint.file_of(place, parent)).digest
        files.append(file_at(place, serial, digest))
    return checkpoint.write_manifest(checkpoint.manifest_of(folder, serial), files).path


def names(paths: list[Path], folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in paths]


def test_manifests_and_their_files_go_together(tmp_path: Path) -> None:
    for serial in (1, 2, 3):
        state(tmp_path, serial)
    assert checkpoint.removable(tmp_path, keep=3) == []
    assert names(checkpoint.removable(tmp_path, keep=2), tmp_path) == [
        "replay-000000000001.manifest",
        "shard-0000/replay-000000000001.h5",
        "shard-0001/replay-000000000001.h5",
    ]
    assert checkpoint.removable(tmp_path, keep=1, oldest=3) == []
    assert checkpoint.next_serial(tmp_path) == 4


def test_what_kept_states_go_on_from_stays(tmp_path: Path) -> None:
    """The files of state 2 are needed by 3; its manifest, and state 1, are not."""
    state(tmp_path, 1)
    state(tmp_path, 2)
    state(tmp_path, 3, parent=2)
    gone = names(checkpoint.removable(tmp_path, keep=1), tmp_path)
    assert gone == [
        "replay-000000000002.manifest",
        "replay-000000000001.manifest",
        "shard-0000/replay-000000000001.h5",
        "shard-0001/replay-000000000001.h5",
    ]


def test_no_single_file_is_needed_by_all_that_is_kept(tmp_path: Path) -> None:
    """States 2 and 3 hang on the files of 2: so 1 is kept, too."""
    state(tmp_path, 1)
    state(tmp_path, 2)
    state(tmp_path, 3, parent=2)
    assert checkpoint.removable(tmp_path, keep=2) == []


def test_files_without_a_manifest_go_in_time(tmp_path: Path) -> None:
    """A round that one shard failed: the file of the other is of no state."""
    state(tmp_path, 1)
    file_at(checkpoint.shard_folder(tmp_path, 0), 2)
    assert checkpoint.next_serial(tmp_path) == 3
    state(tmp_path, 3)
    state(tmp_path, 4)
    gone = names(checkpoint.removable(tmp_path, keep=1), tmp_path)
    assert "shard-0000/replay-000000000002.h5" in gone
    assert not [name for name in gone if "0004" in name.split("/")[-1]]


def test_one_shard_and_several_count_serials_together(tmp_path: Path) -> None:
    file_at(tmp_path, 1)
    state(tmp_path, 2)
    plain = file_at(tmp_path, 3)
    assert [serial for serial, _ in checkpoint.numbered_states(tmp_path)] == [3, 2, 1]
    assert checkpoint.files_of(plain) == (plain,)
    assert len(checkpoint.files_of(checkpoint.manifest_of(tmp_path, 2))) == 2
    assert names(checkpoint.removable(tmp_path, keep=2), tmp_path) == ["replay-000000000001.h5"]
    assert len(checkpoint.removable(tmp_path, keep=1)) == 4


def test_damaged_states_do_not_count(tmp_path: Path) -> None:
    for serial in (1, 2, 3):
        state(tmp_path, serial)
    checkpoint.file_of(checkpoint.shard_folder(tmp_path, 1), 3).unlink()
    with pytest.raises(CheckpointCorruptError, match="shard-0001"):
        checkpoint.files_of(checkpoint.manifest_of(tmp_path, 3))
    assert checkpoint.removable(tmp_path, keep=2) == []
    checkpoint.manifest_of(tmp_path, 2).write_text("nothing")
    assert checkpoint.removable(tmp_path, keep=1) == []


def test_files_that_were_cut_short_do_not_count(tmp_path: Path) -> None:
    """Their first bytes are whole, so that they tell of a state that nobody can read."""
    for serial in (1, 2, 3):
        file_at(tmp_path, serial)
        state(tmp_path / "shards", serial)
    for folder in (tmp_path, checkpoint.shard_folder(tmp_path / "shards", 0)):
        path = checkpoint.file_of(folder, 3)
        os.truncate(path, path.stat().st_size - 1)
    assert checkpoint.removable(tmp_path, keep=2) == []
    assert checkpoint.removable(tmp_path / "shards", keep=2) == []
    assert names(checkpoint.removable(tmp_path, keep=1), tmp_path) == ["replay-000000000001.h5"]


@pytest.mark.parametrize("cut", [True, False])
def test_files_that_go_on_from_one_that_is_not_whole_do_not_count(
    tmp_path: Path, cut: bool
) -> None:
    first, second = file_at(tmp_path, 1), file_at(tmp_path, 2)
    file_at(tmp_path, 3, checkpoint.read_header(second).digest)
    if cut:
        os.truncate(second, second.stat().st_size - 1)
    else:
        second.unlink()
    assert checkpoint.removable(tmp_path, keep=1) == []
    assert first.exists()


@pytest.mark.parametrize("name", ["a\u2028b", "a\x85b", "a\rb", "a\x1cb", "a\udcffb", " a "])
def test_a_manifest_may_name_any_file(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    file = file_at(folder, 1)
    path = checkpoint.write_manifest(tmp_path / "m.manifest", [file, file]).path
    assert checkpoint.read_manifest(path).files == (file, file)


# ---- what is said of them ----


def saved(path: Path, value: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = PrioritizedReplayBuffer(8, np.dtype([("x", "<i8")]), seed=0)
    buffer.add(np.full(value, value).astype(buffer.dtype))
    buffer.save(path)
    return path


def of_shards(folder: Path, serial: int, shards: int = 3) -> Path:
    places = [checkpoint.shard_folder(folder, shard) for shard in range(shards)]
    files = [saved(checkpoint.file_of(place, serial), serial) for place in places]
    return checkpoint.write_manifest(checkpoint.manifest_of(folder, serial), files).path


def test_a_folder_of_shards_is_listed_and_checked(tmp_path: Path) -> None:
    paths = [of_shards(tmp_path, serial) for serial in (1, 2, 3, 4, 5)]
    assert [(f.path, f.shards, f.files, f.problem) for f in list_folder(tmp_path)] == [
        (path, 3, 3, "") for path in paths
    ]
    assert check_state(paths[0]) == 3
    assert newest_whole(tmp_path) == paths[4]

    shard = checkpoint.shard_folder(tmp_path, 1)
    file = [checkpoint.file_of(shard, serial) for serial in range(6)]
    os.truncate(file[2], file[2].stat().st_size - 1)
    file[3].unlink()
    shutil.copy(file[1], file[4])
    paths[4].write_bytes(paths[4].read_bytes()[:-1])
    problems = [f.problem for f in list_folder(tmp_path)]
    assert problems[0] == ""
    for at, problem in enumerate(["cut short", "is not there", "is of another moment"], 1):
        assert problems[at].startswith("1 of 3 files cannot be used; shard 1: replay-00000000000")
        assert problem in problems[at]
        with pytest.raises(CheckpointCorruptError):
            check_state(paths[at])
    assert "is not the one that was written" in problems[4]
    assert newest_whole(tmp_path) == paths[0]
    shutil.rmtree(shard)
    assert "shard 1: replay-000000000001.h5 is not there" in list_folder(tmp_path)[0].problem


def test_bytes_of_a_shard_are_checked(tmp_path: Path) -> None:
    older, path = of_shards(tmp_path, 1), of_shards(tmp_path, 2)
    file = checkpoint.file_of(checkpoint.shard_folder(tmp_path, 2), 2)
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert list_folder(tmp_path)[1].problem == ""
    with pytest.raises(CheckpointCorruptError, match="shard-0002"):
        check_state(path)
    assert newest_whole(tmp_path) == older
