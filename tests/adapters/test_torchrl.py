"""The sampler for TorchRL, in TorchRL's own replay buffers."""

from __future__ import annotations

import doctest
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torchrl.data import (
    LazyTensorStorage,
    ListStorage,
    ReplayBuffer,
    TensorDictReplayBuffer,
)
from torchrl.data.replay_buffers import samplers as theirs
from torchrl.data.replay_buffers.scheduler import LinearScheduler
from torchrl.data.replay_buffers.writers import TensorDictMaxValueWriter

from libsumtree import errors
from libsumtree.adapters import torchrl as ours
from libsumtree.adapters.torchrl import PrioritizedSampler


def rows(*numbers: float) -> TensorDict:
    return TensorDict({"reward": torch.tensor(numbers, dtype=torch.float)}, [len(numbers)])


def made(capacity: int = 8, **options: Any) -> PrioritizedSampler:
    settings: dict[str, Any] = {"alpha": 0.5, "beta": 1.0, "eps": 0.0, "seed": 0, **options}
    return PrioritizedSampler(capacity, **settings)


def buffer_of(sampler: Any, **options: Any) -> TensorDictReplayBuffer:
    storage = LazyTensorStorage(sampler.max_size)
    return TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=1000, **options)


def test_draws_follow_priorities() -> None:
    buffer = buffer_of(made())
    index = buffer.extend(rows(0, 1, 2, 3, 4))
    assert buffer.sampler.tree[:5].tolist() == [1.0] * 5
    buffer.update_priority(index, torch.tensor([1.0, 4.0, 9.0, 16.0, 0.0]))
    batch = buffer.sample()
    counts = torch.bincount(batch["index"])
    assert counts.tolist() == [100, 200, 300, 400]
    assert torch.equal(batch["reward"], batch["index"].float())
    torch.testing.assert_close(batch["priority_weight"], 1.0 / (batch["index"] + 1.0))


def test_errors_become_priorities_and_new_ones_get_the_largest_held_now() -> None:
    buffer = buffer_of(made(4), priority_key="td_error")
    buffer.extend(rows(0, 1, 2, 3))
    batch = buffer.sample()
    batch["td_error"] = 25.0 - batch["reward"] ** 2
    buffer.update_tensordict_priority(batch)
    np.testing.assert_allclose(buffer.sampler.tree[:], np.sqrt([25, 24, 21, 16]), rtol=1e-12)
    buffer.extend(rows(9, 9))
    np.testing.assert_allclose(buffer.sampler.tree[:], [5, 5, np.sqrt(21), 4], rtol=1e-6)
    buffer.update_priority(torch.tensor([0, 1]), 1.0)
    buffer.extend(rows(9))
    np.testing.assert_allclose(buffer.sampler.tree[2], np.sqrt(21), rtol=1e-6)


def test_errors_may_come_with_the_data() -> None:
    buffer = buffer_of(made(4), priority_key="td_error")
    buffer.extend(TensorDict({"td_error": torch.tensor([2.25, 16.0])}, [2]))
    assert buffer.sampler.tree[:].tolist() == [1.5, 4.0, 0.0, 0.0]


def test_weights_are_theirs_for_the_same_priorities() -> None:
    priorities = torch.tensor([0.5, 1.0, 3.0, 0.0])
    weights = []
    for sampler in (
        PrioritizedSampler(4, alpha=0.7, beta=0.4, seed=0),
        theirs.PrioritizedSampler(4, alpha=0.7, beta=0.4),
    ):
        buffer = buffer_of(sampler)
        index = buffer.extend(rows(0, 1, 2, 3))
        buffer.update_priority(index, priorities + 0.25)
        batch = buffer.sample()
        pairs = dict(zip(batch["index"].tolist(), batch["priority_weight"].tolist(), strict=True))
        weights.append([pairs[i] for i in range(4)])
        assert batch["priority_weight"].dtype == torch.float32
    np.testing.assert_allclose(weights[0], weights[1], rtol=1e-5)


def test_other_buffers_and_storages() -> None:
    buffer = ReplayBuffer(storage=ListStorage(4), sampler=made(4), batch_size=16, collate_fn=list)
    buffer.extend(["a", "b", "c"])
    buffer.add("d")
    buffer.update_priority(torch.tensor([0, 1, 3]), torch.tensor([0.0, 0.0, 0.0]))
    drawn, info = buffer.sample(return_info=True)
    assert set(drawn) == {"c"}
    assert info["priority_weight"].tolist() == [1.0] * 16
    buffer.update_priority(3, 2.0)
    assert set(buffer.sample(64)) == {"c", "d"}


def test_storages_of_two_dimensions() -> None:
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(12, ndim=2), sampler=made(12), batch_size=600, dim_extend=0
    )
    data = TensorDict({"reward": torch.arange(12.0).reshape(3, 4)}, [3, 4])
    buffer.extend(data)
    assert buffer.sampler.tree[:].tolist() == [1.0] * 12
    where = torch.tensor([[0, 1], [2, 3], [1, 0]])
    buffer.update_priority(where, torch.tensor([4.0, 4.0, 9.0]))
    assert buffer.sampler.tree[:].tolist() == [1, 2, 1, 1, 3, 1, 1, 1, 1, 1, 1, 2]
    batch = buffer.sample()
    index = batch["index"]
    assert index.shape == (600, 2)
    assert torch.equal(batch["reward"], (index[:, 0] * 4 + index[:, 1]).float())
    with pytest.raises(errors.IndexOutOfRangeError, match="2 dimensions"):
        buffer.sampler.update_priority(torch.tensor([1]), 1.0, storage=buffer.storage)


def test_what_a_writer_leaves_out_is_skipped() -> None:
    buffer = buffer_of(made(2), writer=TensorDictMaxValueWriter(rank_key="reward"))
    buffer.extend(rows(1, 2, 0))
    buffer.sampler.update_priority(torch.tensor([-1, 1, -1]), torch.tensor([9.0, 16.0, 25.0]))
    assert buffer.sampler.tree[:].tolist() == [1.0, 4.0]


def test_bad_priorities_change_nothing() -> None:
    buffer = buffer_of(made(4))
    with pytest.raises(errors.EmptyTreeError):
        buffer.sampler.sample(buffer.storage, 1)
    index = buffer.extend(rows(0, 1, 2))
    for bad in (-1.0, torch.nan, torch.inf):
        with pytest.raises(errors.PriorityError, match=rf"priorities\[1\] is {bad}"):
            buffer.update_priority(index, torch.tensor([5.0, bad, 5.0]))
    with pytest.raises(errors.ShapeError, match="3 indices"):
        buffer.update_priority(index, torch.tensor([1.0, 2.0]))
    with pytest.raises(errors.IndexOutOfRangeError, match="is 4"):
        buffer.update_priority(torch.tensor([0, 4]), torch.tensor([5.0, 5.0]))
    assert buffer.sampler.tree[:].tolist() == [1.0, 1.0, 1.0, 0.0]


def test_arguments_are_checked() -> None:
    for wrong in (
        {"max_priority_within_buffer": False},
        {"alpha": -1.0},
        {"eps": -1.0},
        {"device": "meta"},
    ):
        with pytest.raises((errors.ArgumentError, errors.ExponentError, errors.PriorityError)):
            made(**wrong)
    with pytest.raises(errors.BackendError):
        made(device="cuda:0")


@pytest.mark.parametrize("way", ["state_dict", "files", "pickle", "whole buffer"])
def test_states_go_on_with_the_same_draws(way: str, tmp_path: Path) -> None:
    buffer, other = buffer_of(made(4)), buffer_of(made(4, alpha=0.1, seed=7))
    for each in (buffer, other):
        index = each.extend(rows(0, 1, 2, 3))
    buffer.update_priority(index, torch.tensor([1.0, 2.0, 3.0, 4.0]))
    buffer.sample()
    if way == "state_dict":
        torch.save(buffer.sampler.state_dict(), tmp_path / "state")
        other.sampler.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    elif way == "files":
        buffer.sampler.dumps(tmp_path / "sampler")
        other.sampler.loads(tmp_path / "sampler")
    elif way == "pickle":
        other._sampler = pickle.loads(pickle.dumps(buffer.sampler))
    else:
        buffer.dumps(tmp_path / "buffer")
        other.loads(tmp_path / "buffer")
    assert other.sampler.tree[:].tolist() == buffer.sampler.tree[:].tolist()
    assert other.sampler.alpha == 0.5
    assert torch.equal(buffer.sample()["index"], other.sample()["index"])


def test_states_that_do_not_fit_are_refused() -> None:
    sampler = made(4)
    with pytest.raises(errors.ArgumentError, match="capacity 5: this sampler has 4"):
        sampler.load_state_dict(made(5).state_dict())
    with pytest.raises(errors.ArgumentError, match="is not that of"):
        sampler.load_state_dict(theirs.PrioritizedSampler(4, alpha=1.0, beta=1.0).state_dict())


def test_alpha_and_beta_may_be_scheduled() -> None:
    sampler = made(2, alpha=1.0, beta=0.0)
    buffer = buffer_of(sampler)
    buffer.update_priority(buffer.extend(rows(0, 1)), torch.tensor([1.0, 16.0]))
    LinearScheduler(sampler, param_name="beta", final_value=1.0, num_steps=1).step()
    scheduler = LinearScheduler(sampler, param_name="alpha", final_value=0.5, num_steps=2)
    scheduler.step()
    np.testing.assert_allclose(sampler.tree[:], [1.0, 8.0])
    scheduler.step()
    np.testing.assert_allclose(sampler.tree[:], [1.0, 4.0])
    assert sampler.beta == 1.0
    with pytest.raises(errors.ExponentError):
        sampler.alpha = -1.0
    np.testing.assert_allclose(sampler.tree[:], [1.0, 4.0])
    sampler.alpha = 0.0
    assert sampler.default_priority == 1.0
    with pytest.warns(UserWarning, match="alpha was 0"):
        sampler.alpha = 0.5
    assert sampler.tree[:].tolist() == [1.0, 1.0]


def test_an_emptied_buffer_draws_nothing_old() -> None:
    buffer = buffer_of(made(4))
    buffer.extend(rows(0, 1, 2, 3))
    buffer.empty()
    assert buffer.sampler.tree.total == 0.0
    buffer.extend(rows(7))
    assert set(buffer.sample()["reward"].tolist()) == {7.0}


def test_the_example_in_the_docstring() -> None:
    outcome = doctest.testmod(ours)
    assert outcome.attempted > 5
    assert outcome.failed == 0
