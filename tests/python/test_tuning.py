"""``libsumtree tune`` and its file: what "auto" takes, and how a file can be of no use."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

import libsumtree as st
from libsumtree import machine, tuning
from libsumtree.backends import AUTO_VARIABLE, installed, resolve
from libsumtree.bench.tuning import pays
from libsumtree.cli import main
from libsumtree.errors import TuningError

PACKAGE = Path(st.__file__).parent
QUICK = ["--capacities", "8", "100", "--batch", "4", "--rounds", "1"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty configuration folder, and no environment variable that names a backend."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv(AUTO_VARIABLE)
    tuning.recall.cache_clear()
    yield tmp_path / "config" / "libsumtree"
    tuning.recall.cache_clear()


def some_tuning(**changes: Any) -> tuning.Tuning:
    row = {"capacity": 8, "batch": 4, "pays": "cpu", "microseconds": {"cpu": 1.5}}
    choices = {8: "cpu", 1024: installed()[-1]}
    made = tuning.Tuning(version("libsumtree"), tuning.Kind.here(installed()), 4, choices, [row])
    return replace(made, **changes)


# ---- the file ----------------------------------------------------------------------------


def test_what_was_written_is_read(home: Path) -> None:
    path = tuning.write(some_tuning())
    assert path.parent == home
    assert [path] == list(home.iterdir())  # no temporary file stays
    assert tuning.read(tuning.Kind.here(installed())) == some_tuning()


def test_no_file(home: Path) -> None:
    assert tuning.read(tuning.Kind.here(installed())) is None
    assert tuning.recall(installed()) is None
    assert resolve("auto", 1024) == "cpu"


def test_the_nearest_capacity_by_ratio() -> None:
    made = some_tuning(choices={8: "cpu", 128: "multicore"})
    assert [made.choice(n) for n in (1, 8, 31, 33, 128, 2**40)] == ["cpu"] * 3 + ["multicore"] * 3


def test_auto_takes_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    tuning.write(some_tuning(choices={8: "cpu", 1024: "multicore"}))
    assert st.SumTree(8).backend == "cpu"
    assert st.PriorityTree(1000).backend == "multicore"
    assert st.PrioritizedReplayBuffer(1000, [("reward", "f8")]).tree.backend == "multicore"
    assert st.SumTree(1000, backend="cpu").backend == "cpu"
    monkeypatch.setenv(AUTO_VARIABLE, "cpu")
    assert st.SumTree(1000).backend == "cpu"


def test_the_file_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    path = tuning.write(some_tuning(choices={8: "multicore"}))
    assert st.SumTree(8).backend == "multicore"
    path.unlink()
    assert st.SumTree(8).backend == "multicore"
    tuning.write(some_tuning(choices={8: "cpu"}))
    assert st.SumTree(8).backend == "cpu"


DAMAGED: dict[str, Any] = {
    "nothing": b"",
    "half": json.dumps({"format": 1, "version": "0.1.0"}).encode()[:20],
    "binary": bytes(range(256)),
    "a list": b"[]",
    "null": b"null",
    "deep": b"[" * 100_000,
    "another format": {"format": 2},
    "no choices": {"choices": {}},
    "choices of a wrong type": {"choices": 3},
    "a backend that is none": {"choices": {"8": "cuda"}},
    "a capacity that is none": {"choices": {"0": "cpu"}},
    "a capacity in words": {"choices": {"many": "cpu"}},
    "a batch in words": {"batch": "many"},
    "rows of a wrong type": {"rows": [3]},
    "rows without times": {"rows": [{"capacity": 8, "batch": 4, "pays": "cpu"}]},
    "no machine": {"kind": None},
    "threads that are infinite": {"kind": {"threads": float("inf")}},
}


def damage(content: Any) -> Path:
    path = tuning.write(some_tuning())
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        stored = json.loads(path.read_bytes())
        if isinstance(content.get("kind"), dict):
            content = {**content, "kind": {**stored["kind"], **content["kind"]}}
        path.write_text(json.dumps({**stored, **content}))
    return path


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_ignored_with_one_warning(content: Any) -> None:
    path = damage(content)
    with pytest.raises(TuningError, match="is not a tuning file, or is damaged"):
        tuning.read(tuning.Kind.here(installed()))
    with pytest.warns(
        RuntimeWarning, match=f"ignored: {path} is not a .*`libsumtree tune`"
    ) as said:
        assert [st.SumTree(8).backend for _ in range(3)] == ["cpu"] * 3
    assert len(said) == 1


@given(position=some.integers(0, 10_000), byte=some.integers(0, 255), cut=some.booleans())
def test_no_damage_crashes(position: int, byte: int, cut: bool) -> None:
    path = tuning.write(some_tuning())
    content = bytearray(path.read_bytes())
    position %= len(content)
    content[position] = byte
    path.write_bytes(content[:position] if cut else content)
    try:
        read = tuning.read(tuning.Kind.here(installed()))
    except TuningError:
        return
    assert read is not None
    assert read.choice(8) in installed()


def test_a_file_of_another_machine_is_ignored() -> None:
    """One that was copied: each kind of machine has a file of its own."""
    kind = tuning.Kind.here(installed())
    for other in (
        replace(kind, processor="another"),
        replace(kind, threads=kind.threads + 1),
        replace(kind, gpus=("NVIDIA H200",)),
        replace(kind, backends=(*kind.backends, "gpu")),
    ):
        tuning.recall.cache_clear()
        path = tuning.write(some_tuning(kind=other, choices={8: "multicore"}))
        assert path != tuning.path_of(kind)
        assert tuning.read(kind) is None
        assert st.SumTree(8).backend == "cpu"
        shutil.copy(path, tuning.path_of(kind))
        tuning.recall.cache_clear()
        with pytest.warns(RuntimeWarning, match="was measured on another kind of machine"):
            assert st.SumTree(8).backend == "cpu"
        tuning.path_of(kind).unlink()


def test_a_file_of_another_version_is_ignored() -> None:
    tuning.write(some_tuning(version="0.0.1", choices={8: "multicore"}))
    with pytest.warns(
        RuntimeWarning, match=r"is of libsumtree 0\.0\.1; run `libsumtree tune` again"
    ):
        assert st.SumTree(8).backend == "cpu"


def test_a_folder_in_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    path = tuning.path_of(tuning.Kind.here(installed()))
    path.mkdir(parents=True)
    with pytest.warns(RuntimeWarning, match="cannot be read"):
        assert st.SumTree(8).backend == "cpu"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuning.recall.cache_clear()
        st.SumTree(8, backend="cpu")  # does not look
    for arguments in (["--show"], ["--reset"], QUICK):
        assert main(["tune", *arguments]) == 2
        assert str(path) in capsys.readouterr().err


def test_a_relative_folder_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tuning.folder() == tmp_path / ".config" / "libsumtree"


WITH_GPU = """
import sys, warnings
import libsumtree as st
from libsumtree import backends, tuning
from importlib.metadata import version
kind = tuning.Kind.here(backends.installed())
tuning.write(tuning.Tuning(version("libsumtree"), kind, 4, {8: "gpu"}, []))
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    print(*[st.SumTree(8).backend for _ in range(3)], len(said))
print(said[0].message)
"""


def test_a_backend_that_no_longer_runs(tmp_path: Path) -> None:
    """`auto` says so and takes the default; asking for that backend by name raises."""
    shutil.copytree(PACKAGE, tmp_path / "libsumtree")
    (tmp_path / "libsumtree" / "lib" / "libsumtree_gpu.so").write_text("no library")
    done = subprocess.run(
        [sys.executable, "-c", WITH_GPU],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    counted, message = done.stdout.splitlines()
    assert counted == "cpu cpu cpu 1"
    assert message.startswith("backend 'auto' is 'cpu' and not 'gpu', which `libsumtree tune`")


# ---- the command -------------------------------------------------------------------------


def test_tune_show_reset(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--show"]) == 2
    assert "nothing was measured on this machine" in capsys.readouterr().err
    assert main(["tune", *QUICK]) == 0
    printed = capsys.readouterr().out
    (path,) = home.iterdir()
    assert f"written to {path}" in printed
    assert main(["tune", "--show"]) == 0
    shown = capsys.readouterr().out
    assert shown.replace("read from", "written to") == printed
    assert main(["tune", "--show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["batch"] == 4
    assert main(["tune", "--reset"]) == 0
    assert f"removed {path}" in capsys.readouterr().out
    assert main(["tune", "--reset"]) == 0
    assert "there is no" in capsys.readouterr().out


def test_every_backend_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", *QUICK, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert {(row["capacity"], row["batch"]) for row in content["rows"]} == {
        *((8, batch) for batch in (1, 4, 8)),
        *((100, batch) for batch in (1, 4, 8, 64, 100)),
    }
    for row in content["rows"]:
        assert set(row["microseconds"]) == set(installed())
        assert min(row["microseconds"].values()) > 0.0
        assert row["pays"] in installed()
    by_batch = {row["capacity"]: row["pays"] for row in content["rows"] if row["batch"] == 4}
    assert {int(n): name for n, name in content["choices"].items()} == by_batch
    for capacity, name in by_batch.items():
        assert st.SumTree(capacity).backend == name


def test_what_pays() -> None:
    names = ["cpu", "multicore", "gpu"]
    twice = np.array([[2.0, 1.0, 3.0]] * 4)
    assert pays(names, twice) == "multicore"
    assert pays(names, np.array([[1.05, 1.0, 1.0]] * 4)) == "cpu"  # too little
    twice[:2] = [1.0, 1.0, 1.0]
    assert pays(names, twice) == "cpu"  # in too few rounds
    assert pays(names[:1], twice[:, :1]) == "cpu"
    slow = np.array([[2.0, 1.0], [2.0, 1.0], [6.0, 5.0], [6.0, 5.0], [2.0, 9.0]])
    assert pays(names[:2], slow) == "cpu"  # by its median


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--batch", "0"], "argument --batch: 0 is not in 1 .. "),
        (["--batch", "x"], "argument --batch: invalid int value: 'x'"),
        (["--capacities", "8", "-1"], "argument --capacities: -1 is not in 1 .. "),
        (["--capacities"], "argument --capacities: expected at least one argument"),
        (["--rounds", "0"], "argument --rounds: 0 is not in 1 .. "),
        (["--show", "--reset"], "argument --reset: not allowed with argument --show"),
        (["--capacities", str(2**40)], "more than the memory limit"),
    ],
)
def test_options_that_cannot_be(
    home: Path, arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", *arguments]) == 2
    assert complaint in capsys.readouterr().err
    assert not home.exists() or not list(home.iterdir())


def test_a_home_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", Path("/proc/nowhere")):
        monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
        tuning.recall.cache_clear()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert st.SumTree(8).backend == "cpu"
        assert main(["tune"]) == 2
        printed = capsys.readouterr()
        assert "cannot be written" in printed.err
        assert "set XDG_CONFIG_HOME to a folder of yours" in printed.err
        assert "measuring" not in printed.err
        assert main(["tune", "--reset"]) == 0
        capsys.readouterr()


# ---- the machine -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        (
            "processor : 0\ncpu family : 25\nmodel : 17\nmodel name : EPYC\n\nmodel name : x\n",
            "EPYC (family 25, model 17)",
        ),
        ("processor : 0\nmodel name\t: Some Processor\n", "Some Processor"),
        (
            "processor : 0\nCPU implementer : 0x41\nCPU part : 0xd4f\n",
            f"{os.uname().machine} (implementer 0x41, part 0xd4f)",
        ),
        ("", os.uname().machine),
    ],
)
def test_processors(tmp_path: Path, cpuinfo: str, name: str) -> None:
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    assert machine.processor(tmp_path) == name


def test_a_machine_that_says_nothing(tmp_path: Path) -> None:
    assert machine.processor(tmp_path) == os.uname().machine
    assert machine.gpus(tmp_path) == []


def test_gpus(tmp_path: Path) -> None:
    for number in (1, 0):
        folder = tmp_path / "driver" / "nvidia" / "gpus" / f"0000:0{number}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t NVIDIA H{number}\nIRQ: 3\n")
    assert machine.gpus(tmp_path) == ["NVIDIA H0", "NVIDIA H1"]


@pytest.mark.parametrize(
    ("value", "expected"), [("3", 3), ("4,2", 4), ("", None), ("0", None), ("many", None)]
)
def test_threads(monkeypatch: pytest.MonkeyPatch, value: str, expected: int | None) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert machine.threads() == (expected or len(os.sched_getaffinity(0)))
