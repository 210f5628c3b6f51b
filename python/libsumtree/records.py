"""Record dtypes, checked and as text, and records made of what a caller gives.

A record dtype is a NumPy structured dtype, one record a transition. Its text, which checkpoints and
messages hold, is the JSON of `numpy.lib.format.dtype_to_descr`; it is parsed as data, never
evaluated.
"""

from __future__ import annotations

import json
import re
import warnings
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import ArrayLike, NDArray

from .errors import ArgumentTypeError

Records = NDArray[np.void]

_SCALAR = re.compile(r"[|<>=][?biufcmMSUV]\d{1,10}(\[\d{0,10}[A-Za-z]{1,7}\])?")
_LONGEST_TEXT = 1 << 20
_NUMPY_WRAPS = np.lib.NumpyVersion(np.__version__) < "2.0.0"
"""NumPy 1 wraps an integer that its field cannot hold, and only warns of it."""


def check_record_dtype(dtype: Any) -> np.dtype[Any]:
    """Return `dtype` as a NumPy dtype, if it can be the record dtype of a buffer.

    Parameters
    ----------
    dtype : dtype_like
        A structured dtype: at least one field, no object field at any depth, an item size above
        zero, fields that neither overlap nor stand out of order in memory.

    Returns
    -------
    numpy.dtype
        The same dtype, byte order and padding included.

    Raises
    ------
    ArgumentTypeError
        `dtype` is not such a dtype; the message says why.
    """
    try:
        checked: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(f"record dtype: {dtype!r} is not a NumPy dtype: {error}") from None
    if not checked.names:
        raise ArgumentTypeError(
            f"record dtype: {checked} has no fields; give a structured dtype such as "
            "np.dtype([('observation', 'f4', (4,)), ('action', 'i8'), ('reward', 'f4')])"
        )
    if checked.hasobject:
        raise ArgumentTypeError(
            f"record dtype: {_object_field(checked)!r} holds Python objects, which can be neither "
            "sent nor saved; use a dtype of fixed size"
        )
    if checked.itemsize == 0:
        raise ArgumentTypeError(f"record dtype: {checked} has an item size of 0 bytes")
    dtype_to_text(checked)
    return checked


def dtype_to_text(dtype: np.dtype[Any]) -> str:
    """Return the JSON text that `dtype_from_text` turns back into the very same dtype.

    Parameters
    ----------
    dtype : numpy.dtype
        A dtype without object fields.

    Returns
    -------
    str
        ASCII text.

    Raises
    ------
    ArgumentTypeError
        `dtype` has no such text: it holds objects, is no built-in dtype of NumPy, or has fields
        that overlap or stand out of order.
    """
    if dtype.hasobject:
        raise ArgumentTypeError(f"dtype {dtype} holds Python objects: it cannot be sent or saved")
    try:
        text = json.dumps(npy_format.dtype_to_descr(dtype), separators=(",", ":"))
        same = dtype_from_text(text) == dtype
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(f"dtype {dtype} has no description as text: {error}") from None
    if not same:
        raise ArgumentTypeError(
            f"dtype {dtype} has no description as text; give its fields in the order in which they "
            "stand in memory, with NumPy's own dtypes"
        )
    return text


def dtype_from_text(text: str) -> np.dtype[Any]:
    """Return the dtype that a text of `dtype_to_text` describes.

    Parameters
    ----------
    text : str
        JSON, at most 1 MiB. It may come from anywhere: nothing in it is evaluated or unpickled.

    Returns
    -------
    numpy.dtype

    Raises
    ------
    ArgumentTypeError
        `text` is not such a description, or describes object fields.
    """
    shown = f"{text[:80]!r}" + ("..." if len(text) > 80 else "")
    if len(text) > _LONGEST_TEXT:
        raise ArgumentTypeError(f"dtype text {shown} has {len(text)} characters; 1048576 is most")
    try:
        dtype: np.dtype[Any] = npy_format.descr_to_dtype(_to_description(json.loads(text)))
    except (TypeError, ValueError, KeyError, OverflowError, RecursionError) as error:
        raise ArgumentTypeError(f"dtype text {shown} describes no dtype: {error}") from None
    return dtype


def as_records(transitions: ArrayLike, dtype: np.dtype[Any]) -> Records:
    """Make records of what a caller gives as transitions."""
    try:
        if are_tuples(transitions):
            rows = _records_of_tuples(transitions, dtype)
        else:
            rows = np.asarray(transitions)
    except (TypeError, ValueError, OverflowError, RecursionError, DeprecationWarning) as error:
        raise ArgumentTypeError(f"transitions cannot be made records of {dtype}: {error}") from None
    if not same_fields(rows.dtype, dtype):
        raise ArgumentTypeError(
            f"transitions have dtype {rows.dtype}: it must be {dtype}{_remedy(rows)}"
        )
    return rows


def _records_of_tuples(tuples: Any, dtype: np.dtype[Any]) -> Records:
    if not _NUMPY_WRAPS:
        return np.asarray(tuples, dtype)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "NumPy will stop allowing", DeprecationWarning)
        return np.asarray(tuples, dtype)


def are_tuples(values: Any) -> bool:
    """Tell whether these are tuples, one a record, in lists of any depth."""
    return all(map(are_tuples, values)) if isinstance(values, list) else isinstance(values, tuple)


def same_fields(given: np.dtype[Any], own: np.dtype[Any]) -> bool:
    """Tell whether records hold the same fields, whatever their byte order and padding."""
    if given.names != own.names:
        return False
    if given.names is None:
        base_given, base_own = given.base, own.base
        if given.subdtype or own.subdtype:
            return given.shape == own.shape and same_fields(base_given, base_own)
        return given.newbyteorder("=") == own.newbyteorder("=")
    return all(same_fields(given[name], own[name]) for name in given.names)


def _remedy(rows: NDArray[Any]) -> str:
    """Say how records are made, to those who give something else."""
    if rows.dtype.names is not None:
        return ""
    return "; give records, as in np.zeros(n, buffer.dtype) with its fields set, or tuples"


def _object_field(dtype: np.dtype[Any]) -> str:
    """Return the path, such as ``outer.inner``, of the first field that holds objects."""
    for name in dtype.names or ():
        field = dtype[name]
        if field.hasobject:
            inner = _object_field(field.base)
            return f"{name}.{inner}" if inner else name
    return ""


def _to_description(value: Any) -> Any:
    """Turn parsed JSON into what `descr_to_dtype` takes: tuples for fields, names and shapes."""
    if isinstance(value, str):
        if not _SCALAR.fullmatch(value):
            raise ValueError(f"{value!r} is no scalar type without objects")
        return value
    if not isinstance(value, list):
        raise ValueError(f"{value!r} stands where a type or a list of fields is needed")
    return [_to_field(field) for field in value]


def _to_field(field: Any) -> tuple[Any, ...]:
    if not isinstance(field, list) or len(field) not in (2, 3):
        raise ValueError(f"{field!r} is not [name, type] or [name, type, shape]")
    name = field[0]
    if isinstance(name, list):  # NumPy's (title, name)
        name = tuple(name)
        if len(name) != 2 or not all(isinstance(part, str) for part in name):
            raise ValueError(f"{field[0]!r} is not [title, name]")
    elif not isinstance(name, str):
        raise ValueError(f"field name {name!r} is not a string")
    if len(field) == 2:
        return name, _to_description(field[1])
    shape = field[2]
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"shape {shape!r} is not a list of whole numbers from 0 up")
    return name, _to_description(field[1]), tuple(shape)
