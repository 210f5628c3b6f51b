"""Files that are there whole or not at all: what is said where one cannot be written."""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path

import pytest

from libsumtree.files import prove_writable, write_atomically


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


@pytest.mark.parametrize("nbytes", [0, 512, (1 << 20) + 3])
def test_a_trial_leaves_nothing(tmp_path: Path, nbytes: int) -> None:
    prove_writable(tmp_path, nbytes)
    assert not list(tmp_path.iterdir())


def test_a_planted_link_is_never_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where somebody knows the name beforehand."""
    monkeypatch.setattr(secrets, "token_hex", lambda count: "known")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    planted = [tmp_path / ".libsumtree-trial.known", tmp_path / f".mark.{os.getpid()}.known.tmp"]
    for link in planted:
        link.symlink_to(victim)
    with pytest.raises(FileExistsError):
        prove_writable(tmp_path)
    with pytest.raises(FileExistsError):
        write_atomically(tmp_path / "mark", b"finished")
    assert victim.read_text() == "precious"
    assert all(link.is_symlink() for link in planted)
