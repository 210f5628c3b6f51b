"""The model of `scaling.py`: actors, shards and a learner, by events in the order of time.

A simulation of discrete events, not a measurement. Its inputs are the processor times of messages
that `libsumtree bench intake` measured on one machine (--costs reads its intake.json) and the
assumptions below; `Cluster` has their numbers.

- Every replay rank, and the learner, has a core and a network port of its own, with as much
  bandwidth in as out. Whatever comes in or goes out queues there, first come, first served.
  The network between ports has a latency and is never full. Actors are limited by neither.
- An actor makes a batch in an exponentially distributed time, actors differ in their mean
  (log-normal). It sends a batch to the shard that has taken the fewest transitions, as far as it
  was told with its acknowledgements, among those for which it has a credit; without a credit it
  waits, and makes nothing meanwhile.
- The learner draws, by stratified targets over the totals that it was told last, asks every shard,
  waits for all, computes, tells the shards that it drew from new priorities, waits for all, and
  draws again.
- Shards are full from the start; a batch replaces the oldest one. Masses are log-normal and the
  same for all transitions of a batch, which makes shards differ more than independent ones would.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

RECORDS = {"CartPole": 48, "Atari": 56464}
REQUEST = 512  # transitions that `bench intake` asks for, of CartPole
BATCH = 50  # and sends
HEADER, STATUS, ADD_ROW, DRAW_ROW, DRAWN_ROW, UPDATE_ROW = 64, 96, 8, 8, 24, 16
SHARES = ("replay core", "replay port in", "replay port out", "learner core", "learner port in")


@dataclass(frozen=True)
class Costs:
    """Processor seconds of a message.

    Attributes
    ----------
    machine : str
        Where they were measured.
    batch : float
        Of a replay rank, for a batch of 50 whatever its records are; no less for a shorter one,
        in proportion for a longer one.
    byte : float
        And for each byte of records that comes in or goes out.
    request : float
        For a request and the update that follows, whatever they ask for.
    drawn : float
        And for each transition that is drawn and updated.
    client : float
        Of a learner, for one message and its answer.
    """

    machine: str
    batch: float
    byte: float
    request: float
    drawn: float
    client: float

    @classmethod
    def of_report(cls, report: dict[str, Any]) -> Costs:
        """Derive costs from intake.json, cells with one actor; none is below zero.

        Bytes cost what Atari's batches cost more than CartPole's. A request and its update are two
        messages: beside what they carry, each is taken to cost as much as a batch. What a round
        trip takes longer than the replay rank works is all taken for work of the learner, which
        in truth waits some of it; but a message and its answer cost it no less than they cost the
        replay rank, which runs the same code.
        """
        cart, atari = (_processor(report, name) for name in RECORDS)
        sizes = [BATCH * size for size in RECORDS.values()]
        more = BATCH * (atari["learner off"] - cart["learner off"])
        byte = max(0.0, more / (sizes[1] - sizes[0]))
        batch = max(0.0, BATCH * cart["learner off"] - byte * sizes[0])
        drawn = (cart["a request"] - 2 * batch) / REQUEST - byte * RECORDS["CartPole"]
        trip = _figures(report, "requests", "CartPole, 1 actor, p50 at rest")["raw MPI"]
        client = max(batch, trip - cart["a request"])
        machine = f"{report['machine']['processor']}, load before {report['machine']['load']:g}"
        micro = (1e-6 * cost for cost in (batch, byte, 2 * batch, max(0.0, drawn), client))
        return cls(machine, *micro)


def _processor(report: dict[str, Any], record: str) -> dict[str, float]:
    return _figures(report, "processor", f"{record}, 1 actor, raw MPI")


def _figures(report: dict[str, Any], table: str, operation: str) -> dict[str, float]:
    for found in report["tables"]:
        for row in found["rows"] if found["name"] == table else ():
            if row["operation"] == operation:
                return dict(row["figures"])
    raise SystemExit(f"scaling.py: the report has no row {operation!r} in its table {table!r}")


@dataclass(frozen=True)
class Cluster:
    """What is simulated.

    Attributes
    ----------
    shards, actors, capacity : int
        `capacity` is that of one shard.
    record : int
        Bytes of a transition.
    batch, sample : int
        Transitions that an actor sends, and the learner asks for, at once.
    gigabits : float
        Bandwidth of a port, in 10**9 bits per second.
    rate : float
        Transitions per second of an actor that waits for nothing, on average: as in Horgan et al.
        (2018), where 360 actors made 12,500.
    step : float
        Seconds that the learner computes: 19 batches per second, as there.
    latency : float
        Seconds between two ports.
    credits : int
        Batches of an actor without an answer, of each shard.
    spread_of_actors, spread_of_masses : float
        Standard deviations of logarithms.
    """

    shards: int = 64
    actors: int = 10_000
    capacity: int = 2**21
    record: int = RECORDS["Atari"]
    batch: int = 50
    sample: int = 512
    gigabits: float = 100.0
    rate: float = 12_500 / 360
    step: float = 1 / 19
    latency: float = 5e-6
    credits: int = 3
    spread_of_actors: float = 0.3
    spread_of_masses: float = 1.0

    def seconds(self, nbytes: float) -> float:
        """Give how long bytes take through a port."""
        return 8e-9 * nbytes / self.gigabits


class Queue:
    """First come, first served; asked in the order of coming."""

    def __init__(self) -> None:
        self._free = 0.0
        self.busy = 0.0

    def serve(self, now: float, seconds: float) -> float:
        """Give when what comes now and takes so long is done."""
        self._free = max(now, self._free) + float(seconds)
        self.busy += float(seconds)
        return self._free


@dataclass
class Shard:
    """One replay rank: its ports, its core, the masses of its batches, oldest first, in a ring."""

    masses: NDArray[np.float64]
    inserted: int = 0
    drawn: int = 0
    total: float = 0.0
    came: int = 0  # bytes
    went: int = 0
    next_place: int = 0
    port_in: Queue = field(default_factory=Queue)
    port_out: Queue = field(default_factory=Queue)
    core: Queue = field(default_factory=Queue)

    def __post_init__(self) -> None:
        self.total = float(self.masses.sum())

    def replace(self, mass: float) -> None:
        """Put a batch in the place of the oldest."""
        self.put(self.next_place, mass)
        self.next_place = (self.next_place + 1) % len(self.masses)

    def put(self, place: int, mass: float) -> None:
        """Give the batch in a place another mass."""
        self.total += mass - float(self.masses[place])
        self.masses[place] = mass


Handled = tuple[float, int, Callable[[], None]]
"""Seconds of the core, bytes of the answer, and what happens when it has arrived."""
Handler = Callable[[Shard], Handled]


@dataclass(frozen=True)
class Outcome:
    """What a simulation found.

    Attributes
    ----------
    seconds : float
        Simulated, until what was in flight has arrived.
    sent : ndarray of int64, shape (actors,)
        Transitions.
    inserted, drawn, came, went : ndarray of int64, shape (shards,)
        Transitions taken and drawn, and bytes.
    totals : ndarray of float64, shape (shards,)
        Masses, at the end.
    steps, messages : int
        Of the learner; it sent and received so many messages.
    asked : float
        Mean seconds from asking to having all parts of a sample.
    shares : dict of str to float
        Of the time that cores and ports were busy, computing left out; of shards, the busiest.
    """

    seconds: float
    sent: NDArray[np.int64]
    inserted: NDArray[np.int64]
    drawn: NDArray[np.int64]
    came: NDArray[np.int64]
    went: NDArray[np.int64]
    totals: NDArray[np.float64]
    steps: int
    messages: int
    asked: float
    shares: dict[str, float]


class Simulation:
    """Actors, shards and a learner, by events in the order of time.

    Parameters
    ----------
    cluster : Cluster
    costs : Costs
    seed : int
    seconds : float
        After so long actors and learner begin nothing new.
    """

    def __init__(self, cluster: Cluster, costs: Costs, seed: int, seconds: float) -> None:
        self.cluster = cluster
        self.costs = costs
        self.now = 0.0
        self.end = seconds
        self.rng = np.random.default_rng(seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        places = max(1, cluster.capacity // cluster.batch)
        self.shards = [Shard(self.masses(places)) for _ in range(cluster.shards)]
        self.actors = Actors(self)
        self.learner = Learner(self)

    def masses(self, count: int) -> NDArray[np.float64]:
        """Draw the masses of batches."""
        spread = self.cluster.spread_of_masses
        return self.cluster.batch * self.rng.lognormal(-spread * spread / 2, spread, count)

    def at(self, time: float, event: Callable[[], None]) -> None:
        """Have something happen."""
        heapq.heappush(self._events, (time, next(self._order), event))

    def run(self) -> Outcome:
        """Simulate until nothing happens any more."""
        self.actors.begin()
        self.learner.begin()
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()
        return self._outcome()

    def reach(self, shard: int, nbytes: int, handle: Handler) -> None:
        """Have a message come into a shard now, which is done with it one after another."""
        to, cluster = self.shards[shard], self.cluster
        to.came += nbytes
        arrived = to.port_in.serve(self.now, cluster.seconds(nbytes))
        seconds, answer, reply = handle(to)
        to.went += answer
        done = to.core.serve(arrived, seconds)
        left = to.port_out.serve(done, cluster.seconds(answer))
        self.at(left + cluster.latency, reply)

    def _outcome(self) -> Outcome:
        shards, learner = self.shards, self.learner
        busy = [
            max(shard.core.busy for shard in shards),
            max(shard.port_in.busy for shard in shards),
            max(shard.port_out.busy for shard in shards),
            learner.core.busy,
            learner.port_in.busy,
        ]
        return Outcome(
            self.now,
            self.actors.sent,
            *(
                np.array([getattr(shard, name) for shard in shards])
                for name in ("inserted", "drawn", "came", "went", "total")
            ),
            learner.steps,
            learner.messages,
            learner.asking / max(1, learner.steps),
            {name: float(share) / self.now for name, share in zip(SHARES, busy, strict=True)},
        )


class Actors:
    """All actors. Column j of an actor is shard (its number + j) modulo the shards."""

    def __init__(self, simulation: Simulation) -> None:
        self._all = simulation
        cluster = simulation.cluster
        spread = cluster.spread_of_actors
        means = simulation.rng.lognormal(-spread * spread / 2, spread, cluster.actors)
        self._seconds = cluster.batch / (cluster.rate * means)
        self._told = np.zeros((cluster.actors, cluster.shards), np.int64)
        self._under_way = np.zeros((cluster.actors, cluster.shards), np.int64)
        self._waiting = np.zeros(cluster.actors, bool)
        self.sent = np.zeros(cluster.actors, np.int64)
        self.unacknowledged = 0

    def begin(self) -> None:
        """Have every actor make its first batch."""
        for actor in range(self._all.cluster.actors):
            self._make(actor)

    def _make(self, actor: int) -> None:
        simulation = self._all
        done = simulation.now + self._seconds[actor] * simulation.rng.exponential()
        if done < simulation.end:
            simulation.at(done, lambda: self._send(actor))

    def _send(self, actor: int) -> None:
        cluster = self._all.cluster
        under_way = self._under_way[actor]
        held = self._told[actor] + under_way
        held[under_way >= cluster.credits * cluster.batch] = np.iinfo(np.int64).max
        column = int(held.argmin())
        if under_way[column] >= cluster.credits * cluster.batch:
            self._waiting[actor] = True
            return
        under_way[column] += cluster.batch
        self.sent[actor] += cluster.batch
        self.unacknowledged += 1
        self._all.at(self._all.now + cluster.latency, lambda: self._arrive(actor, column))
        self._make(actor)

    def _arrive(self, actor: int, column: int) -> None:
        simulation, cluster, costs = self._all, self._all.cluster, self._all.costs
        payload = cluster.batch * cluster.record

        def add(shard: Shard) -> Handled:
            shard.inserted += cluster.batch
            shard.replace(float(simulation.masses(1)[0]))
            inserted = shard.inserted
            seconds = costs.batch * max(1.0, cluster.batch / BATCH) + costs.byte * payload
            return seconds, HEADER, lambda: self._acknowledge(actor, column, inserted)

        nbytes = HEADER + ADD_ROW * cluster.batch + payload
        simulation.reach((actor + column) % cluster.shards, nbytes, add)

    def _acknowledge(self, actor: int, column: int, inserted: int) -> None:
        self._under_way[actor, column] -= self._all.cluster.batch
        self._told[actor, column] = inserted
        self.unacknowledged -= 1
        if self._waiting[actor]:
            self._waiting[actor] = False
            if self._all.now < self._all.end:
                self._send(actor)


class Learner:
    """One learner: it asks all shards, waits, computes, tells them, waits."""

    def __init__(self, simulation: Simulation) -> None:
        self._all = simulation
        self._told = np.array([shard.total for shard in simulation.shards])
        self._missing = 0
        self._asked = 0.0
        self._parts = np.zeros(0, np.int64)
        self.core, self.port_in = Queue(), Queue()
        self.steps = self.messages = 0
        self.asking = 0.0

    def begin(self) -> None:
        """Draw, unless it is too late."""
        simulation, cluster = self._all, self._all.cluster
        if simulation.now >= simulation.end:
            return
        fractions = (
            np.arange(cluster.sample) + simulation.rng.random(cluster.sample)
        ) / cluster.sample
        bounds = np.cumsum(self._told)
        shards = np.searchsorted(bounds, fractions * bounds[-1], side="right")
        self._parts = np.bincount(np.minimum(shards, cluster.shards - 1), minlength=cluster.shards)
        self._asked = simulation.now
        self._tell(range(cluster.shards), self._draw)

    def _tell(self, shards: Sequence[int], what: Callable[[int, int], None]) -> None:
        """Send a message to each of these shards, one after another."""
        simulation = self._all
        self._missing = len(shards)
        self.messages += len(shards)
        for shard in shards:
            sent = self.core.serve(simulation.now, simulation.costs.client / 2)
            arrives = sent + simulation.cluster.latency
            count = int(self._parts[shard])
            simulation.at(arrives, lambda shard=shard, count=count: what(shard, count))

    def _draw(self, number: int, count: int) -> None:
        costs, record = self._all.costs, self._all.cluster.record
        nbytes = HEADER + STATUS + (DRAWN_ROW + record) * count

        def draw(shard: Shard) -> Handled:
            shard.drawn += count
            seconds = (costs.request + costs.drawn * count) / 2 + costs.byte * record * count
            return seconds, nbytes, lambda: self._receive(number, nbytes, self._compute)

        self._all.reach(number, HEADER + 8 + DRAW_ROW * count, draw)

    def _receive(self, number: int, nbytes: int, then: Callable[[], None]) -> None:
        """Take an answer; after the last one of all shards, go on."""
        simulation = self._all
        self.messages += 1
        self._told[number] = simulation.shards[number].total
        arrived = self.port_in.serve(simulation.now, simulation.cluster.seconds(nbytes))
        done = self.core.serve(arrived, simulation.costs.client / 2)
        self._missing -= 1
        if self._missing == 0:
            simulation.at(done, then)

    def _compute(self) -> None:
        self.steps += 1
        self.asking += self._all.now - self._asked
        done = self._all.now + self._all.cluster.step
        drawn_from = np.flatnonzero(self._parts).tolist()
        self._all.at(done, lambda: self._tell(drawn_from, self._update))

    def _update(self, number: int, count: int) -> None:
        simulation, costs = self._all, self._all.costs

        def update(shard: Shard) -> Handled:
            batch = simulation.cluster.batch
            places = simulation.rng.integers(0, len(shard.masses), count)
            for place, mass in zip(places, simulation.masses(count) / batch, strict=True):
                shard.put(int(place), float(shard.masses[place]) * (batch - 1) / batch + mass)
            seconds = (costs.request + costs.drawn * count) / 2
            nbytes = HEADER + STATUS
            return seconds, nbytes, lambda: self._receive(number, nbytes, self.begin)

        simulation.reach(number, HEADER + UPDATE_ROW * count, update)
