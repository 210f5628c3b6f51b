"""Files that are there whole or not at all: what is said where one cannot be written."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from libsumtree.files import write_atomically


def test_what_stood_there_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for content in (b"old", b"new"):
        write_atomically(path, content)
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none" / "x"
    with pytest.raises(FileNotFoundError) as caught:
        write_atomically(path, b"new")
    assert caught.value.filename == str(path)


def test_a_disk_that_fills_up_is_named_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", fill)
    path = tmp_path / "x"
    with pytest.raises(OSError, match="No space left") as caught:
        write_atomically(path, b"new")
    assert caught.value.filename == str(path)
    assert list(tmp_path.iterdir()) == []
