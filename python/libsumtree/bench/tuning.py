"""Which backend pays for which capacity and batch size on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np

from .. import tree
from ..arguments import Doubles, Indices
from ..backends import installed
from ..errors import BackendError, OutOfMemoryError
from ..tuning import Kind, Tuning
from .racing import Called, Limits, race, random_updates, split_updates
from .trees import same_bits

CAPACITIES = (2**10, 2**14, 2**17, 2**20, 2**22)
BATCHES = (1, 8, 64, 512, 4096, 32768)
BATCH = 512
LIMITS = Limits(rounds=15, seconds=0.5)
MARGIN = 1.1  # another backend must be so many times as fast to be taken

_ELEMENTS = 2**13  # of a round, unless a batch is longer
_PLANES: tuple[tree.Plane, ...] = ("sum", "min", "max")


def tune(
    backends: Sequence[str],
    batch: int = BATCH,
    capacities: Sequence[int] = CAPACITIES,
    limits: Limits = LIMITS,
    tell: Callable[[int], None] = lambda capacity: None,
) -> Tuning:
    """Measure a learner's step, update and sample of a `PriorityTree`, on every backend.

    Parameters
    ----------
    backends : sequence of str
        Those that can run here; the first is the default.
    batch : int
        The batch size that "auto" is to be decided for.
    capacities : sequence of int
    limits : Limits
    tell : callable
        Is given each capacity before it is measured.

    Returns
    -------
    Tuning

    Raises
    ------
    BenchmarkError
        If two backends differ in a bit.
    OutOfMemoryError
        If a capacity does not fit the memory limit on the default backend.
    """
    measured: list[dict[str, Any]] = []
    for capacity in sorted(set(capacities)):
        tell(capacity)
        sizes = sorted({min(size, capacity) for size in (*BATCHES, batch)})
        measured += _measure(backends, capacity, sizes, limits)
    return Tuning(
        version("libsumtree"), Kind.here(installed()), batch, _choices(measured, batch), measured
    )


def pays(names: Sequence[str], seconds: Doubles) -> str:
    """Give the backend to take: one that beats the first by `MARGIN`.

    In three rounds of four, and by the median times.

    Parameters
    ----------
    names : sequence of str
        The backends, the default first.
    seconds : ndarray of float64, shape (rounds, backends)
    """
    medians = np.median(seconds, axis=0)
    in_rounds = np.quantile(seconds[:, :1] / seconds, 0.25, axis=0)
    factors = np.minimum(in_rounds, medians[0] / medians)
    fastest = int(np.argmax(factors))
    return names[fastest] if factors[fastest] >= MARGIN else names[0]


def _choices(measured: Sequence[Mapping[str, Any]], batch: int) -> dict[int, str]:
    """Choose for each capacity, by the batch size of the tuning, or that of all leaves."""
    return {
        row["capacity"]: row["pays"]
        for row in measured
        if row["batch"] == min(batch, row["capacity"])
    }


def _measure(
    backends: Sequence[str], capacity: int, sizes: Sequence[int], limits: Limits
) -> list[dict[str, Any]]:
    rng = np.random.default_rng(capacity)
    trees = _make(backends, capacity)
    masses = 1.0 - rng.random(capacity)
    for one in trees.values():
        one[:] = masses
    steps = [Called(name, _step(one), split_updates) for name, one in trees.items()]
    rows = []
    for size in sizes:
        batches = max(2, _ELEMENTS // size)
        draw = partial(random_updates, rng, capacity, batches, size)
        seconds = race(steps, draw, limits)
        medians = np.median(seconds, axis=0) * 1e6
        times = {name: float(median) for name, median in zip(trees, medians, strict=True)}
        best = pays(list(trees), seconds)
        rows.append({"capacity": capacity, "batch": size, "pays": best, "microseconds": times})
    first, *others = trees.items()
    for name, one in others:
        for plane in _PLANES:
            same_bits(name, one.nodes(plane), first[1].nodes(plane))
    return rows


def _make(backends: Sequence[str], capacity: int) -> dict[str, tree.PriorityTree]:
    """Make a tree on every backend that has the memory for it; the first must."""
    trees = {}
    for name in backends:
        try:
            trees[name] = tree.PriorityTree(capacity, seed=0, backend=name)
        except (OutOfMemoryError, BackendError):
            if not trees:
                raise
    return trees


def _step(one: tree.PriorityTree) -> Callable[[Indices, Doubles], None]:
    def step(indices: Indices, masses: Doubles) -> None:
        one.update(indices, masses)
        one.sample(len(indices))

    return step
