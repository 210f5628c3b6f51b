"""The transitions of the test programs; needs no MPI."""

from __future__ import annotations

from typing import Any

import numpy as np

from libsumtree import PrioritizedReplayBuffer

RECORD = np.dtype([("observation", "<f4", (4,)), ("action", "<i8"), ("reward", "<f4")])

SIZES = (50, 64, 50, 1, 130, 50, 50, 250, 50)
"""Batches of the round trip: a ring of 200 wraps within some, and one is longer than it."""


def batch(seed: int, count: int = 50) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return records that are all different, and their priorities."""
    generator = np.random.default_rng(seed)
    records = np.zeros(count, RECORD)
    records["observation"] = generator.random((count, 4), np.float32)
    records["action"] = np.arange(count) + 1000 * seed
    records["reward"] = generator.random(count, np.float32)
    return records, generator.random(count)


def held(buffer: PrioritizedReplayBuffer) -> dict[str, np.ndarray[Any, Any]]:
    """Return all that a checkpoint of the buffer would hold, but for its time."""
    with buffer.snapshot() as snapshot:
        datasets = snapshot.datasets()
        rows = [block.copy() for block in snapshot.rows.blocks()]
        transitions = np.concatenate([np.zeros(0, snapshot.rows.dtype), *rows])
        arrays = {"transitions": transitions}
        arrays |= {name: datasets[name][0] for name in ("tree/masses", "ids/epochs")}
        attributes = {k: np.asarray(v) for k, v in snapshot.attributes.items() if k != "created"}
        return arrays | attributes
