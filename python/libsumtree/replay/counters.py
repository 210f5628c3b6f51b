"""What a replay rank counts: integers on one object, and the times of its answers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from .messages import HEADER_SIZE, Code, Kind, Message
from .times import RequestTimes


@dataclass(slots=True)
class Counters:
    """Counts since the start of the service; a message costs the same, however long it is.

    Attributes
    ----------
    messages : int
        Control messages taken.
    batches, added : int
        Batches of transitions taken, and transitions in them.
    requests, sampled : int
        Requests answered with a sample, and transitions in these.
    updates, updated, stale : int
        Batches of priorities taken, priorities in them, and those that were stale.
    clamped : int
        Targets that learners drew and that were fitted to a total that had moved since.
    bytes_in : int
        Bytes of all that was taken: headers, bodies and payloads. What was sent, the channel knows.
    rejected : Counter of Code
        Messages refused.
    stale_of : Counter of int
        Stale updates of each rank.
    times : RequestTimes
        From a request to its answer; what the rate limiter holds back counts.
    """

    messages: int = 0
    batches: int = 0
    added: int = 0
    requests: int = 0
    sampled: int = 0
    updates: int = 0
    updated: int = 0
    stale: int = 0
    clamped: int = 0
    bytes_in: int = 0
    rejected: Counter[Code] = field(default_factory=Counter)
    stale_of: Counter[int] = field(default_factory=Counter)
    times: RequestTimes = field(default_factory=RequestTimes)

    def received(self, message: Message) -> None:
        """Count a control message; if it is a request that is timed, its time begins."""
        self.messages += 1
        self.bytes_in += HEADER_SIZE + len(message.body)
        self.times.begin(message.source, message.sequence, message.kind)

    def received_add(self, source: int, sequence: int, nbytes: int) -> int:
        """Count an ADD of so many bytes; its time begins, and is returned."""
        self.messages += 1
        self.bytes_in += nbytes
        return self.times.begin(source, sequence, Kind.ADD)
