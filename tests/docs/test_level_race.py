"""The race of docs/contract.md: without a barrier sums are wrong, and the exact check sees each."""

from __future__ import annotations

import runpy

import numpy as np
import pytest

import libsumtree as st
from pages import TOP

RACE = runpy.run_path(str(TOP / "examples/level_race.py"))
PADDED, NEW = RACE["PADDED"], RACE["NEW"]


def right_sums() -> list[float]:
    tree = st.reference.SumTree(PADDED)
    tree.update(range(PADDED), NEW)
    return [0.0] + [tree.sum(*leaves_below(node)) for node in range(1, 2 * PADDED)]


def leaves_below(node: int) -> tuple[int, int]:
    width = PADDED >> (node.bit_length() - 1)
    start = node * width - PADDED
    return start, start + width


def test_with_a_barrier_every_schedule_gives_the_bits_of_the_reference() -> None:
    rebuilt = RACE["every_rebuild"](True)
    assert len(rebuilt) == 360
    assert all(nodes == right_sums() for nodes in rebuilt.values())


def test_without_a_barrier_some_schedules_give_wrong_sums() -> None:
    rebuilt = RACE["every_rebuild"](False)
    assert len(rebuilt) == 35
    assert sum(nodes != right_sums() for nodes in rebuilt.values()) == 20


def test_the_check_sees_every_wrong_sum_and_nothing_else() -> None:
    for nodes in RACE["every_rebuild"](False).values():
        assert bool(RACE["wrong_nodes"](nodes)) == (nodes != right_sums())


def test_a_run_that_waits_for_nobody_misses_a_child() -> None:
    nodes = RACE["rebuild"]("0000111", False)
    assert nodes[1] == NEW[0] + NEW[1]
    assert RACE["wrong_nodes"](nodes) == [1, 2]


@pytest.mark.parametrize("backend", ["cpu", "multicore"])
def test_our_update_gives_the_right_sums(backend: str) -> None:
    tree = st.SumTree(PADDED, backend=backend)
    tree.update(np.arange(PADDED), NEW)
    assert tree.total == right_sums()[1]
    tree.validate()
