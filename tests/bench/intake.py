"""Transitions per second into a replay rank, and the time of a request as the learner sees it.

Run it in N + 2 ranks for N actors, on an otherwise idle machine::

    mpiexec -n 6 python -m mpi4py tests/bench/intake.py --actors 1 2 4 --seconds 3

Records are CartPole's n-step transitions, batches of 50 with priorities. The learner of the second
column asks for one sample of 512 at a time, with no actor adding; that of the third, while all of
them add as fast as they can.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from pathlib import Path
from statistics import median

import numpy as np
from mpi4py import MPI

from libsumtree.replay import (
    ActorClient,
    LearnerClient,
    ReplayConfig,
    ReplayRank,
    check_world,
)

RECORD = np.dtype(
    [
        ("observation", "<f4", (4,)),
        ("action", "<i8"),
        ("reward", "<f4"),
        ("discount", "<f4"),
        ("next_observation", "<f4", (4,)),
    ]
)
BATCH = 50
REQUEST = 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--actors", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--capacity", type=int, default=1 << 20)
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    check_world(comm, max(options.actors) + 2)
    if comm.Get_rank() == 0:
        print(machine())
        print(f"records of {RECORD.itemsize} bytes, batches of {BATCH}, requests of {REQUEST}\n")
        print("| actors | transitions/s | request alone, us | request while they add, us |")
        print("|---|---|---|---|")
    for actors in options.actors:
        part = comm.Split(0 if comm.Get_rank() < actors + 2 else MPI.UNDEFINED)
        if part != MPI.COMM_NULL:
            measure(part, actors, options.seconds, options.capacity)
            part.Free()
        comm.Barrier()


def measure(comm: MPI.Intracomm, actors: int, seconds: float, capacity: int) -> None:
    """Print one row of the table: intake alone first, then requests."""
    clients = comm.Split(min(comm.Get_rank(), 1))
    if comm.Get_rank() == 0:
        ReplayRank(comm, ReplayConfig(capacity, RECORD, seed=0, grace=30.0)).run()
    elif comm.Get_rank() == 1:
        learn(comm, clients, actors, seconds)
    else:
        act(comm, clients, seconds)


def act(comm: MPI.Intracomm, clients: MPI.Intracomm, seconds: float) -> None:
    records = np.zeros(BATCH, RECORD)
    priorities = np.random.default_rng(comm.Get_rank()).random(BATCH)
    with ActorClient(comm, RECORD) as actor:
        for _ in range(2):
            clients.Barrier()
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                actor.add(records, priorities)
            while actor.unacknowledged:
                actor.poll()
            meet(clients)
            meet(clients)


def learn(comm: MPI.Intracomm, clients: MPI.Intracomm, actors: int, seconds: float) -> None:
    with LearnerClient(comm, RECORD) as learner:
        clients.Barrier()
        begin = time.perf_counter()
        meet(clients)
        passed = time.perf_counter() - begin
        alone = requests(learner, 0.3 * seconds)
        inserted = learner.status.inserted
        meet(clients)
        clients.Barrier()
        crowded = requests(learner, 0.8 * seconds)
        meet(clients)
        meet(clients)
        learner.stop()
    print(f"| {actors} | {inserted / passed:,.0f} | {alone:.0f} | {crowded:.0f} |", flush=True)


def requests(learner: LearnerClient, seconds: float) -> float:
    """Return the median time of a request, in microseconds."""
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        learner.sample(REQUEST)
        times.append(time.perf_counter() - begin)
    return 1e6 * median(times)


def meet(clients: MPI.Intracomm) -> None:
    """Meet the other clients without keeping the processor busy."""
    request = clients.Ibarrier()
    while not request.Test():
        time.sleep(0.01)


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "")
    mpi = MPI.Get_library_version().splitlines()[0].strip("\0 ")
    return (
        f"{model or platform.machine()}, {len(os.sched_getaffinity(0))} cores, "
        f"Python {platform.python_version()}, NumPy {np.__version__}, {mpi}"
    )


main()
