"""``libsumtree verify`` and ``info``: they pass on what is installed, and see what is wrong."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import libsumtree as st
from libsumtree import tree, tuning, verification
from libsumtree.backends import BACKENDS, installed
from libsumtree.cli import main
from libsumtree.errors import VerificationError
from libsumtree.vectors import vector_levels

PACKAGE = Path(st.__file__).parent


def test_every_installed_backend_is_verified(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == f"verified: {', '.join(installed())}"
    for name in installed():
        for level in vector_levels(name):
            assert printed.count(f"{name:<10} {level:<9} ") == len(verification.CHECKS) >= 8


def test_verify_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--backend", "cpu", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["verified"] == ["cpu"]
    assert content["problems"] == {}
    names = [check["name"] for check in content["passed"]["cpu"]]
    assert names == list(verification.CHECKS) * len(vector_levels("cpu"))


def test_a_backend_that_is_not_installed(capsys: pytest.CaptureFixture[str]) -> None:
    (missing, *_) = set(BACKENDS) - set(installed())
    assert main(["verify", "--backend", missing]) == 2
    printed = capsys.readouterr()
    assert f"backend {missing!r} is not part of this installation" in printed.err
    assert printed.out == ""


def test_one_bad_backend_does_not_hide_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(PACKAGE, tmp_path / "libsumtree")
    (tmp_path / "libsumtree" / "lib" / "libsumtree_gpu.so").write_text("no library")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "libsumtree", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    done = run("verify", "--backend", "cpu", "--backend", "gpu")
    assert done.returncode == 2
    assert done.stdout.splitlines()[-1] == "verified: cpu"
    assert "gpu is not verified: backend 'gpu' cannot be loaded: " in done.stderr
    assert done.stderr.count("\n") == 1
    done = run("info")
    assert done.returncode == 0
    assert "gpu          backend, cannot run here: backend 'gpu' cannot be loaded: " in done.stdout


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
    assert f"libsumtree   {st.__version__}, ABI version " in printed
    assert "cpu          backend, built by " in printed
    assert ", flags: -" in printed
    assert "\nauto         " in printed


def test_info_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert list(content["backends"]) == list(installed())
    assert content["packages"]["numpy"] == np.__version__
    cpu = content["backends"]["cpu"]
    assert cpu["problem"] is None
    assert cpu["vector level"] in cpu["vector levels"]
    assert Path(cpu["path"]).is_file()
    assert content["machine"]["cores"] == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("multicore", "multicore, by the environment variable"),
        ("auto", "cpu; nothing was"),
    ],
)
def test_info_says_what_auto_means(
    value: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LIBSUMTREE_BACKEND", value)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["info"]) == 0
    assert f"auto         {said}" in capsys.readouterr().out


def test_info_with_a_damaged_tuning_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("LIBSUMTREE_BACKEND")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tuning.path_of(tuning.Kind.here(installed()))
    path.parent.mkdir()
    path.write_text("{")
    assert main(["info"]) == 0
    assert f"auto         cpu; {path} is not a tuning file" in capsys.readouterr().out
