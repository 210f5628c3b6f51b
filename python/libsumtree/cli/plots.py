"""Pictures that can be read in black and white: curves are told apart by their lines."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..apex.errors import require
from ..files import write_atomically
from .printing import printable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Line = dict[str, Any]

_STYLES: tuple[dict[str, Any], ...] = (
    {"color": "black", "linestyle": "-"},
    {"color": "0.35", "linestyle": "--"},
    {"color": "0.5", "linestyle": ":", "linewidth": 2.0},
)
_MARKED = 60  # curves of so few points have markers
_MARKERS = "os^"


def new_figure(width: float, height: float) -> Any:
    """Return a figure that belongs to no window.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    require("matplotlib", "cli")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(path: Path, figure: Any) -> None:
    """Write a PNG file, whole or not at all.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    content = io.BytesIO()
    figure.savefig(content, format="png")
    write_atomically(path, content.getvalue())


def save_metrics(path: Path, name: str, lines: Sequence[Line]) -> None:
    """Write the picture of `draw_metrics`, whole or not at all."""
    save_figure(path, draw_metrics(name, lines))


def _drawable(name: str) -> str:
    """Return the name of a file, which need be no text, as one line of glyphs."""
    return printable(name.encode("utf-8", "backslashreplace").decode())


def draw_metrics(name: str, lines: Sequence[Line]) -> Any:
    """Draw rates, size, latencies and memory of the lines of a metrics file against the time."""
    figure = new_figure(8.0, 11.0)
    title = f"{_drawable(name)}: {_spoken(lines)}"
    figure.suptitle(title, fontsize="medium", parse_math=False)
    added, sampled, size, latency, memory = figure.subplots(5, 1, sharex=True)
    x, unit = _times(lines)
    _curve(added, x, lines, "", 0, lambda line: line["rates"]["added"])
    added.set_ylabel("added (transitions/s)")
    _curve(sampled, x, lines, "", 0, lambda line: line["rates"]["sampled"])
    sampled.set_ylabel("sampled (transitions/s)")
    _curve(size, x, lines, "", 0, lambda line: line["buffer"]["size"])
    size.set_ylabel("held (transitions)")
    for style, kind in enumerate(("add", "sample", "update")):
        _curve(latency, x, lines, f"{kind}, p99", style, _p99(kind))
    latency.set_ylabel("request to answer (s)")
    if any(line["latency"][kind]["p99"] for line in lines for kind in ("add", "sample", "update")):
        latency.set_yscale("log")
    latency.legend(loc="best", fontsize="small", frameon=True)
    _curve(memory, x, lines, "", 0, lambda line: line["process"]["rss"] / 2**20)
    memory.set_ylabel("RSS (MiB)")
    memory.set_xlabel(f"time since the first line ({unit})")
    for axes in (added, sampled, size, latency, memory):
        _finish(axes)
    return figure


def _spoken(lines: Sequence[Line]) -> str:
    services = max(1, sum(line["event"] == "start" for line in lines))
    return f"{len(lines)} lines of {services} service{'s' if services > 1 else ''}"


def _times(lines: Sequence[Line]) -> tuple[list[float], str]:
    seconds = [line["time"] - lines[0]["time"] for line in lines]
    for scale, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds[-1] >= 3 * scale:
            return [value / scale for value in seconds], unit
    return seconds, "s"


def _p99(kind: str) -> Any:
    return lambda line: line["latency"][kind]["p99"] or math.nan


def _curve(
    axes: Any, x: list[float], lines: Sequence[Line], label: str, style: int, value: Any
) -> None:
    """Draw one curve, interrupted where a service begins anew; a first line has no rates."""
    y = [math.nan if line["event"] == "start" else value(line) for line in lines]
    marker = _MARKERS[style] if len(lines) <= _MARKED else None
    axes.plot(x, y, label=label, marker=marker, markersize=3.5, **_STYLES[style])


def _finish(axes: Any) -> None:
    axes.grid(color="0.88", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlim(left=0)
    if axes.get_yscale() == "linear":
        highest = axes.dataLim.ymax  # infinite without any point
        axes.set_ylim(0, 1.08 * highest if 0 < highest < math.inf else 1)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")


def save_histogram(
    path: Path, counts: NDArray[np.int64], edges: NDArray[np.float64], title: str
) -> None:
    """Draw how many transitions have which priority, both axes logarithmic."""
    figure = new_figure(7.0, 4.0)
    axes = figure.subplots()
    if counts.size:
        axes.stairs(counts, edges, fill=True, facecolor="0.75", edgecolor="black", linewidth=0.8)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.7)
    axes.set(xlabel="priority (unit of the TD error)", ylabel="transitions (number)")
    axes.set_title(_drawable(title), parse_math=False)
    axes.grid(color="0.88", linewidth=0.6)
    axes.set_axisbelow(True)
    save_figure(path, figure)
