"""A job with several replay ranks: ranks 0 .. shards - 1 serve, the others play the roles given."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import content
import numpy as np
import shard_clients
import shard_faults
import sharding
from mpi4py import MPI
from steps import note

from libsumtree.replay import ReplayConfig, ReplayRank


def main() -> None:
    settings = json.loads(sys.argv[1])
    comm = MPI.COMM_WORLD
    rank, shards = comm.Get_rank(), settings["shards"]
    note(f"pid.{rank}", str(os.getpid()))
    clients = comm.Split(min(rank // shards, 1))
    if rank < shards:
        serve(comm, shards, {**settings["config"], **settings["own"].get(str(rank), {})})
    else:
        role = settings["roles"][rank - shards]
        module = next(m for m in (sharding, shard_faults, shard_clients) if hasattr(m, role))
        getattr(module, role)(comm, clients, shards)


def serve(comm: MPI.Intracomm, shards: int, config: dict[str, Any]) -> None:
    config.setdefault("dtype", content.RECORD)
    for hindrance in config.pop("hindrances", "").split():
        getattr(shard_faults, hindrance)()
    rank = ReplayRank(comm, ReplayConfig(shards=shards, **config))
    note(f"ready.{comm.Get_rank()}", "")
    summary = rank.run()
    values = {name: getattr(summary, name) for name in summary.__dataclass_fields__}
    if rank.buffer is not None:
        values["backend"], values["device"] = rank.buffer.tree.backend, rank.buffer.tree.device
    note(f"summary.{comm.Get_rank()}.json", json.dumps(values, default=str))
    if rank.buffer is not None:
        np.savez(f"buffer.{comm.Get_rank()}.npz", **content.held(rank.buffer))


main()
