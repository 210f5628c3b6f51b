"""The bytes of a fuzzer as choices: numbers, texts, members of lists; zeros when they run out."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeVar

_T = TypeVar("_T")

INTEGERS = (
    *(0, 1, -1, 2, 3, 7, 8, 9, 127, 128, 255, 256, 65535, 1 << 20),
    *(2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**40 + 1, 2**53, 2**62),
    *(2**63 - 1, 2**63, -(2**63), 2**64 - 1, 2**64, 10**30, -(10**30)),
)
FLOATS = (
    *(0.0, -0.0, 1.0, 0.5, 3.0, -1.0, 5e-324, 2.0**-1040, 2.0**-1022, 1e-300, 0.1, 1e30),
    *(2.0**53, 2.0**959, 2.0**960, 2.0**960 * (1 + 2.0**-52), 1.7976931348623157e308),
    *(float("inf"), float("-inf"), float("nan")),
)


class Choices:
    """Takes what is needed from the front of the data."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def bytes(self, count: int) -> bytes:
        part = self._data[self._at : self._at + count]
        self._at += len(part)
        return part

    def rest(self) -> bytes:
        return self.bytes(self.left)

    def _number(self, form: str) -> int | float:
        size = struct.calcsize(form)
        (value,) = struct.unpack(form, self.bytes(size).ljust(size, b"\0"))
        return value

    def below(self, bound: int) -> int:
        """A number in 0 .. bound-1."""
        return int(self._number("<B" if bound <= 256 else "<I")) % bound

    def flip(self) -> bool:
        return self.below(2) == 1

    def pick(self, options: Sequence[_T]) -> _T:
        return options[self.below(len(options))]

    def integer(self) -> int:
        """One of what breaks things, or any of 64 bits."""
        return self.pick(INTEGERS) if self.below(4) else int(self._number("<q"))

    def real(self) -> float:
        return self.pick(FLOATS) if self.below(4) else float(self._number("<d"))

    def text(self, longest: int = 24) -> str:
        return self.bytes(self.below(longest + 1)).decode("utf-8", "replace")
