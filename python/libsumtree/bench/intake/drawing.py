"""The picture: transitions per second against the number of actors, every stack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..picture import make_figure, write_figure
from ..report import Report
from .records import RECORDS
from .stacks import MPI_PICKLE, MPI_RAW, ZMQ_PICKLE, ZMQ_RAW
from .tables import LEARNER_OFF, LEARNER_ON

# Told apart without colours: line, marker, width.
_STYLES: dict[str, dict[str, Any]] = {
    ZMQ_PICKLE.title: {"linestyle": ":", "marker": "^", "color": "0.35"},
    MPI_PICKLE.title: {"linestyle": "-.", "marker": "D", "color": "0.35"},
    ZMQ_RAW.title: {"linestyle": "--", "marker": "s", "color": "black"},
    MPI_RAW.title: {"linestyle": "-", "marker": "o", "color": "black", "linewidth": 2.2},
}

Curves = dict[str, dict[int, float]]


def save_rates(path: Path, report: Report) -> None:
    """Draw the rates of a report into a PNG file: a part for each record, learner off and on.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    OSError
        If the file cannot be written.
    """
    parts = curves(report)
    figure = make_figure(8.0, 1.2 + 2.9 * max(1, len(parts) // 2))
    from matplotlib.ticker import LogLocator

    figure.suptitle(f"Intake of replay servers\n{report.machine['processor']}", fontsize="medium")
    grid = figure.subplots(max(1, len(parts) // 2), 2, sharex=True, sharey="row", squeeze=False)
    for axes, (title, stacks) in zip(grid.flat, parts.items(), strict=False):
        for name, points in stacks.items():
            axes.plot(
                list(points), list(points.values()), label=name, markersize=4, **_STYLES[name]
            )
        axes.set_title(title, fontsize="small")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(sorted({actors for points in stacks.values() for actors in points}))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
        axes.yaxis.set_minor_formatter("{x:,.0f}")
        axes.set_ylabel("transitions per second (median)")
        axes.grid(color="0.85", linewidth=0.6, which="both")
        axes.set_axisbelow(True)
    for axes in grid[-1]:
        axes.set_xlabel("actors (number)")
    if parts:
        grid[0][0].legend(frameon=True, fontsize="small")
    write_figure(path, figure)


def curves(report: Report) -> dict[str, Curves]:
    """Give rates by number of actors, for each stack, by record and whether the learner works."""
    parts: dict[str, Curves] = {}
    for record in RECORDS.values():
        for half in (LEARNER_OFF, LEARNER_ON):
            found = _curves(report, record.title, half)
            if found:
                parts[f"{record.title}, {half}"] = found
    return parts


def _curves(report: Report, record: str, half: str) -> Curves:
    found: Curves = {}
    for table in report.tables:
        for row in table.rows if table.name == "rates" else ():
            kind, actors, learner = row.operation.split(", ")
            if (kind, learner) == (record, half):
                for name, rate in row.figures.items():
                    found.setdefault(name, {})[int(actors.split()[0])] = rate
    return found
