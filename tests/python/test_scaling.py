"""The simulation of many shards loses nothing, and says the same for the same seed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "scaling.py"


@pytest.fixture(scope="module")
def scaling() -> Iterator[Any]:
    sys.path.insert(0, str(EXAMPLE.parent))
    found = [import_module(name) for name in ("scaling_model", "scaling")]
    yield SimpleNamespace(**{name: value for one in found for name, value in vars(one).items()})
    sys.path.remove(str(EXAMPLE.parent))


@pytest.fixture(scope="module")
def costs(scaling: Any) -> Any:
    return scaling.Costs("nowhere", 20e-6, 1e-10, 100e-6, 3e-7, 100e-6)


@pytest.fixture(scope="module")
def few(scaling: Any) -> Any:
    return scaling.Cluster(shards=4, actors=60, capacity=2000, record=48)


@pytest.mark.parametrize("shards", [1, 3, 8])
@pytest.mark.parametrize("slow", [1, 10_000])
def test_what_actors_send_is_what_shards_take(
    scaling: Any, costs: Any, few: Any, shards: int, slow: int
) -> None:
    """Also where the shards cannot keep up, so that credits are what limits actors."""
    cluster = replace(few, shards=shards)
    simulation = scaling.Simulation(cluster, replace(costs, batch=slow * 20e-6), 1, 2.0)
    outcome = simulation.run()
    assert outcome.inserted.sum() == outcome.sent.sum() > 0
    assert simulation.actors.unacknowledged == 0
    assert outcome.drawn.sum() == outcome.steps * cluster.sample > 0
    for shard, total in zip(simulation.shards, outcome.totals, strict=True):
        assert shard.total == total == pytest.approx(shard.masses.sum(), rel=1e-9)
        assert (shard.masses > 0.0).all()
    assert max(outcome.shares.values()) <= 1.0


def test_all_bytes_are_counted(scaling: Any, costs: Any, few: Any) -> None:
    outcome = scaling.Simulation(few, costs, 2, 2.0).run()
    batches, drawn = outcome.inserted.sum() // few.batch, outcome.drawn.sum()
    draws = outcome.steps * few.shards
    updates = outcome.messages // 2 - draws  # each has an answer
    came = (
        batches * (64 + few.batch * (8 + 48)) + draws * 72 + 8 * drawn + updates * 64 + 16 * drawn
    )
    went = batches * 64 + (draws + updates) * (64 + 96) + drawn * (24 + 48)
    assert (outcome.came.sum(), outcome.went.sum()) == (came, went)
    assert 0 < updates <= draws


def test_actors_never_have_more_in_flight_than_credits(scaling: Any, costs: Any, few: Any) -> None:
    hasty = replace(few, rate=1000.0)
    simulation = scaling.Simulation(hasty, replace(costs, batch=0.05), 3, 1.0)
    most = few.credits * few.batch
    seen = []

    def look() -> None:
        seen.append(simulation.actors._under_way.max())
        simulation.at(simulation.now + 0.01, look) if simulation.now < 1.0 else None

    look()
    outcome = simulation.run()
    assert max(seen) == most
    offered = hasty.actors * hasty.rate * 1.0
    assert outcome.sent.sum() < 0.9 * offered
    assert outcome.shares["replay core"] > 0.9


def test_batches_go_where_least_has_gone(scaling: Any, costs: Any, few: Any) -> None:
    outcome = scaling.Simulation(replace(few, actors=600), costs, 4, 5.0).run()
    assert outcome.inserted.max() / outcome.inserted.mean() < 1.1
    even = scaling.Simulation(replace(few, spread_of_masses=0.0), costs, 4, 1.0).run()
    assert even.totals == pytest.approx(np.full(few.shards, 2000.0))
    shares = even.drawn * few.shards / even.drawn.sum()
    assert shares == pytest.approx(1.0, abs=0.01)


def test_a_seed_gives_the_same_again_and_another_does_not(
    scaling: Any, costs: Any, few: Any
) -> None:
    def run(seed: int) -> dict[str, Any]:
        outcome = scaling.Simulation(few, costs, seed, 1.0).run()
        return {name: np.array(value).tolist() for name, value in vars(outcome).items()}

    assert run(5) == run(5)
    assert run(5) != run(6)


def test_costs_are_those_that_were_measured(scaling: Any, costs: Any) -> None:
    def rows(*given: tuple[str, dict[str, float]]) -> list[dict[str, Any]]:
        return [{"operation": name, "figures": figures} for name, figures in given]

    def processor(record: str) -> dict[str, float]:
        size = scaling.RECORDS[record]
        request = 2 * costs.batch + scaling.REQUEST * (costs.drawn + costs.byte * size)
        batch = costs.batch / scaling.BATCH + costs.byte * size
        return {"learner off": 1e6 * batch, "a request": 1e6 * request}

    trip = processor("CartPole")["a request"] + 1e6 * costs.client
    tables = {
        "processor": [(f"{name}, 1 actor, raw MPI", processor(name)) for name in scaling.RECORDS],
        "requests": [("CartPole, 1 actor, p50 at rest", {"raw MPI": trip})],
    }
    report = {
        "machine": {"processor": "a box", "load": 0.25},
        "tables": [{"name": name, "rows": rows(*given)} for name, given in tables.items()],
    }
    found = scaling.Costs.of_report(report)
    assert found.machine == "a box, load before 0.25"
    for name in ("batch", "byte", "drawn", "client"):
        assert getattr(found, name) == pytest.approx(getattr(costs, name), rel=1e-6), name
    assert found.request == 2 * found.batch
    tables["requests"][0][1]["raw MPI"] = 1.0  # sooner than the replay rank works for it
    report["tables"] = [{"name": name, "rows": rows(*given)} for name, given in tables.items()]
    assert scaling.Costs.of_report(report).client == pytest.approx(costs.batch, rel=1e-6)
    with pytest.raises(SystemExit, match="no row 'CartPole, 1 actor, raw MPI'"):
        scaling.Costs.of_report({"tables": []})


def test_the_limiter_waits_for_no_less_than_it_was_asked_for(scaling: Any) -> None:
    extra = [scaling.rounding(scaling.Cluster(shards=shards)) for shards in (1, 3, 64)]
    assert extra == [0, 1, 48]  # 3 * 16,667 and 64 * 782


def test_the_tables() -> None:
    command = [sys.executable, str(EXAMPLE), "--seconds", "0.2", "--actors", "50"]
    done = subprocess.run(
        [*command, "--capacity", "4000"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    tables = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in tables}) == 1
    assert len(tables) == 2 * (2 + 1 + 6 + 2 + 2 + 3 + 2)
    machine = json.loads((EXAMPLE.parents[1] / "docs/benchmarks/intake.json").read_text())[
        "machine"
    ]
    assert machine["processor"] in done.stdout
