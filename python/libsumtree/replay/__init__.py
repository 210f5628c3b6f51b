"""The replay rank: one MPI process that owns a buffer, and its clients (Horgan et al., 2018).

Needs mpi4py, the extra ``mpi``; checkpoints need h5py, the extra ``hdf5``. One program with roles
by rank::

    comm = MPI.COMM_WORLD
    if comm.rank == 0:
        summary = ReplayRank(comm, ReplayConfig(capacity=1 << 20)).run()
    elif comm.rank == 1:
        with LearnerClient(comm, dtype) as learner:
            drawn = learner.sample(512)
            learner.update_priorities(drawn.ids, new_priorities)
            learner.stop()
    else:
        with ActorClient(comm, dtype) as actor:
            while not actor.stopping:
                actor.add(transitions, priorities)

Several replay ranks, ranks 0 .. R - 1 with ``ReplayConfig(capacity, shards=R)``, share one buffer
out; its clients are `ShardedLearner` and `ShardedActor` then.

Start it by ``mpiexec -n 4 python -m mpi4py program.py``, so that an exception in one rank ends the
job instead of hanging it.
"""

from .actor import ActorClient
from .client import ReplayClient
from .config import ReplayConfig
from .learner import LearnerClient, ReplaySample
from .limiter import RateLimit, RateLimiter
from .rank import ReplayRank, ReplaySummary
from .sharded_actor import ShardedActor
from .sharded_learner import ShardedLearner
from .signals import StopFlag, install_signal_flag
from .status import ReplayStatus
from .world import check_world

__all__ = [
    "ActorClient",
    "LearnerClient",
    "RateLimit",
    "RateLimiter",
    "ReplayClient",
    "ReplayConfig",
    "ReplayRank",
    "ReplaySample",
    "ReplayStatus",
    "ReplaySummary",
    "ShardedActor",
    "ShardedLearner",
    "StopFlag",
    "check_world",
    "install_signal_flag",
]
