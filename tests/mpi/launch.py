"""Starts real MPI jobs: every test here runs ranks of programs/job.py under mpiexec."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PROGRAMS = Path(__file__).parent / "programs"
SECONDS = 60.0


def launcher() -> list[str]:
    given = os.environ.get("SUMTREE_MPIEXEC")
    if given:
        return shlex.split(given)
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    assert found, "mpiexec is needed: pip install mpich"
    return [found]


def need_hydra() -> None:
    """Skip a test of what only MPICH's launcher can do."""
    version = subprocess.run([*launcher(), "--version"], capture_output=True, text=True).stdout
    if "HYDRA" not in version:
        pytest.skip("this launcher is not MPICH's Hydra, whose options the test needs")


def environment() -> dict[str, str]:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    crowded = {
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    return {**os.environ, **threads, **root, **crowded}


def wait_until(done: Callable[[], bool], what: str, seconds: float = SECONDS) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"no {what}"
        time.sleep(0.01)


@dataclass
class Job:
    """One MPI job: what it was told, and what it left behind."""

    process: subprocess.Popen[str]
    folder: Path
    ranks: int
    out: str = ""
    err: str = ""
    killed: list[int] = field(default_factory=list)

    def wait_for(self, name: str, seconds: float = SECONDS) -> Path:
        """Wait until some rank has written this file."""
        path = self.folder / name
        self.wait_until(path.exists, name, seconds)
        return path

    def wait_until(self, done: Callable[[], bool], what: str, seconds: float = SECONDS) -> None:
        """Wait until something is so of a job that may or may not have ended by then."""
        wait_until(lambda: self.process.poll() is not None or done(), what, seconds)
        assert done(), f"ended without {what}: {self.ended()}"

    def pid(self, rank: int) -> int:
        return int(self.wait_for(f"pid.{rank}").read_text())

    def lives(self, rank: int) -> bool:
        """Whether this rank has not ended; one that its launcher has not reaped has."""
        with contextlib.suppress(FileNotFoundError):
            return ") Z " not in Path(f"/proc/{self.pid(rank)}/stat").read_text()
        return False

    def send(self, rank: int, number: signal.Signals) -> None:
        os.kill(self.pid(rank), number)

    def kill(self) -> None:
        """SIGKILL for every rank and for the launcher."""
        for rank in range(self.ranks):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid(rank), signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.end()

    def end(self, seconds: float = SECONDS) -> int:
        """Wait for the end; a job that does not end is killed, and the test has failed."""
        try:
            self.out, self.err = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.out, self.err = self.process.communicate(timeout=10)
            pytest.fail(f"the job hung\n{self.out}\n{self.err}")
        return self.process.returncode

    def ended(self) -> str:
        """Wait for the end, and return what there is to say about it."""
        status = self.end()
        return f"exit status {status}\n{self.out}\n{self.err}"

    def succeed(self, seconds: float = SECONDS) -> Job:
        assert self.end(seconds) == 0, self.ended()
        return self

    def json(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())

    def arrays(self, name: str) -> dict[str, np.ndarray[Any, Any]]:
        with np.load(self.folder / name, allow_pickle=False) as stored:
            return dict(stored)

    @property
    def summary(self) -> dict[str, Any]:
        return dict(self.json("summary.json"))


class Jobs:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[Job] = []
        self.options: dict[str, str] = {}
        self.prefix: list[str] = []
        self.flags: list[str] = []

    def command(self, ranks: int, command: list[str]) -> Job:
        folder = self._folder / f"job{len(self._started)}"
        folder.mkdir()
        process = subprocess.Popen(
            [*self.prefix, *launcher(), *self.flags, "-n", str(ranks), *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=folder,
            env={**environment(), **self.options},
        )
        job = Job(process, folder, ranks)
        self._started.append(job)
        return job

    def start(self, *roles: str, **config: Any) -> Job:
        """Start a replay rank with these settings, and one client for each role."""
        settings = {"roles": ["replay", *roles], "config": config}
        program = str(PROGRAMS / "job.py")
        python = [sys.executable, "-m", "mpi4py", program, json.dumps(settings, default=str)]
        return self.command(1 + len(roles), python)

    def start_shards(
        self, shards: int, *roles: str, own: dict[int, dict[str, Any]] | None = None, **config: Any
    ) -> Job:
        """Start replay ranks with these settings, and some of their own; one client a role."""
        settings = {"shards": shards, "roles": roles, "config": config, "own": own or {}}
        program = str(PROGRAMS / "shards.py")
        python = [sys.executable, "-m", "mpi4py", program, json.dumps(settings, default=str)]
        return self.command(shards + len(roles), python)

    def run_shards(self, shards: int, *roles: str, **config: Any) -> Job:
        return self.start_shards(shards, *roles, **config).succeed()

    def run(self, *roles: str, **config: Any) -> Job:
        return self.start(*roles, **config).succeed()

    def sweep(self) -> None:
        for job in self._started:
            if job.process.poll() is None:
                job.kill()
