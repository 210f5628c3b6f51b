"""The learning curve: what was measured when, and its picture."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..files import write_atomically
from .errors import require


class LearningCurve:
    """Points of (environment steps, training return, validation return).

    The training return is the mean over the actors' last episodes, exploration included, NaN
    before the first; the validation return is the greedy policy's mean.
    """

    def __init__(self) -> None:
        self._points: list[tuple[float, float, float]] = []

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self._points)

    def append(self, steps: int, training_return: float, validation_return: float) -> None:
        """Add a point."""
        self._points.append((float(steps), training_return, validation_return))

    def array(self) -> NDArray[np.float64]:
        """Return the points, float64, shape (number, 3)."""
        return np.array(self._points, np.float64).reshape(-1, 3)

    def load(self, points: NDArray[np.float64]) -> None:
        """Take over the points of `array`."""
        self._points = [tuple(row) for row in np.asarray(points, np.float64).tolist()]


def save_curve(path: Path, curve: LearningCurve, title: str) -> None:
    """Draw the curve into a PNG file that reads well in black and white.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    OSError
        If the file cannot be written.
    """
    require("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    steps, training, validation = curve.array().T
    figure = Figure(figsize=(7.0, 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(
        steps,
        validation,
        color="black",
        linewidth=1.4,
        marker="o",
        markersize=3,
        label="greedy policy, mean of the validation episodes",
    )
    axes.plot(
        steps,
        training,
        color="0.5",
        linewidth=1.4,
        linestyle="--",
        label="actors, mean of the last 100 episodes, exploration included",
    )
    axes.set_xlabel("environment steps of all actors (number)")
    axes.set_ylabel("return (sum of rewards of one episode)")
    axes.set_title(title)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlim(left=0)
    axes.grid(color="0.85", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(loc="upper left", frameon=True, fontsize="small")
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    write_atomically(path, picture.getvalue())
