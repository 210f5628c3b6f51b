"""Checkpoints of the buffer: the very same draws, ids that never collide, no other file taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

import libsumtree as st
from libsumtree import checkpoint
from libsumtree.errors import (
    ArgumentError,
    CheckpointCorruptError,
    CheckpointError,
    IdError,
    IdsExhaustedError,
    StaleIdError,
)

RECORD = np.dtype([("value", "<i8"), ("label", "U3")])
STORED = checkpoint.storable_record(RECORD)
Buffer = st.PrioritizedReplayBuffer


def rows(first: int, count: int) -> np.ndarray:
    made = np.zeros(count, RECORD)
    made["value"] = np.arange(first, first + count)
    made["label"] = made["value"].astype("U3")
    return made


def used_buffer(**options: Any) -> Buffer:
    """Make a buffer whose ring has wrapped, with a random state in the middle of a block."""
    buffer = Buffer(7, RECORD, **{"alpha": 0.7, "seed": 11, **options})
    buffer.add(rows(0, 5), np.arange(5.0))
    buffer.add(rows(5, 6), np.arange(10.0, 16.0))
    buffer.sample(3)
    buffer.update_priorities([6, 9], [0.0, 250.0])
    return buffer


DATASETS = ("transitions", "tree/masses", "ids/epochs")


def contents(buffer: Buffer) -> dict[str, Any]:
    """Give the attributes and datasets of a checkpoint, but for its time."""
    with buffer.snapshot() as snapshot:
        datasets = snapshot.datasets()
        rows = b"".join(block.tobytes() for block in snapshot.rows.blocks())
        return {
            **{k: v for k, v in snapshot.attributes.items() if k != "created"},
            "transitions": np.frombuffer(rows, snapshot.rows.dtype),
            **{name: datasets[name][0] for name in DATASETS[1:]},
        }


def go_on(buffer: Buffer) -> list[Any]:
    """Use every part of a buffer, and tell what came of it apart from new ids."""
    seen: list[Any] = []
    for turn in range(6):
        drawn = buffer.sample(5, stratified=turn % 2 == 0)
        seen.append([part.tolist() for part in (drawn.indices, drawn.masses, drawn.weights)])
        seen.append(drawn.transitions.tolist())
        seen.append(buffer.update_priorities(drawn.ids, 1.0 + drawn.indices))
        buffer.add(rows(100 * turn, turn))
        seen.append((len(buffer), buffer.inserted, buffer.beta, buffer.tree[:].tolist()))
    return seen


# ---- the same buffer ----


@pytest.mark.parametrize(
    "beta", [0.4, 0.0, 1.0, st.BetaSchedule(0.2, 0.9, 5), st.BetaSchedule(-1.0, 3.0, 20)]
)
def test_a_loaded_buffer_goes_on_as_the_one_that_was_saved(beta: Any, tmp_path: Path) -> None:
    buffer = used_buffer(beta=beta)
    buffer.save(tmp_path / "b.h5")
    loaded = Buffer.load(tmp_path / "b.h5")
    assert (loaded.capacity, loaded.dtype, loaded.alpha) == (7, RECORD, 0.7)
    assert (loaded.inserted, loaded.sampled, loaded.beta) == (11, 1, buffer.beta)
    for plane in ("sum", "min", "max"):
        assert loaded.tree.nodes(plane).tobytes() == buffer.tree.nodes(plane).tobytes()
    assert np.array_equal(loaded[np.arange(4, 11)], buffer[np.arange(4, 11)])
    assert go_on(loaded) == go_on(buffer)


@pytest.mark.parametrize("ends", [(2.0, 2.0), (-1.0, -1.0), (0.3, 0.3)])
@pytest.mark.parametrize("samples", [1, 2])
def test_a_schedule_that_stands_still_is_loaded(
    ends: tuple[float, float], samples: int, tmp_path: Path
) -> None:
    buffer = used_buffer(beta=st.BetaSchedule(*ends, samples=samples))
    buffer.save(tmp_path / "b.h5")
    assert Buffer.load(tmp_path / "b.h5").beta == buffer.beta == min(max(ends[0], 0.0), 1.0)


def test_the_largest_mass_of_new_transitions_is_kept(tmp_path: Path) -> None:
    buffer = used_buffer()
    buffer.save(tmp_path / "b.h5")
    loaded = Buffer.load(tmp_path / "b.h5")
    assert loaded.add(rows(0, 1)).tolist() == [loaded.epoch << 40 | 11]
    assert loaded.tree[11 % 7] == buffer.tree.max == loaded.tree.max


@pytest.mark.parametrize("count", [0, 1, 3, 7, 8, 13, 14, 15])
def test_a_ring_at_every_point_is_kept(count: int, tmp_path: Path) -> None:
    buffer = Buffer(7, RECORD, seed=2)
    ids = buffer.add(rows(0, count), np.arange(1.0, count + 1))
    buffer.save(tmp_path / "b.h5")
    loaded = Buffer.load(tmp_path / "b.h5")
    kept = ids[max(count - 7, 0) :]
    assert loaded[kept].tolist() == rows(0, count)[max(count - 7, 0) :].tolist()
    assert loaded.tree[:].tolist() == buffer.tree[:].tolist()
    assert (len(loaded), loaded.inserted) == (len(buffer), count)
    after = loaded.add(rows(50, 3))
    assert (after & (1 << 40) - 1).tolist() == [count, count + 1, count + 2]
    assert loaded[after]["value"].tolist() == [50, 51, 52]
    assert loaded.sample(0).ids.size == 0


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    capacity=some.integers(1, 9),
    batches=some.lists(some.integers(0, 12), max_size=4),
    cleared=some.booleans(),
    after=some.integers(0, 5),
    drawn=some.integers(0, 9),
)
def test_what_is_loaded_is_what_was_saved(
    capacity: int, batches: list[int], cleared: bool, after: int, drawn: int, tmp_path: Path
) -> None:
    buffer = Buffer(capacity, RECORD, seed=4)
    for batch in batches:
        buffer.add(rows(buffer.inserted, batch), 1.0 + np.arange(batch))
    if cleared:
        buffer.clear()
    buffer.add(rows(buffer.inserted, after))
    buffer.sample(drawn if len(buffer) else 0)
    buffer.save(tmp_path / "b.h5")
    loaded = Buffer.load(tmp_path / "b.h5")
    saved, again = contents(buffer), contents(loaded)
    for name in ("epoch", "ids/epochs"):
        del saved[name], again[name]
    assert saved.keys() == again.keys()
    for name, value in saved.items():
        assert np.asarray(value).tobytes() == np.asarray(again[name]).tobytes(), name


def test_seeds_of_every_kind_are_kept(tmp_path: Path) -> None:
    seeds: list[Any] = [None, 0, 2**100, [1, 2**90], np.random.SeedSequence(5, spawn_key=(3, 1))]
    for seed in [*seeds, np.random.SeedSequence(np.arange(3))]:
        buffer = used_buffer(seed=seed)
        buffer.save(tmp_path / "b.h5")
        loaded = Buffer.load(tmp_path / "b.h5")
        expected = buffer.tree.seed.generate_state(4).tolist()
        assert loaded.tree.seed.generate_state(4).tolist() == expected
        assert go_on(loaded) == go_on(buffer)


def test_an_open_intake_is_not_saved(tmp_path: Path) -> None:
    buffer = used_buffer()
    intake = buffer.begin_add(3)
    for segment in intake.segments:
        segment["value"] = -1
    buffer.save(tmp_path / "b.h5")
    loaded = Buffer.load(tmp_path / "b.h5")
    assert len(loaded) == 4
    assert loaded[np.arange(7, 11)]["value"].tolist() == [7, 8, 9, 10]
    with pytest.raises(StaleIdError):
        loaded[6]
    assert loaded.add(rows(0, 1)).tolist() == [loaded.epoch << 40 | 11]


def test_the_file_is_plain_hdf5(tmp_path: Path) -> None:
    used_buffer().save(tmp_path / "b.h5")
    with h5py.File(tmp_path / "b.h5") as file:
        assert file.attrs["alpha"] == 0.7
        assert file.attrs["cursor"] == 11
        assert file["transitions"]["value"].tolist() == list(range(4, 11))
        assert file["tree/masses"].shape == (7,)


# ---- ids ----


def test_ids_that_were_saved_stay_and_new_ones_open_an_epoch(tmp_path: Path) -> None:
    buffer = used_buffer()
    buffer.save(tmp_path / "b.h5")
    first, second = Buffer.load(tmp_path / "b.h5"), Buffer.load(tmp_path / "b.h5")
    assert 0 < first.epoch < second.epoch
    assert first[[4, 10]]["value"].tolist() == [4, 10]
    ids = [b.add(rows(0, 5)).tolist() for b in (buffer, first, second)]
    assert len({name for names in ids for name in names}) == 15
    assert second.update_priorities(ids[0], 1.0) == 5
    assert second.update_priorities(ids[1], 1.0) == 5
    assert second.update_priorities(ids[2], 1.0) == 0


def test_ids_issued_after_the_checkpoint_are_stale_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "b.h5"
    buffer = used_buffer()
    buffer.save(path)
    lost = buffer.add(rows(0, 4)).tolist()
    for _ in range(3):
        buffer = Buffer.load(path)
        lost_now = buffer.add(rows(900, 9)).tolist()
        masses = buffer.tree[:].tolist()
        assert buffer.update_priorities(lost, 1e6) == len(lost)
        assert buffer.tree[:].tolist() == masses
        for name in lost:
            with pytest.raises(StaleIdError, match=str(name)):
                buffer[name]
        lost += lost_now
    buffer.save(path)
    again = Buffer.load(path)
    again.add(rows(0, 30))
    assert again.update_priorities(lost, 1e6) == len(lost)


def test_ids_held_through_many_restores_keep_their_epochs(tmp_path: Path) -> None:
    path = tmp_path / "b.h5"
    buffer, held = Buffer(50, RECORD, seed=0), []
    for turn in range(5):
        held += buffer.add(rows(10 * turn, 4)).tolist()
        buffer.save(path)
        buffer = Buffer.load(path)
    assert buffer.update_priorities(held, 2.0) == 0
    assert set(buffer.sample(400).ids.tolist()) == set(held)
    values = [10 * turn + step for turn in range(5) for step in range(4)]
    assert buffer[held]["value"].tolist() == values
    with pytest.raises(IdError):
        buffer[1 << 40]  # epoch 1 began with number 4


def test_an_epoch_goes_up_only() -> None:
    buffer = used_buffer()
    buffer.open_epoch(3)
    for epoch in (3, 2, 0, -1):
        with pytest.raises(ArgumentError, match="epoch"):
            buffer.open_epoch(epoch)
    assert buffer.add(rows(0, 1)).tolist() == [3 << 40 | 11]


def test_an_epoch_fits_an_id() -> None:
    buffer = used_buffer()
    with pytest.raises(ArgumentError, match="epoch"):
        buffer.open_epoch(2**23)
    buffer.open_epoch(2**23 - 1)
    assert buffer.add(rows(0, 1)).tolist() == [(2**23 - 1) << 40 | 11]


# ---- other files ----


def rewrite(path: Path, **changes: Any) -> Path:
    """Write the checkpoint of a buffer with other attributes and datasets, or without (None)."""
    parts = contents(used_buffer())
    for name, value in changes.items():
        key = name.replace("__", "/")
        assert key in parts
        if value is None:
            del parts[key]
        else:
            parts[key] = value
    checkpoint.write(
        path,
        {k: v for k, v in parts.items() if k not in DATASETS},
        {k: as_dataset(v) for k, v in parts.items() if k in DATASETS},
    )
    return path


def as_dataset(rows: np.ndarray) -> Any:
    """Give what `checkpoint.write` takes for an array that is there, records among them."""
    return checkpoint.Stream(rows.dtype, rows.shape, lambda: iter([rows]))


def test_a_rewritten_checkpoint_is_loaded(tmp_path: Path) -> None:
    assert go_on(Buffer.load(rewrite(tmp_path / "b.h5"))) == go_on(used_buffer())


@pytest.mark.parametrize(
    "change",
    [
        {"capacity": None},
        {"capacity": 0},
        {"capacity": 6},
        {"capacity": float("inf")},
        {"capacity": "many"},
        {"dtype": None},
        {"dtype": "{}"},
        {"dtype": '[["value","|O"]]'},
        {"dtype": '[["value","<i8"],["label","<U4"]]'},
        {"dtype": '[["other","<i8"],["label","<U3"]]'},
        {"alpha": -1.0},
        {"alpha": float("nan")},
        {"alpha": "x"},
        {"beta": np.array([0.1, 0.2, 0.3])},
        {"beta": 0.5},
        {"beta": np.array([np.nan, 0.2])},
        {"beta_samples": 0},
        {"beta_samples": -1},
        {"cursor": None},
        {"cursor": 6},
        {"cursor": -11},
        {"cursor": 2**40 + 1},
        {"size": 8},
        {"size": 6},
        {"size": -1},
        {"sampled": None},
        {"sampled": -1},
        {"epoch": 3},
        {"seed": "5"},
        {"seed": "not JSON"},
        {"seed": "[" * 100_000},
        {"seed": "[-1, []]"},
        {"rng_key": None},
        {"rng_key": np.array([1], np.uint64)},
        {"rng_counter": 4},
        {"rng_counter": np.array([-1, 0, 0, 0])},
        {"rng_buffer_pos": 5},
        {"ids__epochs": None},
        {"ids__epochs": np.zeros((0, 2), np.int64)},
        {"ids__epochs": np.zeros(2, np.int64)},
        {"ids__epochs": np.zeros((1, 3), np.int64)},
        {"ids__epochs": np.array([[0, 12]])},
        {"ids__epochs": np.array([[0, 3]])},
        {"ids__epochs": np.array([[2, 0], [1, 4], [0, 5]])},
        {"ids__epochs": np.array([[-2, 0], [0, 5]])},
        {"tree__masses": None},
        {"tree__masses": np.ones(6)},
        {"tree__masses": np.ones((7, 1))},
        {"tree__masses": np.array(1.0)},
        {"tree__masses": np.array([1, 1, 1, np.nan, 1, 1, 1])},
        {"tree__masses": -np.ones(7)},
        {"tree__masses": np.full(7, 2.0**961)},
        {"tree__masses": np.ones(7, np.float32)},
        {"tree__masses": np.ones(7)},
        {"total": 5.0},
        {"min": None},
        {"max": 1.0},
        {"transitions": None},
        {"transitions": np.zeros(6, STORED)},
        {"transitions": np.zeros(8, STORED)},
        {"transitions": np.zeros((7, 2), STORED)},
        {"transitions": np.zeros(7, np.float64)},
        {"transitions": np.zeros((7, 20), np.uint8)},
        {"transitions": np.zeros(7, [("value", "<i8"), ("label", "u1", 11)])},
    ],
    ids=lambda change: " ".join(f"{key}={value!r:.40}" for key, value in change.items()),
)
def test_a_checkpoint_that_holds_no_buffer_is_refused(
    change: dict[str, Any], tmp_path: Path
) -> None:
    path = rewrite(tmp_path / "b.h5", **change)
    with pytest.raises(CheckpointCorruptError):
        Buffer.load(path)


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    checkpoint.write(tmp_path / "b.h5", {"weights": 3}, {"layer/0": [np.ones(3)]})
    with pytest.raises(CheckpointCorruptError, match="does not hold a buffer"):
        Buffer.load(tmp_path / "b.h5")
    (tmp_path / "b.h5").write_bytes(b"something else")
    with pytest.raises(CheckpointCorruptError, match="not a libsumtree checkpoint"):
        Buffer.load(tmp_path / "b.h5")
    with pytest.raises(CheckpointError, match="does not exist"):
        Buffer.load(tmp_path / "none.h5")


def test_any_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "b.h5"
    used_buffer().save(path)
    data = path.read_bytes()
    for place in range(0, len(data), len(data) // 40):
        changed = bytearray(data)
        changed[place] ^= 0x10
        path.write_bytes(changed)
        with pytest.raises(CheckpointError):
            Buffer.load(path)
    path.write_bytes(data)
    assert len(Buffer.load(path)) == 7


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    used_buffer().save(tmp_path / "b.h5")
    before = (tmp_path / "b.h5").read_bytes()
    with pytest.raises(CheckpointError):
        used_buffer().save(tmp_path)
    with pytest.raises(CheckpointError):
        used_buffer().save(tmp_path / "none" / "b.h5")
    assert (tmp_path / "b.h5").read_bytes() == before


def test_the_last_numbers_of_an_epoch(tmp_path: Path) -> None:
    path = rewrite(tmp_path / "b.h5", cursor=2**40 - 2, ids__epochs=np.array([[0, 0]]))
    buffer = Buffer.load(path)
    before = buffer.tree[:].tolist()
    with pytest.raises(IdsExhaustedError, match="2 of"):
        buffer.add(rows(0, 3))
    assert (buffer.tree[:].tolist(), buffer.inserted, len(buffer)) == (before, 2**40 - 2, 7)
    ids = buffer.add(rows(70, 2))
    assert ids.tolist() == [(buffer.epoch + 1 << 40) - 2, (buffer.epoch + 1 << 40) - 1]
    assert buffer[ids]["value"].tolist() == [70, 71]
    assert set(buffer.sample(99).ids.tolist()) >= set(ids.tolist())
    for add in (lambda: buffer.add(rows(0, 1)), lambda: buffer.begin_add(1)):
        with pytest.raises(IdsExhaustedError):
            add()
    assert buffer.add(rows(0, 0)).tolist() == []
