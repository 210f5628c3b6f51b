"""One rank of ``libsumtree jobs check``: looks around, and says in one line what it sees."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from ..errors import SumTreeError
from ..files import prove_writable

#: What each line of a probe begins with, before the word that tells checks apart.
TAG = "libsumtree-probe"
_TRIAL_BYTES = 64 << 20
_LAUNCHED = ("PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")


@dataclass(frozen=True)
class Task:
    """What a probe is to find out; travels to the ranks as JSON."""

    word: str
    run_dir: str
    capacity: int
    record_bytes: int
    gpus: int

    @property
    def checkpoint_bytes(self) -> int:
        """Bytes of a checkpoint of the full buffer: records, masses, running numbers."""
        return self.capacity * (self.record_bytes + 16)


@dataclass(frozen=True)
class Sight:
    """What one rank sees; an empty text or -1 where it did not look."""

    rank: int
    size: int
    host: str
    library: str
    mpi4py: str
    package: str
    pmi: str
    run_dir: str = ""  #: why it cannot be written; "" if it can
    memory: str = ""  #: why the buffer does not fit; "" if it does
    write_rate: float = -1.0  #: bytes per second into the run directory
    gpus: int = -1


def probe(task: Task) -> None:
    """Print what this rank sees. No rank waits for another: each may be a world of its own."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    folder = Path(task.run_dir)
    first = launched_first(comm.Get_rank())
    problem = _try_to_write(folder)
    sight = Sight(
        rank=comm.Get_rank(),
        size=comm.Get_size(),
        host=socket.gethostname(),
        library=" ".join(MPI.Get_library_version().splitlines()[0].partition(",")[0].split()),
        mpi4py=version("mpi4py"),
        package=version("libsumtree"),
        pmi=next((name for name in _LAUNCHED if name in os.environ), ""),
        run_dir=problem,
        memory=_try_to_hold(task) if first else "",
        write_rate=_write_rate(folder, task) if first and not problem else -1.0,
        gpus=count_gpus() if first and task.gpus else -1,
    )
    print(f"\n{TAG} {task.word} {json.dumps(asdict(sight))}\n", end="", flush=True)


def launched_first(rank: int) -> bool:
    """Tell whether the launcher started this process first, whatever MPI thinks."""
    numbers = [os.environ[name] for name in _LAUNCHED if name in os.environ]
    return rank == 0 and all(number == "0" for number in numbers)


def _try_to_write(folder: Path) -> str:
    try:
        prove_writable(folder)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _try_to_hold(task: Task) -> str:
    """Make the buffer; its memory is asked for, and refused at once if the limit cannot hold it."""
    from .. import PrioritizedReplayBuffer

    try:
        PrioritizedReplayBuffer(task.capacity, [("record", "u1", (task.record_bytes,))], seed=0)
    except (SumTreeError, MemoryError, ValueError) as error:
        return str(error)
    return ""


def _write_rate(folder: Path, task: Task) -> float:
    """Return the bytes per second of a synchronised write, of a checkpoint's size or 64 MiB."""
    size = min(max(task.checkpoint_bytes, 1 << 20), _TRIAL_BYTES)
    begin = time.monotonic()
    prove_writable(folder, size)
    return size / (time.monotonic() - begin)


def count_gpus() -> int:
    """Return how many NVIDIA GPUs the driver shows to this process; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value
