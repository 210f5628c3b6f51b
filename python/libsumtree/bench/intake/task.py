"""What the processes of one run are told."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from ...buffer import PrioritizedReplayBuffer
from .records import RECORDS, Record

SERVER, LEARNER, FIRST_ACTOR = 0, 1, 2
MOST_ADDED = 3
"""Processes that a server may add; it says them on the board before anything else."""
ACTOR_CREDITS, UPDATE_CREDITS = 3, 16
ALPHA, BETA = 0.6, 0.4
_FILE = "task.json"
_BOARD = "board"
_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Task:
    """What one run is.

    Attributes
    ----------
    stack : str
        Its module.
    record : str
    actors : int
    batches : int
        How many numbered batches each actor sends, for a run that is checked to the last bit; 0: as
        many as it can, of random records.
    starter : int
        The process that started the run.
    longest : int
        Seconds after which the run has failed.
    address : str
        Of the run, for sockets: unique.
    """

    stack: str
    record: str
    actors: int
    batches: int
    starter: int
    longest: int
    address: str

    @property
    def kind(self) -> Record:
        """The record."""
        return RECORDS[self.record]

    @property
    def checked(self) -> bool:
        """Whether the run is one that is checked to the last bit."""
        return self.batches > 0

    @property
    def places(self) -> int:
        """How many processes there are, but for those that a server adds."""
        return FIRST_ACTOR + self.actors

    @property
    def alpha(self) -> float:
        """The exponent of priorities: 1 where integers are to be summed up exactly."""
        return 1.0 if self.checked else ALPHA

    @contextmanager
    def ended_with_starter(self) -> Iterator[None]:
        """Have this process end itself, soon after who started the run has gone, whatever it does.

        Processes are in sessions of their own, and ranks of MPI are somebody else's children. The
        timer must not outlive the block: an interpreter that ends has no handler any more.
        """

        def look(number: int, frame: object) -> None:
            try:
                os.kill(self.starter, 0)
            except ProcessLookupError:
                os._exit(1)

        signal.signal(signal.SIGALRM, look)
        signal.setitimer(signal.ITIMER_REAL, _LOOK_SECONDS, _LOOK_SECONDS)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    def make_buffer(self) -> PrioritizedReplayBuffer:
        """Make the buffer that every server holds."""
        kind = self.kind
        return PrioritizedReplayBuffer(kind.capacity, kind.dtype, self.alpha, beta=BETA, seed=0)

    def write(self, folder: Path) -> None:
        """Leave the task in a folder."""
        (folder / _FILE).write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> Task:
        """Read the task of a folder."""
        return cls(**json.loads((folder / _FILE).read_text()))


def board_of(folder: Path) -> Path:
    """Give where the board of a run lies."""
    return folder / _BOARD
