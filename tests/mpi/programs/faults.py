"""Clients that die, dawdle or flood, and the ones beside them that must not suffer."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from content import RECORD, batch
from hostile import ITEM, Raw
from mpi4py import MPI
from steps import note

from libsumtree.errors import ReplayStopped
from libsumtree.replay import ActorClient, LearnerClient
from libsumtree.replay.messages import CONTROL_TAG, PAYLOAD_TAG, Code, Flag, Kind, Message, decode

Comm = MPI.Intracomm

DOOMED = -7
"""The action of every transition that the actor who dies is sending."""
DOOMED_ROWS = 1 << 20


def doomed() -> np.ndarray[Any, Any]:
    """Return a batch that no MPI sends in one piece."""
    records = np.resize(batch(7, 1000)[0], DOOMED_ROWS)
    records["action"] = DOOMED
    return records


# ---- an actor that is killed while it sends ----


def faulty_dies_while_sending(comm: Comm, clients: Comm) -> None:
    """Send honest batches, then a long one, and die with it under way."""
    records = doomed()
    raw = Raw(comm)
    raw.hello()
    raw.in_step(3)
    while not Path("saved").exists():
        time.sleep(0.001)
    message = {"count": len(records), "itemsize": ITEM, "payload": records.nbytes}
    raw.message(Kind.ADD, flags=Flag.DEFAULT, **message)
    raw.send(records.view(np.uint8), PAYLOAD_TAG)
    end = time.monotonic() + float(os.environ.get("SENDS_FOR", "0"))
    while time.monotonic() < end:  # MPI sends while it is asked for something
        comm.Iprobe(0, 99)
    note("died")
    os.kill(os.getpid(), signal.SIGKILL)


def faulty_goes_on(comm: Comm, clients: Comm) -> None:
    """The neighbour of that one: add before and after its death, draw, and end the service."""
    number = 0
    with ActorClient(comm, RECORD) as actor:
        while number < 200:
            records, priorities = batch(number, 50)
            actor.add(records, priorities)
            number += 1 if Path("died").exists() else 0
            note("saved")
        while actor.unacknowledged:
            actor.poll()
    with LearnerClient(comm, RECORD) as learner:
        drawn = learner.sample(256)
        late = drawn.transitions[drawn.transitions["action"] == DOOMED]
        assert set(map(bytes, late)) <= set(map(bytes, doomed()[:1000]))
        learner.update_priorities(drawn.ids, 1.0)
        learner.stop()
    note("went_on")


def faulty_waits_for_a_file(comm: Comm, clients: Comm) -> None:
    """Add in order for ever; let the other one die once a checkpoint is there."""
    number = 0
    files = Path(os.environ["FILES"])
    with ActorClient(comm, RECORD) as actor, suppress(ReplayStopped):
        while True:
            records, priorities = batch(number, 50)
            records["action"], records["reward"] = np.arange(number, number + 50), 1.0
            actor.add(records, priorities)
            number += 50
            if number == 5000:
                while not any(files.glob("replay-*.h5")):
                    actor.poll()
                note("saved")


# ---- a learner that comes again after a restart ----


def faulty_keeps_its_ids(comm: Comm, clients: Comm) -> None:
    """Draw before and after a checkpoint; the job is killed with these ids in hand."""
    with ActorClient(comm, RECORD) as actor:
        actor.add(*batch(1, 30))
    with LearnerClient(comm, RECORD) as learner:
        saved = learner.sample(16)
        learner.checkpoint({"step": np.int64(1)})
    with ActorClient(comm, RECORD) as actor:
        actor.add(*batch(2, 20))
    with LearnerClient(comm, RECORD) as learner:
        lost = learner.sample(64)
        np.savez("ids.tmp.npz", saved=saved.ids, lost=lost.ids[lost.ids >= 30])
        Path("ids.tmp.npz").rename("ids.npz")
        while True:
            learner.poll()
            time.sleep(0.002)


def faulty_comes_with_old_ids(comm: Comm, clients: Comm) -> None:
    """Ids of before: those that were lost are stale, though their numbers are used again."""
    with np.load(os.environ["OLD_IDS"]) as stored:
        saved, lost = stored["saved"], stored["lost"]
    with ActorClient(comm, RECORD) as actor:
        actor.add(*batch(3, 20))
    counts = []
    with LearnerClient(comm, RECORD) as learner:
        for ids in (saved, lost, np.concatenate([lost, saved])):
            before = learner.status.stale
            learner.update_priorities(ids, 9.0)
            while learner.unacknowledged:
                learner.poll()
            counts.append(learner.status.stale - before)
        learner.stop()
    note("stale", " ".join(map(str, [*counts, len(saved), len(lost)])))


# ---- a slow learner, and floods ----


def faulty_learns_slowly(comm: Comm, clients: Comm) -> None:
    """Draw 30 times with pauses, and see what the replay rank's memory does meanwhile."""
    memory = []
    with LearnerClient(comm, RECORD) as learner:
        pid = int(Path("pid.0").read_text())
        for _ in range(30):
            drawn = learner.sample(64)
            time.sleep(0.03)
            learner.update_priorities(drawn.ids, 1.0)
            memory.append(resident_kib(pid))
        status = learner.status
        learner.stop()
    np.savez("slow.npz", memory=memory, sampled=status.sampled, inserted=status.inserted)


def faulty_watches_a_flood(comm: Comm, clients: Comm) -> None:
    """Let the actors begin together; note the memory as the transitions come in, 50 times."""
    memory = []
    clients.Barrier()
    with LearnerClient(comm, RECORD) as learner:
        pid = int(Path("pid.0").read_text())
        for turn in range(50):
            while learner.sample(8).status.inserted < 6_000 * turn:
                time.sleep(0.002)
            memory.append(resident_kib(pid))
        learner.stop()
    np.savez("flood.npz", memory=memory)


def faulty_floods(comm: Comm, clients: Comm) -> None:
    """Add as fast as credits allow, until the end."""
    clients.Barrier()
    seed = 0
    records, priorities = batch(comm.Get_rank(), 50)
    with ActorClient(comm, RECORD) as actor, suppress(ReplayStopped):
        while True:
            actor.add(records, priorities)
            seed += 1
    assert actor.unacknowledged == 0


def faulty_floods_without_credit(comm: Comm, clients: Comm) -> None:
    """Send 5000 batches and take no answer; then take what answers there are."""
    raw = Raw(comm)
    raw.hello()
    pid = int(Path("pid.0").read_text())
    records, _ = batch(1, 10)
    memory = []
    for turn in range(5000):
        raw.add(records)
        if turn % 50 == 49:
            for _, request in raw.kept:
                request.Wait()
            raw.kept.clear()
            memory.append(resident_kib(pid))
    answers = [answer.code for answer in answers_of(comm)]
    raw.message(Kind.BYE)
    last = [*answers_of(comm)][-1]
    assert last.kind is Kind.GOODBYE, last
    codes = {"ok": answers.count(Code.OK), "credit": answers.count(Code.CREDIT)}
    np.savez("hostile.npz", memory=memory, answers=len(answers), **codes)


def answers_of(comm: Comm) -> Any:
    """Yield the answers until none has come for half a second, or the goodbye."""
    quiet = time.monotonic() + 0.5
    status = MPI.Status()
    while time.monotonic() < quiet:
        if not comm.Iprobe(0, CONTROL_TAG, status):
            time.sleep(0.001)
            continue
        data = np.empty(status.Get_count(MPI.BYTE), np.uint8)
        comm.Recv([data, MPI.BYTE], 0, CONTROL_TAG)
        quiet = time.monotonic() + 0.5
        yield decode(data, 0)


def resident_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


# ---- the end of an allocation ----


def faulty_computes_through_the_end(comm: Comm, clients: Comm) -> None:
    """Neither hears that the service ends nor sends a state: it is in a long computation."""
    LearnerClient(comm, RECORD)
    note("computing")
    time.sleep(600.0)


# ---- a soak ----


def faulty_soaks(comm: Comm, clients: Comm) -> None:
    """Flood with batches that differ, until the end."""
    batches = [batch(seed, 10 + seed) for seed in range(64)]
    turn = 0
    with ActorClient(comm, RECORD) as actor, suppress(ReplayStopped):
        while True:
            actor.add(*batches[turn % 64])
            turn += 1
    note(f"credits.{comm.Get_rank()}", str(actor.unacknowledged))


def faulty_soaks_slowly(comm: Comm, clients: Comm) -> None:
    """Draw and update with pauses, for as long as is asked for."""
    end = time.monotonic() + float(os.environ["SOAK_SECONDS"])
    with LearnerClient(comm, RECORD) as learner:
        while time.monotonic() < end:
            drawn = learner.sample(64)
            time.sleep(0.01)
            learner.update_priorities(drawn.ids, drawn.weights)
        learner.stop()
    note(f"credits.{comm.Get_rank()}", str(learner.unacknowledged + learner.requested))


# ---- a client that is given up ----


def faulty_gives_up(comm: Comm, clients: Comm) -> None:
    """Fail with a large batch, and a large header, under way to a replay rank that has stopped.

    Then come again.
    """
    process = int(Path("pid.0").read_text())
    records = batch(0, 200_000)[0]
    with suppress(ZeroDivisionError), ActorClient(comm, RECORD) as actor:
        os.kill(process, signal.SIGSTOP)
        actor.add(records)
        actor.add(records, 1.0)
        raise ZeroDivisionError("this actor fails")
    del actor
    gc.collect()
    other = [np.full(records.nbytes, 7, np.uint8) for _ in range(4)]
    os.kill(process, signal.SIGCONT)
    with ActorClient(comm, RECORD) as actor:
        actor.add(*batch(1, 10))
        while actor.unacknowledged:
            actor.poll()
    del other


def faulty_sends_too_much(comm: Comm, clients: Comm) -> None:
    """Send messages that are longer than any count; of the memory nothing is touched."""
    raw = Raw(comm)
    raw.hello()
    data = np.zeros(1 << 31, np.uint8)
    for tag, code, text in (
        (CONTROL_TAG, Code.PROTOCOL, "whose length MPI gives as"),
        (PAYLOAD_TAG, Code.PAYLOAD, "that nothing announced"),
    ):
        raw.kept.append((data, comm.Isend([data, MPI.BYTE], 0, tag)))
        raw.expect(Kind.REFUSED, code, text)
        raw.hello()
    raw.message(Kind.ADD, count=10, itemsize=ITEM, payload=10 * ITEM, flags=Flag.DEFAULT)
    raw.kept.append((data, comm.Isend([data, MPI.BYTE], 0, PAYLOAD_TAG)))
    raw.expect(Kind.ACK, Code.PAYLOAD, "where 280 were announced")
    raw.message(Kind.BYE)
    raw.expect(Kind.GOODBYE, Code.OK)


# ---- memory that is gone ----


def faulty_cannot_be_read(comm: Comm, clients: Comm) -> None:
    """Announce a message, and take away its memory, which MPI reads from the other process."""
    if not may_read(int(Path("pid.0").read_text())):
        note("no_reading")
        with ActorClient(comm, RECORD):
            return
    raw = Raw(comm)
    raw.hello()
    raw.in_step(0)
    count = 1 << 16
    data = Message(Kind.ADD, 99, count, ITEM, count * ITEM).encode(bytes(8 * count))
    memory = mmap.mmap(-1, len(data) + mmap.PAGESIZE)
    view = np.frombuffer(memory, np.uint8)[: len(data)]
    view[:] = np.frombuffer(data, np.uint8)
    request = comm.Isend([view, MPI.BYTE], 0, CONTROL_TAG)
    place, length = ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(len(memory))
    assert ctypes.CDLL(None).mprotect(place, length, 0) == 0
    raw.kept.append((view, request))
    raw.expect(Kind.REFUSED, Code.PROTOCOL, "could not be received")
    raw.hello()
    raw.in_step(1)
    raw.bye()


def may_read(process: int) -> bool:
    """Whether one process may read the memory of another here, as MPI does then."""
    with suppress(OSError), Path(f"/proc/{process}/mem").open("rb") as memory:
        line = Path(f"/proc/{process}/maps").read_text().splitlines()[0]
        memory.seek(int(line.split("-")[0], 16))
        return len(memory.read(1)) == 1
    return False
