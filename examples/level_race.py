"""A race, replayed on purpose: what a level-parallel rebuild without a barrier makes of a sum tree.

The nodes of a sum tree of eight leaves are computed level by level by two threads, each of which
takes every other node of a level. A thread is a generator here that computes one node a step, and a
schedule, such as "0101010", says whose step is next; so every order in which two real threads could
run is one of a few schedules, and each can be had again.

With a barrier no thread begins a level before both have ended the one below. Without it a thread
may add a child that the other has not computed yet: nothing crashes, the sum is merely wrong, and
it is wrong in some runs only.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

PADDED = 8
NEW = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]


def nodes_of(thread: int, barrier: bool) -> Iterator[int]:
    """Give the nodes that a thread computes, in order; 0 where it waits at a barrier."""
    first = PADDED // 2
    while first > 0:
        yield from range(first + thread, 2 * first, 2)
        if barrier:
            yield 0
        first //= 2


def rebuild(schedule: str, barrier: bool) -> list[float] | None:
    """Compute all nodes over the leaves `NEW`, where the tree held zeros before.

    Parameters
    ----------
    schedule : str of "0" and "1"
        Which thread takes its next step.
    barrier : bool
        Whether the threads wait for each other after each level.

    Returns
    -------
    list of float, or None
        Nodes 0 .. 15, of which node 0 is none; None where the schedule is impossible: it calls a
        thread that waits or has ended, or not all steps are in it.
    """
    nodes = [0.0] * PADDED + NEW
    threads = [list(nodes_of(thread, barrier)) for thread in (0, 1)]
    for called in map(int, schedule):
        if not threads[called] or not _may_go_on(threads, called):
            return None
        node = threads[called].pop(0)
        if node:
            nodes[node] = nodes[2 * node] + nodes[2 * node + 1]
    return nodes if not any(threads) else None


def _may_go_on(threads: list[list[int]], called: int) -> bool:
    """Tell whether the other thread has come to the barriers that this one has passed."""
    other = threads[1 - called]
    return threads[called].count(0) >= other.count(0)


def wrong_nodes(nodes: list[float]) -> list[int]:
    """Check a tree as `validate` does: which nodes are not, bit for bit, their children's sum."""
    return [i for i in range(1, PADDED) if nodes[i] != nodes[2 * i] + nodes[2 * i + 1]]


def every_rebuild(barrier: bool) -> dict[str, list[float]]:
    """Give the nodes for every schedule that is possible."""
    steps = sum(len(list(nodes_of(thread, barrier))) for thread in (0, 1))
    schedules = ("".join(calls) for calls in product("01", repeat=steps))
    rebuilt = ((schedule, rebuild(schedule, barrier)) for schedule in schedules)
    return {schedule: nodes for schedule, nodes in rebuilt if nodes is not None}


def main() -> None:
    for barrier in (True, False):
        rebuilt = every_rebuild(barrier)
        wrong = [nodes for nodes in rebuilt.values() if wrong_nodes(nodes)]
        totals = ", ".join(f"{total:.3g}" for total in sorted({n[1] for n in rebuilt.values()}))
        print(f"{'with' if barrier else 'without'} a barrier: {len(rebuilt)} schedules, ", end="")
        print(f"{len(wrong)} with a wrong sum; totals: {totals}")


if __name__ == "__main__":
    main()
