"""Whole runs of ``libsumtree apex`` under a real mpiexec."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from libsumtree import PrioritizedReplayBuffer, checkpoint
from libsumtree.apex import load_policy

SMALL = [
    *("--actors", "1", "--learning-starts", "200", "--batch-size", "32", "--hidden", "16"),
    *("--samples-per-insert", "8", "--validation-interval", "20", "--capacity", "1000"),
]
PROGRESS_LINE = re.compile(
    r" *[\d.]+ s  steps +[\d,]+  intake +[\d,]+/s  samples +[\d,]+/s  return +[\d.]+"
    r"  greedy +[\d.]+  loss +[\d.]+  stale +[\d,]+"
)
LAST_LINE = re.compile(r"greedy mean return (\d+\.\d\d) over 20 evaluation seeds")


def command(ranks, *arguments):
    beside = Path(sys.executable).with_name("mpiexec")
    launcher = str(beside) if beside.exists() else shutil.which("mpiexec")
    program = [sys.executable, "-m", "mpi4py", "-m", "libsumtree", "apex", *map(str, arguments)]
    return [launcher, "-n", str(ranks), *program]


def start(folder, *arguments, ranks=3, **options):
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command(ranks, *SMALL, "--output-dir", folder / "out", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        **options,
    )


def finish(process, timeout=90):
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


def evaluate(path, *arguments, status=0):
    done = subprocess.run(
        [sys.executable, "-m", "libsumtree", "apex", "--evaluate", str(path), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def newest_checkpoint(folder):
    files = sorted(folder.glob("replay-*.h5"))
    return files[-1] if files else None


def learner_state(path):
    with checkpoint.read(path) as opened:
        return {
            name: dataset.read()
            for name, dataset in opened.datasets.items()
            if name.startswith("learner/")
        }


def test_a_run_from_the_first_line_to_the_last(tmp_path):
    code, out, err = finish(start(tmp_path, "--steps", "1003", "--actors", "2", ranks=4))
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0] == "Ape-X DQN on CartPole-v1: 2 actors, seed 0, 1,003 environment steps"
    assert LAST_LINE.fullmatch(lines[-1])
    assert re.search(r"^environment steps    1,003 ", out, re.MULTILINE)
    # 8 samples for each step after the first 200, in batches of 32.
    assert re.search(r"^learner steps        20[01] of 32 transitions$", out, re.MULTILINE)
    assert (tmp_path / "out/learning-curve.png").read_bytes().startswith(b"\x89PNG")
    assert evaluate(tmp_path / "out/policy.npz") == lines[-1] + "\n"
    parameters, metadata = load_policy(tmp_path / "out/policy.npz")
    assert metadata.environment == "CartPole-v1"
    assert metadata.environment_steps <= 1003
    assert all(np.isfinite(array).all() for array in parameters.values())
    names = sorted(entry.name for entry in (tmp_path / "out").iterdir())
    assert names == ["learning-curve.png", "policy.npz"]


def test_two_shards_hold_the_buffer_and_one_goes_on(tmp_path):
    """Interrupted by its number of steps; then one replay rank goes on from the two of before."""
    checkpoints = ("--checkpoint-dir", tmp_path / "files")
    code, out, err = finish(
        start(tmp_path, "--steps", "700", "--shards", "2", *checkpoints, ranks=4)
    )
    assert code == 0, err
    assert out.startswith("Ape-X DQN on CartPole-v1: 1 actor, 2 shards, seed 0, 700 ")
    assert re.search(r"^environment steps    700 ", out, re.MULTILINE)
    assert re.search(r"^learner steps        12[456] of 32 transitions$", out, re.MULTILINE)
    assert list((tmp_path / "files").glob("replay-*.manifest"))
    code, out, err = finish(start(tmp_path, "--steps", "900", *checkpoints))
    assert code == 0, err
    assert "going on from a checkpoint at 700 of 900 environment steps" in out
    assert re.search(r"^environment steps    900 ", out, re.MULTILINE)


def test_another_environment_without_pacing(tmp_path):
    code, out, err = finish(
        start(tmp_path, "--env", "FrozenLake-v1", "--steps", "600", "--samples-per-insert", "none")
    )
    assert code == 0, err
    assert LAST_LINE.fullmatch(out.splitlines()[-1])


def test_a_run_ends_where_its_last_request_never_passes(tmp_path):
    """One batch is drawn, and the second would need 3,200 more steps."""
    few = ["--steps", "1000", "--samples-per-insert", "0.01", "--timeout", "20"]
    code, out, err = finish(start(tmp_path, *few))
    assert code == 0, err
    assert re.search(r"^learner steps        1 of 32 transitions$", out, re.MULTILINE)


LINEAR = """
import numpy as np


class Linear:
    def __init__(self, spec):
        rng = np.random.default_rng(spec.seed)
        self.w = rng.normal(0, 0.1, (spec.observation_shape[0] + 1, spec.actions))
        self.steps = 0

    def _inputs(self, observations):
        return np.column_stack([observations, np.ones(len(observations))])

    def q_values(self, observations):
        return (self._inputs(observations) @ self.w).astype(np.float32)

    def fit(self, observations, actions, targets, weights):
        x = self._inputs(observations)
        rows = np.arange(len(x))
        errors = targets - (x @ self.w)[rows, actions]
        slopes = np.clip(errors, -1, 1) * weights / len(x)
        for action in range(self.w.shape[1]):
            chosen = actions == action
            self.w[:, action] += 0.05 * (x[chosen] * slopes[chosen, None]).sum(axis=0)
        self.steps += 1
        return errors.astype(np.float32)

    def parameters(self):
        return {"w": self.w.copy()}

    def load_parameters(self, parameters):
        self.w[...] = parameters["w"]

    def state(self):
        return self.parameters() | {"steps": np.array(self.steps)}

    def load_state(self, state):
        self.load_parameters(state)
        self.steps = int(state["steps"])
"""


def test_a_network_of_ones_own(tmp_path, monkeypatch):
    (tmp_path / "apex_linear.py").write_text(LINEAR)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    again = ["--network", "apex_linear:Linear", "--steps", "1000"]
    checkpoints = ["--checkpoint-dir", tmp_path / "checkpoints"]
    code, out, err = finish(start(tmp_path, *again, *checkpoints))
    assert code == 0, err
    state = learner_state(newest_checkpoint(tmp_path / "checkpoints"))
    assert state["learner/online/steps"] == state["learner/learner_steps"]
    policy = tmp_path / "out/policy.npz"
    assert evaluate(policy, "--network", "apex_linear:Linear") == out.splitlines()[-1] + "\n"
    refusal = evaluate(policy, status=2)
    assert "give: --network apex_linear:Linear" in refusal
    assert refusal.count("\n") == 1


def test_a_killed_job_goes_on_from_its_checkpoint(tmp_path):
    folder = tmp_path / "checkpoints"
    again = ["--steps", "8000", "--checkpoint-dir", folder, "--checkpoint-interval", "0.3"]
    first = start(tmp_path, *again, start_new_session=True)
    deadline = time.monotonic() + 60
    while len(list(folder.glob("replay-*.h5"))) < 2 and time.monotonic() < deadline:
        assert first.poll() is None, first.stderr.read()
        time.sleep(0.02)
    kill_job(first)
    assert not (tmp_path / "out/policy.npz").exists()
    path = newest_checkpoint(folder)
    before = PrioritizedReplayBuffer.load(path)
    state = learner_state(path)
    assert 0 < before.inserted < 8000
    assert state["learner/learner_steps"] > 0

    code, out, err = finish(start(tmp_path, *again))
    assert code == 0, err
    opening = out.splitlines()[0]
    assert opening.endswith(
        f"going on from a checkpoint at {before.inserted:,d} of 8,000 environment steps"
    )
    assert re.search(r"^environment steps    8,000 ", out, re.MULTILINE)
    last = PrioritizedReplayBuffer.load(newest_checkpoint(folder))
    assert last.inserted == 8000
    assert last.epoch > before.epoch
    final = learner_state(newest_checkpoint(folder))
    assert final["learner/learner_steps"] > state["learner/learner_steps"]
    kept = final["learner/curve"][: len(state["learner/curve"])]
    np.testing.assert_array_equal(kept, state["learner/curve"])


def kill_job(process):
    """Kill the launcher and every process that it started, at once."""
    members = [process.pid, *descendants(process.pid)]
    for pid in members:
        with suppress(ProcessLookupError):  # the launcher's end may have ended it
            os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=30)


def descendants(pid):
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *descendants(child)]
    return found


def test_a_finished_run_that_is_given_again_only_evaluates(tmp_path):
    arguments = ["--steps", "600", "--checkpoint-dir", tmp_path / "checkpoints"]
    code, first, err = finish(start(tmp_path, *arguments))
    assert code == 0, err
    code, again, err = finish(start(tmp_path, *arguments))
    assert code == 0, err
    assert "going on from a checkpoint at 600 of 600" in again
    assert again.splitlines()[-1] == first.splitlines()[-1]


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_signal_to_any_rank_ends_the_run_cleanly(tmp_path, rank):
    folder = tmp_path / "checkpoints"
    process = start(tmp_path, "--steps", "1000000", "--checkpoint-dir", folder)
    out = process.stdout.readline()
    while not PROGRESS_LINE.fullmatch(out.rstrip()):
        out = process.stdout.readline()
        assert process.poll() is None, process.stderr.read()
    os.kill(rank_pids(process.pid)[rank], signal.SIGTERM)
    code, out, err = finish(process)
    assert code == 0, err
    assert LAST_LINE.fullmatch(out.splitlines()[-1])
    assert re.search(r"^stopped by .*the same command goes on from the checkpoint$", out, re.M)
    state = learner_state(newest_checkpoint(folder))
    steps = re.search(r"^learner steps +([\d,]+) of", out, re.MULTILINE)[1]
    assert state["learner/learner_steps"] == int(steps.replace(",", ""))


def rank_pids(launcher):
    """Return the process ids of the ranks, in their order."""
    ranks = {}
    for pid in descendants(launcher):
        environment = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
        match = re.search(r"(?:PMI_RANK|OMPI_COMM_WORLD_RANK)=(\d+)", environment)
        if match and "libsumtree" in Path(f"/proc/{pid}/cmdline").read_text():
            ranks.setdefault(int(match[1]), pid)
    return ranks


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env", "NoSuchThing-v0"], "the environment 'NoSuchThing-v0' cannot be made"),
        (["--env", "Pendulum-v1"], "DQN needs a Discrete action space"),
        (["--actors", "4"], "the launcher started 3 ranks where 6 were asked for"),
        (["--steps", "many"], "--steps is 'many': it must be a whole number"),
        (["--keep", "2"], "--keep needs --checkpoint-dir"),
        (["--network", "nowhere:make"], "the network 'nowhere:make' cannot be imported"),
        (["--checkpoint-dir", "/proc/nowhere"], "/proc/nowhere"),
        (["--output-dir", "/proc/nowhere"], "/proc/nowhere"),
        (["--output-dir", os.fsdecode(b"/proc/\xff")], r"/proc/\udcff cannot be written"),
        (["--backend", "abacus"], "abacus"),
    ],
)
def test_one_rank_says_what_is_wrong_in_one_line(tmp_path, arguments, message):
    code, out, err = finish(start(tmp_path, *arguments))
    assert code == 2
    assert out == ""
    complaints = [line for line in err.splitlines() if line.startswith("libsumtree: error: ")]
    assert len(complaints) == 1
    assert message in complaints[0]
    assert "Traceback" not in err
    assert "MPI_Abort" not in err


FAILS_LATE = """
from libsumtree.apex.dueling import DuelingMLP, make as make_dueling

def make(spec):
    made = make_dueling(spec)
    def fit(*arguments):
        raise LookupError("this network cannot learn")
    made.fit = fit
    return made
"""


def test_a_network_that_fails_in_the_run_ends_it_with_one_line(tmp_path):
    """Its own status, no traceback but with --debug, and no rank that is left waiting."""
    (tmp_path / "late.py").write_text(FAILS_LATE)
    for more in ([], ["--debug"]):
        code, _, err = finish(start(tmp_path, "--network", "late:make", *more, cwd=tmp_path))
        complaints = [line for line in err.splitlines() if line.startswith("libsumtree: error: ")]
        assert code == 3
        assert len(complaints) == 1
        assert "LookupError: this network cannot learn (late.py, line 7)" in complaints[0]
        assert ("Traceback" in err) == bool(more)


def test_a_checkpoint_of_another_task_or_network_is_refused(tmp_path):
    arguments = ["--steps", "600", "--checkpoint-dir", tmp_path / "checkpoints"]
    assert finish(start(tmp_path, *arguments))[0] == 0
    for change, message in [
        (["--env", "Acrobot-v1"], "has dtype"),
        (["--hidden", "24"], "made with other hidden layers"),
        (["--hidden", "24,8"], "give --hidden 16, --network and --env as in the run"),
    ]:
        code, _, err = finish(start(tmp_path, *arguments, *change))
        assert code == 2
        complaints = [line for line in err.splitlines() if line.startswith("libsumtree: error: ")]
        assert len(complaints) == 1
        assert message in complaints[0]
        assert "Traceback" not in err


def test_a_lost_checkpoint_is_no_success(tmp_path):
    folder = tmp_path / "ck"
    process = start(tmp_path, "--steps", "4000", "--checkpoint-dir", folder)
    assert process.stdout.readline().startswith("Ape-X DQN")
    shutil.rmtree(folder)
    status, out, err = finish(process)
    assert status == 2
    assert LAST_LINE.fullmatch(out.splitlines()[-1])
    assert "the same command goes on" not in out
    assert "libsumtree: error: the last checkpoint was not written" in err


def test_a_second_signal_does_not_break_the_end_off(tmp_path):
    folder = tmp_path / "ck"
    process = start(
        tmp_path, "--steps", "400000", "--checkpoint-dir", folder, start_new_session=True
    )
    assert process.stdout.readline().startswith("Ape-X DQN")
    time.sleep(1.0)
    for _ in range(3):
        os.killpg(process.pid, signal.SIGTERM)
        time.sleep(0.1)
    status, out, err = finish(process)
    assert status == 0, err
    assert LAST_LINE.fullmatch(out.splitlines()[-1])
    assert (tmp_path / "out" / "learning-curve.png").exists()
    assert "learner/learner_steps" in learner_state(newest_checkpoint(folder))


def test_one_rank_only():
    done = subprocess.run(
        [sys.executable, "-m", "libsumtree", "apex"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(
        "libsumtree: error: the launcher started 1 rank where 6 were asked for"
    )
    assert done.stderr.count("\n") == 1
