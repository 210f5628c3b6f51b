"""One MPI job of the tests: rank 0 is the replay rank, the others play the roles given."""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any

import content
import faults
import filming
import hostile
import numpy as np
import roles
import waiting
from mpi4py import MPI
from steps import note

from libsumtree.replay import ReplayConfig, ReplayRank, ReplaySummary


def main() -> None:
    settings = json.loads(sys.argv[1])
    comm = MPI.COMM_WORLD
    assert comm.Get_size() == len(settings["roles"])
    note(f"pid.{comm.Get_rank()}", str(os.getpid()))
    clients = comm.Split(min(comm.Get_rank(), 1))
    name = settings["roles"][comm.Get_rank()]
    if name == "replay":
        serve(comm, settings["config"])
    else:
        modules = {"hostile": hostile, "films": filming, "waiting": waiting, "faulty": faults}
        getattr(modules.get(name.partition("_")[0], roles), name)(comm, clients)


def serve(comm: MPI.Intracomm, config: dict[str, Any]) -> None:
    if config.pop("record", True):
        config["dtype"] = content.RECORD
    rank = ReplayRank(comm, ReplayConfig(**config))
    if limit := os.environ.get("FILE_SIZE_LIMIT"):  # of this process alone: MPI has files as well
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
    note("ready", "")
    before = processor_seconds()
    summary = rank.run()
    dump(rank, summary, processor_seconds() - before)


def dump(rank: ReplayRank, summary: ReplaySummary, seconds: float) -> None:
    values = {name: getattr(summary, name) for name in summary.__dataclass_fields__}
    note("summary.json", json.dumps({**values, "cpu": seconds}, default=str))
    if rank.buffer is not None:
        np.savez("buffer.npz", **content.held(rank.buffer))


def processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


main()
