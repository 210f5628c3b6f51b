"""Transitions per second into one replay rank, and the nodes they came from.

Rank 0 owns the buffer, rank 1 ends the service, the others add for a while. What was sent must be
what has arrived.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np
from mpi4py import MPI

from libsumtree.replay import ActorClient, LearnerClient, ReplayConfig, ReplayRank

RECORD = np.dtype([("observation", "<f4", (8,)), ("action", "<i8"), ("reward", "<f4")])
BATCH = 50


def main() -> None:
    """Run this rank's part and print the figures in rank 1."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    seconds = parser.parse_args().seconds
    comm = MPI.COMM_WORLD
    if comm.Get_size() < 3:
        raise SystemExit(f"the launcher started {comm.Get_size()} ranks; 3 or more are needed")
    # Slurm's name of the node: several of them can share one host.
    node = os.environ.get("SLURMD_NODENAME") or MPI.Get_processor_name()
    nodes = len(set(comm.allgather(node)))
    clients = comm.Split(min(comm.Get_rank(), 1))
    if comm.Get_rank() == 0:
        ReplayRank(comm, ReplayConfig(1 << 18, RECORD, seed=0, grace=60.0)).run()
    elif comm.Get_rank() == 1:
        learn(comm, clients, nodes)
    else:
        act(comm, clients, seconds)


def learn(comm: MPI.Intracomm, clients: MPI.Intracomm, nodes: int) -> None:
    """Wait for the actors, then print what has arrived and end the service."""
    with LearnerClient(comm, RECORD) as learner:
        meet(clients)
        begin = time.perf_counter()
        sent = clients.reduce(0)
        passed = time.perf_counter() - begin
        learner.sample(1)
        added = learner.status.inserted
        learner.stop()
    print(f"nodes {nodes}\nsent {sent}\nadded {added}\nrate {added / passed:.0f} transitions/s")


def act(comm: MPI.Intracomm, clients: MPI.Intracomm, seconds: float) -> None:
    """Add as fast as the replay rank takes, and wait until all of it was acknowledged."""
    records, priorities = np.zeros(BATCH, RECORD), np.ones(BATCH)
    sent = 0
    with ActorClient(comm, RECORD) as actor:
        meet(clients)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            actor.add(records, priorities)
            sent += BATCH
        while actor.unacknowledged:
            actor.poll()
        clients.reduce(sent)


def meet(comm: MPI.Intracomm) -> None:
    """Meet the other clients without keeping the processor busy."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(0.01)


if __name__ == "__main__":
    main()
