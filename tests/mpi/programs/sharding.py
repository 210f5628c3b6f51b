"""What clients of several shards do, one function a role."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from content import RECORD, batch
from mpi4py import MPI
from steps import expect, settle

from libsumtree.errors import (
    ArgumentError,
    CheckpointError,
    EmptyTreeError,
    IdError,
    RejectedError,
    ReplayStopped,
    ReplayTimeoutError,
    WorldError,
)
from libsumtree.replay import ActorClient, LearnerClient, ShardedActor, ShardedLearner

Comm = MPI.Intracomm
CAPACITY = 256
DRAWS, SIZE = 6, 100


def fills_blocks(comm: Comm, clients: Comm, shards: int) -> None:
    """Give each shard its block of the whole: what one big ring would hold there."""
    records, priorities = batch(0, CAPACITY)
    priorities[::5] = 0.0
    size = CAPACITY // shards
    with ShardedActor(comm, RECORD, shards) as actor:
        for shard, client in enumerate(actor.shards):
            part = slice(shard * size, (shard + 1) * size)
            client.add(records[part], priorities[part])
        settle(actor)
        clients.Barrier()
        clients.Barrier()


def draws_blocks(comm: Comm, clients: Comm, shards: int) -> None:
    """Draw with updates in between and without; two requests in flight; then very many."""
    drawn: dict[str, Any] = {}
    clients.Barrier()
    with ShardedLearner(comm, RECORD, shards) as learner:
        assert learner.status.total > 0.0
        for step in range(DRAWS):
            if step % 3 == 2:
                learner.request(7, beta=1.0)
                keep(drawn, f"{step}.7", learner.sample(7))
            sample = learner.sample(SIZE)
            keep(drawn, f"{step}.{SIZE}", sample)
            if step % 2:
                learner.update_priorities(sample.ids, new_priorities(step))
        settle(learner)
        drawn["status.min"] = learner.status.min
        drawn["status.max"] = learner.status.max
        counts = np.zeros(CAPACITY, np.int64)
        for _ in range(16):
            counts += np.bincount(learner.sample(62_500).indices, minlength=CAPACITY)
        drawn["counts"] = counts
        learner.stop()
    np.savez("drawn.npz", **drawn)
    clients.Barrier()


def new_priorities(step: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(100 + step).random(SIZE)


def keep(drawn: dict[str, Any], name: str, sample: Any) -> None:
    for field in ("indices", "weights", "transitions"):
        drawn[f"{field}.{name}"] = getattr(sample, field)
    drawn[f"total.{name}"] = sample.status.total


# ---- the edges ----


def fills_the_edges(comm: Comm, clients: Comm, shards: int) -> None:
    """Add to one shard at a time: nothing of mass, mass to one alone, the default to the other."""
    with ShardedActor(comm, RECORD, shards) as actor:
        clients.Barrier()
        for shard, count, priorities in ((0, 4, 0.0), (1, 3, 2.0), (0, 2, None)):
            clients.Barrier()
            records, _ = batch(shard, count)
            others = max(c.largest for c in actor.shards if c is not actor.shards[shard])
            actor.shards[shard].add_beside(records, priorities, others)
            settle(actor)
            clients.Barrier()


def draws_the_edges(comm: Comm, clients: Comm, shards: int) -> None:
    clients.Barrier()
    expect(WorldError, lambda: ShardedLearner(comm, RECORD, 9), "this is rank")
    expect(WorldError, lambda: LearnerClient(comm, RECORD), f"one of {shards} shards")
    expect(WorldError, lambda: ActorClient(comm, RECORD), "use ShardedActor")
    expect(RejectedError, lambda: ShardedActor(comm, [("x", "<f8")], shards), "is not the buffer's")
    with ShardedLearner(comm, RECORD, shards) as learner:
        expect(ArgumentError, lambda: learner.request(0), "1 .. ")
        expect(ReplayTimeoutError, lambda: learner.sample(8, timeout=0.2), "no sample of 8")
        assert learner.requested == 1
        clients.Barrier()
        clients.Barrier()
        expect(EmptyTreeError, lambda: learner.sample(8), "no shard holds a positive mass")
        assert learner.requested == 0
        assert learner.status.size == 4
        expect(EmptyTreeError, lambda: learner.sample(8), "no shard holds a positive mass")
        expect(IdError, lambda: learner.update_priorities([-1], 1.0), "no shard ever issued")
        clients.Barrier()
        clients.Barrier()
        sample = learner.sample(64)
        assert set(sample.indices) == {CAPACITY // 2 + i for i in range(3)}, sample.indices
        assert (sample.weights == 1.0).all()
        learner.update_priorities(sample.ids, 0.25)
        assert set(learner.sample(64).indices) == set(sample.indices)
        assert learner.status.max == 0.25**0.5
        clients.Barrier()
        clients.Barrier()
        # The default in shard 0 is the largest mass that shard 1 told the actor of.
        assert learner.sample(500).status.min == 0.25**0.5
        assert set(learner.sample(500).indices) >= {4, 5}
        assert learner.status.max == 2.0**0.5
        assert learner.status.total == 2 * 2.0**0.5 + 3 * 0.25**0.5
        assert learner.status.clamped == 0
        learner.stop()


# ---- several learners ----


def learns_as_0(comm: Comm, clients: Comm, shards: int) -> None:
    learns(comm, clients, shards, 0)


def learns_as_1(comm: Comm, clients: Comm, shards: int) -> None:
    learns(comm, clients, shards, 1)


def learner_of(comm: Comm, shards: int, number: int) -> LearnerClient | ShardedLearner:
    if shards == 1:
        return LearnerClient(comm, RECORD, learner=number)
    return ShardedLearner(comm, RECORD, shards, learner=number)


def learns(comm: Comm, clients: Comm, shards: int, number: int) -> None:
    """Draw from a stream of one's own; learner 0 goes on from what is there already."""
    clients.Barrier()
    with learner_of(comm, shards, number) as learner:
        clients.Barrier()
        expect(RejectedError, lambda: learner_of(comm, shards, 1 - number), "a number of its own")
        clients.Barrier()
    clients.Barrier()
    with learner_of(comm, shards, number) as learner:
        drawn = [learner.sample(50) for _ in range(4)]
        clients.Barrier()
        clients.Barrier()
        if number == 1:  # all of these transitions are gone
            learner.update_priorities(drawn[0].ids, 1.0)
            settle(learner)
            assert learner.stale == 50
        drawn.append(learner.sample(50))
        clients.Barrier()
        if number == 0:
            assert learner.stale == 0
            if learner.checkpointing:
                learner.checkpoint({"step": np.int64(5)})
            learner.stop()
        arrays = {f"indices.{i}": sample.indices for i, sample in enumerate(drawn)}
        np.savez(f"drawn.{number}.npz", **arrays)


def replaces_all(comm: Comm, clients: Comm, shards: int) -> None:
    """Fill the shards, and once more when the learners have drawn, with the same masses."""
    with ShardedActor(comm, RECORD, shards) as actor:
        for round_ in range(2):
            if round_:
                for _ in range(4):
                    clients.Barrier()
            records, priorities = batch(round_, CAPACITY)[0], batch(0, CAPACITY)[1]
            size = CAPACITY // shards
            for shard, client in enumerate(actor.shards):
                part = slice(shard * size, (shard + 1) * size)
                client.add(records[part], priorities[part])
            settle(actor)
            clients.Barrier()
        clients.Barrier()


def goes_on_as_0(comm: Comm, clients: Comm, shards: int) -> None:
    goes_on(comm, clients, shards, 0)


def goes_on_as_1(comm: Comm, clients: Comm, shards: int) -> None:
    goes_on(comm, clients, shards, 1)


def goes_on(comm: Comm, clients: Comm, shards: int, number: int) -> None:
    with learner_of(comm, shards, number) as learner:
        assert learner.state is not None
        assert learner.state["step"] == 5
        indices = learner.sample(50).indices
        clients.Barrier()
        learner.stop()
    np.savez(f"on.{number}.npz", indices=indices, epoch=learner.epoch)


# ---- endings ----


def adds_for_ever(comm: Comm, clients: Comm, shards: int) -> None:
    """Add until a replay rank is ending; note how many transitions were taken by any."""
    count = 0
    with ShardedActor(comm, RECORD, shards) as actor, suppress(ReplayStopped):
        while True:
            actor.add(*batch(1_000_000 * comm.Get_rank() + count))
            count += 1
            if count == 20:
                Path(f"flying.{comm.Get_rank()}").touch()
    Path(f"added.{comm.Get_rank()}").write_text(str(50 * count))


def draws_for_ever(comm: Comm, clients: Comm, shards: int) -> None:
    """Draw and update until a replay rank is ending; the last state comes with the leave-taking."""
    step = 0
    learner = ShardedLearner(comm, RECORD, shards)
    with suppress(ReplayStopped):
        while True:
            sample = learner.sample(32)
            learner.update_priorities(sample.ids, np.arange(1.0, 33.0))
            step += 1
            if step == 20:
                Path("drawing").touch()
    learner.close({"step": np.int64(step)})
    Path("steps").write_text(str(step))


def writes_states(comm: Comm, clients: Comm, shards: int) -> None:
    """Three states, told apart by their step; the last one comes after one more transition."""
    with ShardedActor(comm, RECORD, shards) as actor:
        for seed in range(shards):
            actor.add(*batch(seed))
        settle(actor)
    with ShardedLearner(comm, RECORD, shards) as learner:
        names = [learner.checkpoint({"step": np.int64(step)}) for step in range(3)]
        Path("names").write_text(" ".join(names))
        learner.stop()


def looks(comm: Comm, clients: Comm, shards: int) -> None:
    """Note what is there after a restart."""
    learner: LearnerClient | ShardedLearner = (
        LearnerClient(comm, RECORD) if shards == 1 else (ShardedLearner(comm, RECORD, shards))
    )
    with learner:
        sample = learner.sample(200)
        status = learner.status
        np.savez(
            "looked.npz",
            step=-1 if learner.state is None else learner.state["step"],
            size=status.size,
            inserted=status.inserted,
            total=status.total,
            indices=sample.indices,
            transitions=sample.transitions,
        )
        learner.stop()


def loses_a_folder(comm: Comm, clients: Comm, shards: int) -> None:
    with ShardedActor(comm, RECORD, shards) as actor:
        for seed in range(4):
            actor.add(*batch(seed))
        settle(actor)
    with ShardedLearner(comm, RECORD, shards) as learner:
        name = learner.checkpoint({"step": np.int64(1)})
        folder = Path(os.environ["LOST_FOLDER"])
        assert (folder / name).exists()
        shutil.rmtree(folder / "shard-0001")
        lost = {"step": np.int64(2)}
        expect(CheckpointError, lambda: learner.checkpoint(lost), "shard 1: cannot write")
        assert len(learner.sample(10).ids) == 10
        learner.stop()


def fails_and_says_so(comm: Comm, clients: Comm, shards: int) -> None:
    """The failure is caught by the program, so the job goes on."""
    clients.Barrier()
    with suppress(ZeroDivisionError), ShardedLearner(comm, RECORD, shards) as learner:
        learner.request(10)
        raise ZeroDivisionError("this learner fails")


def adds_a_little(comm: Comm, clients: Comm, shards: int) -> None:
    with ShardedActor(comm, RECORD, shards) as actor:
        for seed in range(4):
            actor.add(*batch(seed))
        settle(actor)
        clients.Barrier()
        while not actor.stopping:
            actor.poll()
            time.sleep(0.002)


def paces(comm: Comm, clients: Comm, shards: int) -> None:
    """Requests larger than the ratio has seen, with one credit each: nobody waits for ever."""
    with ShardedLearner(comm, RECORD, shards) as learner:
        for _ in range(40):
            learner.sample(64)
        status = learner.status
        assert learner.rate_limit().min_size_to_sample == 120
        expect(RejectedError, lambda: learner.set_rate_limit(10**6), "capacity")
        assert learner.rate_limit().samples_per_insert == 0.5
        limit = learner.set_rate_limit(100, 2.0, 300.0)
        assert (limit.min_size_to_sample, limit.error_buffer) == (100, 300.0)
        assert learner.shards[1].rate_limit().error_buffer == 150.0
        np.savez("paced.npz", inserted=status.inserted, sampled=status.sampled)
        learner.stop()


def expects_two_shards(comm: Comm, clients: Comm, shards: int) -> None:
    ShardedActor(comm, RECORD, 2)


def writes_states_alone(comm: Comm, clients: Comm, shards: int) -> None:
    with ActorClient(comm, RECORD) as actor:
        for seed in range(2):
            actor.add(*batch(seed))
        settle(actor)
    with LearnerClient(comm, RECORD) as learner:
        for step in range(3):
            learner.checkpoint({"step": np.int64(step)})
        learner.stop()
