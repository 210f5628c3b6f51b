"""The terms of a replay service, as WELCOME states them: plain JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields

from ..errors import ProtocolError


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
    """

    capacity: int
    epoch: int
    actor_credits: int
    sample_credits: int
    update_credits: int
    max_batch: int
    most_rows: int
    checkpoints: bool

    def to_json(self) -> str:
        """Return the terms as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Terms:
        """Read terms from text.

        Raises
        ------
        ProtocolError
            If they are not what a replay rank says.
        """
        try:
            terms = cls(**json.loads(text))
        except (ValueError, TypeError, RecursionError) as error:
            raise ProtocolError(f"the terms of the replay rank cannot be read: {error}") from None
        for field in fields(cls):
            value = getattr(terms, field.name)
            if type(value).__name__ != field.type or value < 0:
                raise ProtocolError(f"the terms of the replay rank: {field.name} is {value!r}")
        return terms
