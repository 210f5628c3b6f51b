"""A dictionary of arrays as plain bytes: how a learner state travels.

Layout: uint64 length of the table, the table (JSON: name, type and shape of each array), then the
bytes of each array in C order, one after another. Nothing is pickled; what does not fit exactly is
refused.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..checkpoint import is_storable
from ..errors import ArgumentError, ArgumentTypeError, ProtocolError, ShapeError
from .messages import MESSAGE_LIMIT, Bytes

_LENGTH = struct.Struct("<Q")
_NAME = re.compile(r"[A-Za-z0-9_\-.:]+(/[A-Za-z0-9_\-.:]+)*")
_TYPE = re.compile(r"[<>|][biufc]\d{1,2}")

State = dict[str, npt.NDArray[Any]]


def check_state(state: Mapping[str, npt.ArrayLike]) -> State:
    """Return the arrays of a learner state, checked.

    Parameters
    ----------
    state : mapping of str to array
        Names are words of letters, digits and ``_-.:``, joined by ``/``; arrays are of bool,
        integer, float or complex dtype, of any shape.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        Naming the first entry that is not of this kind.
    """
    checked: State = {}
    for name, value in state.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name) or not _plain(name):
            raise ArgumentError(
                f"learner state: {name!r} is not a name such as 'network/layer0.weight'"
            )
        array = np.asarray(value)
        if not is_storable(array.dtype):
            raise ArgumentTypeError(
                f"learner state: {name!r} has dtype {array.dtype}; numbers are needed"
            )
        checked[name] = array
    for name in checked:
        parents = name.split("/")[:-1]
        if any("/".join(parents[: i + 1]) in checked for i in range(len(parents))):
            raise ArgumentError(
                f"learner state: {name!r} lies below another array of the same state"
            )
    return checked


def _plain(name: str) -> bool:
    return not {".", ".."} & set(name.split("/"))


def pack(state: Mapping[str, npt.ArrayLike]) -> Bytes:
    """Return a learner state as bytes: ndarray of uint8.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        See `check_state`.
    ShapeError
        If it takes more than 2**31 - 1 bytes.
    """
    arrays = {
        name: np.ascontiguousarray(a).reshape(a.shape) for name, a in check_state(state).items()
    }
    table = [{"name": n, "type": a.dtype.str, "shape": a.shape} for n, a in arrays.items()]
    head = json.dumps(table).encode()
    size = _LENGTH.size + len(head) + sum(a.nbytes for a in arrays.values())
    if size > MESSAGE_LIMIT:
        raise ShapeError(f"a learner state of {size} bytes: at most {MESSAGE_LIMIT}")
    parts: list[bytes | memoryview] = [
        _LENGTH.pack(len(head)),
        head,
        *(a.reshape(-1).view(np.uint8).data for a in arrays.values()),
    ]
    return np.frombuffer(b"".join(parts), np.uint8)


def unpack(data: Bytes) -> State:
    """Read a learner state from bytes; the arrays are new and writable.

    Raises
    ------
    ProtocolError
        If the bytes are not exactly a learner state.
    """
    try:
        table, offset = _table(data)
        state: State = {}
        for entry in table:
            name, dtype, shape = str(entry["name"]), _dtype(entry["type"]), _shape(entry["shape"])
            if not is_storable(dtype) or name in state:
                raise ProtocolError(f"learner state: {name!r} has dtype {dtype}, or comes twice")
            size = dtype.itemsize * math.prod(shape)
            part = data[offset : offset + size]
            state[name] = np.frombuffer(part.tobytes(), dtype).reshape(shape).copy()
            offset += size
        check_state(state)
    except (KeyError, TypeError, ValueError, RecursionError, struct.error) as error:
        raise ProtocolError(f"not a learner state: {error}") from None
    if offset != len(data):
        raise ProtocolError(f"a learner state of {len(data)} bytes instead of {offset}")
    return state


def _table(data: Bytes) -> tuple[list[dict[str, Any]], int]:
    (length,) = _LENGTH.unpack_from(data.data)
    end = _LENGTH.size + length
    if end > len(data):
        raise ProtocolError(f"a learner state of {len(data)} bytes with a table of {length}")
    table = json.loads(data[_LENGTH.size : end].tobytes())
    if not (isinstance(table, list) and all(isinstance(entry, dict) for entry in table)):
        raise ProtocolError("a learner state without a table")
    return table, end


def _dtype(value: object) -> np.dtype[Any]:
    """Return the dtype of a plain number: NumPy reads other texts as it likes, or fails so."""
    if not (isinstance(value, str) and _TYPE.fullmatch(value)):
        raise ProtocolError(f"learner state: {value!r} is not the type of a number")
    return np.dtype(value)


def _shape(value: object) -> tuple[int, ...]:
    if not (isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)):
        raise ProtocolError(f"learner state: {value!r} is not a shape")
    return tuple(value)
