"""Starts and ends the processes of one run."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from ...apex.errors import require
from ...errors import BenchmarkError, BenchmarkUnavailableError
from .board import Board
from .stacks import Stack
from .task import MOST_ADDED, SERVER, Task, board_of

_PROGRAM = [sys.executable, "-m", "libsumtree.bench.intake.process"]
_RANK = [sys.executable, "-m", "mpi4py", "-m", "libsumtree.bench.intake.process"]
_LOOK_SECONDS = 0.01
_ERRORS = "errors"
# One thread a process; Open MPI takes more processes than cores, and root, only if told.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


def find_mpiexec() -> str:
    """Give the path of mpiexec: the one beside this interpreter, else that of PATH.

    Raises
    ------
    BenchmarkError
        If there is none.
    MissingExtraError
        If mpi4py is not installed.
    """
    require("mpi4py", "mpi")
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if not found:
        raise BenchmarkError(
            f"there is no mpiexec, neither beside {sys.executable} nor in PATH: load an MPI, or "
            "pip install 'libsumtree[mpi]' mpich"
        )
    return found


def check_zmq() -> None:
    """Raise `BenchmarkUnavailableError` unless pyzmq is installed."""
    if find_spec("zmq") is None:
        raise BenchmarkUnavailableError("pyzmq is not installed: pip install 'libsumtree[bench]'")


class Run:
    """The processes of one run, from the moment when all of them are connected.

    Attributes
    ----------
    task : Task
    folder : Path
        Where the processes leave what they have to say.
    board : Board
    """

    def __init__(self, stack: Stack, task: Task, folder: Path, board: Board) -> None:
        self.task = task
        self.folder = folder
        self.board = board
        self._title = stack.title
        self._deadline = time.monotonic() + task.longest
        self._processes: list[subprocess.Popen[bytes]] = []
        if stack.mpi:
            self._start([find_mpiexec(), "-n", str(task.places), *_RANK, str(folder)])
        else:
            for place in range(task.places):
                self._start([*_PROGRAM, str(folder), str(place)])

    def _start(self, command: list[str]) -> None:
        with (self.folder / f"{_ERRORS}.{len(self._processes)}").open("wb") as errors:
            self._processes.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=errors,
                    stderr=errors,
                    env={**os.environ, **_ENVIRONMENT},
                    start_new_session=True,
                )
            )

    def wait(self, ready: Callable[[], bool], what: str) -> None:
        """Wait for something that the processes do.

        Raises
        ------
        BenchmarkError
            If one of them fails, or it is too late.
        """
        while not ready():
            self._check()
            if time.monotonic() > self._deadline:
                raise BenchmarkError(f"{self._title}: {what} after {self.task.longest} s")
            time.sleep(_LOOK_SECONDS)

    def rest(self, seconds: float) -> None:
        """Let the processes work."""
        time.sleep(seconds)
        self._check()

    def wait_for_end(self) -> None:
        """Wait until all processes have ended well."""
        self.wait(lambda: all(p.poll() is not None for p in self._processes), "no end")
        self._check()

    def processor_seconds(self) -> float:
        """Give the processor time of the server, and of the processes that are its own."""
        return sum(map(_processor_seconds, self._server_pids()))

    def kill(self) -> None:
        """End whatever still runs."""
        pids = self.pids()
        for process in self._processes:
            if process.poll() is None:
                for pid in pids:
                    _kill(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def pids(self) -> list[int]:
        """Give the processes that have come, those that the server added included."""
        places = range(1, self.task.places)
        return self._server_pids() + [pid for pid in map(self.board.pid, places) if pid]

    def _server_pids(self) -> list[int]:
        added = (self.board.said(SERVER, number) for number in range(MOST_ADDED))
        return [pid for pid in (self.board.pid(SERVER), *added) if pid]

    def _check(self) -> None:
        for number, process in enumerate(self._processes):
            if process.poll():
                said = (self.folder / f"{_ERRORS}.{number}").read_text(errors="replace")
                raise BenchmarkError(
                    f"{self._title}: a process ended with status {process.returncode}: "
                    f"{_complaint(said)}"
                )


def _complaint(said: str) -> str:
    """Give the line that names an exception, or else the last one."""
    exception = re.search(r"^[\w.]*(Error|Exception|Stopped)\b.*", said, re.MULTILINE)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return exception[0] if exception else (lines or ["no reason"])[-1]


@contextmanager
def run(stack: Stack, task: Task, folder: Path) -> Iterator[Run]:
    """Start the processes of a run; whatever happens, none of them outlives the block."""
    task.write(folder)
    with Board.make(board_of(folder), task.places) as board:
        started = Run(stack, task, folder, board)
        try:
            places = range(task.places)
            started.wait(lambda: all(board.pid(place) for place in places), "not all connected")
            yield started
        finally:
            started.kill()


def _processor_seconds(pid: int) -> float:
    """Give the processor time of another process, all of its threads: its clock of Linux."""
    return time.clock_gettime((~pid << 3) | 2)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
