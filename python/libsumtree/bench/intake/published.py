"""The buffer of the published servers: transitions in a list, one at a time, trees in plain Python.

Written anew after their design, which is that of OpenAI Baselines: a list of tuples, a tree of sums
and one of minima over the next power of two, climbed once for each transition, and stratified
draws. The trees take their operations inline, which is faster than as functions, as published.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from .records import Batch, Held, Record, digest
from .task import BETA

Columns = tuple[list[list[Any]], list[float]]
Sample = tuple[list[list[Any]], list[float], list[int]]


class PublishedBuffer:
    """A ring of tuples with their priorities.

    Parameters
    ----------
    kind : Record
        Its capacity is a power of two.
    alpha : float
    """

    def __init__(self, kind: Record, alpha: float) -> None:
        self._kind = kind
        self._alpha = alpha
        self._rows: list[tuple[Any, ...]] = []
        self._sums = [0.0] * (2 * kind.capacity)
        self._minima = [float("inf")] * (2 * kind.capacity)
        self._random = random.Random(0)
        self.inserted = 0

    def add(self, row: tuple[Any, ...], priority: float) -> None:
        """Add one transition; it replaces the oldest where the ring is full."""
        index = self.inserted % self._kind.capacity
        if index == len(self._rows):
            self._rows.append(row)
        else:
            self._rows[index] = row
        self.inserted += 1
        self._set(index, priority)

    def update_priorities(self, indices: Sequence[int], priorities: Sequence[float]) -> None:
        """Set priorities, one at a time."""
        for index, priority in zip(indices, priorities, strict=True):
            self._set(index, priority)

    def _set(self, index: int, priority: float) -> None:
        sums, minima = self._sums, self._minima
        node = index + self._kind.capacity
        sums[node] = minima[node] = priority**self._alpha
        node //= 2
        while node >= 1:
            left = 2 * node
            sums[node] = sums[left] + sums[left + 1]
            minima[node] = min(minima[left], minima[left + 1])
            node //= 2

    def sample(self, n: int) -> Sample:
        """Draw n transitions: a list for each field, their weights and indices."""
        total, size = self._sums[1], len(self._rows)
        part = total / n
        indices = [self._find(self._random.random() * part + i * part) for i in range(n)]
        largest = (self._minima[1] / total * size) ** -BETA
        leaves = [self._sums[self._kind.capacity + index] for index in indices]
        weights = [(leaf / total * size) ** -BETA / largest for leaf in leaves]
        columns = [list(column) for column in zip(*(self._rows[i] for i in indices), strict=True)]
        return columns, weights, indices

    def _find(self, target: float) -> int:
        sums, node = self._sums, 1
        while node < self._kind.capacity:
            node *= 2
            if sums[node] <= target:
                target -= sums[node]
                node += 1
        return min(node - self._kind.capacity, len(self._rows) - 1)

    def held(self, with_digest: bool) -> Held:
        """Say what is in it."""
        text, size = "", len(self._rows)
        if with_digest:
            start = self._kind.capacity
            masses = np.array(self._sums[start : start + size])
            text = digest(np.array(self._rows, self._kind.dtype), masses)
        return Held(self.inserted, size, self._sums[1], text)


def columns_of(batch: Batch) -> Columns:
    """Give a batch as an actor gathers it: a list for each field, and one of priorities."""
    rows, priorities = batch
    assert rows.dtype.names is not None
    columns = [
        rows[name].tolist() if rows[name].ndim == 1 else [value.copy() for value in rows[name]]
        for name in rows.dtype.names
    ]
    return columns, priorities.tolist()


def add_all(buffer: PublishedBuffer, columns: Columns) -> None:
    """Add a batch, one call for each transition."""
    fields, priorities = columns
    for row, priority in zip(zip(*fields, strict=True), priorities, strict=True):
        buffer.add(row, priority)


def dumps(content: object) -> bytes:
    """Pickle with the newest protocol."""
    return pickle.dumps(content, pickle.HIGHEST_PROTOCOL)


def loads(data: Any) -> Any:
    """Unpickle what a process of this benchmark has sent."""
    return pickle.loads(data)
