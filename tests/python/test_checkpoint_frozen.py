"""The file of every format that was ever written, kept in tests/data, is read for ever."""

from __future__ import annotations

import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from libsumtree import BetaSchedule, PrioritizedReplayBuffer, checkpoint

DATA = Path(__file__).resolve().parents[1] / "data"
FULL, INCREMENTAL = "checkpoint-1-full.h5", "checkpoint-1-incremental.h5"
FROZEN = {
    FULL: "f08596cbe1017d983a67571ff45fe7de40b3243d80f9af0d60254b14b7c6d347",
    INCREMENTAL: "db41c89ba5b4dd5243f9fcc3748979cb425fd5ea2d3a15c3e9fd0bb48d2dead6",
}
RECORD = np.dtype(
    [
        ("observation", ">f4", (2, 3)),
        ("action", "<i8"),
        ("label", "U3"),
        ("time", "M8[ns]"),
        ("done", "?"),
    ],
    align=True,
)
LEARNER = {"learner/step": [np.array(12)], "learner/layer0%2Eweight": [np.ones((2, 3), np.float32)]}


def rows(first: int, count: int) -> np.ndarray:
    made = np.zeros(count, RECORD)
    numbers = np.arange(first, first + count)
    made["observation"] = numbers[:, None, None]
    made["action"] = -numbers
    made["label"] = numbers.astype("U3")
    made["time"] = numbers.astype("M8[ns]")
    made["done"] = numbers % 2 == 1
    return made


def first_part() -> PrioritizedReplayBuffer:
    buffer = PrioritizedReplayBuffer(
        11, RECORD, alpha=0.5, beta=BetaSchedule(0.25, 0.75, 10), seed=2024
    )
    buffer.add(rows(0, 15), np.arange(15.0) ** 2)
    buffer.sample(3)
    return buffer


def second_part(buffer: PrioritizedReplayBuffer) -> None:
    buffer.add(rows(15, 2), [4.0, 9.0])
    buffer.update_priorities([8, 9], [100.0, 0.0])
    buffer.sample(2)


def make(folder: Path) -> None:
    """Write the files as they were written once: `python test_checkpoint_frozen.py`."""
    attributes = {"replay_sampled": 5, "replay_stale": 1, "replay_surplus": -0.5}
    buffer = first_part()
    base = buffer.snapshot().write(folder / FULL, attributes, LEARNER)
    second_part(buffer)
    buffer.snapshot(base).write(folder / INCREMENTAL, attributes, LEARNER)


def assert_same(loaded: PrioritizedReplayBuffer, buffer: PrioritizedReplayBuffer) -> None:
    assert loaded.dtype == buffer.dtype
    assert (loaded.alpha, loaded.beta, loaded.inserted) == (0.5, buffer.beta, buffer.inserted)
    assert loaded.tree[:].tolist() == buffer.tree[:].tolist()
    ids = np.arange(buffer.inserted - 11, buffer.inserted)
    assert loaded[ids].tobytes() == buffer[ids].tobytes()
    one, other = loaded.sample(50), buffer.sample(50)
    assert one.indices.tolist() == other.indices.tolist()
    assert one.weights.tolist() == other.weights.tolist()


def test_the_files_are_those_that_were_frozen() -> None:
    found = {name: sha256((DATA / name).read_bytes()).hexdigest() for name in FROZEN}
    assert found == FROZEN


def test_format_1_full(tmp_path: Path) -> None:
    path = Path(shutil.copy(DATA / FULL, tmp_path))
    assert_same(PrioritizedReplayBuffer.load(path), first_part())


def test_format_1_incremental(tmp_path: Path) -> None:
    shutil.copy(DATA / FULL, tmp_path)
    path = Path(shutil.copy(DATA / INCREMENTAL, tmp_path))
    buffer = first_part()
    second_part(buffer)
    assert_same(PrioritizedReplayBuffer.load(path), buffer)
    with checkpoint.read(path) as found:
        assert found.attributes["replay_surplus"] == -0.5
        assert found.datasets["learner/step"].read() == 12


def test_format_1_is_plain_hdf5() -> None:
    """What docs/checkpoint-format.md says, read by h5py alone."""
    with h5py.File(DATA / FULL) as file:
        said: dict[str, Any] = dict(file.attrs)
        assert {k: said[k] for k in ("format", "capacity", "cursor", "size", "sampled")} == {
            "format": 1,
            "capacity": 11,
            "cursor": 15,
            "size": 11,
            "sampled": 1,
        }
        assert "parent" not in said
        assert file["transitions"]["action"].tolist() == [-n for n in range(4, 15)]
        assert file["transitions"]["label"].view("<u4")[0].tolist() == [ord("4"), 0, 0]
        assert file["tree/masses"][:].tolist() == [float(n) for n in range(4, 15)]
        assert file["ids/epochs"][:].tolist() == [[0, 0]]
    with h5py.File(DATA / INCREMENTAL) as file:
        parent = (DATA / FULL).read_bytes()[512:]
        assert file.attrs["parent"] == sha256(parent).hexdigest()
        assert file["transitions"]["action"].tolist() == [-15, -16]
        assert file["tree/masses"][:].tolist() == [2.0, 3.0]
        assert file["changed/numbers"][:].tolist() == [8, 9]
        assert file["changed/masses"][:].tolist() == [10.0, 0.0]


if __name__ == "__main__":
    make(DATA)
