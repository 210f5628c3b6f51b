"""What clients of several shards may count on, one function a role."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from content import RECORD, batch
from mpi4py import MPI
from sharding import learner_of
from steps import expect, settle

from libsumtree.errors import ArgumentError, RejectedError, ReplayTimeoutError
from libsumtree.ids import NUMBER_BITS
from libsumtree.replay import ShardedActor, ShardedLearner

Comm = MPI.Intracomm
LARGE = 200_000


def fill(actor: ShardedActor) -> None:
    """Give every shard a batch."""
    for shard, client in enumerate(actor.shards):
        client.add(*batch(shard))
    settle(actor)


def lags(comm: Comm, clients: Comm, shards: int) -> None:
    """What is updated between a request and its sample, came too late for it."""
    with ShardedActor(comm, RECORD, shards) as actor:
        fill(actor)
    with ShardedLearner(comm, RECORD, shards) as learner:
        sample = learner.sample(64)
        assert sample.lag == 0
        learner.update_priorities(sample.ids, 1.0)
        assert learner.sample(64).lag == 0
        learner.request(64)
        for priority in (2.0, 3.0):
            learner.update_priorities(sample.ids, priority)
        assert learner.sample(64).lag == 2
        assert learner.sample(64).lag == 0
        learner.stop()


def moves_large_over_shards(comm: Comm, clients: Comm, shards: int) -> None:
    """Batches and draws of 1.8 MB; how long each kind took."""
    rows, priorities = batch(0, 65_536)
    seconds = []
    with ShardedActor(comm, RECORD, shards) as actor:
        begin = time.monotonic()
        for _ in range(20):
            actor.add(rows, priorities)
        settle(actor)
        seconds.append(time.monotonic() - begin)
    with ShardedLearner(comm, RECORD, shards, prefetch=2) as learner:
        begin = time.monotonic()
        for _ in range(20):
            learner.sample(65_536)
        seconds.append(time.monotonic() - begin)
        learner.stop()
    np.savez("seconds.npz", seconds=np.array(seconds))


def prefetches(comm: Comm, clients: Comm, shards: int) -> None:
    """Two draws are under way whenever one is given, and each says what it missed."""
    with ShardedActor(comm, RECORD, shards) as actor:
        fill(actor)
    with ShardedLearner(comm, RECORD, shards, prefetch=2) as learner:
        lags = []
        for _ in range(6):
            sample = learner.sample(64)
            assert learner.requested == 2
            lags.append(sample.lag)
            learner.update_priorities(sample.ids, 1.0)
            settle(learner)
        assert lags == [0, 1, 2, 2, 2, 2]
    with ShardedLearner(comm, RECORD, shards) as learner:
        learner.stop()
    expect(
        ArgumentError, lambda: ShardedLearner(comm, RECORD, shards, prefetch=99), "prefetch is 99"
    )


def updates_all_or_nothing(comm: Comm, clients: Comm, shards: int) -> None:
    """Shard 1 stops, and gives no credit: nothing is sent to shard 0 then."""
    with ShardedActor(comm, RECORD, shards) as actor:
        fill(actor)
    with ShardedLearner(comm, RECORD, shards) as learner:
        sample = learner.sample(100)
        of_shard_1 = sample.ids[sample.indices >= learner.shards[0]._agreed.capacity]
        assert 0 < len(of_shard_1) < 100
        process = int(Path("pid.1").read_text())
        os.kill(process, signal.SIGSTOP)
        try:
            learner.update_priorities(of_shard_1, 2.0)
            expect(
                ReplayTimeoutError,
                lambda: learner.update_priorities(sample.ids, 7.0, timeout=0.3),
                "no credit for another update from the replay rank (rank 1)",
            )
        finally:
            os.kill(process, signal.SIGCONT)
        settle(learner)
        assert learner.sample(10).status.max == 2.0**0.5
        learner.stop()


def waits_staged(comm: Comm, clients: Comm, shards: int) -> None:
    """Both kinds of clients receive into rings, and never sleep."""
    with ShardedActor(comm, RECORD, shards, receive="staged", idle_sleep=0.0) as actor:
        fill(actor)
        actor.add(*batch(7, 30_000))
        settle(actor)
    with ShardedLearner(comm, RECORD, shards, receive="staged", idle_sleep=0.0) as learner:
        sample = learner.sample(20_000)
        learner.update_priorities(sample.ids, 1.0)
        settle(learner)
        known = {
            *map(bytes, batch(0)[0]),
            *map(bytes, batch(1)[0]),
            *map(bytes, batch(7, 30_000)[0]),
        }
        assert known.issuperset(map(bytes, sample.transitions))
        learner.stop()


def adds_large_ones(comm: Comm, clients: Comm, shards: int) -> None:
    """Note how much memory large batches for many shards take."""
    records = batch(0, LARGE)[0]
    with ShardedActor(comm, RECORD, shards) as actor:
        before = resident()
        for _ in range(8 * shards):
            actor.add(records, 1.0)
        settle(actor)
        Path("memory").write_text(f"{(resident() - before) / records.nbytes}")


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# ---- other numbers of shards ----


def changes_the_pace(comm: Comm, clients: Comm, shards: int) -> None:
    with ShardedActor(comm, RECORD, shards) as actor:
        fill(actor)
    with ShardedLearner(comm, RECORD, shards) as learner:
        learner.set_rate_limit(80, 2.0, 400.0)
        np.save(os.environ["OLD_IDS"], learner.sample(64).ids)
        learner.checkpoint({"step": np.int64(1)})
        learner.stop()


def finds_the_pace(comm: Comm, clients: Comm, shards: int) -> None:
    """The rate limit is as it was changed; handles of before are stale, as often as one asks."""
    old = np.load(os.environ["OLD_IDS"])
    with learner_of(comm, shards, 0) as learner:
        limit = learner.rate_limit()
        Path("limit").write_text(limit.to_json())
        learner.update_priorities(old, 1.0)
        settle(learner)
        assert learner.stale == len(old), learner.stale
        ours = learner.sample(30).ids
        learner.update_priorities(ours, 0.5)
        settle(learner)
        assert learner.stale == len(old)
        learner.update_priorities([(1 << 62) | (50 << NUMBER_BITS)], 1.0)
        expect(RejectedError, lambda: settle(learner) or learner.poll(), "never issued such an id")
        learner.stop()


def fails_before_deaf_shards(comm: Comm, clients: Comm, shards: int) -> None:
    """Fail while no shard runs; how long the farewells took, in units of the longest of one."""
    servers = [int(Path(f"pid.{shard}").read_text()) for shard in range(shards)]
    begin = 0.0
    with suppress(ZeroDivisionError), ShardedActor(comm, RECORD, shards):
        for server in servers:
            os.kill(server, signal.SIGSTOP)
        begin = time.monotonic()
        raise ZeroDivisionError("this actor fails")
    farewells = (time.monotonic() - begin) / 2.0
    for server in servers:
        os.kill(server, signal.SIGCONT)
    Path("farewells").write_text(str(farewells))
