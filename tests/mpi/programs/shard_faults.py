"""What goes wrong among several shards: clients that play it, and machines that are slow."""

from __future__ import annotations

import os
import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from content import RECORD, batch
from hostile import Raw
from mpi4py import MPI
from steps import expect, settle

from libsumtree.errors import CheckpointError, RejectedError
from libsumtree.replay import ShardedActor, ShardedLearner
from libsumtree.replay.group import ShardGroup
from libsumtree.replay.messages import Code, Flag, Kind, Message
from libsumtree.replay.service import Service
from libsumtree.replay.shard_draws import ShardLearner
from libsumtree.replay.shard_folders import LeadFolder
from libsumtree.replay.sharded_actor import ShardActor

Comm = MPI.Intracomm
SECONDS = 20.0


def wait_until(done: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < deadline, f"no {what}"
        time.sleep(0.002)


# ---- machines ----


def slow_disk() -> None:
    """A disk that, while there is a file "disk.stops", takes nothing more; it says so."""
    fsync = os.fsync

    def slow(descriptor: int) -> None:
        if Path("disk.stops").exists():
            Path("disk.waits").touch()
            wait_until(lambda: not Path("disk.stops").exists(), "disk")
        fsync(descriptor)

    os.fsync = slow


def slow_words() -> None:
    """A processor that does something else after each message to another shard."""
    tell = ShardGroup.tell

    def slow(group: ShardGroup, *told: Any, **facts: Any) -> None:
        tell(group, *told, **facts)
        time.sleep(0.3)

    ShardGroup.tell = slow


def slow_ears() -> None:
    """A processor that does something else after each message from another shard."""
    hear = ShardGroup.hear

    def slow(group: ShardGroup) -> Any:
        group._comm.Iprobe()  # MPI looks at what has come, one message a call
        heard = hear(group)
        if heard is not None:
            time.sleep(0.5)
        return heard

    ShardGroup.hear = slow


def slow_service() -> None:
    """A shard that needs long for each turn, and then hears what was told meanwhile at once."""
    turn = Service.turn

    def slow(service: Service) -> bool:
        time.sleep(0.5)
        return turn(service)

    Service.turn = slow


def scarce_memory() -> None:
    """A shard that may take 64 MiB more than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + (64 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def watched_rounds() -> None:
    """Note each round of checkpoints that begins before the last one has ended."""
    begin, finish = LeadFolder.begin, LeadFolder.finish
    running: list[int] = []

    def noting_begin(folder: LeadFolder, *given: Any) -> Any:
        if running:
            Path("overlap").touch()
        begun = begin(folder, *given)
        running.append(begun.serial)
        return begun

    def noting_finish(folder: LeadFolder, saving: Any) -> Any:
        running.clear()
        return finish(folder, saving)

    LeadFolder.begin, LeadFolder.finish = noting_begin, noting_finish


# ---- checkpoints at the end ----


def learns_until_the_disk_stops(comm: Comm, clients: Comm, shards: int) -> None:
    with ShardedLearner(comm, RECORD, shards) as learner:
        clients.Barrier()
        Path("disk.stops").touch()
        learner.stop()


def adds_while_the_disk_waits(comm: Comm, clients: Comm, shards: int) -> None:
    """Add to shard 1 while its last file is being written; that is acknowledged."""
    with ShardedActor(comm, RECORD, shards) as actor:
        for client in actor.shards:
            client.add(*batch(client._replay_rank))
        settle(actor)
        clients.Barrier()
        wait_until(Path("disk.waits").exists, "write")
        actor.shards[1].add(*batch(2))
        settle(actor)
    Path("disk.stops").unlink()


class Raws:
    """A client of each shard that goes its own ways."""

    def __init__(self, comm: Comm, shards: int) -> None:
        self.raws = [Raw(comm, Flag.ACTOR, shard) for shard in range(shards)]
        for raw in self.raws:
            raw.hello()

    def add(self, shard: int, seed: int) -> None:
        """Add ten transitions, having passed over the word that the service ends."""
        self.raws[shard].add(*batch(seed, 10))
        self.await_(shard, Kind.ACK)

    def leave(self, shard: int) -> None:
        self.raws[shard].message(Kind.BYE)
        self.await_(shard, Kind.GOODBYE)

    def await_(self, shard: int, kind: Kind) -> None:
        while (answer := self.raws[shard].receive()).kind is Kind.STOPPING:
            pass
        assert (answer.kind, answer.code) == (kind, Code.OK), answer.text


def adds_and_leaves_at_once(comm: Comm, clients: Comm, shards: int) -> None:
    """What shard 1 tells comes while shard 0 takes the first word of it."""
    raws = Raws(comm, shards)
    raws.add(1, 0)
    Path("adding").touch()
    assert raws.raws[0].receive().kind is Kind.STOPPING
    raws.leave(0)
    raws.raws[1].add(*batch(1, 10))
    raws.raws[1].message(Kind.BYE)
    raws.await_(1, Kind.ACK)
    raws.await_(1, Kind.GOODBYE)


def leaves_shard_1_late(comm: Comm, clients: Comm, shards: int) -> None:
    """Lose a folder, and hold up the end for a while, with ever new transitions for shard 1."""
    raws = Raws(comm, shards)
    raws.add(1, 0)
    shutil.rmtree(Path(os.environ["LOST_FOLDER"]))
    Path("adding").touch()
    assert raws.raws[0].receive().kind is Kind.STOPPING
    raws.leave(0)
    for seed in range(1, 31):
        raws.add(1, seed)
        time.sleep(0.1)
    raws.leave(1)


def adds_to_shard_1_until_the_end(comm: Comm, clients: Comm, shards: int) -> None:
    """Lose a folder, and go only when shard 1 says so."""
    raws = Raws(comm, shards)
    raws.add(1, 0)
    shutil.rmtree(Path(os.environ["LOST_FOLDER"]))
    Path("adding").touch()
    assert raws.raws[0].receive().kind is Kind.STOPPING
    raws.leave(0)
    assert raws.raws[1].receive().kind is Kind.STOPPING
    raws.leave(1)


# ---- shards that nobody has come to ----


def comes_to_one_shard(comm: Comm, clients: Comm, shards: int) -> None:
    """Fill one shard, and have a state written before anybody has named a dtype to the other."""
    shard = int(os.environ["ONLY_SHARD"])
    with ShardActor(comm, RECORD, shards, shard, 60.0, 0.001, "matched") as actor:
        actor.add(*batch(shard))
        settle(actor)
    if shard == 0:
        with ShardLearner(comm, RECORD, shards, 0, 60.0, None, 0.001, "matched") as learner:
            learner.checkpoint({"step": np.int64(1)})
    Path("adding").touch()


def comes_to_shard_0_alone(comm: Comm, clients: Comm, shards: int) -> None:
    """Fill it; the other shard would have a buffer for the first state alone."""
    with ShardActor(comm, RECORD, shards, 0, 60.0, 0.001, "matched") as actor:
        actor.add(*batch(0))
        settle(actor)
    with ShardLearner(comm, RECORD, shards, 0, 60.0, None, 0.001, "matched") as learner:
        state = {"step": np.int64(1)}
        expect(CheckpointError, lambda: learner.checkpoint(state), "memory")
    Path("adding").touch()


def draws_more_than_memory_holds(comm: Comm, clients: Comm, shards: int) -> None:
    """Ask for 256 MiB of a ring of 1 MiB, and then for what there is room for."""
    large = np.dtype([("x", "u1", (1 << 14,))])
    with ShardedActor(comm, large, shards) as actor:
        actor.add(np.zeros(64, large), 1.0)
        settle(actor)
    with ShardedLearner(comm, large, shards) as learner:
        expect(RejectedError, lambda: learner.sample(1 << 14), "memory")
        assert len(learner.sample(10).ids) == 10
        learner.stop()


# ---- what is not a further shard's to do ----


def asks_shard_1_for_a_checkpoint(comm: Comm, clients: Comm, shards: int) -> None:
    with ShardedActor(comm, RECORD, shards) as actor:
        actor.add(*batch(0))
        settle(actor)
    with ShardedLearner(comm, RECORD, shards) as learner:
        state = {"step": np.int64(1)}
        expect(CheckpointError, lambda: learner.shards[1].checkpoint(state), "ask shard 0")
        assert learner.checkpoint(state).endswith(".manifest")
        assert len(learner.sample(10).ids) == 10
        learner.stop()


def sends_requests_that_refuse(comm: Comm, clients: Comm, shards: int) -> None:
    """Requests with a code, as only answers have; then all is as before."""
    roles = {Flag.ACTOR: Kind.ADD, Flag.LEARNER: Kind.DRAW}
    for role, kind in roles.items():
        raw = Raw(comm, role, 1)
        for sent in (kind, Kind.UPDATE, Kind.LIMIT, Kind.CHECKPOINT, Kind.HELLO):
            raw.hello()
            raw.send(Message(sent, count=3, code=Code.EMPTY).encode(b""))
            raw.expect(Kind.REFUSED, Code.PROTOCOL, f"{sent.name} with code EMPTY")
        raw.hello()
        raw.bye()
    with ShardedActor(comm, RECORD, shards) as actor:
        actor.add(*batch(0))
        settle(actor)
