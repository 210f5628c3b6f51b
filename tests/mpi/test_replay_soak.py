"""A flood with a slow learner: minutes (`sh tests/run.sh soak`), or half an hour (`long`)."""

from __future__ import annotations

import time

import numpy as np
import pytest

from launch import SECONDS, Job, Jobs
from libsumtree import PriorityTree

CAPACITY = 100_000
ACTORS = 2


def resident_kib(pid: int) -> int:
    with open(f"/proc/{pid}/status") as status:  # noqa: PTH123 - it may go at any time
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def watch(job: Job, seconds: float) -> list[int]:
    """Return the replay rank's memory, ten times a second, until the job ends itself."""
    pid, memory = job.pid(0), []
    deadline = time.monotonic() + seconds + 2 * SECONDS
    job.wait_for("ready")
    while job.process.poll() is None and not (job.folder / "summary.json").exists():
        assert time.monotonic() < deadline, "the job does not end"
        memory.append(resident_kib(pid))
        time.sleep(0.1)
    return memory


@pytest.mark.parametrize(
    "seconds",
    [pytest.param(110, marks=pytest.mark.soak), pytest.param(1800, marks=pytest.mark.long)],
)
def test_flood_with_a_slow_learner(jobs: Jobs, seconds: float) -> None:
    """Memory flat, the sums those of a tree that is built anew, every credit back at the end."""
    jobs.options["SOAK_SECONDS"] = str(seconds)
    actors = ["faulty_soaks"] * ACTORS
    job = jobs.start("faulty_soaks_slowly", *actors, capacity=CAPACITY, seed=1, grace=30.0)
    memory = watch(job, seconds)
    job.succeed()
    settled = np.array(memory[len(memory) // 4 :])
    summary, held = job.summary, job.arrays("buffer.npz")
    print(
        f"\n{summary['inserted']:,} transitions in {summary['seconds']:.0f} s, "
        f"{summary['sampled']:,} drawn, {summary['stale']:,} stale; added by rank: "
        f"{summary['added']}; memory {settled.min()} .. {settled.max()} KiB after warm-up"
    )
    assert summary["seconds"] > 0.9 * seconds  # the learner counts from before its HELLO
    assert summary["inserted"] > 10 * CAPACITY
    assert len(settled) > 3 * seconds
    assert np.ptp(settled) <= 0.02 * settled.min()
    check_sums(held)
    for rank in range(1, 2 + ACTORS):
        assert (job.folder / f"credits.{rank}").read_text() == "0", rank
    assert summary["silent"] == []
    assert summary["rejected"] == {}
    assert sum(summary["added"].values()) == summary["inserted"]
    assert min(summary["added"].values()) > 0.1 * max(summary["added"].values())


def check_sums(held: dict[str, np.ndarray]) -> None:
    """Build a tree of the masses that are left, each in its slot."""
    masses, cursor = held["tree/masses"], int(held["cursor"])
    tree = PriorityTree(CAPACITY)
    tree.update(np.arange(cursor - len(masses), cursor) % CAPACITY, masses)
    for name, found in (("total", tree.total), ("min", tree.min), ("max", tree.max)):
        assert held[name].tobytes() == np.float64(found).tobytes(), name
