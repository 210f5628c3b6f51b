"""The states of a folder: files of one shard, manifests of several, what is kept and removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from libsumtree import checkpoint
from libsumtree.checkpoint import retention
from libsumtree.errors import CheckpointCorruptError


def file_at(folder: Path, serial: int, parent: str | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    path = retention.path_of(folder, serial)
    checkpoint.write(path, {"serial": serial, "folder": str(folder)}, {}, parent=parent)
    return path


def state(folder: Path, serial: int, shards: int = 2, parent: int | None = None) -> Path:
    """Write a state of several shards, each file of which goes on from that of another state."""
    files = []
    for shard in range(shards):
        place, digest = checkpoint.shard_folder(folder, shard), None
        if parent is not None:
            digest = checkpoint.read_header(retention.path_of(place, parent)).digest
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
    retention.path_of(checkpoint.shard_folder(tmp_path, 1), 3).unlink()
    with pytest.raises(CheckpointCorruptError, match="shard-0001"):
        checkpoint.files_of(checkpoint.manifest_of(tmp_path, 3))
    assert checkpoint.removable(tmp_path, keep=2) == []
    checkpoint.manifest_of(tmp_path, 2).write_text("nothing")
    assert checkpoint.removable(tmp_path, keep=1) == []
