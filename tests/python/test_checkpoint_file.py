"""The checkpoint file: whole or not at all, and never anything but what was written."""

from __future__ import annotations

import fcntl
import os
import random
import resource
import signal
import stat
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libsumtree import checkpoint
from libsumtree.errors import (
    ArgumentError,
    ArgumentTypeError,
    CheckpointCorruptError,
    CheckpointError,
    CheckpointFormatError,
    ShapeError,
)

RECORD = np.dtype([("observation", ">f4", (3,)), ("label", "U3"), ("done", "?")])


def example_attributes() -> dict[str, checkpoint.Attribute]:
    return {
        "alpha": 0.6,
        "cursor": 7,
        "full": True,
        "dtype": '[["a","<f4"]]',
        "empty": "",
        "philox_key": np.array([2**64 - 1, 3], np.uint64),
    }


def example_datasets() -> dict[str, list[np.ndarray]]:
    masses = np.random.default_rng(1).random(50)
    records = np.zeros(9, RECORD)
    records["observation"] = np.arange(27).reshape(9, 3)
    records["label"] = ["a", "bc", "ü"] * 3
    records["done"] = [True, False, True] * 3
    return {
        "tree/masses": [masses[20:], masses[:20]],
        "storage/observation": [records["observation"][4:], records["observation"][:4]],
        "storage/label": [np.frombuffer(records["label"].tobytes(), np.uint8).reshape(9, 12)],
        "storage/done": [records["done"]],
        "learner/step": [np.array(17)],
        "learner/none": [np.zeros((0, 4), np.complex64)],
    }


def whole(arrays: list[np.ndarray]) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, dtype=arrays[0].dtype)


def write_example(path: Path) -> None:
    checkpoint.write(path, example_attributes(), example_datasets())


def rewrite_sealed(path: Path, change: Callable[[Any], None]) -> None:
    """Change a checkpoint with plain h5py and give it a right digest again."""
    with h5py.File(path, "r+") as file:
        change(file)
    body = path.read_bytes()[512:]
    lines = b"libsumtree checkpoint\nformat 1\nlength %016d\nsha256 %s\nparent none\n" % (
        512 + len(body),
        sha256(body).hexdigest().encode(),
    )
    block = lines + b"block %08x\n" % zlib.crc32(lines)
    path.write_bytes(block.ljust(512, b"\0") + body)


def run_script(script: str, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


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
    assert not ring["label"].any()
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


# ---- damage ----


def test_every_flip_is_detected(saved: Path) -> None:
    content = bytearray(saved.read_bytes())
    generator = random.Random(2)
    places = [*range(512), *(generator.randrange(512, len(content)) for _ in range(2500))]
    with saved.open("rb+", buffering=0) as file:
        for place in places:
            flipped = content[place] ^ (1 << generator.randrange(8))
            os.pwrite(file.fileno(), bytes([flipped]), place)
            with pytest.raises(CheckpointCorruptError):
                checkpoint.read(saved)
            os.pwrite(file.fileno(), content[place : place + 1], place)
    checkpoint.read(saved).close()


def test_every_truncation_is_detected(saved: Path) -> None:
    content = saved.read_bytes()
    lengths = [len(content) * part // 64 for part in range(64)] + [1, 300, 511, 512, 513]
    for length in [*lengths, len(content) - 1]:
        saved.write_bytes(content[:length])
        with pytest.raises(CheckpointCorruptError):
            checkpoint.read(saved)
    saved.write_bytes(content + b"\0")
    with pytest.raises(CheckpointCorruptError):
        checkpoint.read(saved)


def test_damage_is_found_before_hdf5_sees_the_file(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    monkeypatch.setattr(h5py, "File", lambda *arguments, **options: opened.append(arguments))
    content = saved.read_bytes()
    saved.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CheckpointCorruptError, match="cut short or altered"):
        checkpoint.read(saved)
    assert opened == []


def test_hdf5_reads_the_file_that_was_checked(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_open = h5py.File

    def replace_then_open(*arguments: Any, **options: Any) -> Any:
        other = saved.with_name("other.h5")
        with real_open(other, "w") as file:
            file["tree/masses"] = np.zeros(3)
        other.replace(saved)
        return real_open(*arguments, **options)

    monkeypatch.setattr(h5py, "File", replace_then_open)
    with checkpoint.read(saved) as found:
        assert found.datasets["tree/masses"].shape == (50,)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.h5"
    with h5py.File(foreign, "w") as file:
        file["tree/masses"] = np.zeros(3)
    with pytest.raises(CheckpointCorruptError, match="is not a libsumtree checkpoint"):
        checkpoint.read(foreign)
    with pytest.raises(CheckpointError, match="does not exist"):
        checkpoint.read(tmp_path / "missing.h5")
    with pytest.raises(CheckpointError, match="not a regular file"):
        checkpoint.read(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="not a regular file"):
        checkpoint.read(tmp_path / "pipe")


def test_newer_formats_are_refused_with_both_numbers(saved: Path) -> None:
    lines = b"libsumtree checkpoint\nformat 12\nunheard-of line\n"
    block = lines + b"block %08x\n" % zlib.crc32(lines)
    saved.write_bytes(block.ljust(512, b"\0") + b"unheard-of body")
    with pytest.raises(CheckpointFormatError, match=r"format 12;.*formats up to 1"):
        checkpoint.read(saved)


def make_filtered(file: Any) -> None:
    """Ask for a filter that HDF5 would load from wherever its environment says."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk((10,))
    properties.set_filter(307, h5py.h5z.FLAG_OPTIONAL, (9,))
    space = h5py.h5s.create_simple((10,))
    dataset = h5py.h5d.create(file.id, b"odd", h5py.h5t.NATIVE_DOUBLE, space, properties)
    dataset.write_direct_chunk((0,), bytes(80))


def make_bomb(file: Any) -> None:
    """Claim a petabyte in a few bytes: chunks that were never written."""
    file.create_dataset("odd", (1 << 47,), "f8", chunks=(1 << 20,), compression="gzip")


def make_large_chunks(file: Any) -> None:
    file.create_dataset("odd", data=np.zeros(1 << 24), chunks=(1 << 24,), compression="gzip")


def make_texts(file: Any) -> None:
    texts = np.dtype([("a", "f4"), ("b", h5py.string_dtype())])
    file.create_dataset("odd", data=np.array([(1.0, "text")], texts))


def make_nested(file: Any) -> None:
    file["odd"] = np.zeros(3, [("a", [("b", "f4")])])


def make_references(file: Any) -> None:
    file["odd"] = np.array([file["tree"].ref], h5py.ref_dtype)


def make_variable_length(file: Any) -> None:
    dataset = file.create_dataset("odd", (2,), h5py.vlen_dtype(np.int32))
    dataset[0] = [1, 2, 3]


def make_virtual(file: Any) -> None:
    layout = h5py.VirtualLayout(shape=(3,), dtype="f8")
    layout[:] = h5py.VirtualSource("other.h5", "x", shape=(3,))
    file.create_virtual_dataset("odd", layout)


def make_external(file: Any) -> None:
    file.create_dataset("odd", (3,), "f8", external=[("/etc/hostname", 0, 24)])


def make_cycle(file: Any) -> None:
    file["tree/odd"] = file["tree"]


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.__setitem__("odd", h5py.SoftLink("/tree/masses")),
        lambda file: file.__setitem__("odd", h5py.ExternalLink("other.h5", "/x")),
        lambda file: file.__setitem__("odd", file["tree/masses"]),
        lambda file: file.__setitem__("odd", np.array(["text"], h5py.string_dtype())),
        lambda file: file.attrs.__setitem__("parent", "odd"),
        lambda file: file.__setitem__("odd", np.zeros(3, "S4")),
        lambda file: file.__setitem__("odd", np.dtype("f8")),
        lambda file: file.__setitem__("odd", h5py.Empty("f8")),
        lambda file: file.create_dataset("odd", (1 << 40,), "f8"),
        lambda file: file.attrs.__setitem__("odd", np.array(["text"], h5py.string_dtype())),
        lambda file: file.attrs.__setitem__("odd", np.void(b"bytes")),
        lambda file: file.attrs.__setitem__("format", 2),
        lambda file: file.attrs.__setitem__("format", np.array([1, 1])),
        lambda file: file.attrs.__setitem__("format", True),
        make_cycle,
        make_filtered,
        make_bomb,
        make_large_chunks,
        make_texts,
        make_nested,
        make_references,
        make_variable_length,
        make_virtual,
        make_external,
    ],
)
def test_anything_but_plain_arrays_is_refused(saved: Path, change: Callable[[Any], None]) -> None:
    rewrite_sealed(saved, lambda file: None)
    checkpoint.read(saved).close()
    rewrite_sealed(saved, change)
    with pytest.raises(CheckpointCorruptError, match=r"odd|'format'|'parent'|'tree' is a link"):
        checkpoint.read(saved)


# ---- failures while writing ----

TEMPORARY = ".replay.h5.*.tmp"
REWRITE = """
import sys
import numpy as np
from libsumtree import checkpoint
print("ready", flush=True)
for version in range(1, 1 << 30):
    values = np.full(1 << 18, version)
    checkpoint.write(sys.argv[1], {"version": version}, {"x": [values[1000:], values[:1000]]})
"""


def test_sigkill_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "replay.h5"
    generator = random.Random(3)
    versions = []
    leftovers = 0
    for _ in range(10):
        checkpoint.write(path, {"version": 0}, {"x": [np.zeros(1 << 18, np.int64)]})
        command = [sys.executable, "-c", REWRITE, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            while process.poll() is None and not list(tmp_path.glob(TEMPORARY)):
                pass
            time.sleep(generator.uniform(0.0, 0.01))
            process.send_signal(signal.SIGKILL)
        leftovers += len(list(tmp_path.glob(TEMPORARY)))
        with checkpoint.read(path) as found:
            versions.append(found.attributes["version"])
            assert (found.datasets["x"].read() == found.attributes["version"]).all()
    assert leftovers > 0, "no try hit a write: the kills prove nothing"
    write_example(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["replay.h5"]


def test_a_living_writers_temporary_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "replay.h5"
    living = tmp_path / f".replay.h5.1.{'0' * 16}.tmp"
    others = [tmp_path / ".replay.h5.notes.tmp", tmp_path / f".other.h5.1.{'0' * 16}.tmp"]
    for file in others:
        file.touch()
    with living.open("wb") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        write_example(path)
        assert living.exists()
    write_example(path)
    assert sorted(tmp_path.iterdir()) == sorted([*others, path])


FILL_THE_DISK = """
import sys
from pathlib import Path
import numpy as np
from libsumtree import checkpoint
from libsumtree.errors import CheckpointError
path = Path(sys.argv[1]) / "replay.h5"
checkpoint.write(path, {}, {"x": [np.arange(1000)]})
before = path.read_bytes()
for size in [*range(100_000, 140_000, 487), 1 << 20, 1 << 22]:
    try:
        checkpoint.write(path, {}, {"x": [np.arange(size), np.arange(5)], "y": [np.ones(3)]})
    except CheckpointError as error:
        failed = str(error)
    else:
        checkpoint.write(path, {}, {"x": [np.arange(1000)]})
    assert [entry.name for entry in path.parent.iterdir()] == ["replay.h5"]
    assert path.read_bytes() == before
checkpoint.read(path).close()
print(failed)
"""
ON_A_TINY_DISK = 'mount -t tmpfs -o size=1m,mode=700 none "$1" && exec "$2" -c "$3" "$1"'


def test_a_full_disk_keeps_the_old_file(tmp_path: Path) -> None:
    """A real tmpfs of 1 MiB where the kernel lets this user mount one, else a file size limit."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    private = ["unshare", *user, "--mount", "sh", "-c"]
    if subprocess.run([*private, "mount -t tmpfs none /mnt"], capture_output=True).returncode == 0:
        command = [*private, ON_A_TINY_DISK, "sh", str(tmp_path), sys.executable, FILL_THE_DISK]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        reason = "No space left on device"
    else:
        done = run_under_file_limit(tmp_path)
        reason = "File too large"
    assert (done.returncode, done.stderr) == (0, "")
    assert f"cannot write checkpoint {tmp_path}/replay.h5: {reason}" in done.stdout


def run_under_file_limit(folder: Path) -> subprocess.CompletedProcess[str]:
    return run_script(
        FILL_THE_DISK,
        folder,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
    )


def test_a_file_limit_keeps_the_old_file(tmp_path: Path) -> None:
    done = run_under_file_limit(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "File too large" in done.stdout


def test_ctrl_c_while_writing_keeps_the_old_file(saved: Path, tmp_path: Path) -> None:
    before = saved.read_bytes()

    def interrupted() -> Iterator[np.ndarray]:
        yield np.zeros(1 << 14)
        raise KeyboardInterrupt

    stream = checkpoint.Stream(np.dtype("f8"), (1 << 15,), interrupted)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.write(saved, {}, {"a": [np.zeros(9)], "b": stream})
    assert saved.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["replay.h5"]


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is a folder"):
        write_example(tmp_path)
    with pytest.raises(CheckpointError, match="make the folder"):
        write_example(tmp_path / "none" / "replay.h5")
    with pytest.raises(CheckpointError, match="File name too long"):
        write_example(tmp_path / ("x" * 254))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("attributes", "datasets", "error"),
    [
        ({"format": 1}, {}, ArgumentTypeError),
        ({"parent": "none"}, {}, ArgumentTypeError),
        ({"": 1}, {}, ArgumentTypeError),
        ({"a": None}, {}, ArgumentTypeError),
        ({"a": "\0"}, {}, ArgumentTypeError),
        ({"a": "\ud800"}, {}, ArgumentTypeError),
        ({"a": 1j}, {}, ArgumentTypeError),
        ({"a": 2**64}, {}, ArgumentTypeError),
        ({"a": np.zeros(5000)}, {}, ArgumentTypeError),
        ({}, {"/x": [np.zeros(1)]}, ArgumentTypeError),
        ({}, {"": [np.zeros(1)]}, ArgumentTypeError),
        ({}, {"a.b": [np.zeros(1)]}, ArgumentTypeError),
        ({}, {"a": [np.zeros(1)], "a/b": [np.zeros(1)]}, ArgumentTypeError),
        ({}, {"a": [[1.0]]}, ArgumentTypeError),
        ({}, {"a": [np.zeros(1, object)]}, ArgumentTypeError),
        ({}, {"a": [np.zeros(1, "U2")]}, ArgumentTypeError),
        ({}, {"a": [np.zeros(1, np.longdouble)]}, ArgumentTypeError),
        ({}, {"a": []}, ShapeError),
        ({}, {"a": [np.zeros(1), np.zeros(1, "f4")]}, ShapeError),
        ({}, {"a": [np.zeros((1, 2)), np.zeros((1, 3))]}, ShapeError),
        ({}, {"a": [np.array(1.0), np.array(1.0)]}, ShapeError),
    ],
)
def test_what_cannot_be_stored_is_refused(
    saved: Path, attributes: Any, datasets: Any, error: type[Exception]
) -> None:
    before = saved.read_bytes()
    with pytest.raises(error):
        checkpoint.write(saved, attributes, datasets)
    assert saved.read_bytes() == before


def test_what_cannot_be_filled_is_refused(saved: Path) -> None:
    target = np.zeros(50)
    with checkpoint.read(saved) as found:
        masses = found.datasets["tree/masses"]
        for wrong in [np.zeros(49), np.zeros(50, ">f8"), np.zeros((50, 1))]:
            with pytest.raises(ShapeError):
                masses.read_into(wrong)
        with pytest.raises(ShapeError):
            masses.read_into()
        read_only = np.zeros(20)
        read_only.flags.writeable = False
        with pytest.raises(ArgumentError, match="read-only"):
            masses.read_into(target[:30], read_only)
    assert not target.any()
    with pytest.raises(CheckpointError, match="closed"):
        masses.read()


def test_long_texts_are_stored(tmp_path: Path) -> None:
    text = '["ä"]' * 50_000
    checkpoint.write(tmp_path / "long.h5", {"dtype": text}, {})
    with checkpoint.read(tmp_path / "long.h5") as found:
        assert found.attributes == {"dtype": text}


def test_a_missing_h5py_names_the_extra(tmp_path: Path) -> None:
    script = """
import sys
sys.modules["h5py"] = None
from libsumtree import checkpoint
for call in (lambda: checkpoint.write(sys.argv[1], {}, {}), lambda: checkpoint.read(sys.argv[1])):
    try:
        call()
    except ImportError as error:
        assert "pip install 'libsumtree[hdf5]'" in str(error)
    else:
        raise AssertionError("no error")
"""
    done = run_script(script, tmp_path / "replay.h5")
    assert done.returncode == 0, done.stderr


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


# ---- epochs ----


def test_epochs_only_grow(tmp_path: Path) -> None:
    first, second = tmp_path / "first.h5", tmp_path / "second.h5"
    assert checkpoint.open_epoch(first, 0) == 1
    assert checkpoint.open_epoch(first, 0) == 2
    assert checkpoint.open_epoch(second, 1) == 3
    assert checkpoint.open_epoch(first, 40) == 41
    assert checkpoint.open_epoch(second, 3) == 42
    (tmp_path / "elsewhere").mkdir()
    assert checkpoint.open_epoch(tmp_path / "elsewhere" / "first.h5", 0) == 1


def open_many(arguments: tuple[Path, int]) -> list[int]:
    path, count = arguments
    return [checkpoint.open_epoch(path, 0) for _ in range(count)]


def test_simultaneous_callers_never_get_the_same_epoch(tmp_path: Path) -> None:
    path = tmp_path / "replay.h5"
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        epochs = [epoch for part in pool.map(open_many, [(path, 25)] * 4) for epoch in part]
    assert sorted(epochs) == list(range(1, 101))


OPEN_FOREVER = """
import sys
from libsumtree import checkpoint
while True:
    print(checkpoint.open_epoch(sys.argv[1], 0), flush=True)
"""


def test_sigkill_never_gives_an_epoch_twice(tmp_path: Path) -> None:
    path = tmp_path / "replay.h5"
    generator = random.Random(5)
    epochs: list[int] = []
    for _ in range(8):
        command = [sys.executable, "-c", OPEN_FOREVER, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            epochs.append(int(process.stdout.readline()))
            time.sleep(generator.uniform(0.0, 0.03))
            process.send_signal(signal.SIGKILL)
            epochs += [int(line) for line in process.stdout.read().splitlines(keepends=True)]
    epochs.append(checkpoint.open_epoch(path, 0))
    assert epochs == sorted(set(epochs))
    left = {entry.name for entry in tmp_path.iterdir()}
    assert left == {"libsumtree.epoch", ".libsumtree.epoch.lock"}


@pytest.mark.parametrize("part", ["empty", "cut", "flipped", "longer", "zeros"])
def test_a_garbled_ledger_gives_no_epoch(tmp_path: Path, part: str) -> None:
    checkpoint.open_epoch(tmp_path / "replay.h5", 6)
    ledger = tmp_path / checkpoint.LEDGER_NAME
    text = ledger.read_bytes()
    garbled = {
        "empty": b"",
        "cut": text[:-3],
        "flipped": text.replace(b"7", b"6", 1),
        "longer": text + b"\n",
        "zeros": bytes(len(text)),
    }[part]
    ledger.write_bytes(garbled)
    with pytest.raises(CheckpointCorruptError, match="highest epoch"):
        checkpoint.open_epoch(tmp_path / "replay.h5", 6)
    assert ledger.read_bytes() == garbled


def test_epochs_end(tmp_path: Path) -> None:
    path = tmp_path / "replay.h5"
    assert checkpoint.open_epoch(path, checkpoint.MAX_EPOCH - 1) == checkpoint.MAX_EPOCH
    with pytest.raises(CheckpointError, match="all epochs"):
        checkpoint.open_epoch(path, 0)
    for wrong in [-1, 1.0, True, "1", checkpoint.MAX_EPOCH + 1]:
        with pytest.raises(ArgumentTypeError):
            checkpoint.open_epoch(path, wrong)  # type: ignore[arg-type]


def test_a_read_only_folder_says_why_and_what_to_do(tmp_path: Path) -> None:
    """The permission is a real one: root gives its own up, having entered the folder."""
    script = """
import os, sys
from pathlib import Path
from libsumtree import checkpoint
from libsumtree.errors import CheckpointError
import h5py
os.chdir(sys.argv[1])
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
calls = [lambda: checkpoint.open_epoch("replay.h5", 0), lambda: checkpoint.write("x.h5", {}, {})]
for call in calls:
    try:
        call()
    except CheckpointError as error:
        print(error)
"""
    folder = tmp_path / "read-only"
    folder.mkdir()
    folder.chmod(0o555)
    done = run_script(script, folder)
    folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    epoch, writing = done.stdout.splitlines()
    assert "Permission denied. Without the note, ids" in epoch
    assert "Copy the checkpoint replay.h5 to a folder that can be written" in epoch
    assert writing == "cannot write checkpoint x.h5: Permission denied"
    assert list(folder.iterdir()) == []
