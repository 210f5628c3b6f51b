"""What Baselines, its descendants and Tianshou share: assertions, and ranges up to ``end``."""

from __future__ import annotations

import re
from typing import Any

from ..arguments import as_integer
from ..errors import (
    CapacityError,
    IndexOutOfRangeError,
    RangeError,
    SumTreeError,
    TargetError,
)


class AssertedCapacityError(CapacityError, AssertionError):
    """A capacity is outside 1 .. 2**40, which is an AssertionError there."""


class AssertedIndexError(IndexOutOfRangeError, AssertionError):
    """An index is outside 0 .. capacity-1, which is an AssertionError there."""


class AssertedTargetError(TargetError, AssertionError):
    """A prefix sum is out of its range, which is an AssertionError there."""


_ASSERTED: dict[type[SumTreeError], type[SumTreeError]] = {
    CapacityError: AssertedCapacityError,
    IndexOutOfRangeError: AssertedIndexError,
    TargetError: AssertedTargetError,
}


def asserted(error: SumTreeError, name: str) -> SumTreeError:
    """Give the error that is an AssertionError as well, about an argument by the name it has there.

    Parameters
    ----------
    error : CapacityError, IndexOutOfRangeError or TargetError
        Whose message begins with the name of the argument.
    name : str
        What their callers call it.
    """
    return _ASSERTED[type(error)](renamed(error, name))


def renamed(error: SumTreeError, name: str) -> str:
    """Give the message of an error, which begins with an argument's name, with that other name."""
    return re.sub(r"^\w+", name, str(error), count=1)


def half_open(start: Any, end: Any, capacity: int) -> tuple[int, int]:
    """Take a range [start, end) as they write it: `end` None is the capacity, below 0 from there.

    Returns
    -------
    tuple of int
        start <= stop; equal where the range is empty, which start > end is, too.

    Raises
    ------
    RangeError
        If `start` or `end` is not within the leaves.
    ArgumentTypeError
        If they are not integers.
    """
    first = as_integer(start, "start")
    last = capacity if end is None else as_integer(end, "end")
    stop = last + capacity if last < 0 else last
    if not (0 <= first <= capacity and 0 <= stop <= capacity):
        raise RangeError(
            f"start is {first} and end is {last}: start must be in 0 .. {capacity}, end in "
            f"{-capacity} .. {capacity}"
        )
    return first, max(first, stop)
