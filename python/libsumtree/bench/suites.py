"""The suites: which tables belong to which command."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..backends import installed
from ..errors import BenchmarkUnavailableError
from .crossing import crossing_table
from .peers import peers_table
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

Measure = Callable[[Setting, dict[str, str]], Table]


def _alone(measure: Callable[[Setting], Table]) -> Measure:
    return lambda setting, missing: measure(setting)


@dataclass(frozen=True)
class Suite:
    """What one command measures.

    Attributes
    ----------
    name : str
    about : str
        One line.
    tables : dict of str to callable
        Makes a table, by its name, from the setting; what it leaves out, and why, goes into the
        dictionary that is its second argument.
    drawn : bool
        Whether there is a picture of it.
    """

    name: str
    about: str
    tables: Mapping[str, Measure]
    drawn: bool = False

    def run(
        self,
        setting: Setting,
        names: Sequence[str],
        show: Callable[[Report, Table | None], None],
    ) -> Report:
        """Measure some tables.

        Parameters
        ----------
        setting : Setting
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
        limits = setting.limits
        report = Report(
            self.name,
            describe_machine(backends),
            {"leaves": setting.leaves, "rounds, at most": limits.rounds, "seed": setting.seed},
        )
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
    drawn=True,
)
PEERS = Suite("peers", "other packages, where they are installed beside us", {"peers": peers_table})
SUITES: Mapping[str, Suite] = {suite.name: suite for suite in (TREE, PEERS)}
