"""What honest clients do, one function a role."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
from content import RECORD, SIZES, batch
from mpi4py import MPI
from steps import expect, settle

from libsumtree.errors import (
    ArgumentError,
    ArgumentTypeError,
    CheckpointError,
    PriorityError,
    RejectedError,
    ReplayStopped,
    ReplayTimeoutError,
    ShapeError,
)
from libsumtree.replay import ActorClient, LearnerClient, ShardedActor

Comm = MPI.Intracomm

LARGE_RECORD = [("x", "u1", 1 << 20)]

# ---- the round trip: the test does the same with a buffer of its own ----


def adds(comm: Comm, clients: Comm) -> None:
    with ActorClient(comm, RECORD) as actor:
        for seed, count in enumerate(SIZES):
            records, priorities = batch(seed, count)
            actor.add(records[::-1], None if seed % 4 == 3 else priorities[::-1])
            records["reward"] = -1.0
            while actor.unacknowledged:
                actor.poll()
            clients.Barrier()
            clients.Barrier()


def draws(comm: Comm, clients: Comm) -> None:
    drawn: dict[str, np.ndarray[Any, Any]] = {}
    with LearnerClient(comm, RECORD) as learner:
        for round_, _ in enumerate(SIZES):
            clients.Barrier()
            learner.request(32)
            learner.request(7, beta=1.0)
            for n in (32, 7):
                sample = learner.sample(n)
                for name in ("ids", "indices", "weights", "transitions"):
                    drawn[f"{name}{n}.{round_}"] = getattr(sample, name)
                learner.update_priorities(sample.ids, 1.0 + np.arange(n))
            while learner.unacknowledged:
                learner.poll()
            drawn[f"total.{round_}"] = np.float64(sample.status.total)
            clients.Barrier()
        learner.stop()
    drawn["stale"] = np.int64(learner.status.stale)
    np.savez("drawn.npz", **drawn)


# ---- endless and idle clients ----


def adds_for_ever(comm: Comm, clients: Comm) -> None:
    """Add until the replay rank is ending; then note how many transitions it took."""
    first = seed = 1_000_000 * comm.Get_rank()
    with ActorClient(comm, RECORD) as actor, suppress(ReplayStopped):
        while True:
            actor.add(*batch(seed))
            seed += 1
            Path(f"flying.{comm.Get_rank()}").touch()
    Path(f"added.{comm.Get_rank()}").write_text(str(50 * (seed - first)))


def adds_some(comm: Comm, clients: Comm) -> None:
    with ActorClient(comm, RECORD) as actor:
        actor.add(*batch(1, 30))


def adds_to_two_shards(comm: Comm, clients: Comm) -> None:
    with ShardedActor(comm, RECORD, 2) as actor:
        for seed in range(2):
            actor.add(*batch(seed, 30))
            while actor.unacknowledged:
                actor.poll()


def adds_compressible(comm: Comm, clients: Comm) -> None:
    with ActorClient(comm, RECORD) as actor:
        for seed in range(20):
            records, priorities = batch(seed, 200)
            actor.add(np.zeros_like(records), priorities)


def adds_large(comm: Comm, clients: Comm) -> None:
    """Add batches that no MPI sends eagerly; their ring holds one and a half of them."""
    with ActorClient(comm, RECORD) as actor:
        for seed in range(5):
            actor.add(*batch(seed, 20_000))


def adds_large_and_stops(comm: Comm, clients: Comm) -> None:
    adds_large(comm, clients)
    with LearnerClient(comm, RECORD) as learner:
        learner.stop()


def never_comes(comm: Comm, clients: Comm) -> None:
    """A rank that is no client: it outlives the replay rank's grace."""
    while not Path("summary.json").exists():
        time.sleep(0.01)


def loses_its_folder(comm: Comm, clients: Comm) -> None:
    with ActorClient(comm, RECORD) as actor:
        actor.add(*batch(0))
    with LearnerClient(comm, RECORD) as learner:
        name = learner.checkpoint({"step": np.int64(1)})
        folder = Path(os.environ["LOST_FOLDER"])
        assert (folder / name).exists()
        shutil.rmtree(folder)
        expect(CheckpointError, lambda: learner.checkpoint({"step": np.int64(2)}), "cannot write")
        assert len(learner.sample(10).ids) == 10
        learner.stop()


def outgrows_its_disk(comm: Comm, clients: Comm) -> None:
    """Add until a checkpoint does not fit any more; then the service must go on all the same."""
    with ActorClient(comm, RECORD) as actor:
        actor.add(*batch(0))
        while actor.unacknowledged:
            actor.poll()
    with LearnerClient(comm, RECORD) as learner:
        learner.checkpoint({"step": np.int64(1)})
        large = {"weights": np.zeros(300_000)}
        expect(CheckpointError, lambda: learner.checkpoint(large), "cannot write")
        assert len(learner.sample(10).ids) == 10
        expect(CheckpointError, lambda: learner.checkpoint(large), "cannot write")
        learner.stop()


def adds_in_order(comm: Comm, clients: Comm) -> None:
    """Flood a ring of 30,000 thrice; then add 4,000 whenever the learner has said that it saves."""
    batches = ordered_batches()
    with ActorClient(comm, RECORD) as actor, suppress(ReplayStopped):
        for records, priorities in islice(batches, 450):
            actor.add(records, priorities)
        clients.send("flooded", dest=0)
        while not actor.stopping:
            actor.poll()
            said = [clients.recv(source=0) for _ in iter(lambda: clients.Iprobe(source=0), False)]
            for records, priorities in islice(batches, 20 if said else 0):
                actor.add(records, priorities)


def ordered_batches() -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Yield batches of transitions whose action is their number."""
    for number in count(0, 200):
        records, priorities = batch(number, 200)
        records["action"] = np.arange(number, number + 200)
        yield records, priorities


def adds_and_idles(comm: Comm, clients: Comm) -> None:
    """Every batch is acknowledged before this client idles; what is acknowledged must survive."""
    with ActorClient(comm, RECORD) as actor:
        for seed in range(8):
            actor.add(*batch(seed))
        while actor.unacknowledged:
            actor.poll()
        Path("idle").touch()
        idle(actor)


def adds_and_idles_three_seconds(comm: Comm, clients: Comm) -> None:
    with ActorClient(comm, RECORD) as actor:
        actor.add(*batch(0))
        time.sleep(3.0)


def idles(comm: Comm, clients: Comm) -> None:
    with ActorClient(comm, RECORD) as actor:
        idle(actor)


def learner_idles(comm: Comm, clients: Comm) -> None:
    with LearnerClient(comm, RECORD) as learner:
        idle(learner)


def idle(client: Any) -> None:
    while not client.stopping:
        client.poll()
        time.sleep(0.002)


def learns_for_ever(comm: Comm, clients: Comm) -> None:
    """Draw, update, and have checkpoints written with a state that names the step."""
    with LearnerClient(comm, RECORD) as learner:
        state = {} if learner.state is None else dict(learner.state)
        np.savez("found.npz", epoch=np.int64(learner.epoch), **state)
        step = int(state.get("step", 0))
        weights = state.get("network/layer0.weight", np.zeros((3, 2), np.float32))
        while not learner.stopping:
            sample = learner.sample(32)
            learner.update_priorities(sample.ids, np.arange(1.0, 33.0))
            step += 1
            weights = weights + np.float32(0.5)
            if step % 20 == 0:
                name = learner.checkpoint(state_of(step, weights))
                Path(f"{name}.step").write_text(str(step))
            if step % 100 == 0:
                Path("hundred").touch()


def draws_till_the_end(comm: Comm, clients: Comm) -> None:
    """Draw; save with the actor told before, and note when five files stand since its flood."""
    written = 0
    with LearnerClient(comm, RECORD) as learner, suppress(ReplayStopped):
        for step in range(1 << 40):
            sample = learner.sample(32)
            learner.update_priorities(sample.ids, np.arange(1.0, 33.0))
            if learner.checkpoint_due:
                clients.send("saving", dest=1)
                learner.checkpoint({"step": np.int64(step)})
                written += clients.Iprobe(source=1)
                if written == 5:
                    Path("written").touch()


def state_of(step: int, weights: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    return {
        "step": np.int64(step),
        "network/layer0.weight": weights,
        "empty": np.zeros((0, 3), np.float64),
        "words": np.array([2**64 - 1, 0], np.uint64),
        "done": np.array([True, False]),
    }


def learns_a_little(comm: Comm, clients: Comm) -> None:
    """Go on for one step; the last state comes with the leave-taking."""
    learner = LearnerClient(comm, RECORD)
    state = learner.state
    assert state is not None
    np.savez("found.npz", epoch=np.int64(learner.epoch), **state)
    first = learner.sample(32)
    np.savez("first.npz", ids=first.ids, indices=first.indices, transitions=first.transitions)
    learner.update_priorities(first.ids, np.ones(32))
    learner.stop()
    learner.close({**state, "step": state["step"] + 1})
    learner.close()


# ---- pacing ----


def paces(comm: Comm, clients: Comm) -> None:
    with LearnerClient(comm, RECORD) as learner:
        balances = []
        for _ in range(40):
            status = learner.sample(64).status
            balances.append(4.0 * status.inserted - status.sampled)
        np.savez("balances.npz", balances=np.array(balances))
        learner.stop()


def prefetches(comm: Comm, clients: Comm) -> None:
    """Two draws are under way whenever one is given, and each says what it missed."""
    with ActorClient(comm, RECORD) as actor:
        actor.add(*batch(0))
    with LearnerClient(comm, RECORD, prefetch=2) as learner:
        lags = []
        for _ in range(6):
            sample = learner.sample(64)
            assert learner.requested == 2
            lags.append(sample.lag)
            learner.update_priorities(sample.ids, 1.0)
            while learner.unacknowledged:
                learner.poll()
        assert lags == [0, 1, 2, 2, 2, 2]
        learner.stop()


def asks_and_stops(comm: Comm, clients: Comm) -> None:
    """What is asked for before the word to end is given, however many batches come."""
    with LearnerClient(comm, RECORD) as learner:
        for _ in range(20):
            learner.sample(64)
        for _ in range(3):
            learner.request(64)
        learner.stop()
        for _ in range(3):
            learner.sample(64)


def moves_large(comm: Comm, clients: Comm) -> None:
    """Batches, draws and states of 1.8 MB; how long each kind took."""
    rows, priorities = batch(0, 65_536)
    seconds = []
    with ActorClient(comm, RECORD) as actor:
        begin = time.monotonic()
        for _ in range(40):
            actor.add(rows, priorities)
        while actor.unacknowledged:
            time.sleep(0.001)  # an actor with something else to do
            actor.poll()
        seconds.append(time.monotonic() - begin)
    with LearnerClient(comm, RECORD, prefetch=2) as learner:
        begin = time.monotonic()
        for _ in range(40):
            learner.sample(65_536)
        seconds.append(time.monotonic() - begin)
        begin = time.monotonic()
        for _ in range(10):
            learner.checkpoint({"weights": np.zeros(1 << 18)})
        seconds.append(time.monotonic() - begin)
        learner.stop()
    np.savez("seconds.npz", seconds=np.array(seconds))


def exhausts_credits(comm: Comm, clients: Comm) -> None:
    """No learner draws: acknowledgements stop, and so must this actor."""
    with ActorClient(comm, RECORD, timeout=0.5) as actor:
        sent = 0
        message = ""
        try:
            while sent < 1000:
                actor.add(*batch(sent))
                sent += 1
        except ReplayTimeoutError as error:
            message = str(error)
        Path("credits").write_text(f"{sent} {actor.unacknowledged} {message}")


def asks_too_much(comm: Comm, clients: Comm) -> None:
    with LearnerClient(comm, RECORD, timeout=0.5) as learner:
        text = ""
        try:
            learner.sample(64)
        except RejectedError as error:
            text = f"rejected: {error}"
        clients.Barrier()
        Path("asked").write_text(text)
        learner.stop()


def meets_at_barrier(comm: Comm, clients: Comm) -> None:
    with ActorClient(comm, RECORD) as actor:
        actor.add(*batch(0))
        clients.Barrier()


def waits_for_sample(comm: Comm, clients: Comm) -> None:
    """A request that waits: first it times out, then the service ends."""
    with LearnerClient(comm, RECORD) as learner:
        outcome = []
        try:
            learner.sample(64, timeout=0.2)
        except ReplayTimeoutError as error:
            outcome.append(str(error))
        learner.stop()
        try:
            learner.sample(64)
        except ReplayStopped:
            outcome.append("stopped")
        Path("outcome").write_text("\n".join(outcome))


# ---- arguments that are refused on the spot ----


def argues(comm: Comm, clients: Comm) -> None:
    records, priorities = batch(0, 4)
    bad = priorities.copy()
    bad[2] = np.nan
    with ActorClient(comm, RECORD) as actor:
        expect(PriorityError, lambda: actor.add(records, bad), "priorities[2] is nan")
        expect(ShapeError, lambda: actor.add(records, priorities[:3]), "(4,) is needed")
        expect(ShapeError, lambda: actor.add(records.reshape(2, 2)), "(n,) is needed")
        other = np.zeros(4, [("x", "f4")])
        expect(ArgumentTypeError, lambda: actor.add(other), "record dtype")
        expect(ArgumentError, lambda: actor.add(np.zeros(101, RECORD)), "at most 100")
        actor.add(records[:0])
        actor.add(records, 2.0)
    with LearnerClient(comm, RECORD) as learner:
        expect(ArgumentError, lambda: learner.request(0), "1 .. 100")
        expect(ArgumentError, lambda: learner.request(101), "1 .. 100")
        sample = learner.sample(4)
        assert set(sample.transitions["action"]) <= set(records["action"])
        learner.request(5)
        expect(ArgumentError, lambda: learner.sample(4), "is for 5")
        learner.sample(5)
        expect(PriorityError, lambda: learner.update_priorities(sample.ids, -1.0), "priorities[0]")
        learner.update_priorities([10**6], 1.0)
        expect(RejectedError, lambda: settle(learner), "never issued")
        expect(CheckpointError, lambda: learner.checkpoint({}), "no checkpoint folder")
        expect(ArgumentTypeError, lambda: learner.update_priorities([0.5], 1.0), "integer")


def sends_more_than_a_message_holds(comm: Comm, clients: Comm) -> None:
    """Records of 32 MiB, of which 2 GiB hold not quite 64; nobody ever writes to these."""
    record = np.dtype([("x", "u1", 1 << 25)])
    with ActorClient(comm, record) as actor:
        rows = np.zeros(64, record)
        expect(ArgumentError, lambda: actor.add(rows, 1.0), "one message holds at most 63")
        assert actor.unacknowledged == 0
    with LearnerClient(comm, record) as learner:
        expect(ArgumentError, lambda: learner.request(64), "1 .. 63 are possible")


def other_record(comm: Comm, clients: Comm) -> None:
    expect(RejectedError, lambda: ActorClient(comm, [("x", "<f8")]), "is not the buffer's")
    ActorClient(comm, RECORD).close()


# ---- failures ----


def comes_back_late(comm: Comm, clients: Comm) -> None:
    """Compute for longer than the grace; the word that the service ended came meanwhile."""
    learner = LearnerClient(comm, RECORD, timeout=20.0)
    Path("busy").touch()
    time.sleep(1.5)
    expect(ReplayStopped, lambda: learner.sample(4), "ending")
    Path("told").touch()


def fails(comm: Comm, clients: Comm) -> None:
    with ActorClient(comm, RECORD) as actor:
        actor.add(*batch(0))
        raise ZeroDivisionError("this actor fails")


def fails_and_says_so(comm: Comm, clients: Comm) -> None:
    """The failure is caught by the program, so the job goes on."""
    try:
        with LearnerClient(comm, RECORD):
            raise ZeroDivisionError("this learner fails")
    except ZeroDivisionError:
        pass


def leaves_without_a_word(comm: Comm, clients: Comm) -> None:
    ActorClient(comm, RECORD)
    clients.Barrier()


def stops_at_barrier(comm: Comm, clients: Comm) -> None:
    with LearnerClient(comm, RECORD) as learner:
        clients.Barrier()
        learner.stop()


def comes_twice(comm: Comm, clients: Comm) -> None:
    """A learner that is started again finds its old ids valid or stale, never wrong."""
    with ActorClient(comm, RECORD) as actor:
        actor.add(*batch(0))
    with LearnerClient(comm, RECORD) as learner:
        before = learner.sample(8)
    with ActorClient(comm, RECORD) as actor:
        for seed in range(1, 6):
            actor.add(*batch(seed))
    with LearnerClient(comm, RECORD) as learner:
        learner.update_priorities(before.ids, 1.0)
        learner.sample(8)
        assert learner.status.stale == 8, learner.status


def comes_again_and_again(comm: Comm, clients: Comm) -> None:
    """Leave three times before another rank comes for the first time."""
    for seed in range(3):
        with ActorClient(comm, RECORD) as actor:
            actor.add(*batch(seed))
    clients.Barrier()


def comes_last(comm: Comm, clients: Comm) -> None:
    clients.Barrier()
    with ActorClient(comm, RECORD) as actor:
        actor.add(*batch(3))


def comes_with_large_records(comm: Comm, clients: Comm) -> None:
    """Nobody has memory for these; the refusal is no reason for the replay rank to wait on."""
    expect(RejectedError, lambda: ActorClient(comm, LARGE_RECORD), "more than the")
    clients.Barrier()


def insists_on_large_records(comm: Comm, clients: Comm) -> None:
    """Come with them twice, and stand for one client all the same."""
    expect(RejectedError, lambda: ActorClient(comm, LARGE_RECORD), "more than the")
    comes_with_large_records(comm, clients)
