"""``libsumtree verify`` and ``info``: they pass on what is installed, and see what is wrong."""

from __future__ import annotations

import platform
import subprocess
import sys

import numpy as np
import pytest

import libsumtree as st
from libsumtree import tree, verification
from libsumtree.backends import installed
from libsumtree.cli import main
from libsumtree.errors import VerificationError


def test_every_installed_backend_is_verified(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == f"verified: {', '.join(installed())}"
    for name in installed():
        assert printed.count(f"{name} ") >= 6


def test_a_backend_that_is_not_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--backend", "gpu"]) == 2
    assert "backend 'gpu' is not part of this installation" in capsys.readouterr().err


def test_a_last_bit_is_seen(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    whole = tree.Tree.nodes

    def one_bit_off(self: tree.Tree, plane: tree.Plane) -> tree.Doubles:
        nodes = whole(self, plane)
        if self.capacity == 1000:
            nodes[1] = np.nextafter(nodes[1], np.inf)
        return nodes

    monkeypatch.setattr(tree.Tree, "nodes", one_bit_off)
    with pytest.raises(
        VerificationError, match=r"^SumTree\(1000\), plane 'sum', .*: position 1 is"
    ):
        list(verification.verify_backend(backend))


FLUSHING = """
import ctypes, sys
sys.argv = ["libsumtree"]
from libsumtree.cli import main
assert main(["verify", "--backend", "cpu"]) == 0
libm = ctypes.CDLL("libm.so.6")
environment = (ctypes.c_uint32 * 8)()
assert libm.fegetenv(environment) == 0
environment[7] |= 0x8040  # MXCSR: flush to zero, denormals are zero
assert libm.fesetenv(environment) == 0
sys.exit(main(["verify", "--backend", "cpu"]))
"""


@pytest.mark.parametrize("machine", {"x86_64"} & {platform.machine()})
def test_flushing_to_zero_is_seen(machine: str) -> None:
    """What a library that was built with fast-math does to a process; the bits are x86-64's."""
    done = subprocess.run([sys.executable, "-c", FLUSHING], capture_output=True, text=True)
    assert done.returncode == 2
    assert "flushes subnormals" in done.stderr


def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    printed = capsys.readouterr().out
    assert f"libsumtree   {st.__version__}" in printed
    assert "cpu          backend, built by " in printed
