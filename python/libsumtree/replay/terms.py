"""The terms of a replay service, as WELCOME states them: plain JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, astuple, dataclass, fields

from ..errors import ProtocolError
from .status import ReplayStatus


@dataclass(frozen=True, slots=True)
class Terms:
    """What a client may count on.

    Attributes
    ----------
    capacity, epoch : int
        Of the buffer.
    actor_credits, sample_credits, update_credits, max_batch : int
        As in `ReplayConfig`.
    most_rows : int
        Transitions that one message may hold: `max_batch`, or fewer if records are large.
    checkpoints : bool
        Whether the replay rank writes checkpoints.
    shards, shard : int
        How many replay ranks there are, and which of them this is.
    seed : str
        Of the service, as `streams.seed_text` writes it; empty for an actor.
    position : int
        How many doubles this learner has taken from its stream.
    status : ReplayStatus
        As of now.
    """

    capacity: int
    epoch: int
    actor_credits: int
    sample_credits: int
    update_credits: int
    max_batch: int
    most_rows: int
    checkpoints: bool
    shards: int = 1
    shard: int = 0
    seed: str = ""
    position: int = 0
    status: ReplayStatus = ReplayStatus()

    def to_json(self) -> str:
        """Return the terms as text."""
        return json.dumps({**asdict(self), "status": astuple(self.status)})

    @classmethod
    def from_json(cls, text: str) -> Terms:
        """Read terms from text.

        Raises
        ------
        ProtocolError
            If they are not what a replay rank says.
        """
        try:
            values = json.loads(text)
            terms = cls(**{**values, "status": ReplayStatus(*values["status"])})
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ProtocolError(f"the terms of the replay rank cannot be read: {error}") from None
        for part in (terms, terms.status):
            for field in fields(part):
                value = getattr(part, field.name)
                negative = isinstance(value, int | float) and not value >= 0
                if type(value).__name__ != field.type or negative:
                    raise ProtocolError(f"the terms of the replay rank: {field.name} is {value!r}")
        return terms
