"""What all rounds of all cells found."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from ... import machine
from ...arguments import Doubles
from ...errors import BenchmarkUnavailableError
from .floor import copy_rate
from .launch import check_zmq
from .records import RECORDS
from .rounds import Measured, check, measure
from .setting import IntakeSetting
from .stacks import STACKS, Stack


@dataclass(frozen=True)
class Cell:
    """What is measured of every stack.

    Attributes
    ----------
    record : str
    actors : int
    """

    record: str
    actors: int

    def title(self) -> str:
        """Name it for people."""
        actors = "1 actor" if self.actors == 1 else f"{self.actors} actors"
        return f"{RECORDS[self.record].title}, {actors}"

    def fits(self, learner: bool) -> bool:
        """Whether replay, actors and, if it works, learner have a core each, but for one."""
        return 1 + self.actors + learner <= machine.cores() + 1


@dataclass(frozen=True)
class Results:
    """What was measured.

    Attributes
    ----------
    rounds : dict of Cell to list of dict of str to Measured
        By stack title, in the order of the rounds.
    stacks : list of Stack
    libraries : list of str
        What carried the messages.
    missing : dict of str to str
        What was not measured, and why.
    copies : dict of str to float
        By record, how many transitions a second one core copies into a ring: see `copy_rate`.
    """

    rounds: Mapping[Cell, list[dict[str, Measured]]]
    stacks: list[Stack]
    libraries: list[str]
    missing: Mapping[str, str]
    copies: Mapping[str, float] = field(default_factory=dict)

    def figures(self, cell: Cell, figure: Callable[[Measured], float]) -> dict[str, Doubles]:
        """Give one figure of all stacks, an array of the rounds each."""
        rounds = self.rounds[cell]
        return {title: np.array([figure(each[title]) for each in rounds]) for title in rounds[0]}


@lru_cache(maxsize=1)
def results_of(setting: IntakeSetting) -> Results:
    """Check all stacks, then measure all cells by turns, once for all tables.

    Raises
    ------
    BenchmarkError
        If a server lost something, or a process failed.
    """
    stacks, missing = _stacks()
    libraries: list[str] = []
    for record in setting.records:
        for stack in stacks:
            _tell(f"checking {RECORDS[record].title}, {stack.title}")
            libraries.append(check(stack, record))
    cells = [Cell(record, actors) for record in setting.records for actors in setting.actors]
    rounds = {cell: _rounds(cell, stacks, setting) for cell in cells}
    copies = {record: copy_rate(RECORDS[record]) for record in setting.records}
    return Results(rounds, stacks, list(dict.fromkeys(libraries)), missing, copies)


def _stacks() -> tuple[list[Stack], dict[str, str]]:
    try:
        check_zmq()
    except BenchmarkUnavailableError as error:
        return [stack for stack in STACKS if stack.mpi], {"ZeroMQ": str(error)}
    return list(STACKS), {}


def _rounds(cell: Cell, stacks: list[Stack], setting: IntakeSetting) -> list[dict[str, Measured]]:
    """Run all stacks back to back, there in one round and back in the next."""
    rounds = []
    for number in range(setting.rounds):
        _tell(f"{cell.title()}: round {number + 1} of {setting.rounds}")
        order = stacks if number % 2 == 0 else stacks[::-1]
        found = {s.title: measure(s, cell.record, cell.actors, setting.seconds) for s in order}
        rounds.append({stack.title: found[stack.title] for stack in stacks})
    return rounds


def _tell(text: str) -> None:
    """Say how far it is, to whoever watches."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)
