"""The beta of importance-sampling weights: one number, or one that moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .arguments import as_count, as_real
from .errors import ArgumentError, ExponentError


@dataclass(frozen=True)
class BetaSchedule:
    """A beta that moves from `start` to `stop` over the first `samples` calls of `sample`.

    Attributes
    ----------
    start, stop : float
        Finite; what comes out is clamped to [0, 1].
    samples : int
        > 0.

    Raises
    ------
    ExponentError, ArgumentError, ArgumentTypeError
        If an end is not finite, or `samples` not an integer above 0.

    Notes
    -----
    The linear annealing of Schaul et al. (2016), section 3.4.
    """

    start: float = 0.4
    stop: float = 1.0
    samples: int = 100_000

    def __post_init__(self) -> None:
        for name in ("start", "stop"):
            object.__setattr__(self, name, as_real(getattr(self, name), name))
        if not (np.isfinite(self.start) and np.isfinite(self.stop)):
            raise ExponentError(f"beta goes from {self.start} to {self.stop}: both must be finite")
        if as_count(self.samples, "samples") == 0:
            raise ArgumentError("samples is 0: a schedule takes at least one sample")

    def at(self, sampled: int) -> float:
        """Give the beta after `sampled` calls."""
        progress = min(sampled / self.samples, 1.0)
        return min(max(self.start * (1.0 - progress) + self.stop * progress, 0.0), 1.0)


def restored_beta(ends: Any, samples: int) -> float | BetaSchedule:
    """Return the beta that a checkpoint's ``beta`` and ``beta_samples`` stand for."""
    start, stop = (float(end) for end in ends)
    constant = start == stop and samples == 1 and 0.0 <= start <= 1.0
    return start if constant else BetaSchedule(start, stop, samples)
