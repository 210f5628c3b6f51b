"""The tables of the tree: classic strategies, fused planes, descents, several threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import machine, reference, tree
from ..arguments import Doubles, Indices
from ..backends import installed
from ..errors import BenchmarkError, BenchmarkUnavailableError
from ..vectors import at_vector_level, vector_levels
from .libraries import CLASSIC, PLANES, CFind, CTree, CUpdate, c_functions
from .racing import Contestant, Limits, Updates, batches_of, race, random_updates
from .report import Aim, Row, Table, row_of

CLASSIC_BATCHES = (1, 2, 4, 8, 50, 512, 2048, 32768)
CLASSIC_AIMS = {8: 2.2, 50: 2.8, 512: 2.8, 2048: 2.8, 32768: 2.0}
NEVER_BELOW = 0.9
FUSED_AIMS = {512: 2.5}
DESCENT_BATCHES = (1, 8, 50, 512, 2048, 32768)
BASELINE_AIMS = {512: 3.0}
WIDEST_AIMS = {512: 4.5}
ITSELF_BATCHES = (1, 8, 512, 32768)
THREADS = 2
THREADED_BATCHES = (1, 8, 64, 512, 1024, 2048, 4096, 8192, 32768, 131072)
THREADED_AIMS = {32768: 1.6}

_REBUILDS = 2  # of a round: all rebuilds of a tree take the same time
_PYTHON_ELEMENTS = 2048  # of a round
OURS = "libsumtree"
EACH = "per element"
REBUILD = "rebuild"
PYTHON = "pure Python"


@dataclass(frozen=True)
class Setting:
    """What all tables are measured with.

    Attributes
    ----------
    leaves : int
        A power of two.
    limits : Limits
    seed : int
        Of the random inputs.
    """

    leaves: int = 2**21
    limits: Limits = Limits()
    seed: int = 0

    def rng(self, table: str) -> np.random.Generator:
        """Give the random numbers of a table."""
        return np.random.default_rng([self.seed, *table.encode()])

    def batches(self, sizes: Sequence[int]) -> list[int]:
        """Leave out the batches that are longer than the tree."""
        return [size for size in sizes if size <= self.leaves]


class _Reference:
    """The contestant in plain Python: an empty tree at first, whose updates are kept."""

    name = PYTHON

    def __init__(self, leaves: int) -> None:
        self.tree = reference.SumTree(leaves)
        self.done: list[tuple[Indices, Doubles]] = []

    def time(self, work: Updates) -> float:
        """Do the first batches of a round; give the seconds of one."""
        count = len(work.indices[0])
        few = min(len(work.indices), max(1, _PYTHON_ELEMENTS // count))
        part = list(zip(work.indices[:few], work.masses[:few], strict=True))
        self.done += part
        began = time.perf_counter()
        for indices, masses in part:
            self.tree.update(indices, masses)
        return (time.perf_counter() - began) / few

    def check(self) -> None:
        """Compare its tree with ours after the same updates, bit for bit."""
        ours = tree.SumTree(self.tree.capacity, backend="cpu")
        for indices, masses in self.done:
            ours.update(indices, masses)
        same_bits(PYTHON, self.tree.nodes("sum"), ours.nodes("sum"))


def classic_table(setting: Setting) -> Table:
    """Compare updates of the sum tree with the classic strategies and with plain Python."""
    plain = _Reference(setting.leaves)
    rows = _update_rows(setting, "classic", CLASSIC_BATCHES, CLASSIC_AIMS, plain)
    plain.check()
    return Table(
        "classic",
        f"Updates of a sum tree of {setting.leaves:,} leaves",
        f"{REBUILD} recomputes every node, {EACH} climbs once for each leaf; {PYTHON} is "
        "libsumtree.reference, from an empty tree on. All check their input; nodes were equal bit "
        f"for bit afterwards. The ratio is to the better of {EACH} and {REBUILD}.",
        rows,
    )


def sweep_table(setting: Setting) -> Table:
    """Compare updates with the classic strategies for every power of two."""
    powers = [2**power for power in range(setting.leaves.bit_length())]
    aims = dict.fromkeys(powers, NEVER_BELOW)
    return Table(
        "sweep",
        f"Updates of a sum tree of {setting.leaves:,} leaves, every power of two",
        "As above, without plain Python: no batch size may be a trap.",
        _update_rows(setting, "sweep", powers, aims),
    )


def fused_table(setting: Setting) -> Table:
    """Compare one tree of sum, min and max with three trees."""
    rng = setting.rng("fused")
    names = ["three trees", OURS]
    pair = [
        CUpdate(names[0], CTree(CLASSIC, "PriorityTree", setting.leaves), "update_each"),
        CUpdate(names[1], CTree("cpu", "PriorityTree", setting.leaves)),
    ]
    _fill(rng, pair)
    rows = []
    for count in setting.batches(CLASSIC_BATCHES):
        seconds = race(pair, _updates(rng, setting, count), setting.limits)
        aim = _aim(FUSED_AIMS, count)
        rows.append(row_of("update", count, names, seconds, names[:1], aim))
    _check_trees(pair)
    return Table(
        "fused",
        f"Updates of sum, min and max over {setting.leaves:,} leaves",
        f"One PriorityTree against three classic trees, updated {EACH}; they check their input "
        "once. All nodes were equal bit for bit afterwards.",
        rows,
    )


def descents_table(setting: Setting) -> Table:
    """Compare descents with the plain loop, at the baseline and the widest vector level."""
    rng = setting.rng("descents")
    pair = [CUpdate("plain loop", CTree(CLASSIC, "SumTree", setting.leaves), "update_each")]
    pair.append(CUpdate(OURS, CTree("cpu", "SumTree", setting.leaves)))
    _fill(rng, pair)
    total = float(pair[1].tree.nodes("sum")[1])
    levels = vector_levels("cpu")
    aims = {levels[-1]: WIDEST_AIMS, "baseline": BASELINE_AIMS}  # if there is one, the baseline's
    rows: list[Row] = []
    for level in levels:
        with at_vector_level("cpu", level):
            for count in setting.batches(DESCENT_BATCHES):
                aim = _aim(aims.get(level, {}), count)
                rows.append(_descents_row(f"find, {level}", count, pair, total, rng, setting, aim))
    return Table(
        "descents",
        f"Descents in a sum tree of {setting.leaves:,} leaves, on given targets",
        "The plain loop takes one target after the other. Both check the targets; both found the "
        "same leaves in every round.",
        rows,
    )


def multicore_table(setting: Setting) -> Table:
    """Compare multicore, with two threads, with cpu.

    Raises
    ------
    BenchmarkUnavailableError
        If multicore is not installed, or there is one processor only.
    """
    if "multicore" not in installed():
        raise BenchmarkUnavailableError("the multicore backend is not installed")
    if machine.cores() < THREADS:
        raise BenchmarkUnavailableError(f"needs {THREADS} cores, this process may use one")
    rows: list[Row] = []
    with _threads(THREADS):
        for kind in PLANES:
            rows += _multicore_rows(setting, kind)
    return Table(
        "multicore",
        f"multicore with {THREADS} threads, trees of {setting.leaves:,} leaves",
        "The ratio is to cpu. Nodes were equal bit for bit afterwards, and both found the same "
        "leaves in every round.",
        rows,
    )


def itself_table(setting: Setting) -> Table:
    """Compare cpu with itself: how far from 1 a ratio is when there is no difference."""
    rng = setting.rng("itself")
    names = ["libsumtree again", OURS]
    rows: list[Row] = []
    for kind in PLANES:
        pair = [CUpdate(name, CTree("cpu", kind, setting.leaves)) for name in names]
        _fill(rng, pair)
        for count in setting.batches(ITSELF_BATCHES):
            seconds = race(pair, _updates(rng, setting, count), setting.limits)
            rows.append(row_of(f"{kind}.update", count, names, seconds, names[:1]))
        total = float(pair[1].tree.nodes("sum")[1])
        for count in setting.batches(ITSELF_BATCHES):
            rows.append(_descents_row(f"{kind}.find", count, pair, total, rng, setting, None))
        _check_trees(pair)
    return Table(
        "itself",
        "The same contestant twice: what a ratio is worth on this machine",
        "Two trees of the cpu backend. A ratio that differs from 1 by no more than these do says "
        "nothing.",
        rows,
    )


def same_bits(name: str, theirs: NDArray[Any], ours: NDArray[Any]) -> None:
    """Compare arrays bit for bit.

    Raises
    ------
    BenchmarkError
        Saying where they differ first.
    """
    if theirs.tobytes() == ours.tobytes():
        return
    differ = theirs.view(np.int64).ravel() != ours.view(np.int64).ravel()
    place = int(np.argmax(differ))
    raise BenchmarkError(
        f"{name} and {OURS} differ: position {place} is {theirs.ravel()[place].item()!r} "
        f"and {ours.ravel()[place].item()!r}; times of different results are worth nothing"
    )


def _update_rows(
    setting: Setting,
    table: str,
    sizes: Sequence[int],
    aims: Mapping[int, float],
    plain: _Reference | None = None,
) -> list[Row]:
    rng = setting.rng(table)
    in_c = [
        CUpdate(EACH, CTree(CLASSIC, "SumTree", setting.leaves), "update_each"),
        CUpdate(REBUILD, CTree(CLASSIC, "SumTree", setting.leaves), "update_rebuild", _REBUILDS),
        CUpdate(OURS, CTree("cpu", "SumTree", setting.leaves)),
    ]
    _fill(rng, in_c)
    contestants: list[Contestant[Updates]] = [*in_c]
    if plain:
        contestants.insert(1, plain)
    names = [one.name for one in contestants]
    rows = []
    for count in setting.batches(sizes):
        seconds = race(contestants, _updates(rng, setting, count), setting.limits)
        rows.append(row_of("update", count, names, seconds, [EACH, REBUILD], _aim(aims, count)))
    _check_trees(in_c)
    return rows


def _descents_row(
    operation: str,
    count: int,
    pair: Sequence[CUpdate],
    total: float,
    rng: np.random.Generator,
    setting: Setting,
    aim: Aim | None,
) -> Row:
    found: dict[str, Indices] = {}
    finders = [CFind(one.name, one.tree, found) for one in pair]
    names = [one.name for one in pair]

    def draw() -> Doubles:
        return rng.random((batches_of(count), count)) * total

    def check(work: Doubles) -> None:
        same_bits(names[0], found[names[0]], found[names[1]])

    seconds = race(finders, draw, setting.limits, check)
    return row_of(operation, count, names, seconds, names[:1], aim)


def _multicore_rows(setting: Setting, kind: str) -> list[Row]:
    rng = setting.rng(kind)
    names = ["cpu", "multicore"]
    pair = [CUpdate(name, CTree(name, kind, setting.leaves)) for name in names]
    _fill(rng, pair)
    rows = []
    sizes = setting.batches(THREADED_BATCHES)
    for count in sizes:
        seconds = race(pair, _updates(rng, setting, count), setting.limits)
        aim = Aim(THREADED_AIMS.get(count, NEVER_BELOW))
        rows.append(row_of(f"{kind}.update", count, names, seconds, names[:1], aim))
    _check_trees(pair)
    total = float(pair[1].tree.nodes("sum")[1])
    for count in sizes if kind == "SumTree" else []:
        aim = Aim(THREADED_AIMS.get(count, NEVER_BELOW))
        rows.append(_descents_row(f"{kind}.find", count, pair, total, rng, setting, aim))
    return rows


def _updates(rng: np.random.Generator, setting: Setting, count: int) -> Callable[[], Updates]:
    return lambda: random_updates(rng, setting.leaves, batches_of(count), count)


def _aim(aims: Mapping[int, float], count: int) -> Aim | None:
    return Aim(aims[count]) if count in aims else None


def _fill(rng: np.random.Generator, contestants: Sequence[CUpdate]) -> None:
    masses = 1.0 - rng.random(contestants[0].tree.leaves)
    for one in contestants:
        one.fill(masses)


def _check_trees(contestants: Sequence[CUpdate]) -> None:
    """Compare the trees of all with that of the last, bit for bit."""
    ours = contestants[-1]
    for plane in PLANES[ours.tree.kind]:
        nodes = ours.tree.nodes(plane)
        for one in contestants[:-1]:
            same_bits(one.name, one.tree.nodes(plane), nodes)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Have multicore use so many threads when this thread calls it."""
    functions = c_functions("multicore")
    try:
        most, choose = functions.omp_get_max_threads, functions.omp_set_num_threads
    except AttributeError:
        raise BenchmarkUnavailableError("multicore was not built with OpenMP") from None
    before = most()
    choose(count)
    try:
        yield
    finally:
        choose(before)
