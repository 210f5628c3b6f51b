"""``libsumtree bench``: what it compares is the same, what it prints is whole; never how long."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

import libsumtree as st
from libsumtree import vectors
from libsumtree.bench import libraries, racing, report, suites, trees
from libsumtree.cli import main
from libsumtree.errors import BackendError, BenchmarkError

TINY = ["--leaves", "64", "--rounds", "2"]
PACKAGE = Path(st.__file__).parent
PEERS = ("Tianshou", "TorchRL", "cpprb")

# ---- the classic strategies: the same bits, and the same checks --------------------------


@given(
    capacity=some.sampled_from([1, 2, 8, 64]),
    kind=some.sampled_from(["SumTree", "PriorityTree"]),
    strategy=some.sampled_from(["update_each", "update_rebuild"]),
    data=some.data(),
)
def test_classic_strategies_give_our_bits(
    capacity: int, kind: str, strategy: str, data: some.DataObject
) -> None:
    masses = some.sampled_from([0.0, -0.0, math.ulp(0.0), 0.1, 0.7, 2.0**960])
    batch = some.lists(some.tuples(some.integers(0, capacity - 1), masses), min_size=1, max_size=9)
    ours = libraries.CUpdate("ours", libraries.CTree("cpu", kind, capacity))
    classic = libraries.CUpdate(
        "classic", libraries.CTree(libraries.CLASSIC, kind, capacity), strategy
    )
    for updates in data.draw(some.lists(batch, min_size=1, max_size=3)):
        indices, values = (np.array([column]) for column in zip(*updates, strict=True))
        for one in (ours, classic):
            assert one.time(racing.Updates(indices, values.astype(float))) >= 0.0
    for plane in libraries.PLANES[kind]:
        trees.same_bits("classic", classic.tree.nodes(plane), ours.tree.nodes(plane))


def test_a_rebuild_that_is_timed_in_part_does_all_of_the_work() -> None:
    work = racing.random_updates(np.random.default_rng(0), 64, 7, 5)
    pair = [
        libraries.CUpdate("all", libraries.CTree("cpu", "SumTree", 64)),
        libraries.CUpdate(
            "two", libraries.CTree(libraries.CLASSIC, "SumTree", 64), "update_rebuild", 2
        ),
    ]
    for one in pair:
        one.time(work)
    trees.same_bits("two", *(one.tree.nodes("sum") for one in pair))


@pytest.mark.parametrize("library", ["cpu", libraries.CLASSIC])
@pytest.mark.parametrize(
    ("index", "mass", "status"),
    [(8, 1.0, "INDEX"), (-1, 1.0, "INDEX"), (0, -1.0, "MASS"), (0, math.nan, "MASS")],
)
def test_every_contestant_checks_its_updates(
    library: str, index: int, mass: float, status: str
) -> None:
    function = "update_each" if library == libraries.CLASSIC else "update"
    one = libraries.CUpdate("it", libraries.CTree(library, "SumTree", 8), function)
    before = one.tree.nodes("sum").tobytes()
    with pytest.raises(BenchmarkError, match=f"an update by it failed: {status}, "):
        one.time(racing.Updates(np.array([[1, index]]), np.array([[1.0, mass]])))
    assert one.tree.nodes("sum").tobytes() == before


@pytest.mark.parametrize("library", ["cpu", libraries.CLASSIC])
@pytest.mark.parametrize("target", [-1.0, math.nan, 36.5])
def test_every_contestant_checks_its_targets(library: str, target: float) -> None:
    tree = libraries.CTree(library, "SumTree", 8)
    function = "update_each" if library == libraries.CLASSIC else "update"
    libraries.CUpdate("it", tree, function).fill(np.arange(1.0, 9.0))
    found: dict[str, Any] = {}
    finder = libraries.CFind("it", tree, found)
    assert finder.time(np.array([[0.0, 35.5]])) >= 0.0
    assert found["it"].tolist() == [[0, 7]]
    with pytest.raises(BenchmarkError, match="descents by it failed: TARGET, "):
        finder.time(np.array([[0.0, target]]))


def test_both_sides_were_built_alike() -> None:
    builds = [libraries.library(name).build for name in ("cpu", libraries.CLASSIC)]
    assert builds[0] == builds[1]
    assert ", flags: " in builds[0]
    assert "not recorded" not in builds[0]
    assert "-ffp-contract=off" in builds[0]


def test_different_bits_end_it() -> None:
    right = np.array([0.0, 1.0, 2.0])
    trees.same_bits("them", right, right.copy())
    wrong = right.copy()
    wrong[2] = np.nextafter(2.0, 3.0)
    with pytest.raises(BenchmarkError, match=r"them and libsumtree differ: position 2 is "):
        trees.same_bits("them", wrong, right)
    with pytest.raises(BenchmarkError, match="position 0"):
        trees.same_bits("them", np.array([-0.0]), np.array([0.0]))


@pytest.mark.parametrize(
    ("table", "wrong"),
    [("classic", "rebuild"), ("sweep", "per element"), ("fused", "three trees")],
)
def test_a_contestant_that_goes_wrong_is_seen(
    table: str, wrong: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of them is given masses that are larger by a last bit."""
    whole = libraries.CUpdate.time

    def work_wrongly(self: libraries.CUpdate, work: racing.Updates) -> float:
        if self.name == wrong:
            work = racing.Updates(work.indices, np.nextafter(work.masses, 2.0))
        return whole(self, work)

    monkeypatch.setattr(libraries.CUpdate, "time", work_wrongly)
    assert main(["bench", *TINY, "--table", table]) == 2
    assert f"{wrong} and libsumtree differ: position " in capsys.readouterr().err


def test_memory_that_is_not_there() -> None:
    with pytest.raises(BenchmarkError, match="measure fewer leaves"):
        libraries.CTree(libraries.CLASSIC, "SumTree", 2**40)


# ---- rounds ------------------------------------------------------------------------------


class Runner:
    """A contestant that notes when it runs, and says that it took a second more each time."""

    def __init__(self, name: str, notes: list[tuple[str, int]]) -> None:
        self.name = name
        self.notes = notes
        self.runs = 0

    def time(self, work: int) -> float:
        self.notes.append((self.name, work))
        self.runs += 1
        return float(self.runs)


def test_a_round_goes_there_and_back_with_fresh_work() -> None:
    notes: list[tuple[str, int]] = []
    work = iter(range(100))
    runners = [Runner(name, notes) for name in "abc"]
    done: list[int] = []
    limits = racing.Limits(rounds=1, seconds=60.0, least=1)
    seconds = racing.race(runners, lambda: next(work), limits, done.append)
    there, back = "abc", "cba"
    order = [*there, *back, *there, *back]  # the first of both rounds is not counted
    assert notes == list(zip(order, np.repeat([0, 1, 2, 3], 3).tolist(), strict=True))
    assert done == [0, 1, 2, 3]
    assert seconds.tolist() == [[3.5, 3.5, 3.5]]


@pytest.mark.parametrize(
    ("limits", "rounds"),
    [(racing.Limits(7, 60.0, 2), 7), (racing.Limits(7, 0.0, 2), 2), (racing.Limits(1, 0.0, 1), 1)],
)
def test_how_many_rounds(limits: racing.Limits, rounds: int) -> None:
    assert racing.race([Runner("a", [])], lambda: 0, limits).shape == (rounds, 1)


def test_ratios_are_within_rounds() -> None:
    seconds = np.array([[1.0, 9.0, 1.0], [12.0, 8.0, 4.0], [30.0, 40.0, 3.0]])
    row = report.row_of("update", 8, ["a", "b", "ours"], seconds, ["a", "b"], report.Aim(2.0))
    assert row.ratio == 2.0  # of 1, 2 and 10; that of the medians is another
    assert row.against == "b"
    assert row.figures == {"a": 12e6, "b": 9e6, "ours": 3e6}
    assert row.met is True
    assert report.Aim(2.0).met(1.99) is False
    assert report.Aim(2.0, at_most=True).met(2.01) is False
    assert report.Aim(2.0, at_most=True).met(1.0) is True


# ---- the command -------------------------------------------------------------------------


def measured(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["bench", *arguments, "--json"]) == 0
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    return content


def test_the_tables_of_the_trees(capsys: pytest.CaptureFixture[str]) -> None:
    content = measured(capsys, *TINY)
    assert content["suite"] == "tree"
    names = [table["name"] for table in content["tables"]]
    assert set(names) | set(content["missing"]) == set(suites.TREE.tables)
    assert content["settings"]["leaves"] == 64
    assert {"processor", "cores", "backends", "vector levels", "python"} <= set(content["machine"])
    for table in content["tables"]:
        assert table["rows"]
        for row in table["rows"]:
            check_row(row)
    sweep = next(table for table in content["tables"] if table["name"] == "sweep")
    assert [row["batch"] for row in sweep["rows"]] == [1, 2, 4, 8, 16, 32, 64]
    classic = next(table for table in content["tables"] if table["name"] == "classic")
    contestants = {"per element", "rebuild", "pure Python", "libsumtree"}
    assert {*classic["rows"][0]["figures"]} == contestants


def check_row(row: dict[str, Any]) -> None:
    assert math.isfinite(row["ratio"])
    assert 1 <= row["rounds"] <= 2
    assert len(row["figures"]) >= 2
    assert (row["met"] is None) == (row["aim"] is None)
    if row["aim"] is not None:
        enough = row["ratio"] >= row["aim"]["ratio"]
        assert row["met"] == (enough if not row["aim"]["at_most"] else not enough)


def test_every_vector_level_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    content = measured(capsys, *TINY, "--table", "descents")
    operations = {row["operation"] for row in content["tables"][0]["rows"]}
    assert operations == {f"find, {level}" for level in vectors.vector_levels("cpu")}


def test_peers_are_measured_or_named(capsys: pytest.CaptureFixture[str]) -> None:
    content = measured(capsys, "peers", "--leaves", "1024", "--rounds", "1")
    rows = content["tables"][0]["rows"]
    for peer in PEERS:
        found = [row for row in rows if row["operation"].startswith(f"{peer} ")]
        assert bool(found) != (peer in content["missing"])
    plain = [row for row in rows if row["operation"].startswith("pure Python: ")]
    assert len(plain) == 3
    for row in rows:
        check_row(row)


WITHOUT = """
import sys
for name in {names!r}: sys.modules[name] = None
from libsumtree.cli import main
sys.exit(main({arguments!r}))
"""


def run_without(names: tuple[str, ...], *arguments: str) -> subprocess.CompletedProcess[str]:
    program = WITHOUT.format(names=names, arguments=list(arguments))
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


def test_missing_peers_are_named_and_no_error() -> None:
    modules = ("tianshou.data", "torchrl._torchrl", "tianshou", "torchrl", "cpprb")
    done = run_without(modules, "bench", "peers", "--leaves", "1024", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    for peer in PEERS:
        line = f"- {peer}: cannot be imported ("
        assert line in done.stdout
    assert done.stdout.count("pip install 'libsumtree[bench]'") == 3


def test_files_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "folder"
    assert main(["bench", *TINY, "tree", "--table", "classic", "--output", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert sorted(path.name for path in folder.iterdir()) == ["tree.json", "tree.md", "tree.png"]
    content = json.loads((folder / "tree.json").read_text())
    assert [table["name"] for table in content["tables"]] == ["classic"]
    page = (folder / "tree.md").read_text()
    assert page.startswith("# libsumtree bench tree\n")
    for line in page.splitlines()[1:]:
        assert line in printed
    assert (folder / "tree.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert "\naims met: " in printed


def test_tables_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *TINY, "--table", "fused", "--table", "classic"]) == 0
    printed = capsys.readouterr().out
    for table in printed.split("## ")[1:]:
        lines = [line for line in table.splitlines() if line.startswith("|")]
        assert len({len(line) for line in lines}) == 1
        assert len({line.count("|") for line in lines}) == 1


def test_a_missed_aim_is_said_and_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trees, "CLASSIC_AIMS", {8: 1e9, 50: 0.0})
    assert main(["bench", *TINY, "--table", "classic"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("| **missed** |") == 1
    assert printed.count("| met        |") == 1
    assert "aims met: 1 of 2; missed: classic update 8 (" in printed


def test_options_stand_before_or_after_the_suite(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        [*TINY, "--seed", "5", "tree", "--table", "fused"],
        ["--table", "fused", "tree", *TINY, "--seed", "5"],
    ):
        content = measured(capsys, *arguments)
        assert content["settings"] == {"leaves": 64, "rounds, at most": 2, "seed": 5}
        assert [table["name"] for table in content["tables"]] == ["fused"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--leaves", "3"], "argument --leaves: 3 is not a power of two >= 2"),
        (["--leaves", "1"], "argument --leaves: 1 is not a power of two"),
        (["--leaves", "-4"], "argument --leaves: '-4' is not a whole number"),
        (["--leaves", "many"], "argument --leaves: 'many' is not a whole number"),
        (["--leaves", str(2**40)], "measure fewer leaves"),
        (["--leaves", str(2**45)], "measure fewer leaves"),
        (["--rounds", "0"], "argument --rounds: 0 is too few"),
        (["--seed", "-1"], "argument --seed: '-1' is not"),
        (["--table", "fast"], "argument --table: 'fast' is none of bench tree, which has: itself"),
        (["peers", "--table", "fused"], "'fused' is none of bench peers, which has: peers"),
        (["cars"], "invalid choice: 'cars'"),
    ],
)
def test_options_that_cannot_be(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments]) == 2
    printed = capsys.readouterr()
    assert complaint in printed.err
    assert printed.err.count("\n") == 1
    assert "##" not in printed.out


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["bench", *TINY, "--output", str(tmp_path / "file" / "folder")]) == 2
    printed = capsys.readouterr()
    assert "--output" in printed.err
    assert printed.out == ""  # before anything is measured


def test_no_picture_without_matplotlib(tmp_path: Path) -> None:
    done = run_without(("matplotlib",), "bench", *TINY, "--output", str(tmp_path))
    assert done.returncode == 2
    assert "pip install 'libsumtree[cli]'" in done.stderr
    assert done.stdout == ""
    done = run_without(("matplotlib",), "bench", *TINY, "--table", "fused")
    assert done.returncode == 0, done.stderr


def test_the_library_of_the_benchmark_is_not_there(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "libsumtree")
    (tmp_path / "libsumtree" / "lib" / "libsumtree_classic.so").unlink()
    done = subprocess.run(
        [sys.executable, "-m", "libsumtree", "bench", *TINY],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "the benchmark's own library cannot be opened: " in done.stderr
    assert done.stderr.count("\n") == 1


ON_ONE_CORE = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from libsumtree.cli import main
sys.exit(main(["bench", "--leaves", "64", "--rounds", "1", "--table", "multicore"]))
"""


def test_one_core_is_no_error() -> None:
    done = subprocess.run([sys.executable, "-c", ON_ONE_CORE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "- multicore: needs 2 cores, this process may use one" in done.stdout


# ---- vector levels -----------------------------------------------------------------------


def test_a_vector_level_holds_for_a_block(backend: str) -> None:
    levels = vectors.vector_levels(backend)
    assert levels[0] == "baseline"
    before = vectors.vector_level(backend)
    assert before in levels
    for level in levels:
        with vectors.at_vector_level(backend, level):
            assert vectors.vector_level(backend) == level
        assert vectors.vector_level(backend) == before
    for level in levels:
        with contextlib.suppress(ZeroDivisionError), vectors.at_vector_level(backend, level):
            raise ZeroDivisionError
        assert vectors.vector_level(backend) == before


def test_an_unknown_vector_level(backend: str) -> None:
    before = vectors.vector_level(backend)
    with pytest.raises(BackendError, match="has no vector level 'mmx' here, only baseline"):
        vectors.select_vector_level(backend, "mmx")
    assert vectors.vector_level(backend) == before


def test_the_page_of_checkpoints_is_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script = str(Path(__file__).parents[1] / "bench" / "checkpoint.py")
    small = ["--folder", str(tmp_path), "--capacity", "2000", "--rounds", "1", "--seconds", "0.05"]
    monkeypatch.setattr(sys, "argv", [script, *small])
    runpy.run_path(script, run_name="__main__")
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert [len(row.split(" | ")) for row in rows] == [4] * len(rows)
    assert sum("<=" in row or ">=" in row for row in rows) == 4
    assert all(re.search(r"\| [0-9.]+(e[+-]?\d+)?( |,)", row) for row in rows[2:])
