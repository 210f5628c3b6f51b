"""What other packages do at the edges, asked of the packages themselves: for docs/comparison.md.

    pip install 'libsumtree[bench]' && python tests/bench/peer_facts.py

Prints one line for each question and package; what is not installed is named.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

MASSES = [0.5, 1.0, 1.0, 3.0, 0.0, 0.0, 0.0, 0.0]
TARGETS = [0.0, 0.5, 1.5, 2.5, 5.5]
GAPS = [0.0, 1.0, 0.0, 1.0]


def attempt(question: Callable[[], Any]) -> str:
    """Answer, or say which exception came."""
    try:
        return str(question()).replace("\n", " ")
    except Exception as error:
        return f"{type(error).__name__}: {error}".strip(": ")


def ask(
    make: Callable[[int], Any], find: Callable[[Any, Any], Any], total: Callable[[Any], Any]
) -> None:
    """Put all questions to one kind of sum tree."""

    def filled(masses: list[float]) -> Any:
        tree = make(len(masses))
        tree[np.arange(len(masses))] = np.array(masses)
        return tree

    def changed(index: Any, mass: Any) -> Any:
        tree = filled([1.0, 1.0, 1.0, 1.0])
        tree[index] = mass
        return total(tree)

    tree, gaps = filled(MASSES), filled(GAPS)
    for target in TARGETS:
        print(
            f"  target {target} in {MASSES}: {attempt(lambda t=target: find(tree, np.array([t])))}"
        )
    print(f"  target 0 in {GAPS}: {attempt(lambda: find(gaps, np.array([0.0])))}")
    print(f"  total after a NaN: {attempt(lambda: changed(0, float('nan')))}")
    print(f"  total after -1: {attempt(lambda: changed(0, -1.0))}")
    twice = attempt(lambda: changed(np.array([1, 1]), np.array([2.0, 3.0])))
    print(f"  total after [1, 1] = [2, 3]: {twice}")


def ask_libsumtree() -> None:
    import libsumtree as st

    ask(st.SumTree, lambda tree, t: tree.find(t), lambda tree: tree.total)


def ask_tianshou() -> None:
    from tianshou.data import SegmentTree

    ask(SegmentTree, lambda tree, t: tree.get_prefix_sum_idx(t), lambda tree: tree.reduce())


def ask_torchrl() -> None:
    from torchrl.data.replay_buffers.samplers import MinSegmentTreeFp64, SumSegmentTreeFp64

    ask(SumSegmentTreeFp64, lambda tree, t: tree.scan_lower_bound(t), lambda tree: tree.query(0, 4))
    print(f"  minimum of an empty tree: {MinSegmentTreeFp64(4).query(0, 4)}")


def ask_cpprb() -> None:
    from cpprb import PrioritizedReplayBuffer

    def filled(priorities: list[float]) -> Any:
        buffer = PrioritizedReplayBuffer(8, {"x": {}}, alpha=1.0, eps=0.0)
        buffer.add(x=np.arange(len(priorities)), priorities=np.array(priorities))
        return buffer

    def drawn_after(priority: float) -> Any:
        buffer = filled([1.0, 1.0, 1.0, 1.0])
        buffer.update_priorities([0], [priority])
        return {name: buffer.sample(8, 0.4)[name].tolist() for name in ("indexes", "weights")}

    buffer = filled([1.0, 10.0])
    buffer.update_priorities([1], [0.1])
    counts = np.bincount(filled(GAPS).sample(1000, 0.4)["indexes"].ravel().astype(int))
    print(f"  1000 draws of priorities {GAPS}: {counts}")
    print(f"  drawn after a NaN: {attempt(lambda: drawn_after(float('nan')))}")
    print(f"  drawn after -1: {attempt(lambda: drawn_after(-1.0))}")
    print(f"  max after priority 10 has become 0.1: {buffer.get_max_priority()}")


def main() -> None:
    for name in ("libsumtree", "tianshou", "torchrl", "cpprb"):
        try:
            print(f"{name} {version(name)}")
        except PackageNotFoundError:
            print(f"{name}: not installed")
            continue
        globals()[f"ask_{name}"]()


if __name__ == "__main__":
    main()
