"""What both servers that pickle have in common: a batch as lists of values, one `add` for a row."""

from __future__ import annotations

import pickle
from typing import Any

from ...arguments import Doubles, Indices
from ...buffer import PrioritizedReplayBuffer
from .records import Batch, Rows

Columns = tuple[list[list[Any]], list[float]]


def columns_of(batch: Batch) -> Columns:
    """Give a batch as an actor gathers it: a list for each field, and one of priorities."""
    rows, priorities = batch
    assert rows.dtype.names is not None
    columns = [
        rows[name].tolist() if rows[name].ndim == 1 else [value.copy() for value in rows[name]]
        for name in rows.dtype.names
    ]
    return columns, priorities.tolist()


def add(buffer: PrioritizedReplayBuffer, columns: Columns) -> None:
    """Add a batch, one call for each transition."""
    fields, priorities = columns
    for row, priority in zip(zip(*fields, strict=True), priorities, strict=True):
        buffer.add(row, priority)


def sample(buffer: PrioritizedReplayBuffer, n: int) -> tuple[Indices, Doubles, Rows]:
    """Draw what a request is answered with: ids, weights and transitions."""
    drawn = buffer.sample(n)
    return drawn.ids, drawn.weights, drawn.transitions


def dumps(content: object) -> bytes:
    """Pickle with the newest protocol."""
    return pickle.dumps(content, pickle.HIGHEST_PROTOCOL)


def loads(data: Any) -> Any:
    """Unpickle what a process of this benchmark has sent."""
    return pickle.loads(data)
