"""What is sent, and what a server must hold afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arguments import Doubles
from ...buffer import PrioritizedReplayBuffer

BATCH = 50
CHECKED_PRIORITY = 9.0
_PRIORITIES = 7
_POOL_BYTES = 1 << 24
_POOL = 16


def _record(*observation: Any) -> np.dtype[Any]:
    return np.dtype(
        [
            ("observation", *observation),
            ("action", "<i8"),
            ("reward", "<f4"),
            ("discount", "<f4"),
            ("next_observation", *observation),
        ]
    )


@dataclass(frozen=True)
class Record:
    """A kind of transition.

    Attributes
    ----------
    name : str
        As `--records` names it.
    title : str
    dtype : numpy.dtype
    request : int
        Transitions of one request of the learner.
    capacity : int
        Of the buffer.
    """

    name: str
    title: str
    dtype: np.dtype[Any]
    request: int
    capacity: int


RECORDS: Mapping[str, Record] = {
    record.name: record
    for record in (
        Record("cartpole", "CartPole", _record("<f4", (4,)), 512, 2**20),
        Record("atari", "Atari", _record("u1", (84, 84, 4)), 64, 2**13),
    )
}

Rows = NDArray[np.void]
Batch = tuple[Rows, Doubles]


def pool(record: Record, actor: int) -> list[Batch]:
    """Make the batches that one actor sends over and over: random records and priorities."""
    rng = np.random.default_rng([actor, *record.name.encode()])
    count = max(4, min(_POOL, _POOL_BYTES // (BATCH * record.dtype.itemsize)))
    return [(_random_rows(rng, record), 1.0 - rng.random(BATCH)) for _ in range(count)]


def numbered(record: Record, actor: int, batches: int) -> Iterator[Batch]:
    """Make batches of which no two records are equal: their action names actor and place.

    Their priorities are small integers, which any order of arrival sums up to the same total.
    """
    rng = np.random.default_rng([actor, *record.name.encode()])
    for number in range(batches):
        rows = _random_rows(rng, record)
        rows["action"] = (actor << 32) + number * BATCH + np.arange(BATCH)
        yield rows, priority_of(rows["action"])


def priority_of(actions: NDArray[np.int64]) -> Doubles:
    """Give the priority of records that are numbered."""
    return (1 + actions % _PRIORITIES).astype(np.float64)


def _random_rows(rng: np.random.Generator, record: Record) -> Rows:
    rows = np.zeros(BATCH, record.dtype)
    observation = rows["observation"]
    for name in ("observation", "next_observation"):
        drawn = rng.integers(0, 256, observation.shape, dtype=np.uint8)
        rows[name] = drawn
    rows["action"] = rng.integers(0, 4, BATCH)
    rows["reward"] = rng.random(BATCH, np.float32)
    rows["discount"] = np.float32(0.99)
    return rows


@dataclass(frozen=True)
class Held:
    """What a buffer holds at the end of a run.

    Attributes
    ----------
    inserted, size : int
    total : float
    digest : str
        Of all records with their masses, in order of their actions; empty where none was asked
        for.
    """

    inserted: int
    size: int
    total: float
    digest: str = ""

    @classmethod
    def by(cls, buffer: PrioritizedReplayBuffer, with_digest: bool) -> Held:
        """Look into a buffer, which has not wrapped if there is to be a digest."""
        size, text = len(buffer), ""
        if with_digest:
            rows = buffer[np.arange(buffer.next_id - size, buffer.next_id)]
            text = digest(rows, buffer.tree[np.arange(size)])
        return cls(buffer.inserted, size, buffer.tree.total, text)


def digest(rows: Rows, masses: Doubles) -> str:
    """Give a digest of records and their masses that does not depend on their order."""
    order = np.argsort(rows["action"])
    return hashlib.sha256(rows[order].tobytes() + masses[order].tobytes()).hexdigest()


def expected(record: Record, actors: int, batches: int, drawn: NDArray[np.int64]) -> Held:
    """Give what a buffer with alpha 1 must hold after numbered batches of so many actors.

    The priority of the records whose actions are `drawn` was set to `CHECKED_PRIORITY`.
    """
    rows = np.concatenate(
        [rows for actor in range(actors) for rows, _ in numbered(record, actor, batches)]
    )
    masses = priority_of(rows["action"])
    masses[np.isin(rows["action"], drawn)] = CHECKED_PRIORITY
    return Held(len(rows), len(rows), float(masses.sum()), digest(rows, masses))
