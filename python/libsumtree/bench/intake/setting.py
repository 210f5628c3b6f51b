"""What the tables of the replay servers are measured with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .records import BATCH, RECORDS
from .task import ACTOR_CREDITS, UPDATE_CREDITS


@dataclass(frozen=True)
class IntakeSetting:
    """Which cells are measured, and how long.

    Attributes
    ----------
    rounds : int
        In a round of a cell each stack runs once.
    seconds : float
        Of the three parts of a run: actors add, actors and learner work, the learner works alone.
    actors : tuple of int
    records : tuple of str
        Names of `RECORDS`.
    """

    rounds: int = 5
    seconds: float = 1.0
    actors: tuple[int, ...] = (1, 2, 4, 8)
    records: tuple[str, ...] = tuple(RECORDS)

    def facts(self) -> dict[str, Any]:
        """Give the settings for people."""
        kinds = [RECORDS[name] for name in self.records]
        facts: dict[str, Any] = {
            f"{kind.title} records": f"{kind.dtype.itemsize:,} bytes, batches of {BATCH} with "
            f"priorities, requests of {kind.request}, a buffer of {kind.capacity:,}"
            for kind in kinds
        }
        facts["credits"] = (
            f"{ACTOR_CREDITS} batches of an actor, {UPDATE_CREDITS} updates of the learner"
        )
        facts["rounds"] = self.rounds
        facts["seconds of each part of a run"] = self.seconds
        return facts
