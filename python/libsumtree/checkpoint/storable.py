"""What HDF5 can hold: dtypes of datasets, records as compound types, names of components."""

from __future__ import annotations

import contextlib
import re
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import CheckpointCorruptError

Array: TypeAlias = NDArray[Any]

_COMPOUND_BYTES = 60_000  # HDF5's object headers end at 64 KiB
_MEMBER_BYTES = 480


def is_storable(dtype: np.dtype[Any]) -> bool:
    """Tell whether a dataset can have this dtype: a plain number that HDF5 knows natively."""
    return (dtype.kind in "biu") or (
        (dtype.kind == "f" and dtype.itemsize <= 8) or (dtype.kind == "c" and dtype.itemsize <= 16)
    )


def escape_name(name: str) -> str:
    """Return a field name as one component of a dataset's name; `unescape_name` is the inverse.

    The characters ``%``, ``/`` and ``.``, control characters and lone surrogates become ``%`` and
    two hexadecimal digits for each of their UTF-8 bytes; the empty name becomes ``%``.
    """
    if not name:
        return "%"
    return re.sub(
        r"[%/.\x00-\x1f\x7f\ud800-\udfff]",
        lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass")),
        name,
    )


def unescape_name(escaped: str) -> str:
    """Return the field name that `escape_name` gave this component for.

    Raises
    ------
    CheckpointCorruptError
        `escape_name` gives no such component.
    """
    if escaped == "%":
        return ""
    with contextlib.suppress(ValueError):
        name = re.sub(
            r"(?:%[0-9A-F]{2})+",
            lambda match: bytes.fromhex(match[0].replace("%", "")).decode("utf-8", "surrogatepass"),
            escaped,
        )
        if escape_name(name) == escaped:
            return name
    raise CheckpointCorruptError(f"{escaped!r} is not an escaped field name")


def storable_record(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype, over the same bytes, that a dataset of records of `dtype` has.

    Parameters
    ----------
    dtype : numpy.dtype
        A record dtype, see `libsumtree.records.check_record_dtype`.

    Returns
    -------
    numpy.dtype
        A structured dtype of the same item size, whose fields stand at the same offsets under
        escaped names: fields that `is_storable` as they are, others as bytes, fields without bytes
        left out. Where HDF5 has no room for so many fields: plain bytes, ``u1`` of shape
        (itemsize,).
    """
    fields = {name: _storable_field(dtype[name]) for name in dtype.names or ()}
    kept = {name: field for name, field in fields.items() if field.itemsize}
    offsets = [dtype.fields[name][1] for name in kept] if dtype.fields is not None else []
    record = np.dtype(
        {
            "names": [escape_name(name) for name in kept],
            "formats": list(kept.values()),
            "offsets": offsets,
            "itemsize": dtype.itemsize,
        }
    )
    return record if kept and _fits_header(record) else np.dtype(("u1", (dtype.itemsize,)))


def _storable_field(dtype: np.dtype[Any]) -> np.dtype[Any]:
    base, shape = dtype.subdtype or (dtype, ())
    if dtype.itemsize == 0 or is_storable(base):
        return dtype
    return np.dtype(("u1", (*shape, base.itemsize)))


def _fits_header(record: np.dtype[Any]) -> bool:
    """Tell whether HDF5's description of a record is short enough for the header of a dataset.

    A member takes its name, padded, and at most `_MEMBER_BYTES` for itself, the (at most 32) axes
    of its array, and what that is made of, which for complex numbers are members again.
    """
    names = record.names or ()
    fits_rank = all(len(record[name].shape) <= 32 for name in names)
    return fits_rank and sum(len(n.encode()) + _MEMBER_BYTES for n in names) <= _COMPOUND_BYTES
