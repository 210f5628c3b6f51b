"""The real Tianshou and TorchRL, beside what stands in for them."""

from __future__ import annotations

import importlib

import pytest
import torch
from compat_theirs import check_answers, check_example, check_side_by_side, recorded
from torchrl.data.replay_buffers import samplers
from torchrl.data.replay_buffers.storages import ListStorage

from libsumtree import errors
from libsumtree.compat import torchrl as ours

THEIRS = {"tianshou": "tianshou.data", "torchrl": "torchrl._torchrl"}


@pytest.mark.parametrize("name", THEIRS)
def test_the_recorded_answers_are_still_theirs(name: str) -> None:
    check_answers(importlib.import_module(THEIRS[name]), recorded(name))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", THEIRS)
def test_same_answers_side_by_side(name: str, seed: int) -> None:
    check_side_by_side(name, importlib.import_module(THEIRS[name]), seed)


@pytest.mark.parametrize("name", THEIRS)
def test_examples_print_the_same_when_only_the_import_is_changed(name: str) -> None:
    check_example(name, THEIRS[name])


def test_a_tensor_on_another_device_is_refused() -> None:
    tree = ours.SumSegmentTreeFp32(3)
    elsewhere = torch.empty(2, dtype=torch.int64, device="meta")
    with pytest.raises(errors.DeviceArrayError, match="index is a tensor on meta"):
        tree[elsewhere]
    with pytest.raises(errors.DeviceArrayError, match="value is a tensor on meta"):
        tree.scan_lower_bound(elsewhere)


def test_tensors_that_need_gradients_are_taken() -> None:
    tree = ours.SumSegmentTreeFp64(3)
    tree[torch.tensor([0, 2])] = torch.tensor([1.0, 2.0], requires_grad=True)
    assert tree[torch.tensor([2])].tolist() == [2.0]
    assert tree[torch.tensor([[1]], dtype=torch.int32)].shape == (1, 1)


def test_the_real_sampler_works_with_our_trees() -> None:
    """TorchRL's own sampler on the trees of `libsumtree.compat.torchrl`."""
    sampler = samplers.PrioritizedSampler(8, alpha=0.7, beta=0.5)
    sampler._sum_tree, sampler._min_tree = ours.SumSegmentTreeFp32(8), ours.MinSegmentTreeFp32(8)
    storage = ListStorage(8)
    storage.set(range(8), list(range(8)))
    sampler.update_priority(torch.arange(8), torch.arange(8.0) + 1)
    index, info = sampler.sample(storage, 64)
    lightest = (1.0 / (index + 1.0)) ** (0.7 * 0.5)
    torch.testing.assert_close(info["priority_weight"].float(), lightest)
