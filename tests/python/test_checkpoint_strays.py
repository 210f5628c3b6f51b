"""Files that no writer of checkpoints would put there: nothing is lost to them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from libsumtree import PrioritizedReplayBuffer, checkpoint
from libsumtree.checkpoint.block import Header
from libsumtree.cli import main
from libsumtree.errors import CheckpointError
from libsumtree.inspection import list_folder, newest_whole
from libsumtree.replay.restored import Place, read_file
from libsumtree.snapshot import Base

RECORD = np.dtype([("number", "i8")])


def buffer_of(first: int, count: int = 200) -> PrioritizedReplayBuffer:
    buffer = PrioritizedReplayBuffer(1000, RECORD, seed=0)
    buffer.add(np.arange(first, first + count).astype(RECORD))
    return buffer


def saved(buffer: PrioritizedReplayBuffer, path: Path, base: Base | None = None) -> Base:
    with buffer.snapshot(base) as snapshot:
        return snapshot.write(path)


def numbers(path: Path) -> list[int]:
    buffer = PrioritizedReplayBuffer.load(path)
    ids = np.arange(buffer.inserted - len(buffer), buffer.inserted)
    return buffer._storage["number"][ids % buffer.capacity].tolist()


def test_a_base_of_another_buffer_is_none(tmp_path: Path) -> None:
    base = saved(buffer_of(0), tmp_path / "a.h5")
    with buffer_of(1_000_000).snapshot(base) as snapshot:
        assert not snapshot.incremental
        snapshot.write(tmp_path / "b.h5")
    assert numbers(tmp_path / "b.h5")[:2] == [1_000_000, 1_000_001]


def test_a_parent_is_neither_written_over_nor_left_behind(tmp_path: Path) -> None:
    buffer, path = buffer_of(0), tmp_path / "a.h5"
    base = saved(buffer, path)
    buffer.add(np.array([200]).astype(RECORD))
    with pytest.raises(CheckpointError, match="is the file to be written over; write a full one"):
        saved(buffer, path, base)
    (tmp_path / "other").mkdir()
    with pytest.raises(CheckpointError, match=r"is not in .*other; write a full one"):
        saved(buffer, tmp_path / "other/b.h5", base)
    assert numbers(path) == list(range(200))
    assert list((tmp_path / "other").iterdir()) == []


def test_a_parent_may_be_hidden(tmp_path: Path) -> None:
    buffer = buffer_of(0)
    base = saved(buffer, tmp_path / ".hidden.h5")
    buffer.add(np.array([200]).astype(RECORD))
    saved(buffer, tmp_path / "b.h5", base)
    assert numbers(tmp_path / "b.h5") == list(range(201))


def test_a_ring_of_parents_ends_nobodys_search(tmp_path: Path) -> None:
    digests = ["a" * 64, "b" * 64]
    for serial, (own, parent) in enumerate([digests, digests[::-1], digests[:1] * 2], 1):
        checkpoint.file_of(tmp_path, serial).write_bytes(Header(512, own, parent).to_bytes())
    assert [file.problem for file in list_folder(tmp_path)] == ["goes on from itself"] * 3
    assert checkpoint.removable(tmp_path, 1) == []


def test_pipes_and_folders_stop_nothing(tmp_path: Path) -> None:
    for serial in (1, 2, 4):
        buffer_of(serial).save(checkpoint.file_of(tmp_path, serial))
    os.mkfifo(checkpoint.file_of(tmp_path, 3))
    checkpoint.file_of(tmp_path, 5).mkdir()
    (tmp_path / "replay-000000000006.h5").symlink_to("nowhere")
    assert newest_whole(tmp_path) == checkpoint.file_of(tmp_path, 4)
    removable = checkpoint.removable(tmp_path, 1)
    assert {checkpoint.file_of(tmp_path, serial) for serial in (1, 2)} <= set(removable)
    assert checkpoint.file_of(tmp_path, 5) not in removable


def test_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    """Nor is a device, as /dev/null is one for root."""
    os.mkfifo(tmp_path / "a.h5")
    with pytest.raises(CheckpointError, match="it is neither a file nor free"):
        buffer_of(0).save(tmp_path / "a.h5")
    assert (tmp_path / "a.h5").is_fifo()


def test_serials_may_grow_longer(tmp_path: Path) -> None:
    for serial in (10**12 - 1, 10**12):
        buffer_of(serial).save(checkpoint.file_of(tmp_path, serial))
    assert [serial for serial, _ in checkpoint.numbered_files(tmp_path)] == [10**12, 10**12 - 1]


def test_an_export_spares_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, other = tmp_path / "a.h5", tmp_path / "b.h5"
    for number, file in enumerate([path, other]):
        buffer_of(number).save(file)
    for output in (path, other):
        assert main(["checkpoint", "export", str(path), str(output)]) == 2
        assert "is a checkpoint: the output would be written over it" in capsys.readouterr().err
    assert numbers(other)[0] == 1


def test_an_epoch_is_new_in_both_folders(tmp_path: Path) -> None:
    """Going on from one folder into another, again and again, and from there."""
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    buffer_of(0).save(here / "f.h5")
    first = read_file(here / "f.h5", "cpu", place=Place(folder=there)).buffer
    first.save(there / "g.h5")
    second = read_file(there / "g.h5", "cpu", place=Place(folder=there)).buffer
    third = read_file(here / "f.h5", "cpu", place=Place(folder=there)).buffer
    assert first.epoch < second.epoch < third.epoch
    assert checkpoint.open_epoch(here / "f.h5", 0) > third.epoch
