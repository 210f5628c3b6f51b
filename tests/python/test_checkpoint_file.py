"""The checkpoint file: what was written is read, compressed or not, whatever its fields are."""

from __future__ import annotations

import random
import stat
from hashlib import sha256
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from checkpoint_examples import (
    RECORD,
    example_attributes,
    example_datasets,
    run_script,
    whole,
    write_example,
)
from hypothesis import given
from hypothesis import strategies as st

from libsumtree import checkpoint
from libsumtree.errors import (
    ArgumentError,
    CheckpointCorruptError,
)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "replay.h5"
    write_example(path)
    return path


def test_what_was_written_is_read(saved: Path) -> None:
    with checkpoint.read(saved) as found:
        assert found.format == 1
        attributes, datasets = example_attributes(), example_datasets()
        assert found.attributes.keys() == attributes.keys()
        for name, value in attributes.items():
            assert type(found.attributes[name]) is type(value)
            assert np.array_equal(found.attributes[name], value)
        assert found.datasets.keys() == datasets.keys()
        for name, arrays in datasets.items():
            values = found.datasets[name].read()
            assert values.dtype == found.datasets[name].dtype == arrays[0].dtype
            assert values.shape == found.datasets[name].shape == whole(arrays).shape
            assert values.tobytes() == whole(arrays).tobytes()


def test_datasets_fill_ring_segments_in_place(saved: Path) -> None:
    ring = np.zeros(9, RECORD)
    observation = ring["observation"]
    with checkpoint.read(saved) as found:
        found.datasets["storage/observation"].read_into(observation[4:], observation[:4])
        found.datasets["storage/done"].read_into(ring["done"])
    assert ring["observation"].tolist() == np.arange(27).reshape(9, 3).tolist()
    assert (ring["label"] == "").all()
    assert ring["done"].tolist() == [True, False, True] * 3


def test_large_strided_views_are_written_and_read_in_bounded_memory(tmp_path: Path) -> None:
    script = """
import resource, sys
import numpy as np
from libsumtree import checkpoint
ring = np.zeros(1 << 19, [("wide", "u8", (16,)), ("other", "u1")])
ring["wide"][:, ::5] = np.arange(1 << 19)[:, None]
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
checkpoint.write(sys.argv[1] + ".warm", {}, {"x": [np.zeros(1 << 21)]})
before = peak()
checkpoint.write(sys.argv[1], {}, {"wide": [ring["wide"][1000:], ring["wide"][:1000]]})
with checkpoint.read(sys.argv[1]) as found:
    found.datasets["wide"].read_into(ring["wide"])
assert peak() - before < 32 << 20, peak() - before
assert (ring["wide"][:, 5] == np.roll(np.arange(1 << 19), -1000)).all()
assert not ring["other"].any()
"""
    done = run_script(script, tmp_path / "large.h5")
    assert done.returncode == 0, done.stderr


def test_plain_h5py_and_plain_reads_understand_the_file(saved: Path) -> None:
    with h5py.File(saved, "r") as file:
        assert file.userblock_size == 512
        assert file.attrs["format"] == 1
        assert file.attrs["alpha"] == 0.6
        assert file.attrs["dtype"] == '[["a","<f4"]]'
        assert np.array_equal(file["tree/masses"][()], whole(example_datasets()["tree/masses"]))
        assert file["storage/observation"].dtype == np.dtype(">f4")
    content = saved.read_bytes()
    lines = content[:512].rstrip(b"\0").decode("ascii").splitlines()
    assert lines[:3] == ["libsumtree checkpoint", "format 1", f"length {len(content):016d}"]
    assert lines[3:5] == [f"sha256 {sha256(content[512:]).hexdigest()}", "parent none"]


def test_same_content_same_bytes(saved: Path, tmp_path: Path) -> None:
    write_example(tmp_path / "again.h5")
    assert saved.read_bytes() == (tmp_path / "again.h5").read_bytes()


def test_only_the_owner_may_read_it(saved: Path, tmp_path: Path) -> None:
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["replay.h5"]


# ---- compression ----


@pytest.mark.parametrize("compression", ["lzf", "gzip", "zstd"])
def test_compressed_values_come_back(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "small.h5"
    rows = np.zeros(40_000, [("a", "<i4"), ("b", ">f8", (2,))])
    rows["a"] = np.arange(40_000)
    halves = checkpoint.Stream(rows.dtype, rows.shape, lambda: iter([rows[:7000], rows[7000:]]))
    datasets = {"rows": halves, "zeros": [np.zeros(1 << 17)], "few": [np.ones(5)]}
    checkpoint.write(path, {}, datasets, compression=compression)
    assert path.stat().st_size < rows.nbytes // 4
    with checkpoint.read(path) as found:
        assert found.datasets["rows"].read().tobytes() == rows.tobytes()
        assert not found.datasets["zeros"].read().any()
        part = np.zeros(3, rows.dtype)
        found.datasets["rows"].read_rows(39_990, part)
        assert part["a"].tolist() == [39_990, 39_991, 39_992]
    with h5py.File(path) as file:
        assert file["rows"].id.get_create_plist().get_nfilters() == 2
        assert (file["rows"][:] == rows).all()


def test_compressions_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="one of lzf, gzip, zstd"):
        checkpoint.write(tmp_path / "x.h5", {}, {}, compression="zip")
    script = """
import sys
sys.modules["hdf5plugin"] = None
from libsumtree import checkpoint
try:
    checkpoint.write(sys.argv[1], {}, {}, compression="zstd")
except ImportError as error:
    assert "pip install 'libsumtree[compression]'" in str(error)
"""
    done = run_script(script, tmp_path / "x.h5")
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []


# ---- records and names ----


NESTED = np.dtype([("p", "i1"), ("q", ">f8", (2,)), ("t", "M8[ns]")], align=True)


@pytest.mark.parametrize(
    "dtype",
    [
        *("?", "i1", ">i2", "u8", "f2", ">f8", "c8", "c16"),
        *("g", "G", "U3", ">U2", "S4", "V5", "M8[ns]", "m8[25s]", NESTED, "U0", "S0", "V0"),
    ],
)
@pytest.mark.parametrize("shape", [(), (2,), (2, 0)])
def test_records_come_back_bit_for_bit(dtype: Any, shape: tuple[int, ...], tmp_path: Path) -> None:
    if shape and np.dtype(dtype).itemsize == 0:
        shape = ()  # NumPy has no arrays of nothing as fields
    record = np.dtype([("pad", "u1"), ("field", dtype, shape) if shape else ("field", dtype)])
    ring = np.frombuffer(bytearray(random.Random(4).randbytes(record.itemsize * 7)), record)
    if dtype == "?":
        ring["field"] &= True
    stored = checkpoint.storable_record(record)
    assert stored.itemsize == record.itemsize
    stream = checkpoint.Stream(stored, (7,), lambda: iter([ring.view(stored)]))
    checkpoint.write(tmp_path / "r.h5", {}, {"rows": stream})
    with checkpoint.read(tmp_path / "r.h5") as found:
        assert found.datasets["rows"].dtype == stored
        assert found.datasets["rows"].read().tobytes() == ring.tobytes()
    with h5py.File(tmp_path / "r.h5") as file:
        assert file["rows"]["pad"].tolist() == ring["pad"].tolist()


def test_records_of_more_fields_than_hdf5_can_describe_are_bytes(tmp_path: Path) -> None:
    record = np.dtype([(f"field {at}", "<f4") for at in range(1000)])
    assert checkpoint.storable_record(record) == np.dtype(("u1", (4000,)))
    only_padding = np.dtype({"names": ["a"], "formats": ["U0"], "offsets": [0], "itemsize": 3})
    assert checkpoint.storable_record(only_padding) == np.dtype(("u1", (3,)))
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":  # 32 dimensions are the most of NumPy 1, too
        deep = np.dtype([("a", "<f4", (1,) * 33)])
        assert checkpoint.storable_record(deep) == np.dtype(("u1", (4,)))


def test_the_most_fields_that_are_described_fit(tmp_path: Path) -> None:
    count = next(
        n for n in range(500, 0, -1) if checkpoint.storable_record(fields(n)).names is not None
    )
    rows = np.zeros(3, checkpoint.storable_record(fields(count)))
    stream = checkpoint.Stream(rows.dtype, (3,), lambda: iter([rows]))
    checkpoint.write(tmp_path / "r.h5", {}, {"rows": stream})
    checkpoint.read(tmp_path / "r.h5").close()


def fields(count: int) -> np.dtype[Any]:
    return np.dtype([(f"{at}", "<c16", (1,) * 32) for at in range(count)])


@given(st.text(st.characters(codec=None, exclude_categories=())))
def test_names_are_escaped_reversibly(name: str) -> None:
    escaped = checkpoint.escape_name(name)
    assert escaped
    assert not set(escaped) & set("/.\0")
    escaped.encode()
    assert checkpoint.unescape_name(escaped) == name


def test_odd_field_names_are_dataset_names(tmp_path: Path) -> None:
    names = ["", ".", "..", "a/b", "a%2Fb", "%", "%25", "\0", "\ud800", "ü", "a b", "x" * 300]
    datasets = {
        f"storage/{checkpoint.escape_name(name)}": [np.array([at])] for at, name in enumerate(names)
    }
    checkpoint.write(tmp_path / "odd.h5", {}, datasets)
    with checkpoint.read(tmp_path / "odd.h5") as found:
        assert found.datasets.keys() == datasets.keys()
        for at, name in enumerate(names):
            dataset = found.datasets[f"storage/{checkpoint.escape_name(name)}"]
            assert dataset.read().tolist() == [at]
    for wrong in ["", "%2f", "%41", "%ff", "%FF", "a.b", "a/b", "%2", "%%"]:
        with pytest.raises(CheckpointCorruptError):
            checkpoint.unescape_name(wrong)
