"""A tree of more than 2**24 leaves, few of them set: where float32 and narrow integers give way."""

from __future__ import annotations

import numpy as np
import pytest

import libsumtree as st

CAPACITY = 2**24 + 17
ENDS = [0, 1, 2**23, 2**24 - 1, 2**24, 2**24 + 1, CAPACITY - 1]


def check_plane(tree: st.PriorityTree, oracle: st.reference.PriorityTree, plane: str) -> None:
    """Compare every node that was ever set, and see that all others are unset."""
    expected = oracle._planes[plane]
    nodes = tree.nodes(plane)  # type: ignore[arg-type]
    places = np.fromiter(expected.nodes, dtype=np.int64)
    values = np.fromiter(expected.nodes.values(), dtype=np.float64)
    assert nodes[places].tobytes() == values.tobytes()
    nodes[places] = expected.unset
    assert nodes[0] == 0.0
    assert np.count_nonzero(nodes[1:] != expected.unset) == 0


@pytest.fixture(scope="module")
def trees() -> tuple[st.PriorityTree, st.reference.PriorityTree]:
    """Both trees after the same batches, small ones, large ones and contiguous ones."""
    pair = st.PriorityTree(CAPACITY, seed=24), st.reference.PriorityTree(CAPACITY, seed=24)
    rng = np.random.default_rng(24)
    for count in (1, 3, 50, 700, 2000):
        indices = np.append(rng.integers(0, CAPACITY, count), ENDS)
        masses = rng.random(indices.size) * 10.0 ** rng.integers(-300, 280, indices.size)
        masses[::9] = 0.0
        for tree in pair:
            tree.update(np.append(indices, indices[::3]), np.append(masses, masses[::3]))
            tree[CAPACITY - 5 :] = [0.0, 5e-324, 1.0, 0.0, masses[1]]
    return pair


@pytest.mark.parametrize("plane", ["sum", "min", "max"])
def test_every_node(trees: tuple[st.PriorityTree, st.reference.PriorityTree], plane: str) -> None:
    check_plane(*trees, plane)


def test_everything_read(trees: tuple[st.PriorityTree, st.reference.PriorityTree]) -> None:
    tree, oracle = trees
    tree.validate()
    assert tree[ENDS].tobytes() == oracle[ENDS].tobytes()
    assert (tree.total, tree.min, tree.max) == (oracle.total, oracle.min, oracle.max)
    for start, stop in [(0, 2**24), (2**24, CAPACITY), (1, CAPACITY - 1), (5, 2**24 + 3)]:
        assert tree.sum(start, stop) == oracle.sum(start, stop)
    drawn, expected = tree.sample(300), oracle.sample(300)
    assert drawn.indices.tolist() == expected.indices.tolist()
    targets = np.linspace(0.0, tree.total, 301)
    for side in ("right", "left"):
        assert tree.find(targets, side).tolist() == oracle.find(targets, side).tolist()


def test_indices_above_2_to_24(trees: tuple[st.PriorityTree, st.reference.PriorityTree]) -> None:
    tree = st.SumTree(CAPACITY)
    for index in ENDS:
        tree[index] = 1.0
        assert tree.find(0.0) == index
        assert tree.find(1.0, "left") == index
        tree[index] = 0.0
    assert tree.total == 0.0
