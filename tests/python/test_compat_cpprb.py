"""Where the buffer of `libsumtree.compat.cpprb` differs from cpprb's own: docs/compat.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from libsumtree import errors
from libsumtree.compat.cpprb import MissingFieldError, PrioritizedReplayBuffer

ENV = {"obs": {"shape": 2}, "rew": {}}


def made(size: int = 4, **options: Any) -> PrioritizedReplayBuffer:
    return PrioritizedReplayBuffer(size, ENV, seed=0, **options)


def filled(count: int, size: int = 4, **options: Any) -> PrioritizedReplayBuffer:
    buffer = made(size, **options)
    buffer.add(obs=np.arange(2 * count).reshape(count, 2), rew=np.arange(count))
    return buffer


def masses(buffer: PrioritizedReplayBuffer) -> list[float]:
    return buffer.buffer.tree[:].tolist()


def test_draws_are_proportional_and_weighted() -> None:
    buffer = filled(3, alpha=0.5, eps=0.0)
    buffer.update_priorities([0, 1, 2], [1.0, 4.0, 25.0])
    sample = buffer.sample(8000, beta=1.0)
    np.testing.assert_array_equal(np.bincount(sample["indexes"]), [1000, 2000, 5000])
    np.testing.assert_allclose(sample["weights"], np.array([1, 1 / 2, 1 / 5])[sample["indexes"]])
    np.testing.assert_array_equal(sample["rew"].ravel(), sample["indexes"])


def test_samples_are_the_callers_own() -> None:
    buffer = filled(4)
    first = buffer.sample(16)
    kept = {name: values.copy() for name, values in first.items()}
    buffer.update_priorities([0], [100.0])
    buffer.sample(16)
    for name, values in first.items():
        np.testing.assert_array_equal(values, kept[name])


def test_bad_priorities_change_nothing_and_are_named() -> None:
    buffer = filled(3)
    before = masses(buffer)
    for bad in (-1e-9, np.nan, np.inf):
        with pytest.raises(errors.PriorityError, match=rf"priorities\[1\] is {bad}"):
            buffer.update_priorities([0, 1], [7.0, bad])
        with pytest.raises(errors.PriorityError):
            buffer.add(obs=np.ones((2, 2)), rew=[1, 2], priorities=[7.0, bad])
    with pytest.raises(errors.ShapeError, match="priorities has 1 elements: it must have 2"):
        buffer.update_priorities([0, 1], [7.0])
    assert masses(buffer) == before
    assert buffer.get_stored_size() == 3


@pytest.mark.parametrize("index", [-1, 3, 4, 2**40])
def test_an_index_without_a_transition_is_refused(index: int) -> None:
    buffer = filled(3)
    with pytest.raises(IndexError, match=rf"indexes\[1\] is {index}: 3 transitions are stored"):
        buffer.update_priorities([0, index], [1.0, 1.0])


def test_nothing_is_drawn_from_an_empty_buffer() -> None:
    with pytest.raises(errors.EmptyTreeError):
        made().sample(1)
    with pytest.raises(errors.ExponentError):
        filled(1).sample(1, beta=1.5)


def test_the_largest_priority_is_of_those_held_now() -> None:
    buffer = filled(4)
    buffer.update_priorities([0, 1, 2, 3], [9.0, 0.5, 0.25, 0.25])
    assert buffer.get_max_priority() == 9.0
    buffer.add(obs=[0, 0], rew=0, priorities=0.125)  # in the place of the 9
    assert buffer.get_max_priority() == 0.5
    buffer.add(obs=[0, 0], rew=0)
    np.testing.assert_allclose(masses(buffer)[1], (0.5 + 1e-4) ** 0.6, rtol=1e-15)


def test_without_an_exponent_all_are_alike() -> None:
    buffer = filled(4, alpha=0.0)
    buffer.update_priorities([0], [5.0])
    assert masses(buffer) == [1.0] * 4
    assert buffer.get_max_priority() == 1.0


def test_what_was_overwritten_is_skipped_where_that_was_asked_for() -> None:
    careful, careless = filled(4, check_for_update=True), filled(4)
    for buffer in (careful, careless):
        buffer.sample(4)
        buffer.add(obs=[7, 7], rew=7, priorities=1.0)  # in slot 0
        buffer.update_priorities([0, 1], [8.0, 8.0])
    low, high = (1.0 + 1e-4) ** 0.6, (8.0 + 1e-4) ** 0.6
    np.testing.assert_allclose(masses(careful)[:2], [low, high])
    np.testing.assert_allclose(masses(careless)[:2], [high, high])
    careful.sample(4)
    careful.update_priorities([0], [8.0])
    np.testing.assert_allclose(masses(careful)[0], high)


def test_what_does_not_fit_is_refused_whole() -> None:
    buffer = filled(2)
    with pytest.raises(KeyError) as missing:
        buffer.add(obs=[1, 2])
    assert str(missing.value) == "rew is missing: every value of env_dict is needed"
    assert isinstance(missing.value, MissingFieldError)
    with pytest.raises(errors.ShapeError, match=r"obs has shape \(3,\)"):
        buffer.add(obs=[1, 2, 3], rew=1)
    with pytest.raises(errors.ShapeError, match="obs of 2, rew of 1"):
        buffer.add(obs=np.ones((2, 2)), rew=1)
    with pytest.raises(TypeError):
        buffer.add([1, 2])  # type: ignore[misc]
    assert buffer.get_stored_size() == 2


def test_more_than_fits_keeps_the_newest() -> None:
    buffer = filled(11)
    assert buffer.get_stored_size() == 4
    assert sorted(buffer.get_all_transitions()["rew"].ravel()) == [7, 8, 9, 10]
    assert buffer.get_next_index() == 3
    assert buffer.add(obs=np.empty((0, 2)), rew=[]) == 3
    assert buffer.get_stored_size() == 4


def test_options() -> None:
    env = {"obs": {"shape": (2, 3), "dtype": np.uint8}, "rew": {}}
    buffer = PrioritizedReplayBuffer(
        1e1, env, next_of="obs", stack_compress=["obs"], default_dtype=np.float64
    )
    assert list(env) == ["obs", "rew"]
    buffer.add(obs=np.ones((2, 3)), next_obs=np.full((2, 3), 2), rew=0.1)
    sample = buffer.sample(1)
    assert sample["next_obs"].tolist() == [[[2] * 3] * 2]
    assert sample["rew"].dtype == np.float64
    assert sample["obs"].dtype == np.uint8
    for wrong in ({"Nstep": {"size": 3}}, {"mmap_prefix": "rb"}):
        with pytest.raises(errors.ArgumentError, match="is not offered here"):
            made(**wrong)
    with pytest.raises(errors.ArgumentError, match="next_of names 'act': env_dict has obs, rew"):
        made(next_of="act")
    with pytest.raises(TypeError, match="nonsense"):
        made(nonsense=1)
    with pytest.raises(errors.ArgumentError, match="env_dict names no values"):
        PrioritizedReplayBuffer(4)
    with pytest.raises(errors.CapacityError, match="size is 0"):
        made(0)
    for eps in (-1.0, np.nan):
        with pytest.raises(errors.ArgumentError, match="eps is"):
            made(eps=eps)


def test_a_cleared_buffer_begins_at_index_0_and_draws_on() -> None:
    buffer, other = filled(3), filled(3)
    buffer.sample(5)
    other.sample(5)
    buffer.clear()
    with pytest.raises(IndexError, match="0 transitions are stored"):
        buffer.update_priorities([0], [1.0])
    assert buffer.add(obs=np.ones((3, 2)), rew=[0, 1, 2]) == 0
    np.testing.assert_array_equal(buffer.sample(9)["indexes"], other.sample(9)["indexes"])


def test_files_hold_transitions_and_nothing_pickled(tmp_path: Path) -> None:
    buffer, other = filled(3), filled(1)
    buffer.save_transitions(tmp_path / "saved.npz")
    other.load_transitions(tmp_path / "saved.npz")
    assert other.get_all_transitions()["rew"].ravel().tolist() == [0, 0, 1, 2]
    np.savez(tmp_path / "theirs.npz", version=1, data=np.array({"obs": 1}, dtype=object))
    (tmp_path / "text").write_text("no archive")
    for name in ("theirs.npz", "text"):
        with pytest.raises(errors.ArgumentError, match="was not written by save_transitions"):
            other.load_transitions(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        other.load_transitions(tmp_path / "absent.npz")
    with pytest.raises(MissingFieldError, match="act is missing"):
        PrioritizedReplayBuffer(4, {**ENV, "act": {}}).load_transitions(tmp_path / "saved.npz")
    assert other.get_stored_size() == 4


def test_all_transitions_shuffled() -> None:
    np.random.seed(0)
    shuffled = filled(4).get_all_transitions(shuffle=True)
    assert sorted(shuffled["rew"].ravel()) == [0, 1, 2, 3]
    np.testing.assert_array_equal(shuffled["obs"][:, 0], 2 * shuffled["rew"].ravel())
