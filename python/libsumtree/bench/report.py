"""What a benchmark found: tables, for people and as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import machine
from ..backends import open_backend
from ..vectors import vector_level

BUSY_LOAD = 0.25  # of each core
BUSY = " - others use this machine: take no figure from here, least of all those of threads"


@dataclass(frozen=True)
class Aim:
    """What a ratio is to be.

    Attributes
    ----------
    ratio : float
    at_most : bool
        Whether it is to be no more than that; otherwise no less.
    """

    ratio: float
    at_most: bool = False

    def met(self, ratio: float) -> bool:
        """Tell whether a ratio is as it should be."""
        return ratio <= self.ratio if self.at_most else ratio >= self.ratio


@dataclass(frozen=True)
class Row:
    """One line of a table.

    Attributes
    ----------
    operation : str
    batch : int
    figures : dict of str to float
        Medians, by contestant, in the unit of the table.
    ratio : float
        The median ratio within rounds: how many times as fast as `against` we are, unless the table
        says otherwise.
    against : str
    rounds : int
    aim : Aim or None
    """

    operation: str
    batch: int
    figures: Mapping[str, float]
    ratio: float
    against: str
    rounds: int
    aim: Aim | None = None

    @property
    def met(self) -> bool | None:
        """Whether the aim is met; None without one."""
        return None if self.aim is None else self.aim.met(self.ratio)


@dataclass(frozen=True)
class Table:
    """A table of a report.

    Attributes
    ----------
    name : str
        One word, for `--table`.
    title : str
    about : str
        What is compared with what, and what was checked.
    rows : list of Row
    unit : str
        Of the figures.
    """

    name: str
    title: str
    about: str
    rows: Sequence[Row]
    unit: str = "microseconds a batch"

    @property
    def contestants(self) -> list[str]:
        """All that occur, in order."""
        return list(dict.fromkeys(name for row in self.rows for name in row.figures))


@dataclass
class Report:
    """All tables of one run.

    Attributes
    ----------
    suite : str
        What was run, as the command line names it.
    machine : dict
    settings : dict
    tables : list of Table
    missing : dict of str to str
        What was not measured, and why.
    """

    suite: str
    machine: Mapping[str, Any]
    settings: Mapping[str, Any]
    tables: list[Table] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Give everything as JSON can hold it, with `met` beside each aim."""
        content = asdict(self)
        for table, stored in zip(self.tables, content["tables"], strict=True):
            for row, line in zip(table.rows, stored["rows"], strict=True):
                line["met"] = row.met
        return content

    def as_markdown(self) -> str:
        """Give everything as a page."""
        parts = [f"# libsumtree bench {self.suite}", heading(self)]
        parts += [markdown(table) for table in self.tables]
        if self.missing:
            parts.append(missing(self))
        parts.append(summary(self))
        return "\n\n".join(parts) + "\n"


def row_of(
    operation: str,
    batch: int,
    names: Sequence[str],
    seconds: NDArray[np.float64],
    rivals: Sequence[str],
    aim: Aim | None = None,
) -> Row:
    """Make a row in which the last contestant is ours.

    Parameters
    ----------
    operation : str
    batch : int
    names : sequence of str
        The contestants.
    seconds : ndarray of float64, shape (rounds, contestants)
        Of one batch.
    rivals : sequence of str
        Those whose better one, in each round, ours is compared with.
    aim : Aim, optional
    """
    medians = np.median(seconds, axis=0)
    places = [names.index(name) for name in rivals]
    ratio = float(np.median(seconds[:, places].min(axis=1) / seconds[:, -1]))
    return Row(
        operation,
        batch,
        {name: float(median) * 1e6 for name, median in zip(names, medians, strict=True)},
        ratio,
        names[min(places, key=lambda place: float(medians[place]))],
        len(seconds),
        aim,
    )


def describe_machine(backends: Sequence[str]) -> dict[str, Any]:
    """Name the machine, and what runs on it.

    Parameters
    ----------
    backends : sequence of str
        Those that are measured.
    """
    return {
        "processor": machine.processor(),
        "cores": machine.cores(),
        "threads": machine.threads(),
        "gpus": machine.gpus(),
        "load": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "libsumtree": version("libsumtree"),
        "backends": {name: open_backend(name).build for name in backends},
        "vector levels": {name: vector_level(name) for name in backends},
    }


def heading(report: Report) -> str:
    """Give the lines above the tables: machine and settings."""
    facts = report.machine
    lines = [
        f"- machine: {facts['processor']}, {facts['cores']} usable cores; {facts['system']}",
        f"- versions: libsumtree {facts['libsumtree']}, Python {facts['python']}, "
        f"NumPy {facts['numpy']}",
    ]
    lines += [f"- GPU: {name}" for name in facts["gpus"]]
    for name, build in facts["backends"].items():
        lines.append(f"- {name}: {build}; vector level {facts['vector levels'][name]}")
    lines += [f"- {name}: {value}" for name, value in report.settings.items()]
    busy = BUSY if facts["load"] > BUSY_LOAD * facts["cores"] else ""
    lines.append(f"- load before: {facts['load']:g}{busy}")
    lines.append("- figures are medians, ratios are medians within rounds")
    return "\n".join(lines)


def summary(report: Report) -> str:
    """Say in one line how many aims are met, and which are not."""
    aimed = [(table, row) for table in report.tables for row in table.rows if row.aim is not None]
    if not aimed:
        return "no aims in these tables"
    missed = [
        f"{table.name} {row.operation} {row.batch} ({row.ratio:.2f})"
        for table, row in aimed
        if not row.met
    ]
    text = f"aims met: {len(aimed) - len(missed)} of {len(aimed)}"
    return f"{text}; missed: {', '.join(missed)}" if missed else text


def missing(report: Report) -> str:
    """Give the lines below the tables: what was not measured, and why."""
    lines = [f"- {name}: {reason}" for name, reason in report.missing.items()]
    return "\n".join(["Not measured:", "", *lines])


def markdown(table: Table) -> str:
    """Give a table with its title, aligned for the eye."""
    cells = [["operation", "batch", *table.contestants, "ratio", "against", "aim", ""]]
    cells += [_cells(row, table.contestants) for row in table.rows]
    widths = [max(len(line[place]) for line in cells) for place in range(len(cells[0]))]
    words = (0, len(widths) - 3, len(widths) - 1)
    lines = [_line(line, widths, words) for line in cells]
    rule = [
        "-" * width if place in words else "-" * (width - 1) + ":"
        for place, width in enumerate(widths)
    ]
    lines.insert(1, _line(rule, widths, words))
    return "\n".join([f"## {table.title}", "", f"{table.about} Figures: {table.unit}.", "", *lines])


def _cells(row: Row, contestants: Sequence[str]) -> list[str]:
    times = [_number(row.figures.get(name)) for name in contestants]
    sign = "" if row.aim is None else "<= " if row.aim.at_most else ">= "
    aim = "" if row.aim is None else f"{sign}{row.aim.ratio:g}"
    met = {None: "", True: "met", False: "**missed**"}[row.met]
    ratio = f"{row.ratio:.2f}" if row.ratio < 100 else f"{row.ratio:,.0f}"
    return [row.operation, f"{row.batch:,}", *times, ratio, row.against, aim, met]


def _number(figure: float | None) -> str:
    if figure is None:
        return ""
    digits = 3 if figure < 10 else 1 if figure < 1000 else 0
    return f"{figure:,.{digits}f}"


def _line(cells: Sequence[str], widths: Sequence[int], words: Sequence[int]) -> str:
    padded = [
        cell.ljust(width) if place in words else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return f"| {' | '.join(padded)} |"
