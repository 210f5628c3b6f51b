"""Updates of a learner that takes no answers: a world of one rank, whose messages wait in MPI."""

from __future__ import annotations

import struct

import numpy as np
import pytest

pytest.importorskip("mpi4py")

from mpi4py import MPI

from libsumtree import PrioritizedReplayBuffer
from libsumtree.replay import ReplayConfig
from libsumtree.replay.channel import Channel
from libsumtree.replay.limiter import RateLimiter
from libsumtree.replay.messages import Code, Flag, Kind, Message
from libsumtree.replay.peers import Peer, Peers, RefusedError
from libsumtree.replay.restored import Progress
from libsumtree.replay.samples import Samples

RECORD = np.dtype([("x", "<f8")])
BODY = np.frombuffer(struct.pack("<qd", 0, 2.0), np.uint8)


def test_updates_beyond_the_credits_are_refused_until_answers_are_taken() -> None:
    config = ReplayConfig(8, RECORD, alpha=1.0, update_credits=2, sample_credits=1)
    buffer = PrioritizedReplayBuffer(8, RECORD, 1.0, seed=0)
    buffer.add(np.zeros(1, RECORD), 1.0)
    channel, peer = Channel(MPI.COMM_SELF, 100), Peer(0, Flag.LEARNER)
    peers = Peers(channel, config, RateLimiter(), Progress(), buffer, {0: peer})
    samples = Samples(peers, lambda: False)

    def update(times: int = 1) -> None:
        for _ in range(times):
            samples.update(Message(Kind.UPDATE, count=1, body=BODY, source=0), peer)

    with pytest.raises(RefusedError, match="answers wait for this learner") as refused:
        update(100)
    assert refused.value.code is Code.CREDIT
    taken = samples.updates
    assert 2 <= taken == channel.unsent(0) <= 10
    for _ in range(taken):
        answer = channel.receive()
        assert isinstance(answer, Message)
        assert answer.kind is Kind.UPDATED
    update()
    assert samples.updates == taken + 1
    while channel.receive() is not None or channel.reap():
        pass
    channel.close()
