"""Frozen outputs: masses, nodes, descents and draws that no version may change.

``python tests/python/test_tree_golden.py`` prints the table as `libsumtree.reference` makes it.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import libsumtree

GOLDEN = Path(__file__).resolve().parents[1] / "data" / "tree.csv"
CAPACITY = 21
SEED = 20161115

Row = tuple[str, str, str, str]


def masses() -> dict[str, np.ndarray]:
    """Give two sets of masses: of one size, and of all sizes with zeros and subnormals."""
    generator = np.random.Generator(np.random.Philox(SEED))
    even = generator.random(CAPACITY)
    wide = even * 2.0 ** generator.integers(-1060, 950, CAPACITY)
    wide[::4] = 0.0
    wide[5] = 5e-324
    wide[6] = 2.0**960
    return {"even": even, "wide": wide}


def rows(trees: ModuleType) -> Iterator[Row]:
    """Give (set, what, where, value) as an implementation makes them, doubles in hexadecimal."""
    for name, given in masses().items():
        tree = trees.PriorityTree(CAPACITY, seed=SEED)
        tree[:] = given
        for plane in ("sum", "min", "max"):
            for node, value in enumerate(tree.nodes(plane).tolist()):
                yield name, plane, str(node), value.hex()
        targets = [0.0, tree.total, *(tree.sum(0, stop) for stop in range(1, CAPACITY))]
        targets += [k / 37 * tree.total for k in range(1, 37)]
        for side in ("right", "left"):
            for target in targets:
                yield name, side, float(target).hex(), str(tree.find(target, side))
        for stratified in (False, True):
            drawn = tree.sample(32, stratified=stratified).indices.tolist()
            for place, index in enumerate(drawn):
                yield name, "stratified" if stratified else "independent", str(place), str(index)


@pytest.mark.parametrize("trees", [libsumtree, libsumtree.reference], ids=["library", "reference"])
def test_nothing_has_changed(trees: Any) -> None:
    with GOLDEN.open(newline="") as file:
        header, *expected = list(csv.reader(file))
    assert header == ["set", "what", "where", "value"]
    assert [list(row) for row in rows(trees)] == expected


if __name__ == "__main__":
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["set", "what", "where", "value"])
    writer.writerows(rows(libsumtree.reference))
