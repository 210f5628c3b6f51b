"""Blind Cliffwalk: how many updates prioritized replay saves where rewards are rare.

Schaul et al., "Prioritized experience replay" (2016), section 3.1 and appendix B.1. In each of n
states one of two actions leads on, the other ends the episode; which one leads on alternates. Only
the action that leads on from the last state is rewarded, with 1. The memory holds the transitions
of all 2**n sequences of actions in random order, 2**(n+1) - 2 of them, so that random behaviour
meets the reward in one of them only.

A table of action values, drawn from a normal distribution of standard deviation 0.1, learns from
single transitions by Q-learning, with discount 1 - 1/n and step size 1/4, until its mean squared
distance from the true values is below 1e-3. The agents differ in which transition they replay; the
draws of the first two come from a PriorityTree:

uniform       any, with equal chances
proportional  with chances proportional to (abs(TD error) + epsilon) ** alpha
greedy        the one with the largest abs(TD error) when it was last replayed
oracle        the one that brings the table nearest to the truth, which it is told

Before a transition is replayed for the first time it has the largest priority. The updates are not
weighted: importance sampling comes in with section 3.4 only. --beta weights them, which makes most
steps of this small table shorter, and the learning slower.
"""

from __future__ import annotations

import argparse
import heapq
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

import numpy as np

import libsumtree as st

STEP_SIZE = 0.25
SPREAD = 0.1
NEAR_ENOUGH = 1e-3
LARGEST = 1.0
MOST_UPDATES = 50_000_000


@dataclass(frozen=True)
class Cliffwalk:
    """One memory of transitions, and the truth about them.

    Attributes
    ----------
    discount : float
    entries : list of int
        For each transition, which entry of the table it is about: 2 * state + action.
    follows : list of int
        The entry of action 0 in the state it leads to; -1 where the episode ends.
    rewards : list of float
    truth : list of float, one for each entry
    """

    discount: float
    entries: list[int]
    follows: list[int]
    rewards: list[float]
    truth: list[float]

    @classmethod
    def of(cls, n: int, random: np.random.Generator) -> Cliffwalk:
        """Make the memory of n states."""
        discount = 1 - 1 / n
        right = np.arange(n) % 2
        actions = random.permutation(2**n)[:, np.newaxis] >> np.arange(n) & 1
        leads_on = actions == right
        walked = np.ones_like(leads_on)
        walked[:, 1:] = np.logical_and.accumulate(leads_on[:, :-1], axis=1)
        episodes, states = np.nonzero(walked)
        on, last = leads_on[episodes, states], states == n - 1
        truth = np.zeros(2 * n)
        truth[2 * np.arange(n) + right] = discount ** np.arange(n - 1, -1, -1)
        return cls(
            discount,
            (2 * states + actions[episodes, states]).tolist(),
            np.where(on & ~last, 2 * states + 2, -1).tolist(),
            (on & last).astype(float).tolist(),
            truth.tolist(),
        )

    def __len__(self) -> int:
        return len(self.entries)

    def td_error(self, table: list[float], transition: int) -> float:
        """Tell how far a transition's value is from what Q-learning makes of it."""
        target = self.rewards[transition]
        follow = self.follows[transition]
        if follow >= 0:
            target += self.discount * max(table[follow], table[follow + 1])
        return target - table[self.entries[transition]]


# A replay yields (transition, weight) and is sent the TD error that was found there. It is made of
# the memory, the table as it changes, a seed and the options.
Replay: TypeAlias = Generator[tuple[int, float], float, None]
Agent: TypeAlias = Callable[[Cliffwalk, list[float], int, argparse.Namespace], Replay]


def replay_uniformly(
    walk: Cliffwalk, table: list[float], seed: int, options: argparse.Namespace
) -> Replay:
    tree = st.PriorityTree(len(walk), seed=seed)
    tree[:] = LARGEST
    while True:
        for transition in tree.sample(1024, beta=0.0, stratified=False).indices.tolist():
            yield transition, 1.0


def replay_proportionally(
    walk: Cliffwalk, table: list[float], seed: int, options: argparse.Namespace
) -> Replay:
    tree = st.PriorityTree(len(walk), seed=seed)
    tree[:] = LARGEST**options.alpha
    while True:
        drawn = tree.sample(1, beta=options.beta, stratified=False)
        td_error = yield int(drawn.indices[0]), float(drawn.weights[0])
        tree.update(drawn.indices, (abs(td_error) + options.epsilon) ** options.alpha)


def replay_greedily(
    walk: Cliffwalk, table: list[float], seed: int, options: argparse.Namespace
) -> Replay:
    heap = [(-LARGEST, transition) for transition in range(len(walk))]
    while True:
        td_error = yield heap[0][1], 1.0
        heapq.heapreplace(heap, (-abs(td_error), heap[0][1]))


def replay_by_oracle(
    walk: Cliffwalk, table: list[float], seed: int, options: argparse.Namespace
) -> Replay:
    alike = {entry: transition for transition, entry in enumerate(walk.entries)}

    def gain(transition: int) -> float:
        entry = walk.entries[transition]
        away = table[entry] - walk.truth[entry]
        return away**2 - (away + STEP_SIZE * walk.td_error(table, transition)) ** 2

    while True:
        yield max(alike.values(), key=gain), 1.0


AGENTS: dict[str, Agent] = {
    "uniform": replay_uniformly,
    "proportional": replay_proportionally,
    "greedy": replay_greedily,
    "oracle": replay_by_oracle,
}


def count_updates(n: int, agent: Agent, seed: int, options: argparse.Namespace) -> int:
    """Learn until the table is near enough, and tell how many updates that took."""
    random = np.random.default_rng([seed, n])
    walk = Cliffwalk.of(n, random)
    table = random.normal(0.0, SPREAD, 2 * n).tolist()
    squares = [(value - true) ** 2 for value, true in zip(table, walk.truth, strict=True)]
    replay = agent(walk, table, seed, options)
    transition, weight = next(replay)
    for updates in range(MOST_UPDATES):
        if sum(squares) < NEAR_ENOUGH * len(squares):
            return updates
        td_error = walk.td_error(table, transition)
        entry = walk.entries[transition]
        table[entry] += STEP_SIZE * weight * td_error
        squares[entry] = (table[entry] - walk.truth[entry]) ** 2
        transition, weight = replay.send(td_error)
    raise RuntimeError(f"n = {n}: not near the truth after {MOST_UPDATES} updates")


def measure(options: argparse.Namespace) -> dict[str, list[float]]:
    """Give each agent's median number of updates, one for each n; print them as they come."""
    exponents = f"alpha {options.alpha}, beta {options.beta}, epsilon {options.epsilon}"
    print(f"median updates of {options.runs} runs, {exponents}\n")
    header = [f"{name:>12}" for name in options.agents]
    print(f"{'n':>3} {'transitions':>12}", *header, f"{'uniform/prop.':>14} {'seconds':>8}")
    medians: dict[str, list[float]] = {name: [] for name in options.agents}
    for n in options.n:
        start = time.perf_counter()
        for name in options.agents:
            runs = [count_updates(n, AGENTS[name], seed, options) for seed in options.seeds]
            medians[name].append(float(np.median(runs)))
        cells = [f"{medians[name][-1]:12,.0f}" for name in options.agents]
        seconds = time.perf_counter() - start
        print(f"{n:3d} {2 ** (n + 1) - 2:12,d}", *cells, f"{ratio_of(medians, -1):14.2f}", end=" ")
        print(f"{seconds:8.1f}", flush=True)
    return medians


def ratio_of(medians: dict[str, list[float]], place: int) -> float:
    """Give uniform / proportional, NaN where one of them did not run."""
    if "uniform" not in medians or "proportional" not in medians:
        return float("nan")
    return medians["uniform"][place] / medians["proportional"][place]


def plot(options: argparse.Namespace, medians: dict[str, list[float]]) -> None:
    """Draw the updates over the size of the memory, in black on white."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    styles = {
        "uniform": ("s", "-"),
        "proportional": ("o", "--"),
        "greedy": ("^", "-."),
        "oracle": ("D", ":"),
    }
    figure, axes = pyplot.subplots(figsize=(7, 5), layout="constrained")
    sizes = [2 ** (n + 1) - 2 for n in options.n]
    for name, updates in medians.items():
        marker, line = styles[name]
        axes.loglog(sizes, updates, line, marker=marker, color="black", mfc="white", markersize=8)
        axes.annotate(
            name, (sizes[-1], updates[-1]), (10, 0), textcoords="offset points", va="center"
        )
    axes.set_xlabel("transitions in memory (number), for n states")
    axes.set_ylabel("updates until the mean squared error is < 1e-3 (number)")
    axes.set_title(f"Blind Cliffwalk: medians of {options.runs} runs, alpha {options.alpha}")
    axes.set_xticks(
        sizes, [f"{size:,d}\nn = {n}" for n, size in zip(options.n, sizes, strict=True)]
    )
    axes.set_xticks([], minor=True)
    axes.margins(x=0.25)
    axes.grid(color="0.85")
    figure.savefig(options.output, dpi=150)
    print(f"\nplot: {options.output}")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("n", nargs="*", type=int, default=[6, 8, 10, 12], help="numbers of states")
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=list(AGENTS))
    parser.add_argument("--runs", type=int, default=10, help="runs for each median")
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    parser.add_argument("--alpha", type=float, default=0.6, help="exponent of priorities")
    parser.add_argument(
        "--epsilon",
        type=float,
        default=1e-4,
        help="added to priorities: a TD error may grow again while it is not looked at",
    )
    parser.add_argument("--beta", type=float, default=0.0, help="exponent of weights")
    parser.add_argument("--output", type=Path, help="write a plot: .png, .pdf or .svg")
    parser.add_argument(
        "--at-least",
        type=float,
        metavar="RATIO",
        help="exit with status 1 if uniform / proportional is below RATIO for an n from 10 on",
    )
    options = parser.parse_args(arguments)
    if not all(2 <= n <= 20 for n in options.n):
        parser.error(f"n is {options.n}: each must be in 2 .. 20")
    if options.runs < 1:
        parser.error(f"--runs is {options.runs}: it must be at least 1")
    options.n = sorted(set(options.n))
    options.seeds = range(options.seed, options.seed + options.runs)
    return options


def main() -> None:
    options = parse()
    if options.output and find_spec("matplotlib") is None:
        sys.exit("--output needs matplotlib: pip install 'libsumtree[cli]'")
    medians = measure(options)
    if options.output:
        plot(options, medians)
    if options.at_least is not None:
        for place, n in enumerate(options.n):
            if n >= 10 and not ratio_of(medians, place) >= options.at_least:
                ratio = ratio_of(medians, place)
                sys.exit(
                    f"n = {n}: uniform / proportional is {ratio:.2f}, below {options.at_least}"
                )


if __name__ == "__main__":
    main()
