"""What limits a replay of many shards: a simulation of 64 shards of 2^21 and 10,000 actors.

The assumptions stand in scaling_model.py. The processor times of messages are those that
`libsumtree bench intake` measured, from its intake.json. The tables, as they were printed, are
docs/benchmarks/scaling.md; docs/scaling.md says what follows.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from scaling_model import (
    ADD_ROW,
    BATCH,
    HEADER,
    RECORDS,
    Cluster,
    Costs,
    Outcome,
    Simulation,
)

INLINE = 1 << 15
"""Bytes of transitions that still travel with their message."""
COSTS = Path(__file__).parents[1] / "docs" / "benchmarks" / "intake.json"
LEAF_BYTES = 32  # of a PriorityTree
EAGER_BYTES = 1 << 14  # a message up to here is sent before it is asked for


def memory_of_a_rank(cluster: Cluster) -> int:
    """Give the bytes of ring, ids' tree, and what all actors' credits may leave waiting there."""
    payload = cluster.batch * cluster.record
    waiting = HEADER + ADD_ROW * cluster.batch + (payload if payload <= EAGER_BYTES else 0)
    tree = LEAF_BYTES * (1 << (cluster.capacity - 1).bit_length())
    return cluster.capacity * cluster.record + tree + cluster.actors * cluster.credits * waiting


def memory_of_an_actor(cluster: Cluster) -> int:
    """Give the bytes of batches that it may keep: large ones have one more place than credits."""
    batch = cluster.batch * cluster.record
    places = cluster.shards * cluster.credits if batch <= INLINE else cluster.credits + 1
    return places * batch


def rounding(cluster: Cluster, least: int = 50_000) -> int:
    """Give how many transitions more than `least` are held when every shard lets draws pass."""
    return cluster.shards * -(-least // cluster.shards) - least


def columns(cluster: Cluster, outcome: Outcome) -> dict[str, str]:
    """Give a row of a table."""
    seconds, shards = outcome.seconds, cluster.shards
    batches = outcome.inserted.sum() / cluster.batch / seconds
    fullest = max(outcome.shares, key=lambda name: outcome.shares[name])
    offered = cluster.actors * cluster.rate / cluster.batch
    shares = outcome.drawn * shards / max(1, outcome.drawn.sum())
    return {
        "batches/s in all": f"{batches:,.0f}",
        "of those offered": f"{batches / offered:.0%}",
        "per shard": f"{batches / shards:,.1f}",
        "MB/s into a shard": f"{outcome.came.mean() / seconds / 1e6:,.2f}",
        "out of it": f"{outcome.went.mean() / seconds / 1e6:,.2f}",
        "learner steps/s": f"{outcome.steps / seconds:.1f}",
        "messages a step": f"{outcome.messages / max(1, outcome.steps):.0f}",
        "ms for a sample": f"{1e3 * outcome.asked:.2f}",
        "added, max/mean": f"{outcome.inserted.max() / outcome.inserted.mean():.3f}",
        "mass, max/mean": f"{outcome.totals.max() / outcome.totals.mean():.3f}",
        "drawn, max/mean": f"{shares.max():.3f}",
        "GiB a rank": f"{memory_of_a_rank(cluster) / 2**30:,.2f}",
        "MiB an actor": f"{memory_of_an_actor(cluster) / 2**20:,.1f}",
        "limiter": f"+{rounding(cluster)}",
        "busiest": f"{fullest} {outcome.shares[fullest]:.0%}",
    }


def variations(base: Cluster) -> Iterator[tuple[str, Cluster]]:
    """Give the base, then one thing at a time changed."""
    yield "as above", base
    for shards in (1, 2, 4, 8, 16, 32):
        yield f"{shards} shard{'s' * (shards > 1)}", replace(base, shards=shards)
    for actors in (100, 1000):
        yield f"{actors:,} actors", replace(base, actors=actors)
    for batch in (10, 200):
        yield f"batches of {batch}", replace(base, batch=batch)
    for sample in (1024, 2048, 4096):
        yield f"samples of {sample}", replace(base, sample=sample)
    for gigabits in (10.0, 200.0):
        yield f"{gigabits:g} Gb/s", replace(base, gigabits=gigabits)


def markdown(rows: dict[str, dict[str, str]]) -> str:
    """Give a table."""
    head = ["", *next(iter(rows.values()))]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    lines += [[name, *row.values()] for name, row in rows.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(costs: Costs, base: Cluster, seconds: float, seed: int) -> Iterator[str]:
    """Give the parts of the page."""
    yield "# Simulated: many shards, many actors"
    yield (
        f"`python examples/scaling.py --seconds {seconds:g} --seed {seed}`; what is assumed, and "
        "what follows, stands in [scaling](../scaling.md)."
    )
    yield (
        f"Costs, measured by `libsumtree bench intake` on {costs.machine}: of a replay rank "
        f"{1e6 * costs.batch:.1f} us for a batch of {BATCH}, {1e6 * costs.request:.1f} us for a "
        f"request with its update, {1e9 * costs.drawn:.0f} ns for each transition of a request, "
        f"{1e12 * costs.byte:.0f} ps for each byte of a transition; of a learner "
        f"{1e6 * costs.client:.0f} us for a message and its answer."
    )
    yield (
        f"Unless a row says otherwise: {base.shards} shards of {base.capacity:,}, {base.actors:,} "
        f"actors of {base.rate:.1f} transitions/s each in batches of {base.batch}, samples of "
        f"{base.sample}, {1e3 * base.step:.0f} ms of computing a step, ports of "
        f"{base.gigabits:g} Gb/s; {seconds:g} s are simulated."
    )
    for name, record in RECORDS.items():
        rows = {}
        for title, cluster in variations(replace(base, record=record)):
            print(f"{name}, {title}", file=sys.stderr, flush=True)
            rows[title] = columns(cluster, Simulation(cluster, costs, seed, seconds).run())
        yield f"## {name}, {record:,} bytes a transition"
        yield markdown(rows)


def main() -> None:
    """Simulate all rows and print them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--costs", type=Path, default=COSTS, help="intake.json of bench intake")
    parser.add_argument("--shards", type=int, default=Cluster.shards)
    parser.add_argument("--actors", type=int, default=Cluster.actors)
    parser.add_argument("--capacity", type=int, default=Cluster.capacity, help="of a shard")
    parser.add_argument("--seconds", type=float, default=5.0, help="to simulate")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    costs = Costs.of_report(json.loads(options.costs.read_text()))
    base = Cluster(options.shards, options.actors, options.capacity)
    print("\n\n".join(page(costs, base, options.seconds, options.seed)))


if __name__ == "__main__":
    main()
