"""Verifying an installation: every operation of a backend against the reference, bit for bit.

What an administrator runs after installing. It finds a compiler that contracts or reassociates, a
floating-point environment that flushes subnormals to zero, a library that does not fit the package.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator, Philox

from . import reference, tree
from .arguments import Doubles, Indices
from .backends import open_backend
from .errors import SumTreeError, VerificationError
from .vectors import at_vector_level, vector_levels

CAPACITIES = (1, 2, 3, 5, 1000, 2**16)
BATCHES = (1, 3, 50, 5000)
KINDS: dict[str, list[tree.Plane]] = {
    "SumTree": ["sum"],
    "MinTree": ["min"],
    "PriorityTree": ["sum", "min", "max"],
}
_ROOTS = {"SumTree": ["total"], "MinTree": [], "PriorityTree": ["total", "min", "max"]}
_POWER_ULPS = 4
_LONGEST_SLICE = 300


@dataclass(frozen=True)
class Verified:
    """One check that a backend passed.

    Attributes
    ----------
    level : str
        The vector level that was in force.
    name : str
        What was checked.
    seconds : float
        How long it took.
    """

    level: str
    name: str
    seconds: float


def verify_backend(backend: str) -> Iterator[Verified]:
    """Run every check on one backend at each of its vector levels; give each as it passes.

    No other thread may use the backend meanwhile.

    Parameters
    ----------
    backend : str
        ``"cpu"``, ``"multicore"`` or ``"gpu"``.

    Raises
    ------
    VerificationError
        At the first check that fails, saying what differs and where.
    BackendError
        If the backend cannot be opened.
    """
    for level in vector_levels(backend):
        with at_vector_level(backend, level):
            for name, check in CHECKS.items():
                began = time.perf_counter()
                check(backend)
                yield Verified(level, name, time.perf_counter() - began)


def _check_arithmetic(backend: str) -> None:
    """Check that subnormals survive, and that additions round to nearest, ties to even.

    Operands and results are bit patterns: where subnormals are flushed, even comparing them fails.
    """
    one, half_ulp = 0x3FF << 52, (0x3FF - 53) << 52
    for left, right, expected in [(1, 1, 2), (one, half_ulp, one), (one + 1, half_ulp, one + 2)]:
        sums = tree.SumTree(2, backend=backend)
        sums.update([0, 1], np.array([left, right], dtype=np.int64).view(np.float64))
        bits = int(sums.nodes("sum").view(np.int64)[1])
        if bits != expected:
            raise VerificationError(
                f"adding doubles of the bits {left:#x} and {right:#x} gives {bits:#x} where "
                f"{expected:#x} is right: the floating-point environment flushes subnormals to "
                "zero or does not round to nearest"
            )


def _check_updates(backend: str) -> None:
    for kind, capacity, ours, expected in _pairs(backend):
        rng = np.random.default_rng(capacity)
        for count in BATCHES:
            indices, masses = _batch(rng, capacity, count)
            ours.update(indices, masses)
            expected.update(indices, masses)
            for plane in KINDS[kind]:
                where = f"{kind}({capacity}), plane {plane!r}, after a batch of {count}"
                _same_bits(ours.nodes(plane), expected.nodes(plane), where)
        ours.validate()


def _check_leaves(backend: str) -> None:
    """Check slices, written and read, single leaves, and the roots."""
    for kind, capacity, ours, expected in _filled_pairs(backend):
        rng = np.random.default_rng(capacity)
        where = f"{kind}({capacity})"
        for _ in range(5):
            start = int(rng.integers(0, capacity + 1))
            stop = min(start + _LONGEST_SLICE, capacity)
            values = rng.random(stop - start)
            for one in (ours, expected):
                one[start:stop] = values
            _same_bits(ours[start:stop], expected[start:stop], f"{where}[{start}:{stop}]")
        indices = rng.integers(0, capacity, 50)
        _same_bits(ours[indices], expected[indices], f"{where}[indices]")
        for plane in KINDS[kind]:
            written = f"{where}, plane {plane!r}, after slices"
            _same_bits(ours.nodes(plane), expected.nodes(plane), written)
        for name in _ROOTS[kind]:
            roots = [np.array([getattr(one, name)]) for one in (ours, expected)]
            _same_bits(roots[0], roots[1], f"{where}.{name}")


def _check_masses(backend: str) -> None:
    """Check priority ** alpha against Python's power, 4 ulp, and that 0 gives 0."""
    rng = np.random.default_rng(1)
    priorities = np.append(rng.random(300) * 2.0 ** rng.integers(-40, 40, 300), [0.0, 1.0])
    for alpha in (0.0, 0.6, 1.0):
        masses = np.empty_like(priorities)
        open_backend(backend).masses(priorities, alpha, masses)
        right = np.array([0.0 if p == 0.0 else math.pow(p, alpha) for p in priorities.tolist()])
        apart = np.abs(masses - right) > _POWER_ULPS * np.spacing(right)
        if apart.any() or masses[-2] != 0.0:
            raise VerificationError(
                f"masses of priorities, alpha {alpha}, differ by more than {_POWER_ULPS} ulp"
            )


def _check_reductions(backend: str) -> None:
    for kind, capacity, ours, expected in _filled_pairs(backend):
        rng = np.random.default_rng(capacity)
        for start, stop in np.sort(rng.integers(0, capacity + 1, (20, 2)), axis=1).tolist():
            name = "min" if kind == "MinTree" else "sum"
            got, right = (getattr(one, name)(start, stop) for one in (ours, expected))
            where = f"{kind}({capacity}).{name}({start}, {stop})"
            _same_bits(np.array([got]), np.array([right]), where)


def _check_descents(backend: str) -> None:
    for kind, capacity, ours, expected in _filled_pairs(backend):
        if kind == "MinTree":
            continue
        rng = np.random.default_rng(capacity)
        total = expected.total
        targets = np.append(rng.random(300) * total, [0.0, total, np.nextafter(total, 0.0)])
        for side in ("right", "left"):
            where = f"{kind}({capacity}).find, side {side!r}"
            _same_bits(ours.find(targets, side), expected.find(targets, side), where)


def _check_samples(backend: str) -> None:
    for kind, capacity, ours, expected in _filled_pairs(backend):
        if kind != "PriorityTree":
            continue
        for stratified in (True, False):
            where = f"PriorityTree({capacity}).sample, stratified {stratified}"
            got, right = (one.sample(300, 0.4, stratified) for one in (ours, expected))
            _same_bits(got.indices, right.indices, f"{where}, indices")
            _same_bits(got.masses, right.masses, f"{where}, masses")
            apart = np.abs(got.weights - right.weights) > _POWER_ULPS * np.spacing(right.weights)
            if apart.any():
                raise VerificationError(f"{where}: weights differ by more than {_POWER_ULPS} ulp")
        _check_generator(ours, expected)


def _check_generator(ours: tree.PriorityTree, expected: reference.PriorityTree) -> None:
    draws = []
    for one in (ours, expected):
        generator = Generator(Philox())
        generator.bit_generator.state = one.rng_state
        draws.append(generator.random(9))
    _same_bits(draws[0], draws[1], "the generator's state after the same draws")


def _check_refusals(backend: str) -> None:
    """Check that a bad batch raises and changes nothing."""
    for kind, capacity, ours, _ in _filled_pairs(backend):
        before = [ours.nodes(plane).tobytes() for plane in KINDS[kind]]
        for indices, masses in [([0, capacity], 1.0), ([0, -1], 1.0), ([0, 0], [1.0, math.nan])]:
            try:
                ours.update(indices, masses)
            except SumTreeError:
                continue
            raise VerificationError(f"{kind}({capacity}).update({indices}, {masses}) did not raise")
        if before != [ours.nodes(plane).tobytes() for plane in KINDS[kind]]:
            raise VerificationError(f"{kind}({capacity}) was changed by an update that raised")


CHECKS: dict[str, Callable[[str], None]] = {
    "floating-point arithmetic": _check_arithmetic,
    "updates": _check_updates,
    "leaves and roots": _check_leaves,
    "masses of priorities": _check_masses,
    "range reductions": _check_reductions,
    "descents": _check_descents,
    "samples": _check_samples,
    "refusals": _check_refusals,
}


def _pairs(backend: str) -> Iterator[tuple[str, int, Any, Any]]:
    for kind in KINDS:
        for capacity in CAPACITIES:
            seed = {"seed": capacity} if kind == "PriorityTree" else {}
            ours = getattr(tree, kind)(capacity, backend=backend, **seed)
            yield kind, capacity, ours, getattr(reference, kind)(capacity, **seed)


def _filled_pairs(backend: str) -> Iterator[tuple[str, int, Any, Any]]:
    for kind, capacity, ours, expected in _pairs(backend):
        indices, masses = _batch(np.random.default_rng(capacity), capacity, 1000)
        for one in (ours, expected):
            one.update(indices, masses)
        yield kind, capacity, ours, expected


def _batch(rng: np.random.Generator, capacity: int, count: int) -> tuple[Indices, Doubles]:
    """Make a batch with duplicates, zeros, subnormals and very large masses, not all zero."""
    indices = rng.integers(0, capacity, count)
    indices[count // 2 :] = indices[: count - count // 2]
    masses = rng.random(count) * 2.0 ** rng.integers(-40, 40, count)
    special = np.array([0.0, math.ulp(0.0), tree.MAX_MASS / 2, 1.0])
    chosen = rng.random(count) < 0.2
    masses[chosen] = rng.choice(special, np.count_nonzero(chosen))
    masses[-1] = 1.0
    return indices, masses


def _same_bits(got: Any, right: Any, where: str) -> None:
    if got.tobytes() == right.tobytes():
        return
    position = int(np.argmax(got.view(np.int64) != right.view(np.int64)))
    raise VerificationError(
        f"{where}: position {position} is {got[position]!r} where {right[position]!r} is right"
    )
