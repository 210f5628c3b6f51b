"""How many transitions have which priority: the bins, and the same as lines of text."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

_BINS = 20
_BAR = 40


def histogram_of(priorities: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Count positive priorities in bins of equal width of their logarithm."""
    positive = priorities[np.isfinite(priorities) & (priorities > 0)]
    if not positive.size:
        return np.zeros(0, np.int64), np.zeros(0)
    low, high = math.log10(positive.min()), math.log10(positive.max())
    if low == high:
        low, high = low - 0.5, high + 0.5
    counts, edges = np.histogram(np.log10(positive), bins=_BINS, range=(low, high))
    return counts, 10.0**edges


def lines_of(counts: NDArray[np.int64], edges: NDArray[np.float64], zero: int) -> Iterator[str]:
    """Give a line for each bin; bars are as long as the number of transitions is high."""
    most = max(counts, default=0)
    yield f"\n{'priority, from':>14} {'to below':>12}  {'transitions':>12}"
    if zero:
        yield f"{0:>14} {'':>12}  {zero:>12,}"
    for count, low, high in zip(counts, edges[:-1], edges[1:], strict=True):
        shown = "#" * math.ceil(_BAR * count / most)
        yield f"{low:>14.4g} {high:>12.4g}  {count:>12,}  {shown}".rstrip()
