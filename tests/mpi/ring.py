"""What a buffer holds, as plain arrays: for comparing one in this process with that of a job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from libsumtree import PrioritizedReplayBuffer

sys.path.insert(0, str(Path(__file__).parent / "programs"))
import content
import sharding  # noqa: F401

RECORD, SIZES, batch, held = content.RECORD, content.SIZES, content.batch, content.held
Arrays = dict[str, np.ndarray[Any, Any]]


def filled(
    *batches: tuple[int, int], capacity: int = 64, **options: Any
) -> PrioritizedReplayBuffer:
    """Return a buffer with the batches (seed, count) of the programs."""
    buffer = PrioritizedReplayBuffer(capacity, RECORD, **options)
    for seed, count in batches:
        buffer.add(*batch(seed, count))
    return buffer


def assert_same(found: Arrays, expected: Arrays, but: tuple[str, ...] = ()) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if name not in but:
            assert found[name].tobytes() == value.tobytes(), name
