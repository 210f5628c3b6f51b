"""Shards: the manifest that makes their files one state, and their masses on other shards."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from libsumtree import BetaSchedule, PrioritizedReplayBuffer
from libsumtree.checkpoint import read_manifest, write_manifest
from libsumtree.errors import (
    ArgumentError,
    CheckpointCorruptError,
    CheckpointError,
    CheckpointFormatError,
    CheckpointMismatchError,
    IdError,
)
from libsumtree.redistribution import redistribute

RECORD = np.dtype([("shard", "<i4"), ("number", "<i8")])


def make_shard(path: Path, shard: int, count: int, capacity: int = 100, **options: object) -> Path:
    path.parent.mkdir(exist_ok=True)
    settings = {"alpha": 0.5, "beta": BetaSchedule(0.4, 1.0, 50), "seed": shard, **options}
    buffer = PrioritizedReplayBuffer(capacity, RECORD, **settings)
    rows = np.zeros(count, RECORD)
    rows["shard"] = shard
    rows["number"] = np.arange(count)
    buffer.add(rows, 1.0 + np.arange(count) + 1000 * shard)
    if count:
        buffer.sample(shard)
    buffer.save(path)
    return path


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    counts = (130, 40, 0)
    return [
        make_shard(tmp_path / f"shard-{s}" / "replay-000000000001.h5", s, count)
        for s, count in enumerate(counts)
    ]


def content(buffers: list[PrioritizedReplayBuffer]) -> dict[tuple[int, int], float]:
    """Give the mass of each transition, by its shard and number."""
    found = {}
    for buffer in buffers:
        numbers = np.arange(buffer.inserted - len(buffer), buffer.inserted)
        slots = numbers % buffer.capacity
        for row, mass in zip(buffer._storage[slots], buffer.tree[slots], strict=True):
            found[int(row["shard"]), int(row["number"])] = float(mass)
    return found


def expected(shard: int, count: int, capacity: int = 100) -> dict[tuple[int, int], float]:
    numbers = range(max(0, count - capacity), count)
    return {(shard, n): float(np.float64(1.0 + n + 1000 * shard) ** 0.5) for n in numbers}


@pytest.mark.parametrize(("count", "capacity"), [(1, 140), (1, 500), (2, 70), (5, 28), (7, 40)])
def test_every_mass_is_kept_on_any_number_of_shards(
    shards: list[Path], count: int, capacity: int
) -> None:
    made = redistribute(shards, count, capacity, seed=3)
    assert made.dropped == 0
    assert len(made.buffers) == count
    sizes = [len(buffer) for buffer in made.buffers]
    assert max(sizes) - min(sizes) <= 1
    assert content(made.buffers) == expected(0, 130) | expected(1, 40)
    for buffer in made.buffers:
        buffer.tree.validate()
        assert buffer.beta == PrioritizedReplayBuffer.load(shards[1]).beta


def test_a_smaller_capacity_keeps_the_newest_of_every_shard(shards: list[Path]) -> None:
    made = redistribute(shards, 2, 30, seed=3)
    assert made.dropped == 80
    newest = {(0, n) for n in range(100, 130)} | {(1, n) for n in range(10, 40)}
    assert content(made.buffers).keys() == newest


def test_what_was_named_before_is_stale_in_every_new_shard(shards: list[Path]) -> None:
    PrioritizedReplayBuffer.load(shards[1])
    made = redistribute(shards, 2, 100, seed=3)
    assert {buffer.epoch for buffer in made.buffers} == {2}
    for buffer in made.buffers:
        before = buffer.tree[:].tolist()
        assert buffer.update_priorities(np.arange(130), 5.0) == 130
        assert buffer.update_priorities((1 << 40) + np.arange(130), 5.0) == 130
        assert buffer.tree[:].tolist() == before
        drawn = buffer.sample(20)
        assert (drawn.ids >> 40 == 2).all()
        assert buffer.update_priorities(drawn.ids, 1.0) == 0
        with pytest.raises(IdError):
            buffer.update_priorities([3 << 40], 1.0)
    for path in shards:
        assert PrioritizedReplayBuffer.load(path).epoch > 2


def test_new_shards_draw_each_with_its_own_numbers(shards: list[Path]) -> None:
    made = redistribute(shards, 2, 100, seed=3)
    keys = [buffer.tree.seed for buffer in made.buffers]
    assert [(key.entropy, key.spawn_key) for key in keys] == [(3, (0,)), (3, (1,))]


def test_shards_that_differ_are_refused(shards: list[Path], tmp_path: Path) -> None:
    other = make_shard(tmp_path / "other.h5", 9, 5, alpha=0.6)
    with pytest.raises(CheckpointMismatchError, match=r"other\.h5 has alpha 0\.6"):
        redistribute([shards[0], other], 1, 100)
    plain = PrioritizedReplayBuffer(3, [("x", "f4")], alpha=0.5)
    plain.save(other)
    with pytest.raises(CheckpointMismatchError, match="dtype"):
        redistribute([shards[0], other], 1, 100)
    for paths, count in (([], 1), (shards, 0)):
        with pytest.raises(ArgumentError, match="at least 1"):
            redistribute(paths, count, 100)


# ---- the manifest ----


def test_a_manifest_names_the_files_of_one_moment(shards: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "manifest"
    written = write_manifest(path, shards)
    found = read_manifest(path)
    assert found.digests == written.digests
    assert [file.resolve() for file in found.files] == [file.resolve() for file in shards]
    assert path.stat().st_mode & 0o777 == 0o600
    made = redistribute(found.files, 1, 140)
    assert content(made.buffers) == expected(0, 130) | expected(1, 40)


@pytest.mark.parametrize("change", ["missing", "another", "damaged"])
def test_files_of_another_moment_are_told(change: str, shards: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "manifest"
    write_manifest(path, shards)
    if change == "missing":
        shards[1].unlink()
    elif change == "another":
        make_shard(shards[1], 1, 41)
    else:
        shards[1].write_bytes(b"damaged")
    with pytest.raises(CheckpointCorruptError, match=rf"manifest .* names .*{shards[1].name}"):
        read_manifest(path)


def flipped(text: bytes) -> bytes:
    return text[:40] + bytes([text[40] ^ 1]) + text[41:]


def newer(text: bytes) -> bytes:
    return sealed(text.partition(b"block ")[0].replace(b"format 1", b"format 2"))


def escaping(text: bytes) -> bytes:
    return sealed(text.partition(b"block ")[0].replace(b" shard-0/", b" ../shard-0/"))


def with_a_zero(text: bytes) -> bytes:
    return sealed(text.partition(b"block ")[0].replace(b" shard-0/", b" shard-0\0/"))


def without_shards(text: bytes) -> bytes:
    return sealed(text[: text.index(b"shard ")])


def sealed(lines: bytes) -> bytes:
    return lines + b"block %08x\n" % zlib.crc32(lines)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (flipped, CheckpointCorruptError),
        (lambda text: text[:-5], CheckpointCorruptError),
        (lambda text: b"", CheckpointCorruptError),
        (lambda text: b"hello", CheckpointCorruptError),
        (escaping, CheckpointCorruptError),
        (without_shards, CheckpointCorruptError),
        (with_a_zero, CheckpointCorruptError),
        (newer, CheckpointFormatError),
    ],
)
def test_what_is_no_manifest_is_refused(
    change: Callable[[bytes], bytes], error: type[Exception], shards: list[Path], tmp_path: Path
) -> None:
    path = tmp_path / "manifest"
    write_manifest(path, shards)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(error, match="manifest"):
        read_manifest(path)


def test_a_manifest_names_files_whatever_their_names_are(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"b\xedd\xe2\x80\xa8name")
    folder.mkdir()
    file = make_shard(folder / "replay.h5", 0, 10)
    write_manifest(tmp_path / "manifest", [file])
    assert read_manifest(tmp_path / "manifest").files == (file,)


def test_a_pipe_is_no_manifest_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.manifest")
    with pytest.raises(CheckpointCorruptError, match="not a regular file"):
        read_manifest(tmp_path / "pipe.manifest")


def test_what_cannot_be_in_a_manifest_is_refused(shards: list[Path], tmp_path: Path) -> None:
    below = tmp_path / "below"
    below.mkdir()
    with pytest.raises(ArgumentError, match="does not stand in"):
        write_manifest(below / "manifest", shards)
    with pytest.raises(ArgumentError, match="without shards"):
        write_manifest(below / "manifest", [])
    (tmp_path / "text").write_text("hello")
    with pytest.raises(CheckpointError, match="not a libsumtree checkpoint"):
        write_manifest(tmp_path / "manifest", [tmp_path / "text"])
    with pytest.raises(CheckpointError, match="cannot read manifest"):
        read_manifest(tmp_path / "none")
    assert not list(below.iterdir())
