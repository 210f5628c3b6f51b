"""What a replay rank says about itself with every answer."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_STATUS = struct.Struct("<8q3dq")
STATUS_SIZE = _STATUS.size


@dataclass(frozen=True, slots=True)
class ReplayStatus:
    """What a replay rank holds and has done, as of its last answer.

    Attributes
    ----------
    size : int
        Transitions held now.
    inserted, sampled : int
        Transitions ever added and ever drawn, over restarts.
    stale : int
        Updates that were skipped because their transition was gone, over restarts.
    rejected : int
        Messages refused since the replay rank was started.
    epoch : int
        The epoch of the buffer: a restore advances it.
    actors, learners : int
        Clients connected now.
    total, min, max : float
        The sum of all masses, and the least and largest positive one.
    clamped : int
        Targets that learners drew and that were fitted to a total that had moved since; since the
        replay rank was started.
    """

    size: int = 0
    inserted: int = 0
    sampled: int = 0
    stale: int = 0
    rejected: int = 0
    epoch: int = 0
    actors: int = 0
    learners: int = 0
    total: float = 0.0
    min: float = float("inf")
    max: float = 0.0
    clamped: int = 0

    def pack(self) -> bytes:
        """Return the status as it stands in a body."""
        return _STATUS.pack(
            self.size,
            self.inserted,
            self.sampled,
            self.stale,
            self.rejected,
            self.epoch,
            self.actors,
            self.learners,
            self.total,
            self.min,
            self.max,
            self.clamped,
        )

    @classmethod
    def unpack(cls, body: npt.NDArray[np.uint8]) -> ReplayStatus:
        """Read a status from the first `STATUS_SIZE` bytes of a body."""
        return cls(*_STATUS.unpack_from(body.data))
