"""Checkpoint files that are not what was written, or hold more than plain arrays: none is read."""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from checkpoint_examples import rewrite_sealed, write_example

from libsumtree import checkpoint
from libsumtree.errors import (
    CheckpointCorruptError,
    CheckpointError,
    CheckpointFormatError,
)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "replay.h5"
    write_example(path)
    return path


def test_every_flip_is_detected(saved: Path) -> None:
    content = bytearray(saved.read_bytes())
    generator = random.Random(2)
    places = [*range(512), *(generator.randrange(512, len(content)) for _ in range(2500))]
    with saved.open("rb+", buffering=0) as file:
        for place in places:
            flipped = content[place] ^ (1 << generator.randrange(8))
            os.pwrite(file.fileno(), bytes([flipped]), place)
            with pytest.raises(CheckpointCorruptError):
                checkpoint.read(saved)
            os.pwrite(file.fileno(), content[place : place + 1], place)
    checkpoint.read(saved).close()


def test_every_truncation_is_detected(saved: Path) -> None:
    content = saved.read_bytes()
    lengths = [len(content) * part // 64 for part in range(64)] + [1, 300, 511, 512, 513]
    for length in [*lengths, len(content) - 1]:
        saved.write_bytes(content[:length])
        with pytest.raises(CheckpointCorruptError):
            checkpoint.read(saved)
    saved.write_bytes(content + b"\0")
    with pytest.raises(CheckpointCorruptError):
        checkpoint.read(saved)


def test_damage_is_found_before_hdf5_sees_the_file(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    monkeypatch.setattr(h5py, "File", lambda *arguments, **options: opened.append(arguments))
    content = saved.read_bytes()
    saved.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CheckpointCorruptError, match="cut short or altered"):
        checkpoint.read(saved)
    assert opened == []


def test_hdf5_reads_the_file_that_was_checked(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_open = h5py.File

    def replace_then_open(*arguments: Any, **options: Any) -> Any:
        other = saved.with_name("other.h5")
        with real_open(other, "w") as file:
            file["tree/masses"] = np.zeros(3)
        other.replace(saved)
        return real_open(*arguments, **options)

    monkeypatch.setattr(h5py, "File", replace_then_open)
    with checkpoint.read(saved) as found:
        assert found.datasets["tree/masses"].shape == (50,)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.h5"
    with h5py.File(foreign, "w") as file:
        file["tree/masses"] = np.zeros(3)
    with pytest.raises(CheckpointCorruptError, match="is not a libsumtree checkpoint"):
        checkpoint.read(foreign)
    with pytest.raises(CheckpointError, match="does not exist"):
        checkpoint.read(tmp_path / "missing.h5")
    with pytest.raises(CheckpointError, match="not a regular file"):
        checkpoint.read(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="not a regular file"):
        checkpoint.read(tmp_path / "pipe")


def test_newer_formats_are_refused_with_both_numbers(saved: Path) -> None:
    lines = b"libsumtree checkpoint\nformat 12\nunheard-of line\n"
    block = lines + b"block %08x\n" % zlib.crc32(lines)
    saved.write_bytes(block.ljust(512, b"\0") + b"unheard-of body")
    with pytest.raises(CheckpointFormatError, match=r"format 12;.*formats up to 1"):
        checkpoint.read(saved)


def make_filtered(file: Any) -> None:
    """Ask for a filter that HDF5 would load from wherever its environment says."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk((10,))
    properties.set_filter(307, h5py.h5z.FLAG_OPTIONAL, (9,))
    space = h5py.h5s.create_simple((10,))
    dataset = h5py.h5d.create(file.id, b"odd", h5py.h5t.NATIVE_DOUBLE, space, properties)
    dataset.write_direct_chunk((0,), bytes(80))


def make_bomb(file: Any) -> None:
    """Claim a petabyte in a few bytes: chunks that were never written."""
    file.create_dataset("odd", (1 << 47,), "f8", chunks=(1 << 20,), compression="gzip")


def make_large_chunks(file: Any) -> None:
    file.create_dataset("odd", data=np.zeros(1 << 24), chunks=(1 << 24,), compression="gzip")


def make_texts(file: Any) -> None:
    texts = np.dtype([("a", "f4"), ("b", h5py.string_dtype())])
    file.create_dataset("odd", data=np.array([(1.0, "text")], texts))


def make_nested(file: Any) -> None:
    file["odd"] = np.zeros(3, [("a", [("b", "f4")])])


def make_references(file: Any) -> None:
    file["odd"] = np.array([file["tree"].ref], h5py.ref_dtype)


def make_variable_length(file: Any) -> None:
    dataset = file.create_dataset("odd", (2,), h5py.vlen_dtype(np.int32))
    dataset[0] = [1, 2, 3]


def make_virtual(file: Any) -> None:
    layout = h5py.VirtualLayout(shape=(3,), dtype="f8")
    layout[:] = h5py.VirtualSource("other.h5", "x", shape=(3,))
    file.create_virtual_dataset("odd", layout)


def make_external(file: Any) -> None:
    file.create_dataset("odd", (3,), "f8", external=[("/etc/hostname", 0, 24)])


def make_cycle(file: Any) -> None:
    file["tree/odd"] = file["tree"]


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.__setitem__("odd", h5py.SoftLink("/tree/masses")),
        lambda file: file.__setitem__("odd", h5py.ExternalLink("other.h5", "/x")),
        lambda file: file.__setitem__("odd", file["tree/masses"]),
        lambda file: file.__setitem__("odd", np.array(["text"], h5py.string_dtype())),
        lambda file: file.attrs.__setitem__("parent", "odd"),
        lambda file: file.__setitem__("odd", np.zeros(3, "S4")),
        lambda file: file.__setitem__("odd", np.dtype("f8")),
        lambda file: file.__setitem__("odd", h5py.Empty("f8")),
        lambda file: file.create_dataset("odd", (1 << 40,), "f8"),
        lambda file: file.attrs.__setitem__("odd", np.array(["text"], h5py.string_dtype())),
        lambda file: file.attrs.__setitem__("odd", np.void(b"bytes")),
        lambda file: file.attrs.__setitem__(b"odd\xff", 1.0),
        lambda file: file.__setitem__(b"odd\xff", np.zeros(3)),
        lambda file: file.attrs.__setitem__("format", 2),
        lambda file: file.attrs.__setitem__("format", np.array([1, 1])),
        lambda file: file.attrs.__setitem__("format", True),
        make_cycle,
        make_filtered,
        make_bomb,
        make_large_chunks,
        make_texts,
        make_nested,
        make_references,
        make_variable_length,
        make_virtual,
        make_external,
    ],
)
def test_anything_but_plain_arrays_is_refused(saved: Path, change: Callable[[Any], None]) -> None:
    rewrite_sealed(saved, lambda file: None)
    checkpoint.read(saved).close()
    rewrite_sealed(saved, change)
    with pytest.raises(CheckpointCorruptError, match=r"odd|'format'|'parent'|'tree' is a link"):
        checkpoint.read(saved)
