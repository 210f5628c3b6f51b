"""Arguments of every kind that Python has, right and wrong, made of the choices of a fuzzer."""

from __future__ import annotations

import array
import decimal
import fractions
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from choices import FLOATS, INTEGERS, Choices

DTYPES = (
    *("<i8", "<f8", "<i8", "<f8", ">i8", ">f8", "<i4", "<u8", ">u2", "|i1", "|u1", "<f4", "<f2"),
    *("g", "|b1", "<c16", "|O", "|S3", "<U2", "<M8[s]", "<m8[s]", "|V8", [("x", "<f8")]),
)


class LiarError(Exception):
    """What the code of a caller raises is the caller's own."""


class Subclass(np.ndarray):
    """An array with another class."""


class Integer(int):
    """An int with another class."""


class Liar:
    """An object that says it can be made an array, and is not as good as its word."""

    def __init__(self, how: int, values: Any) -> None:
        self._how = how
        self._values = values
        self._calls = 0
        if how == 6:
            self.__array_interface__ = {"shape": (2,), "typestr": "<f8", "version": 3}

    def __getattribute__(self, name: str) -> Any:
        how = object.__getattribute__(self, "_how")
        if name == "dtype" and how in (3, 4):
            return np.dtype("f8" if how == 3 else "i8")
        return object.__getattribute__(self, name)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        self._calls += 1
        if self._how == 0:
            raise LiarError
        if self._how == 1:
            return "no array"
        if self._how == 2:
            return np.arange(float(self._calls))
        return np.asarray(self._values)

    def __len__(self) -> int:
        return 10**9 if self._how == 5 else 2

    def __getitem__(self, at: Any) -> Any:
        raise LiarError

    def __index__(self) -> int:
        return "x" if self._how == 7 else 1  # type: ignore[return-value]

    def __float__(self) -> float:
        raise LiarError

    def __dlpack__(self, **_: Any) -> Any:
        return None

    def __dlpack_device__(self) -> Any:
        return (2 if self._how == 7 else 1, 0)


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def _itself() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


_ODDITIES: tuple[Callable[[], Any], ...] = (
    *(lambda: None, lambda: "1", lambda: b"1", lambda: {}, lambda: {1: 2}, lambda: {1}, object),
    *(lambda: 1j, lambda: True, lambda: [True, 1], lambda: (1, [2, 3]), lambda: [[1], [2, 3]]),
    *(lambda: Integer(1), lambda: [Integer(0), 1], lambda: fractions.Fraction(1, 3), _itself),
    *(lambda: decimal.Decimal("1.5"), lambda: decimal.Decimal("NaN"), lambda: range(3)),
    *(lambda: array.array("d", [1.0, 2.0]), lambda: memoryview(b"\1\2"), lambda: bytearray(2)),
    *(lambda: (i for i in range(2)), lambda: _nested(40), lambda: _nested(3000), lambda: np.nan),
    *(
        lambda: np.float32(1),
        lambda: np.int8(-1),
        lambda: np.uint64(2**64 - 1),
        lambda: np.bool_(1),
    ),
    *(lambda: np.ma.masked_array([1, 2], [0, 1]), lambda: np.matrix([[1, 2]]), lambda: slice(0, 2)),
    *(lambda: [None], lambda: [[]], lambda: [[], []], lambda: Ellipsis, lambda: np.float64("inf")),
    *(lambda: [fractions.Fraction(1, 2)], lambda: np.array(1), lambda: [np.array(1)], lambda: int),
    *(lambda: np.datetime64("2020"), lambda: np.void(b"12345678"), lambda: [2**70, 1]),
)


def values(choose: Choices, bound: int, of_floats: bool) -> list[Any]:
    """A few numbers, mostly such as can be."""
    count = choose.pick((0, 1, 1, 2, 3, 5, 17))
    options: Sequence[Any] = FLOATS if of_floats else INTEGERS
    odd = choose.below(4) == 0
    return [
        choose.pick(options)
        if odd and choose.flip()
        else (choose.below(64) / 8 if of_floats else choose.below(bound))
        for _ in range(count)
    ]


def _cast(numbers: list[Any], dtype: Any) -> Any:
    with np.errstate(all="ignore"):
        try:
            return np.array(numbers).astype(dtype)
        except (ValueError, TypeError, OverflowError):
            return np.zeros(len(numbers), dtype)


def _unaligned(found: Any) -> Any:
    raw = np.zeros(found.nbytes + 1, np.uint8)
    view = raw[1:].view(found.dtype).reshape(found.shape)
    view[...] = found
    return view


def _read_only(found: Any) -> Any:
    found.flags.writeable = False
    return found


_LAYOUTS: tuple[Callable[[Any], Any], ...] = (
    *(lambda a: a, lambda a: a, lambda a: a[::-1], lambda a: np.repeat(a, 2)[::2], _read_only),
    *(lambda a: np.broadcast_to(a[:1], (4,)) if a.size else a, lambda a: a.reshape(1, -1)),
    *(lambda a: np.stack([a, a]).T, lambda a: a[:1].reshape(()) if a.size else a),
    *(lambda a: a.view(Subclass), lambda a: np.asfortranarray(np.stack([a, a]))),
    *(lambda a: a.reshape(a.shape + (1,) * 40), lambda a: a[0] if a.size else a),
    *(lambda a: np.lib.stride_tricks.as_strided(a, (3,), (0,)) if a.size else a,),
    *(lambda a: a.newbyteorder() if hasattr(a, "newbyteorder") else a.byteswap(),),
    *(lambda a: a if a.dtype.hasobject else _unaligned(a), lambda a: a.tolist()),
)


def argument(choose: Choices, bound: int, of_floats: bool) -> Callable[[], Any]:
    """What makes an argument anew whenever it is called, the same each time."""
    how = choose.below(8)
    if how == 0:
        return choose.pick(_ODDITIES)
    if how == 1:
        numbers, kind = values(choose, bound, of_floats), choose.below(8)
        return lambda: Liar(kind, numbers)
    numbers = values(choose, bound, of_floats)
    if how == 2:
        return lambda: list(numbers)
    if how == 3:
        number = numbers[0] if numbers else 0
        return lambda: number
    dtype = ("<f8" if of_floats else "<i8") if how < 6 else choose.pick(DTYPES)
    layout = choose.pick(_LAYOUTS)

    def made() -> Any:
        try:
            return layout(_cast(numbers, dtype))
        except ValueError:  # too many axes
            return _cast(numbers, dtype)

    return made
