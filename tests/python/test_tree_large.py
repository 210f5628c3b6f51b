"""Large batches, which a team may share out: the same bits as one thread, duplicates included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import libsumtree as st

PLANES: dict[Any, list[Any]] = {
    st.SumTree: ["sum"],
    st.MinTree: ["min"],
    st.PriorityTree: ["sum", "min", "max"],
}


@pytest.mark.parametrize("kind", list(PLANES))
@pytest.mark.parametrize("capacity", [1, 7, 3000, 2**16 + 1])
@pytest.mark.parametrize("count", [2047, 2048, 5000, 50_000])
def test_updates(kind: Any, capacity: int, count: int) -> None:
    tree, alone = kind(capacity), kind(capacity, backend="cpu")
    rng = np.random.default_rng(count)
    for spread in (capacity, max(capacity // 50, 1)):
        indices = rng.integers(0, spread, count)
        masses = rng.random(count) * rng.integers(0, 2, count)
        tree.update(indices, masses)
        last = dict(zip(indices.tolist(), masses.tolist(), strict=True))
        for index, mass in last.items():
            alone[index] = mass
        for plane in PLANES[kind]:
            assert tree.nodes(plane).tobytes() == alone.nodes(plane).tobytes()
    tree.validate()


@pytest.mark.parametrize("kind", list(PLANES))
def test_a_slice_of_any_length(kind: Any) -> None:
    capacity = 2**17 + 3
    tree, alone = kind(capacity), kind(capacity, backend="cpu")
    masses = np.random.default_rng(3).random(capacity)
    for start, stop in [(0, capacity), (1, capacity - 1), (77, 70_000)]:
        tree[start:stop] = masses[: stop - start]
        alone.update(np.arange(start, stop), masses[: stop - start])
        for plane in PLANES[kind]:
            assert tree.nodes(plane).tobytes() == alone.nodes(plane).tobytes()


@pytest.mark.parametrize("side", ["right", "left"])
def test_descents(side: Any) -> None:
    rng = np.random.default_rng(4)
    tree, alone = st.PriorityTree(100_003, seed=5), st.PriorityTree(100_003, seed=5, backend="cpu")
    masses = rng.random(100_003) * rng.integers(0, 2, 100_003)
    tree[:] = masses
    alone[:] = masses
    targets = np.append(rng.random(20_000) * tree.total, [0.0, tree.total])
    found = tree.find(targets, side)
    assert found.tobytes() == np.array([alone.find(float(t), side) for t in targets]).tobytes()
    assert np.all(tree[found] > 0)
    for drawn, expected in zip(tree.sample(9999), alone.sample(9999), strict=True):
        assert drawn.tobytes() == expected.tobytes()
