"""Clients whose records are frames: what they send is played by tests/python/framing.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).parents[2] / "python"))
from framing import Stream, layout_with

from libsumtree.errors import ArgumentError, RejectedError
from libsumtree.replay import ActorClient, LearnerClient

Comm = MPI.Intracomm

LAYOUT = layout_with(padding="zero")
ROUNDS = (9, 1, 30, 2, 61, 5)
"""Steps of an episode that every actor plays in its turn."""


def stream(actor: int) -> Stream:
    return Stream(LAYOUT, actor, length=20, steps=3)


def films_in_turn(comm: Comm, clients: Comm) -> None:
    """Play as the actor that this client is, while the others wait; then the learner draws."""
    me, actors = clients.Get_rank(), clients.Get_size() - 1
    mine = stream(me)
    with ActorClient(comm, LAYOUT.record) as actor:
        for steps in ROUNDS:
            for turn in range(actors):
                if turn == me:
                    for batch, _ in mine.play(steps):
                        send(actor, batch)
                clients.Barrier()
            clients.Barrier()


def send(actor: ActorClient, batch: Any) -> None:
    actor.add(*batch)
    while actor.unacknowledged:
        actor.poll()


def films_are_drawn(comm: Comm, clients: Comm) -> None:
    """Draw once after every round; the last client."""
    drawn: dict[str, np.ndarray[Any, Any]] = {}
    with LearnerClient(comm, LAYOUT.record) as learner:
        for round_, _ in enumerate(ROUNDS):
            for _ in range(clients.Get_size() - 1):
                clients.Barrier()
            if learner_may_draw(learner, round_):
                sample = learner.sample(16)
                for name in ("ids", "indices", "weights", "transitions"):
                    drawn[f"{name}.{round_}"] = getattr(sample, name)
                learner.update_priorities(sample.ids, 1.0 + np.arange(16))
                while learner.unacknowledged:
                    learner.poll()
            clients.Barrier()
        if learner.checkpointing:
            learner.checkpoint({"step": np.int64(1)})
        learner.stop()
    drawn["stale"] = np.int64(learner.status.stale)
    np.savez("drawn.npz", **drawn)


def learner_may_draw(learner: LearnerClient, round_: int) -> bool:
    """The first rounds are too short for a batch."""
    return round_ >= 2


def films_that_lie(comm: Comm, clients: Comm) -> None:
    """Announce frames of nobody's: on the spot, and past the client, at the replay rank."""
    mine = stream(0)
    with ActorClient(comm, LAYOUT.record) as actor:
        (good, _), (bad, _), (last, _) = mine.play(61)
        send(actor, good)
        bad.transitions["ahead"][-1] = 3
        try:
            actor.add(*bad)
        except ArgumentError as error:
            Path("here").write_text(str(error))
        actor._layout = None
        try:
            send(actor, bad)
        except RejectedError as error:
            Path("there").write_text(str(error))
        send(actor, last)
