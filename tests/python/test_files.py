"""Files that are there whole or not at all, and trials that touch nothing else."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from libsumtree.files import prove_writable, write_atomically


@pytest.mark.parametrize("nbytes", [0, 512, (1 << 20) + 3])
def test_a_trial_leaves_nothing(tmp_path: Path, nbytes: int) -> None:
    prove_writable(tmp_path, nbytes)
    assert not list(tmp_path.iterdir())


def test_a_planted_link_is_never_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where somebody knows the name beforehand."""
    monkeypatch.setattr(secrets, "token_hex", lambda count: "known")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    planted = [tmp_path / ".libsumtree-trial.known", tmp_path / ".mark.known"]
    for link in planted:
        link.symlink_to(victim)
    with pytest.raises(FileExistsError):
        prove_writable(tmp_path)
    with pytest.raises(FileExistsError):
        write_atomically(tmp_path / "mark", b"finished")
    assert victim.read_text() == "precious"
    assert all(link.is_symlink() for link in planted)
