"""Clients that wait, give up, and go on; one function a role."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from content import RECORD, batch
from mpi4py import MPI
from steps import expect

from libsumtree.errors import (
    ArgumentError,
    ArgumentTypeError,
    RejectedError,
    ReplayStopped,
    ReplayTimeoutError,
)
from libsumtree.replay import ActorClient, LearnerClient, RateLimit
from libsumtree.replay.channel import Channel, Malformed
from libsumtree.replay.messages import PAYLOAD_TAG, Kind, Message
from libsumtree.replay.status import ReplayStatus
from libsumtree.replay.terms import Terms

Comm = MPI.Intracomm


def timed_out(call: Any) -> list[str]:
    """Return what was waited for, and the message."""
    try:
        call()
    except ReplayTimeoutError as error:
        return [error.waits_for, str(error)]
    return ["nothing", ""]


def note(name: str, value: Any) -> None:
    Path(name).write_text(json.dumps(value))


# ---- the rate limiter changes while it runs ----


def waiting_adds_120(comm: Comm, clients: Comm) -> None:
    with ActorClient(comm, RECORD) as actor:
        actor.add(*batch(0, 120))
    clients.Barrier()


def waiting_changes_limit(comm: Comm, clients: Comm) -> None:
    with LearnerClient(comm, RECORD) as learner:
        clients.Barrier()
        asked = learner.rate_limit()
        waits = timed_out(lambda: learner.sample(64, timeout=0.4))
        refuse_limits(learner)
        assert learner.rate_limit() == asked
        # Too early for an answer; the one that comes late is nobody's.
        timed_out(lambda: learner.set_rate_limit(1000, 3.0, 64.0, timeout=0.0))
        now = learner.set_rate_limit(100, 2.0)
        assert learner.rate_limit() == now == RateLimit(100, 2.0, None)
        sample = learner.sample(64)
        note("limit.json", [asked.to_json(), waits, len(sample.ids)])
        learner.stop()


def refuse_limits(learner: LearnerClient) -> None:
    change = learner.set_rate_limit
    expect(ArgumentError, lambda: change(0), "min_size_to_sample is 0")
    expect(ArgumentError, lambda: change(1, -1.0), "samples_per_insert is -1.0")
    expect(ArgumentTypeError, lambda: change(1, True), "samples_per_insert")
    expect(ArgumentError, lambda: change(1, None, 5.0), "no meaning without samples_per_insert")
    expect(RejectedError, lambda: change(5001), "more than the capacity of 5000")
    expect(RejectedError, lambda: change(1, 2.0, 20.0), "a request of 64 samples that waits")
    for text in (b"nonsense", b"[1]", b'{"min_size_to_sample": 1}', b"{" * 5000, b"\xff"):
        message = Message(Kind.LIMIT, sequence=learner._next_sequence())
        send = lambda message=message, text=text: learner._answer_to(message, "it", None, text)  # noqa: E731
        expect(RejectedError, send, "rate limit: ")


def waiting_tells_limit(comm: Comm, clients: Comm) -> None:
    with LearnerClient(comm, RECORD) as learner:
        note("limit.json", learner.rate_limit().to_json())
        learner.stop()


def waiting_actor(comm: Comm, clients: Comm) -> None:
    """Add until the rate limiter holds this actor back; go on once the learner has drawn."""
    with ActorClient(comm, RECORD) as actor:
        sent, waits = 0, ["nothing", ""]
        while waits[0] == "nothing":
            waits = timed_out(partial(actor.add, *batch(sent), timeout=0.3))
            sent += waits[0] == "nothing"
        clients.Barrier()
        for _ in range(2):
            actor.add(*batch(sent))
            sent += 1
        while actor.unacknowledged:
            actor.poll()
        times = actor.round_trips["add"]
        note("actor.json", [sent, waits, times.count, times.quantile(1.0)])
    clients.Barrier()


def waiting_for_actor(comm: Comm, clients: Comm) -> None:
    with LearnerClient(comm, RECORD) as learner:
        clients.Barrier()
        learner.set_rate_limit(1, 1.0, 1000.0)
        clients.Barrier()
        learner.stop()


# ---- a replay rank that is late ----


def waiting_through_silence(comm: Comm, clients: Comm) -> None:
    """Stop the replay rank's process for a while; what it owes comes later, where it belongs."""
    server = int(Path("pid.0").read_text())
    with ActorClient(comm, RECORD) as actor:
        actor.add(*batch(0))
    with LearnerClient(comm, RECORD) as learner:
        learner.sample(8)
        os.kill(server, signal.SIGSTOP)
        try:
            silent = timed_out(lambda: learner.sample(16, timeout=0.3))
            limit = timed_out(lambda: learner.rate_limit(timeout=0.3))
        finally:
            os.kill(server, signal.SIGCONT)
        assert learner.set_rate_limit(5) == RateLimit(5)  # the late answer says 1
        sizes = [len(learner.sample(n).ids) for n in (16, 8, 4)]
        note("silence.json", [silent, limit, sizes])
        learner.stop()


def waiting_for_payload(comm: Comm, clients: Comm) -> None:
    """Give up between an announcement and its payload; the draw is received later, and whole."""
    with LearnerClient(clients, RECORD) as learner:
        late = timed_out(lambda: learner.sample(8, timeout=0.2))
        learner.request(4)
        actions = [learner.sample(n).transitions["action"].tolist() for n in (8, 4)]
        note("late.json", [late, actions])


def waiting_as_another(comm: Comm, clients: Comm) -> None:
    """Give up taking leave, and then a welcome; the answers find clients that never asked."""
    server = int(Path("pid.0").read_text())
    former = ActorClient(comm, RECORD, timeout=0.3)
    refused = Message(Kind.ADD, sequence=former._next_sequence(), count=1, itemsize=1, payload=1)
    former._send(refused, np.ones(1), payload=np.zeros(1, np.uint8))
    os.kill(server, signal.SIGSTOP)
    left = timed_out(former.close)
    os.kill(server, signal.SIGCONT)
    time.sleep(0.3)
    with ActorClient(comm, RECORD) as actor:
        actor.add(*batch(0))
    os.kill(server, signal.SIGSTOP)
    unwelcome = timed_out(lambda: ActorClient(comm, RECORD, timeout=0.3))
    os.kill(server, signal.SIGCONT)
    time.sleep(0.3)
    with ActorClient(comm, RECORD) as actor:
        actor.add(*batch(1))
    note("another.json", [left[1], unwelcome[1]])


def waiting_for_payload_as_another(comm: Comm, clients: Comm) -> None:
    """Give up for good between an announcement and its payload; the next client gets its own."""
    former = LearnerClient(clients, RECORD, timeout=0.2)
    late = [timed_out(lambda: former.sample(8)), timed_out(former.close)]
    with LearnerClient(clients, RECORD) as learner:
        actions = learner.sample(4).transitions["action"].tolist()
        note("late.json", [late, actions])


def waiting_is_late_for_two(comm: Comm, clients: Comm) -> None:
    waiting_is_late(comm, clients, 2)


def waiting_is_late(comm: Comm, clients: Comm, farewells: int = 1) -> None:
    """Play a replay rank whose first payload comes only with the second draw, or client."""
    channel, announced, late = Channel(clients, 100), [], 2
    while True:
        message = channel.receive()
        assert not isinstance(message, Malformed)
        channel.reap()
        if message is None:
            continue
        source = message.source
        if message.kind is Kind.HELLO:
            terms = Terms(64, 0, 3, 3, 16, 100, 100, False, 1, 0, "", 0, ReplayStatus())
            channel.send(source, message.answer(Kind.WELCOME), terms.to_json().encode())
        elif message.kind is Kind.SAMPLE:
            rows = np.zeros(message.count, RECORD)
            rows["action"] = message.count
            announced.append(rows)
            answer = message.answer(Kind.REPLY, count=len(rows), payload=rows.nbytes)
            channel.send(source, answer, ReplayStatus().pack(), bytes(24 * len(rows)))
        if len(announced) == late or (message.kind is Kind.HELLO and announced):
            late = 1
            for rows in announced:
                clients.Send([rows.view(np.uint8), MPI.BYTE], source, PAYLOAD_TAG)
            announced.clear()
        if message.kind is Kind.BYE:
            channel.send(source, message.answer(Kind.GOODBYE))
            farewells -= 1
            if farewells == 0:
                break
    while channel.reap():
        pass
    ActorClient(comm, RECORD).close()


# ---- metrics ----


def waiting_adds_and_counts(comm: Comm, clients: Comm) -> None:
    with ActorClient(comm, RECORD) as actor, contextlib.suppress(ReplayStopped):
        for seed in range(100):
            actor.add(*batch(seed))
        while actor.unacknowledged:
            actor.poll()
    clients.Barrier()


def waiting_counts(comm: Comm, clients: Comm) -> None:
    clients.Barrier()
    with LearnerClient(comm, RECORD) as learner:
        for _ in range(30):
            sample = learner.sample(32)
            learner.update_priorities(sample.ids, 1.0)
        learner.update_priorities([0, 1], 1.0)  # long gone
        with contextlib.suppress(RejectedError):
            learner.update_priorities([10**6], 1.0)
            while learner.unacknowledged:
                learner.poll()
        while learner.unacknowledged:
            learner.poll()
        times = {name: learner.round_trips[name].count for name in ("sample", "update")}
        note("times.json", times)
        wait_for_lines(learner, int(os.environ.get("LINES_OF_METRICS", "0")))
        learner.stop()


def wait_for_lines(learner: LearnerClient, count: int) -> None:
    """Wait until the metrics file has so many lines: a service may end before a second is due."""
    deadline = time.monotonic() + 60.0
    while count and len(Path(os.environ["METRICS"]).read_bytes().splitlines()) < count:
        assert time.monotonic() < deadline
        learner.poll()
        time.sleep(0.005)


def waiting_loses_folder(comm: Comm, clients: Comm) -> None:
    with ActorClient(comm, RECORD) as actor:
        actor.add(*batch(1, 30))
        while actor.unacknowledged:
            actor.poll()
        shutil.rmtree(os.environ["LOST_FOLDER"])


# ---- several learners have states written ----


def waiting_turns(comm: Comm, clients: Comm) -> None:
    """Have states written while the other learner does the same, and a last one at the end."""
    number, names = clients.Get_rank(), []
    learner = LearnerClient(comm, RECORD, learner=number)
    for step in range(8):
        clients.Barrier()
        names.append(learner.checkpoint(turn_state(number, step), timeout=20.0))
    note(f"turns.{number}.json", names)
    clients.Barrier()
    if number == 0:
        learner.stop()
    while not learner.stopping:
        learner.poll()
    learner.close(turn_state(number, 100))


def turn_state(number: int, step: int) -> dict[str, Any]:
    return {"number": np.int64(number), "step": np.int64(step), "weights": np.ones(100_000)}
