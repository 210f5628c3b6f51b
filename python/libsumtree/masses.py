"""Masses: priority ** alpha, checked, and taken to another alpha."""

from __future__ import annotations

import numpy as np

from . import _core
from .arguments import Doubles, as_alpha
from .backends import open_backend
from .errors import ArgumentError, PriorityError
from .failures import raise_failure

MAX_MASS: float = _core.MAX_MASS

_BLOCK = 1 << 16


def masses_of(priorities: Doubles, alpha: float) -> Doubles:
    """Turn priorities into masses: priority ** alpha, and 0 for priority 0 whatever alpha is.

    The one place where a priority's power is taken.

    Parameters
    ----------
    priorities : ndarray of float64, C-contiguous, any shape
        Finite, >= 0.
    alpha : float
        Finite, >= 0.

    Raises
    ------
    PriorityError
        Naming the first bad position and its value.
    ExponentError
        If alpha is negative or not finite.
    """
    masses = np.empty(priorities.shape, dtype=np.float64)
    try:
        open_backend("cpu").masses(priorities, alpha, masses)
    except _core.Failure as failure:
        as_alpha(alpha)
        raise_failure(failure, f" (alpha is {alpha})", priorities=priorities)
    return masses


def check_priorities(priorities: Doubles) -> None:
    """Raise `PriorityError`, naming the first bad one, unless all are finite and >= 0."""
    masses = np.empty(priorities.shape, dtype=np.float64)
    try:  # priority ** 0, the cheapest power: no priority makes it too large
        open_backend("cpu").masses(priorities, 0.0, masses)
    except _core.Failure as failure:
        raise_failure(failure, priorities=priorities)


def raised(masses: Doubles, old: float, alpha: float) -> Doubles:
    """Turn masses that were made with the exponent `old` into those that `alpha` makes.

    mass ** (alpha / old), taken in extended precision: the exponent itself is rounded, and what is
    lost by that grows with the logarithm of the mass.

    Parameters
    ----------
    masses : ndarray of float64, shape (n,)
    old, alpha : float
        Finite, >= 0.

    Raises
    ------
    ArgumentError
        If `old` is 0, another exponent is asked for, and a mass is positive.
    PriorityError
        If what comes out is above 2**960, naming the first.
    """
    if alpha == old:
        return masses
    if old == 0.0:
        if masses.any():
            raise ArgumentError(
                f"alpha is 0, with which every priority makes the mass 1: give the priorities for "
                f"alpha {alpha}"
            )
        return masses
    power = np.longdouble(alpha) / np.longdouble(old)
    new = np.zeros_like(masses)
    for start in range(0, len(masses), _BLOCK):
        part = masses[start : start + _BLOCK].astype(np.longdouble)
        positive = part > 0
        with np.errstate(over="ignore"):
            # NumPy 1's ** would round a scalar power to a double to see if it is 1, 2 or 0.5.
            new[start : start + _BLOCK][positive] = np.power(part[positive], power)
    bad = ~(new <= MAX_MASS)
    if bad.any():
        at = int(np.argmax(bad))
        raise PriorityError(
            f"the mass of transition {at}, counted from the oldest, is {masses[at]}: with alpha "
            f"{alpha} instead of {old} it would be above 2^960"
        )
    return new
