"""Failures of the C library, turned into exceptions that name what caused them."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from . import _core
from .arguments import place
from .device_arrays import element_of
from .errors import STATUS_ERRORS, ClosedTreeError, DeviceError

_SUBJECTS = {
    "INDEX": "indices",
    "MASS": "masses",
    "VALUE": "masses",
    "PRIORITY": "priorities",
    "TARGET": "targets",
}

# Any call may end in these, and their text says all: the binding raises them itself.
_core.raise_as("CLOSED", ClosedTreeError)
_core.raise_as("DEVICE", DeviceError)


def raise_failure(failure: _core.Failure, note: str = "", **arguments: Any) -> NoReturn:
    """Raise the exception of a status, with the place and the value that caused it.

    Parameters
    ----------
    failure : Failure
        What the binding raised: name and text of the status, and the first bad position.
    note : str, optional
        What to add to the text, such as the capacity in force.
    **arguments : ndarray, device array or number
        Those of the call: the one that the status is about is named with the bad element.
    """
    name, text, position = failure.args
    subject = _SUBJECTS.get(name, "")
    message = f"{text}{note}"
    if subject in arguments:
        message = f"{_element(subject, arguments[subject], position)}: {message}"
    raise STATUS_ERRORS[name](message) from None


def _element(name: str, values: Any, position: int) -> str:
    """Name one element of an argument, and say what it is: ``masses[3] is -1.0``."""
    if isinstance(values, float):
        return f"{name} is {values}"
    shape = tuple(values.shape)
    position = position if shape else 0
    if isinstance(values, np.ndarray):
        element = values.ravel()[position]
    else:
        element = element_of(values, position)
    return f"{place(name, position, shape)} is {element}"
