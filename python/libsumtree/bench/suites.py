"""The suites: which tables belong to which command."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from ..backends import installed
from ..errors import BenchmarkUnavailableError
from .crossing import crossing_table
from .intake.drawing import save_rates
from .intake.launch import find_mpiexec
from .intake.setting import IntakeSetting
from .intake.tables import processor_table, published_table, rates_table, requests_table
from .peers import peers_table
from .picture import save_picture
from .report import Report, Table, describe_machine
from .trees import (
    Setting,
    classic_table,
    descents_table,
    fused_table,
    itself_table,
    multicore_table,
    sweep_table,
)

Settings = TypeVar("Settings")
Measure = Callable[[Settings, dict[str, str]], Table]


def _alone(measure: Callable[[Setting], Table]) -> Measure[Setting]:
    return lambda setting, missing: measure(setting)


def _facts(setting: Setting) -> dict[str, Any]:
    limits = setting.limits
    return {"leaves": setting.leaves, "rounds, at most": limits.rounds, "seed": setting.seed}


@dataclass(frozen=True)
class Suite(Generic[Settings]):
    """What one command measures.

    Attributes
    ----------
    name : str
    about : str
        One line.
    tables : dict of str to callable
        Makes a table, by its name, from the setting; what it leaves out, and why, goes into the
        dictionary that is its second argument.
    facts : callable
        Gives the settings for people.
    draw : callable, optional
        Draws the picture of a report into a file.
    check : callable, optional
        Raises what forbids to measure anything here.
    """

    name: str
    about: str
    tables: Mapping[str, Measure[Settings]]
    facts: Callable[[Settings], Mapping[str, Any]]
    draw: Callable[[Path, Report], None] | None = None
    check: Callable[[], object] | None = None

    def run(
        self,
        setting: Settings,
        names: Sequence[str],
        show: Callable[[Report, Table | None], None],
    ) -> Report:
        """Measure some tables.

        Parameters
        ----------
        setting
        names : sequence of str
            Those to measure.
        show : callable
            Is given the report, before the first table and then with each new one.

        Raises
        ------
        BenchmarkError
            If results differ, or something cannot be measured.
        """
        backends = [name for name in installed() if name != "gpu"]
        if self.check is not None:
            self.check()
        report = Report(self.name, describe_machine(backends), self.facts(setting))
        show(report, None)
        for name in names:
            try:
                table = self.tables[name](setting, report.missing)
            except BenchmarkUnavailableError as error:
                report.missing[name] = str(error)
            else:
                report.tables.append(table)
                show(report, table)
        return report


TREE = Suite(
    "tree",
    "the trees: classic strategies, fused planes, descents, threads, Python",
    {
        "itself": _alone(itself_table),
        "classic": _alone(classic_table),
        "sweep": _alone(sweep_table),
        "fused": _alone(fused_table),
        "descents": _alone(descents_table),
        "multicore": _alone(multicore_table),
        "crossing": _alone(crossing_table),
    },
    _facts,
    save_picture,
)
PEERS = Suite(
    "peers", "other packages, where they are installed beside us", {"peers": peers_table}, _facts
)
INTAKE = Suite(
    "intake",
    "replay servers: transitions per second over ZeroMQ and MPI, with pickle and without",
    {
        "rates": rates_table,
        "published": published_table,
        "requests": requests_table,
        "processor": processor_table,
    },
    IntakeSetting.facts,
    save_rates,
    find_mpiexec,
)
SUITES: Mapping[str, Suite[Any]] = {suite.name: suite for suite in (TREE, PEERS, INTAKE)}
