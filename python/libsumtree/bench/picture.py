"""Pictures: time of an update against its size, every strategy."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..apex.errors import require
from ..files import write_atomically
from .report import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Told apart without colours: line, marker, width.
_STYLES: dict[str, dict[str, Any]] = {
    "pure Python": {"linestyle": ":", "marker": "^", "color": "0.35"},
    "per element": {"linestyle": "--", "marker": "s", "color": "0.35"},
    "rebuild": {"linestyle": "-.", "marker": "D", "color": "0.35"},
    "libsumtree": {"linestyle": "-", "marker": "o", "color": "black", "linewidth": 2.2},
}


def save_picture(path: Path, report: Report) -> None:
    """Draw the updates of a report's tables into a PNG file, both axes logarithmic.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    OSError
        If the file cannot be written.
    """
    figure = make_figure(7.0, 4.8)
    axes = figure.add_subplot()
    for name, points in curves(report).items():
        axes.plot(
            list(points), list(points.values()), label=name, markersize=4, **_STYLES.get(name, {})
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("leaves in one update (number)")
    axes.set_ylabel("time of one update (microseconds, median)")
    leaves = report.settings["leaves"]
    axes.set_title(
        f"Updates of a sum tree of {leaves:,} leaves\n{report.machine['processor']}",
        fontsize="medium",
    )
    axes.grid(color="0.85", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(frameon=True)
    write_figure(path, figure)


def curves(report: Report) -> dict[str, dict[int, float]]:
    """Give microseconds by batch size for each strategy, in order of size."""
    points: dict[str, dict[int, float]] = {}
    for table in report.tables:
        if table.name not in ("classic", "sweep"):
            continue
        for row in table.rows:
            for name, time in row.figures.items():
                points.setdefault(name, {})[row.batch] = time
    return {name: dict(sorted(found.items())) for name, found in points.items()}


def make_figure(width: float, height: float) -> Figure:
    """Make an empty figure, in inches.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    require("matplotlib", "cli")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def write_figure(path: Path, figure: Figure) -> None:
    """Write a figure as a PNG file."""
    content = io.BytesIO()
    figure.savefig(content, format="png")
    write_atomically(path, content.getvalue())
