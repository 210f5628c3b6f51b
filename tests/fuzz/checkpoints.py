"""Checkpoints: altered bytes are found out; made-up ones with a right digest never do any harm."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import io
import tempfile
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from choices import Choices

import libsumtree as st
from libsumtree import checkpoint, inspection
from libsumtree.checkpoint.block import BLOCK_SIZE, Header
from libsumtree.errors import ArgumentError, CheckpointError, IdsExhaustedError, OutOfMemoryError
from libsumtree.frames import FrameLayout
from libsumtree.replay.config import ReplayConfig
from libsumtree.replay.restored import Place, read_state
from libsumtree.replay.restoring import make_limiter

_RECORD = np.dtype([("observation", "<f4", (3,)), ("action", "<i8"), ("label", "U2")])
_MOST_DIGESTS = 1 << 22
ATTRIBUTES = (
    *("capacity", "dtype", "alpha", "beta", "beta_samples", "cursor", "size", "epoch", "sampled"),
    *("total", "min", "max", "seed", "rng_key", "rng_counter", "rng_buffer_pos", "format"),
    *("max_times_sampled", "max_age", "parent", "more", "replay_rate_limit", "replay_surplus"),
    *("replay_streams", "replay_sampled"),
)
DATASETS = ("transitions", "tree/masses", "ids/epochs", "times_sampled", "changed/numbers")
_DTYPES = ("<f8", ">f8", "<i8", "<i4", "|u1", "<f2", "<c16", "|b1", "|S3", "O")
_TEXTS = (
    *("", "null", "[]", "{}", "[[7], 0, 4]", "[7, [], 4]", "[1, [], 4, 5]", "[-1, [], 4]"),
    *('[["x", "<f8"]]', '[["x", "|O"]]', '[["observation", "<f4", [1000000000]]]', "[" * 5000),
    *('["a", [], 4]', "[1e400, [], 4]", "[null, [], 1000000000000]", '[1, ["x"], 4]'),
)


@cache
def _folder() -> Path:
    holder = tempfile.TemporaryDirectory(prefix="libsumtree-fuzz-")
    atexit.register(holder.cleanup)
    return Path(holder.name)


def _rows(count: int, dtype: np.dtype[Any]) -> Any:
    return np.frombuffer(bytes(i * 7 % 64 for i in range(count * dtype.itemsize)), dtype)


def _buffer(**options: Any) -> st.PrioritizedReplayBuffer:
    buffer = st.PrioritizedReplayBuffer(8, _RECORD, seed=3, backend="cpu", **options)
    buffer.add(_rows(11, _RECORD), np.arange(11.0))
    return buffer


def _frames() -> st.PrioritizedReplayBuffer:
    layout = FrameLayout(3, (2, 2), [("action", "i8")])
    record = layout.record
    buffer = st.PrioritizedReplayBuffer(8, record, seed=3, backend="cpu")
    rows = np.zeros(6, record)
    rows["age"], rows["ahead"] = [0, 1, 2, 3, 3, 3], [1, 1, 1, 1, 1, 0]
    buffer.add(rows, [1.0, 2.0, 3.0, 4.0, 5.0, 0.0])
    return buffer


@cache
def _bases() -> tuple[tuple[Path, bytes], ...]:
    """Return files of every make: their paths in a folder, and what they hold."""
    folder = _folder()
    buffer = _buffer()
    buffer.save(folder / "full.h5")
    with buffer.snapshot() as snapshot:
        base = snapshot.write(folder / "parent.h5")
    buffer.add(_rows(2, _RECORD), 3.0)
    buffer.update_priorities(buffer.sample(3).ids, 2.0)
    with buffer.snapshot(base) as snapshot:
        snapshot.write(folder / "child.h5")
    limited = _buffer(max_times_sampled=2, max_age=20)
    limited.sample(5)
    limited.save(folder / "limited.h5")
    _frames().save(folder / "frames.h5")
    large = st.PrioritizedReplayBuffer(4096, [("x", "<f8", (4,))], seed=3, backend="cpu")
    large.add(np.zeros(4096, large.dtype))
    large.save(folder / "packed.h5", compression="gzip")
    names = ("full", "child", "parent", "limited", "frames", "packed")
    return tuple((folder / f"{name}.h5", (folder / f"{name}.h5").read_bytes()) for name in names)


def signed(content: bytes, parent: str | None) -> bytes:
    """Return a file with a right user block before what stands after it."""
    rest = content[BLOCK_SIZE:]
    digest = hashlib.sha256(rest).hexdigest()
    return Header(BLOCK_SIZE + len(rest), digest, parent).to_bytes() + rest


def _edit_bytes(choose: Choices, content: bytes) -> bytes:
    """Alter a few places: the metadata of HDF5 more often than values."""
    data = bytearray(content)
    for _ in range(1 + choose.below(4)):
        at = BLOCK_SIZE + choose.below(4096) if choose.below(3) else choose.below(len(data) + 1)
        what = choose.below(4)
        if what == 0:
            data[at : at + 1] = choose.bytes(1)
        elif what == 1:
            data[at : at + 8] = (choose.integer() % 2**64).to_bytes(8, "little")
        elif what == 2:
            del data[at:]
        else:
            data[at:at] = choose.bytes(choose.below(9))
    return bytes(data)


def holds_up_hdf5(content: bytes) -> bool:
    """Whether a global heap, where HDF5 keeps texts, has an entry of no length.

    HDF5 (2.0 and before) never comes back from walking one; nothing above it can tell.
    """
    found = False
    heap = content.find(b"GCOL")
    while heap >= 0 and not found:
        end = min(heap + int.from_bytes(content[heap + 8 : heap + 16], "little"), len(content))
        at = heap + 16
        while at + 16 <= end and not found:
            length = int.from_bytes(content[at + 8 : at + 16], "little")
            is_used = content[at : at + 2] != b"\0\0"
            step = (16 + (length + 7) // 8 * 8) % 2**64 if is_used else length
            found = step == 0
            at += step
        heap = content.find(b"GCOL", heap + 4)
    return found


def _value(choose: Choices) -> Any:
    what = choose.below(6)
    if what == 0:
        number = choose.integer() % 2**64
        return number % 2**20 if number < 2**38 else number  # a capacity that takes time to fill
    if what == 1:
        return -(choose.integer() % 2**63)
    if what == 2:
        return choose.real()
    if what == 3:
        return choose.pick(_TEXTS)
    if what == 4:
        return np.array([choose.real() for _ in range(choose.below(5))])
    return np.array([choose.integer() % 2**64 for _ in range(choose.below(5))], np.uint64)


def _edit_parts(choose: Choices, path: Path) -> None:
    """Give attributes and datasets other values, types and shapes."""
    with h5py.File(path, "r+") as file:
        for _ in range(1 + choose.below(3)):
            if choose.below(4):
                name = choose.pick(ATTRIBUTES)
                if choose.below(8) == 0:
                    file.attrs.pop(name, None)
                else:
                    file.attrs[name] = _value(choose)
            else:
                _replace_dataset(choose, file, choose.pick(DATASETS))


def _replace_dataset(choose: Choices, file: Any, name: str) -> None:
    if name in file:
        del file[name]
    shape = tuple(choose.pick((0, 1, 2, 3, 8, 11)) for _ in range(choose.below(3)))
    what = choose.below(6)
    if what == 0:
        file.create_dataset(name, shape or (1,), choose.pick(_DTYPES[:8]), chunks=True)
    elif what == 1:
        file.create_dataset(name, (choose.pick((2**20, 2**40, 2**62)),), "u1", chunks=(1024,))
    elif what == 2:
        file[name] = h5py.SoftLink(choose.pick(("/transitions", "/", "/nowhere")))
    elif what == 3:
        file[name] = h5py.ExternalLink("parent.h5", "/transitions")
    else:
        dtype = choose.pick(_DTYPES)
        file[name] = np.zeros(shape, dtype) if dtype != "O" else [choose.text(3).replace("\0", "")]


@contextlib.contextmanager
def _edited(choose: Choices) -> Iterator[tuple[Path, bytes, bool]]:
    """Put an altered file in the place of a good one; tell what it holds, and if it is signed."""
    path, content = choose.pick(_bases())
    how = choose.below(3)
    try:
        if how == 2:
            _edit_parts(choose, path)
            new = path.read_bytes()
        else:
            new = _edit_bytes(choose, content)
        if how:
            parent = checkpoint.read_header(_folder() / "parent.h5").digest
            new = signed(new, parent if path.name == "child.h5" else None)
        path.write_bytes(new)
        yield path, new, bool(how)
    finally:
        path.write_bytes(content)


def restore(path: Path) -> None:
    """Go on from a file as a replay rank does, alone and as one of two."""
    ledger = path.with_name(checkpoint.LEDGER_NAME)
    for shards in (1, 2):
        ledger.unlink(missing_ok=True)
        silence = io.StringIO()
        with (
            contextlib.suppress(CheckpointError, OutOfMemoryError),
            contextlib.redirect_stdout(silence),
            contextlib.redirect_stderr(silence),
        ):
            try:
                restored = read_state(path, "cpu", 8, Place(0, shards))
            except ArgumentError as error:
                assert isinstance(error, CheckpointError) or "records of frames" in str(error)
                continue
            restored.buffer.tree.validate()
            make_limiter(ReplayConfig(8), restored, ReplayConfig(8))


def use(path: Path) -> bool:
    """Open a file in all the ways there are; tell whether it was taken for a checkpoint."""
    with contextlib.suppress(CheckpointError), checkpoint.read_chain(path) as chain:
        contents = inspection.contents_of(chain)
        inspection.differences(contents, contents)
        contents.priorities()
        contents.learner()
        for _ in contents.transitions():
            pass
    restore(path)
    try:
        with checkpoint.read_chain(path) as chain:
            buffer = st.PrioritizedReplayBuffer.from_checkpoint(chain, backend="cpu")
    except (CheckpointError, OutOfMemoryError) as error:
        assert str(error)
        return False
    buffer.tree.validate()
    buffer.open_epoch(buffer.epoch + 1)
    if buffer.tree.total > 0.0:
        drawn = buffer.sample(3)
        assert ((drawn.weights >= 0.0) & (drawn.weights <= 1.0)).all()
        buffer.update_priorities(drawn.ids, 1.0)
    with contextlib.suppress(IdsExhaustedError):
        buffer.add(np.zeros(2, buffer.dtype))
    buffer.tree.validate()
    return True


def one(data: bytes) -> None:
    _bases()
    with warnings.catch_warnings(), _edited(Choices(data)) as (path, new, is_signed):
        warnings.simplefilter("ignore")
        whole = dict(_bases())[path]
        if is_signed and holds_up_hdf5(new):
            return
        taken = use(path)
        assert is_signed or taken == (new == whole), "altered bytes were not found out"


def seeds() -> list[bytes]:
    """For each file: plain and signed alterations, and one for each attribute and dataset."""
    kept = []
    for base in range(6):
        kept += [bytes([base, how, 1, 1, 0, 0, 0, what, 1]) for how in (0, 1) for what in range(4)]
    for number in range(len(ATTRIBUTES)):
        kept += [bytes([number % 6, 2, 0, 1, number, 1, what, 3, 8, 1, 2]) for what in range(6)]
    for number in range(len(DATASETS)):
        kept += [bytes([number % 6, 2, 0, 0, number, 1, 4, what, 1, 2]) for what in range(6)]
    return kept
