"""``libsumtree bench intake``: nothing is lost unseen, reports are whole; never how fast."""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from launch import PROGRAMS, SECONDS
from libsumtree import machine, reference
from libsumtree.bench.intake import drawing, launch, records, results, rounds, stacks, tables
from libsumtree.bench.intake.published import PublishedBuffer
from libsumtree.bench.intake.setting import IntakeSetting
from libsumtree.bench.report import Aim, Report
from libsumtree.cli import main
from libsumtree.errors import BenchmarkError

TINY = ["bench", "intake", "--rounds", "1", "--seconds", "0.02", "--actors", "1"]
CARTPOLE = records.RECORDS["cartpole"]
FAULTY = stacks.Stack("faulty_server", "faulty", False)


@pytest.fixture(autouse=True)
def _quick_and_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "WARM_SECONDS", 0.02)
    results.results_of.cache_clear()


def test_ranks_that_are_no_world_say_so_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where mpiexec belongs to another MPI than mpi4py."""
    alone = tmp_path / "mpiexec"
    alone.write_text('#!/bin/sh\nshift 2\nexec "$@"\n')
    alone.chmod(0o755)
    monkeypatch.setattr(launch, "find_mpiexec", lambda: str(alone))
    text = "raw MPI: a process ended with status 1: .*started 1 rank where 4 were asked for"
    with pytest.raises(BenchmarkError, match=text):
        rounds.check(stacks.MPI_RAW, "cartpole")


# ---- what servers hold -------------------------------------------------------------------


@pytest.mark.parametrize("stack", stacks.STACKS, ids=lambda stack: stack.title)
def test_a_server_holds_what_was_sent(stack: stacks.Stack) -> None:
    """Large records too, which travel otherwise than small ones."""
    assert rounds.check(stack, "atari", actors=2, batches=2)


def test_the_raw_zeromq_server_takes_a_batch_as_the_replay_rank_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In one step from the message, which makes no ids."""
    zmq = pytest.importorskip("zmq")
    from libsumtree.bench.intake import zmq_raw

    task = rounds.make_task(stacks.ZMQ_RAW, "cartpole", 1)
    buffer = task.make_buffer()
    batch = records.pool(CARTPOLE, 0)[0]
    monkeypatch.setattr(type(buffer), "add", None)
    with zmq.Context() as context, context.socket(zmq.ROUTER) as server:
        server.bind("inproc://raw")
        with context.socket(zmq.DEALER) as actor:
            actor.connect("inproc://raw")
            actor.send(zmq_raw._packed(zmq_raw._ADD, *reversed(batch)).data)
            zmq_raw._Server(server, buffer).turn()
            assert actor.recv() == b""
    assert buffer[np.arange(records.BATCH)].tobytes() == batch[0].tobytes()


@pytest.mark.parametrize("fault", ["lose", "tear", "mix"])
def test_a_server_that_holds_something_else_is_seen(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PROGRAMS), prepend=os.pathsep)
    monkeypatch.setenv("FAULT", fault)
    with pytest.raises(BenchmarkError, match=r"^faulty: the server holds Held\(.* was sent$"):
        rounds.check(FAULTY, "cartpole")


def test_a_server_that_loses_something_while_it_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PROGRAMS), prepend=os.pathsep)
    monkeypatch.setenv("FAULT", "lose")
    with pytest.raises(BenchmarkError, match="sent and acknowledged, but the server took") as seen:
        rounds.measure(FAULTY, "cartpole", 1, 0.02)
    sent, took = [int(word) for word in str(seen.value).split() if word.isdigit()][:2]
    assert sent == took + 1


def test_a_server_that_fails_is_named_with_what_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PROGRAMS), prepend=os.pathsep)
    monkeypatch.setenv("FAULT", "fail")
    with pytest.raises(
        BenchmarkError, match="^faulty: a process ended with status 1: ZeroDivisionError: it broke$"
    ):
        rounds.check(FAULTY, "cartpole")


@pytest.mark.parametrize("stack", [stacks.ZMQ_PICKLE, stacks.MPI_RAW], ids=lambda s: s.title)
def test_no_process_outlives_a_run(stack: stacks.Stack, tmp_path: Path) -> None:
    task = rounds.make_task(stack, "cartpole", 1)
    with launch.run(stack, task, tmp_path) as run:
        pids = run.pids()
        assert all(map(alive, pids))
        assert len(pids) == task.places + 3 * (stack is stacks.ZMQ_PICKLE)
    wait_for_end(pids)


KILLED = """
import sys
from pathlib import Path
from libsumtree.bench.intake import launch, rounds, stacks
from libsumtree.bench.intake.board import Phase
stack = stacks.{name}
with launch.run(stack, rounds.make_task(stack, "cartpole", 1), Path({folder!r})) as run:
    run.board.set_phase(Phase.FLOOD)
    print(*run.pids(), flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("name", ["ZMQ_PICKLE", "MPI_RAW"])
def test_no_process_outlives_who_started_it(name: str, tmp_path: Path) -> None:
    program = KILLED.format(name=name, folder=str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        pids = [int(pid) for pid in starter.stdout.readline().split()]
        starter.kill()
    assert len(pids) >= 3
    wait_for_end(pids)


def wait_for_end(pids: list[int]) -> None:
    deadline = time.monotonic() + SECONDS
    while any(map(alive, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether a process runs: one that nobody has waited for yet does not."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def test_numbered_batches_are_all_different() -> None:
    sent = [rows for actor in range(3) for rows, _ in records.numbered(CARTPOLE, actor, 4)]
    actions = np.concatenate(sent)["action"]
    assert len(set(actions.tolist())) == len(actions) == 3 * 4 * records.BATCH
    masses = np.arange(float(records.BATCH))
    digests = {records.digest(rows, masses) for rows in sent}
    assert len(digests) == len(sent)
    assert records.digest(sent[0][::-1], masses[::-1]) in digests
    assert records.digest(sent[0], masses[::-1]) not in digests


def test_the_published_buffer_has_the_trees_it_should() -> None:
    kind = records.Record("few", "Few", CARTPOLE.dtype, 8, 16)
    buffer = PublishedBuffer(kind, alpha=0.5)
    sums, minima = reference.SumTree(16), reference.MinTree(16)
    rng = np.random.default_rng(0)
    for number in range(40):
        priority = float(rng.integers(1, 9))
        buffer.add((number,), priority)
        sums[number % 16] = minima[number % 16] = priority**0.5
    buffer.update_priorities([3, 5], [4.0, 2.5])
    sums.update([3, 5], np.array([4.0, 2.5]) ** 0.5)
    minima.update([3, 5], np.array([4.0, 2.5]) ** 0.5)
    columns, weights, indices = buffer.sample(1000)
    assert buffer.held(with_digest=False) == records.Held(40, 16, sums.total)
    newest = {number % 16: number for number in range(40)}
    assert columns == [[newest[index] for index in indices]]
    expected = (np.array([minima.min()]) / sums[np.array(indices)]) ** 0.4
    np.testing.assert_allclose(weights, expected, rtol=1e-12)
    drawn = np.bincount(indices, minlength=16)  # stratified: each within two of its share
    assert np.all(np.abs(drawn - 1000 * sums[:] / sums.total) <= 2)


# ---- tables ------------------------------------------------------------------------------


def measured(rate: int) -> rounds.Measured:
    """Make up a run whose learner takes a third of the server's time."""
    times = np.array([1.0, 3.0])
    return rounds.Measured(
        rounds.Window(2.0, 2 * rate, 0, 2e-6 * rate, times[:0]),
        rounds.Window(2.0, rate, 4, 3e-6 * rate, times),
        rounds.Window(2.0, 0, 4, 8e-6, times / 4),
    )


def test_ratios_are_within_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    titles = [stack.title for stack in stacks.STACKS]
    cell = results.Cell("cartpole", 1)
    rates = [(1, 1, 10, 10), (2, 1, 5, 40), (3, 1, 4, 12)]
    found = [
        {title: measured(rate) for title, rate in zip(titles, each, strict=True)} for each in rates
    ]
    given = results.Results({cell: found}, list(stacks.STACKS), ["carrier 1"], {})
    monkeypatch.setattr(tables, "results_of", lambda setting: given)
    setting = IntakeSetting()
    off, on = tables.rates_table(setting, {}).rows
    assert (off.ratio, off.against, off.rounds) == (3.0, "raw ZeroMQ", 3)  # of 1, 8 and 3
    assert off.figures == dict(zip(titles, (2.0, 1.0, 5.0, 12.0), strict=True))
    assert on.figures["raw MPI"] == 6.0
    published = tables.published_table(setting, {}).rows[0]
    assert (published.ratio, published.met) == (10.0, False)  # of 10, 20 and 4
    processor = tables.processor_table(setting, {}).rows
    assert [row.ratio for row in processor] == pytest.approx([3.0] * 4)
    assert [row.aim is None for row in processor[:3]] == [True] * 3
    figures = {"learner off": 1.0, "learner on": 3.0, "a request": 2.0}
    assert processor[3].figures == pytest.approx(figures)
    trips = [row.figures["raw MPI"] for row in tables.requests_table(setting, {}).rows]
    assert trips == pytest.approx([2e6, 2.98e6, 0.5e6])


@pytest.mark.parametrize(
    ("actors", "learner", "cores", "fits"),
    [(1, True, 2, True), (2, False, 2, True), (2, True, 2, False), (8, True, 9, True)],
)
def test_where_an_aim_stands(
    actors: int, learner: bool, cores: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "cores", lambda: cores)
    assert results.Cell("atari", actors).fits(learner) == fits


# ---- the command -------------------------------------------------------------------------


def test_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TINY, "--records", "cartpole", "--output", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == ["intake.json", "intake.md", "intake.png"]
    assert (tmp_path / "intake.png").read_bytes().startswith(b"\x89PNG\r\n")
    page = (tmp_path / "intake.md").read_text()
    assert page.startswith("# libsumtree bench intake\n")
    for line in page.splitlines()[1:]:
        assert line in printed
    content = json.loads((tmp_path / "intake.json").read_text())
    assert content["missing"] == {}
    names = [table["name"] for table in content["tables"]]
    assert names == ["rates", "published", "requests", "processor"]
    for table in content["tables"]:
        for row in table["rows"]:
            assert math.isfinite(row["ratio"])
            assert row["ratio"] > 0.0
            assert all(figure > 0.0 for figure in row["figures"].values())
            assert row["rounds"] == 1
    rates = content["tables"][0]
    assert rates["unit"] == "transitions a second"
    assert {*rates["rows"][0]["figures"]} == {stack.title for stack in stacks.STACKS}
    assert "libzmq" in rates["about"]
    assert "One copy of each CartPole record into a ring, by one core" in rates["about"]
    assert "mpi4py" in rates["about"]
    assert content["settings"]["seconds of each part of a run"] == 0.02


def test_without_pyzmq_mpi_is_measured_and_the_rest_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "zmq", None)
    assert main([*TINY, "--records", "cartpole", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    line = "pyzmq is not installed: pip install 'libsumtree[bench]'"
    assert content["missing"] == {"ZeroMQ": line, "published": line}
    rates, requests, processor = content["tables"]
    for row in rates["rows"]:
        assert (row["against"], row["aim"]) == ("pickled MPI", None)
        assert {*row["figures"]} == {"pickled MPI", "raw MPI"}
    assert len(requests["rows"]) == 3
    assert len(processor["rows"]) == 2


def test_without_mpiexec_one_line_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(TINY) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert f"there is no mpiexec, neither beside {tmp_path / 'python'} nor in PATH" in printed.err
    assert "pip install 'libsumtree[mpi]' mpich" in printed.err
    (tmp_path / "mpiexec").touch(mode=0o755)
    assert launch.find_mpiexec() == str(tmp_path / "mpiexec")


def test_without_mpi4py_one_line_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    assert main(TINY) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert "pip install 'libsumtree[mpi]'" in printed.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--seconds", "0"], "argument --seconds: '0' is not a number of seconds above 0"),
        (["--seconds", "nan"], "argument --seconds: 'nan' is not"),
        (["--seconds", "1e9"], "argument --seconds: '1e9' is not"),
        (["--actors", "0"], "argument --actors: 0 is too few"),
        (["--actors"], "argument --actors: expected at least one argument"),
        (["--records", "cars"], "argument --records: invalid choice: 'cars'"),
        (["--table", "fused"], "'fused' is none of bench intake, which has: rates"),
        (["--leaves", "64"], "unrecognized arguments: --leaves 64"),
    ],
)
def test_options_that_cannot_be(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "intake", *arguments]) == 2
    printed = capsys.readouterr()
    assert complaint in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_curves_are_those_of_the_table() -> None:
    row = tables.Row("Atari, 2 actors, learner on", 50, {"raw MPI": 5.0}, 1.0, "x", 1, Aim(1.0))
    single = tables.Row("Atari, 1 actor, learner on", 50, {"raw MPI": 4.0}, 1.0, "x", 1)
    rates = tables.Table("rates", "", "", [single, row])
    report = Report("intake", {}, {}, [rates, tables.Table("other", "", "", [row])])
    assert drawing.curves(report) == {"Atari, learner on": {"raw MPI": {1: 4.0, 2: 5.0}}}
