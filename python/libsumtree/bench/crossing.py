"""What Python adds to a call: an update from Python, the same in C, calls that do nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _core, tree
from ..arguments import Doubles, Indices
from ..backends import open_backend
from .libraries import CTree, CUpdate
from .racing import ELEMENTS, Contestant, Updates, batches_of, race, random_updates
from .report import Aim, Row, Table
from .trees import OURS, Setting, same_bits

BATCHES = (1, 8, 64, 512)
SMALL = 1024  # leaves that lie in the first cache
AIMS = {8: 2.0}
PYTHON, EMPTY, ARRAYS, C = "from Python", "empty call", "call with arrays", "in C"

Pairs = Sequence[tuple[Indices, Doubles]]


def _update_each(sums: tree.SumTree, pairs: Pairs) -> None:
    for indices, masses in pairs:
        sums.update(indices, masses)


def _do_nothing_with_each(core: Any, pairs: Pairs) -> None:
    for indices, masses in pairs:
        core.nothing(indices, masses)


def _turn_no_priorities_into_masses(backend: Any, pairs: Pairs) -> None:
    nothing = np.empty(0)
    for _indices, _masses in pairs:
        backend.masses(nothing, 1.0, nothing)


def _bare(nothing: Any, pairs: Pairs) -> None:
    for _indices, _masses in pairs:
        pass


@dataclass(frozen=True)
class _Loop:
    """A contestant: a loop of calls from Python, less the loop."""

    name: str
    loop: Callable[[Any, Pairs], None]
    subject: object

    def time(self, work: Updates) -> float:
        pairs = list(zip(work.indices, work.masses, strict=True))
        spent = [_seconds(one, self.subject, pairs) for one in (self.loop, _bare)]
        return (spent[0] - spent[1]) / len(pairs)


def crossing_table(setting: Setting) -> Table:
    """Compare an update from Python with the same in C and an empty binding call."""
    rng = setting.rng("crossing")
    sizes = sorted({min(SMALL, setting.leaves), setting.leaves})
    return Table(
        "crossing",
        "What Python adds to an update",
        "SumTree.update with contiguous int64 and float64 arrays, less the loop around it. The "
        f"ratio is ({PYTHON} - {C}) / (the call that it is against). An {EMPTY} into the binding "
        f"takes two objects as they are and does nothing; a {ARRAYS} takes two arrays as nanobind "
        "reads them, empty ones, and does nothing. In a tree that lies in the first cache the "
        "difference is what the call costs; in a large one it is how far the processor has read "
        "ahead in memory, too, which from one call to the next it does in C alone.",
        [row for leaves in sizes for row in _rows(leaves, setting, rng)],
    )


def _rows(leaves: int, setting: Setting, rng: np.random.Generator) -> list[Row]:
    ours = tree.SumTree(leaves, backend="cpu")
    in_c = CUpdate(C, CTree("cpu", "SumTree", leaves))
    masses = 1.0 - rng.random(leaves)
    ours[:] = masses
    in_c.fill(masses)
    contestants: list[Contestant[Updates]] = [
        _Loop(PYTHON, _update_each, ours),
        _Loop(EMPTY, _do_nothing_with_each, _core),
        _Loop(ARRAYS, _turn_no_priorities_into_masses, open_backend("cpu")),
        in_c,
    ]
    rows: list[Row] = []
    for count in setting.batches(BATCHES):
        seconds = race(contestants, _updates(rng, leaves, count), setting.limits)
        rows += [_row(leaves, count, seconds, against) for against in (EMPTY, ARRAYS)]
    same_bits(OURS, in_c.tree.nodes("sum"), ours.nodes("sum"))
    return rows


def _row(leaves: int, count: int, seconds: Doubles, against: str) -> Row:
    names = (PYTHON, EMPTY, ARRAYS, C)
    added = seconds[:, 0] - seconds[:, -1]
    ratio = float(np.median(added / seconds[:, names.index(against)]))
    medians = np.median(seconds, axis=0) * 1e6
    times = {name: float(median) for name, median in zip(names, medians, strict=True)}
    aim = Aim(AIMS[count], at_most=True) if (count in AIMS and against == EMPTY) else None
    operation = f"update, {leaves:,} leaves"
    return Row(operation, count, times, ratio, against, len(seconds), aim)


def _updates(rng: np.random.Generator, leaves: int, count: int) -> Callable[[], Updates]:
    return lambda: random_updates(rng, leaves, batches_of(count, ELEMENTS // 2), count)


def _seconds(loop: Callable[[Any, Pairs], None], subject: object, pairs: Pairs) -> float:
    began = time.perf_counter()
    loop(subject, pairs)
    return time.perf_counter() - began
