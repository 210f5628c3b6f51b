"""Record dtypes as text: reversible, and never evaluated."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from libsumtree.errors import ArgumentTypeError
from libsumtree.records import check_record_dtype, dtype_from_text, dtype_to_text

DTYPES = [
    np.dtype([("observation", "<f4", (4,)), ("action", ">i8"), ("reward", "f2"), ("done", "?")]),
    np.dtype([("a", "i1"), ("b", "f8")], align=True),
    np.dtype({"names": ["a", "b"], "formats": ["i1", "f8"], "offsets": [3, 16], "itemsize": 40}),
    np.dtype([(("title", "name"), "M8[25us]"), ("s", [("x", "f4"), ("y", ">i2", (2, 3))], (5,))]),
    np.dtype([("g", "g"), ("c", "c16"), ("s", "S0"), ("u", "U7"), ("v", "V5"), ("m", "m8")]),
    np.dtype([("a/b.%", "f4"), ("\ud800", "f4"), ("ü\0", "f4"), ("z", "f4", (0,))]),
    np.dtype("<f8"),
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_text_gives_the_same_dtype(dtype: np.dtype[Any]) -> None:
    text = dtype_to_text(dtype)
    assert text.isascii()
    again = dtype_from_text(text)
    assert again == dtype
    assert again.itemsize == dtype.itemsize
    assert dtype_to_text(again) == text
    if dtype.names:
        assert check_record_dtype(dtype) is dtype


@given(hnp.array_dtypes(allow_subarrays=True, max_size=4))
def test_any_record_dtype_comes_back(dtype: np.dtype[Any]) -> None:
    assert dtype_from_text(dtype_to_text(dtype)) == dtype


OUT_OF_ORDER = np.dtype({"names": ["b", "a"], "formats": ["f8", "i1"], "offsets": [8, 0]})
OVERLAPPING = np.dtype({"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [0, 2]})


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        (np.dtype("f4"), "has no fields"),
        (np.dtype([]), "has no fields"),
        (None, "has no fields"),
        ("no such type", "is not a NumPy dtype"),
        (np.dtype([("a", "f4"), ("b", "O")]), "'b' holds Python objects"),
        (np.dtype([("a", [("b", "O", (2,)), ("c", "f4")], (3,))]), "'a.b' holds Python objects"),
        (np.dtype([("a", "f4", (0,)), ("b", "S0")]), "item size of 0 bytes"),
        (OUT_OF_ORDER, "no description as text"),
        (OVERLAPPING, "no description as text"),
    ],
)
def test_other_dtypes_are_refused(dtype: Any, message: str) -> None:
    with pytest.raises(ArgumentTypeError, match=message):
        check_record_dtype(dtype)


@pytest.mark.parametrize(
    "description",
    [
        *("|O", "O", "<f3", "f8", "float64", "f4,f4", "<M8[fortnight]", "|V99999999999", "", 7),
        *([None], {"a": "<f4"}, [["a"]], [["a", "|O"]], [["a", "<f4"], ["a", "<f4"]], [[1, "<f4"]]),
        *([["a", "<f4", 3]], [["a", "<f4", [-1]]], [["a", "<f4", [True]]], [["a", "<f4", [2**70]]]),
        *([[["t"], "<f4"]], [["a", "<f4", [1 << 30, 1 << 30]]], [["a", [["b", "|O"]]]]),
    ],
)
def test_other_texts_are_refused(description: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="describes no dtype"):
        dtype_from_text(json.dumps(description))


@pytest.mark.parametrize("text", ["", "[", "np.dtype('f4')", "[" * 100_000, '"<f4"\0'])
def test_texts_that_are_no_json_are_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="describes no dtype"):
        dtype_from_text(text)


def test_endless_texts_are_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="1048576 is most"):
        dtype_from_text(" " * (1 << 20) + '"<f4"')


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=20))
def test_any_json_gives_a_plain_dtype_or_the_one_error(value: Any) -> None:
    try:
        dtype = dtype_from_text(json.dumps(value))
    except ArgumentTypeError:
        return
    assert not dtype.hasobject
