"""Record dtypes of every kind go in, come out and survive a checkpoint; the others are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import libsumtree as st
from libsumtree.errors import ArgumentTypeError

INNER = np.dtype([("x", "<f4"), ("y", ">i2", (2, 3))])
DTYPES = {
    "numbers": np.dtype([("o", "<f4", (4,)), ("a", "u1"), ("r", "<f2"), ("c", "<c16")]),
    "bool": np.dtype([("done", "?"), ("flags", "?", (3, 2))]),
    "image": np.dtype([("frames", "u1", (4, 8, 8))]),
    "nested": np.dtype([("state", INNER), ("steps", INNER, (2,)), ("a", "i8")]),
    "text": np.dtype([("u", "<U5"), ("s", "S3"), ("v", "V4"), ("big", ">U2", (2,))]),
    "times": np.dtype([("at", "<M8[us]"), ("for", "<m8[25s]"), ("day", ">M8[D]")]),
    "long": np.dtype([("g", np.longdouble), ("z", np.clongdouble, (2,))]),
    "aligned": np.dtype([("a", "i1"), ("b", "<f8"), ("c", "?")], align=True),
    "gaps": np.dtype(
        {"names": ["a", "b"], "formats": ["i1", "<f8"], "offsets": [3, 17], "itemsize": 40}
    ),
    "big-endian": np.dtype([("a", ">i8"), ("b", ">f4", (2,))]),
    "odd names": np.dtype(
        {
            "names": ["a/b", ".", "", "..", "%", "ü"],
            "formats": ["<f4", "i1", "<i2", "?", "S1", "u1"],
        }
    ),
    "empty fields": np.dtype([("none", "<f4", (0,)), ("s", "S0"), ("a", "i1")]),
    "title": np.dtype([(("a title", "name"), "<i4")]),
    "one byte": np.dtype([("a", "i1")]),
}


def filled(dtype: np.dtype[Any], count: int) -> np.ndarray:
    """Make records whose fields are all different, and whose padding is zero."""
    rows = np.zeros(count, dtype)
    for seed, name in enumerate(dtype.names or ()):
        field = rows[name]
        if field.dtype.names:
            field[...] = np.resize(filled(field.dtype, max(field.size, 1)), field.shape)
        elif field.size and field.dtype.itemsize:
            kinds = {"?": lambda n: n % 2, "S": str, "U": str, "V": lambda n: bytes([n % 255 + 1])}
            make = kinds.get(field.dtype.kind, lambda n: n)
            values = [make(seed + n) for n in range(field.size)]
            field[...] = np.array(values).astype(field.dtype).reshape(field.shape)
    return rows


def same_records(a: np.ndarray, b: np.ndarray) -> bool:
    """Compare fields, not padding; NumPy's own comparison knows no empty field name."""
    if a.dtype.names is None:
        return np.array_equal(a, b)
    return a.dtype.names == b.dtype.names and all(same_records(a[n], b[n]) for n in a.dtype.names)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES.keys())
def test_records_come_out_as_they_went_in(dtype: np.dtype[Any], tmp_path: Path) -> None:
    buffer = st.PrioritizedReplayBuffer(5, dtype, seed=1)
    rows = filled(dtype, 8)
    ids = buffer.add(rows, np.arange(1.0, 9.0))
    assert buffer.dtype == dtype
    assert same_records(buffer[ids[3:]], rows[3:])
    drawn = buffer.sample(20)
    assert drawn.transitions.dtype == dtype
    assert same_records(drawn.transitions, rows[drawn.ids])
    buffer.save(tmp_path / "b.h5")
    loaded = st.PrioritizedReplayBuffer.load(tmp_path / "b.h5")
    assert loaded.dtype == dtype
    assert same_records(loaded[ids[3:]], rows[3:])
    again, expected = loaded.sample(20), buffer.sample(20)
    assert same_records(again.transitions, expected.transitions)
    assert np.array_equal(again.ids, expected.ids)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES.keys())
def test_another_byte_order_or_padding_is_no_other_dtype(dtype: np.dtype[Any]) -> None:
    rows = filled(dtype, 4)
    fields = [(name, dtype[name].newbyteorder("S")) for name in dtype.names or ()]
    swapped = np.zeros(
        4, np.dtype({"names": [n for n, _ in fields], "formats": [f for _, f in fields]})
    )
    for name, _ in fields:
        swapped[name] = rows[name]
    buffer = st.PrioritizedReplayBuffer(4, dtype, seed=1)
    ids = buffer.add(swapped)
    assert buffer[ids].dtype == dtype
    assert same_records(buffer[ids], rows)


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype("f4"),
        np.dtype([]),
        np.dtype([("s", "S0")]),
        np.dtype([("a", "f4"), ("o", "O")]),
        np.dtype([("a", [("deep", [("o", "O")])])]),
        np.dtype([("a", "O", (2,))]),
        np.dtype({"names": ["a", "b"], "formats": ["f4", "f4"], "offsets": [4, 0]}),
        np.dtype({"names": ["a", "b"], "formats": ["f4", "f4"], "offsets": [0, 2]}),
        "no dtype",
        7,
    ],
)
def test_what_is_no_record_dtype_is_refused(dtype: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="dtype"):
        st.PrioritizedReplayBuffer(4, dtype)


def test_an_object_field_is_named() -> None:
    with pytest.raises(ArgumentTypeError, match="a.deep.o"):
        st.PrioritizedReplayBuffer(4, [("a", [("deep", [("o", "O")])])])
