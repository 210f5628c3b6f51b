"""The real Tianshou, TorchRL and cpprb, beside what stands in for them."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from compat_steps import FAMILIES, perform, same

from libsumtree import errors

TOP = Path(__file__).resolve().parents[2]
DATA = TOP / "tests" / "data" / "compat"
THEIRS = {"tianshou": "tianshou.data", "torchrl": "torchrl._torchrl", "cpprb": "cpprb"}


def both(name: str) -> tuple[Any, Any]:
    theirs = importlib.import_module(THEIRS[name])
    return importlib.import_module(f"libsumtree.compat.{name}"), theirs


@pytest.mark.parametrize("name", THEIRS)
def test_the_recorded_answers_are_still_theirs(name: str) -> None:
    _, *recorded = json.loads((DATA / f"{name}.json").read_text())
    answers = perform(both(name)[1], [step for step, _ in recorded])
    for (step, theirs), now in zip(recorded, answers, strict=True):
        assert same(now, theirs), f"{step}: {now} now, {theirs} recorded"


@pytest.mark.parametrize("seed", range(1, 11))
@pytest.mark.parametrize("name", THEIRS)
def test_same_answers_side_by_side(name: str, seed: int) -> None:
    steps = json.loads(json.dumps(list(FAMILIES[name](np.random.default_rng(seed)))))
    ours, theirs = (perform(module, steps) for module in both(name))
    for step, here, there in zip(steps, ours, theirs, strict=True):
        accuracy = 2e-6 if step[1] == "weights" else 0.0  # float32 there
        assert same(here, there, accuracy), f"{step}: {here} here, {there} there"


@pytest.mark.parametrize("name", THEIRS)
def test_examples_print_the_same_when_only_the_import_is_changed(name: str) -> None:
    text = (TOP / "examples" / "compat" / f"{name}.py").read_text()
    changed = text.replace(f"from libsumtree.compat.{name} import", f"from {THEIRS[name]} import")
    assert "libsumtree" not in changed.split('"""')[2]
    printed = []
    for program in (text, changed):
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert printed[0] == printed[1]


def test_frequencies_are_those_of_cpprb() -> None:
    counts = []
    for module in both("cpprb"):
        buffer = module.PrioritizedReplayBuffer(8, {"a": {}}, alpha=0.6, eps=0.0)
        buffer.add(a=np.arange(8), priorities=np.arange(1, 9) ** (1 / 0.6))
        counts.append(np.bincount(buffer.sample(36_000)["indexes"].astype(int)))
    # Stratified draws: each count is within two of its expectation; float32 adds some there.
    np.testing.assert_allclose(counts[0], 1000 * np.arange(1, 9), atol=2)
    np.testing.assert_allclose(counts[1], counts[0], atol=4)


def test_a_tensor_on_another_device_is_refused() -> None:
    tree = both("torchrl")[0].SumSegmentTreeFp32(3)
    elsewhere = torch.empty(2, dtype=torch.int64, device="meta")
    with pytest.raises(errors.DeviceArrayError, match="index is a tensor on meta"):
        tree[elsewhere]
    with pytest.raises(errors.DeviceArrayError, match="value is a tensor on meta"):
        tree.scan_lower_bound(elsewhere)


def test_tensors_that_need_gradients_are_taken() -> None:
    tree = both("torchrl")[0].SumSegmentTreeFp64(3)
    tree[torch.tensor([0, 2])] = torch.tensor([1.0, 2.0], requires_grad=True)
    assert tree[torch.tensor([2])].tolist() == [2.0]
    assert tree[torch.tensor([[1]], dtype=torch.int32)].shape == (1, 1)


def test_states_of_the_real_sampler_work_with_our_trees() -> None:
    """TorchRL's own sampler on the trees of `libsumtree.compat.torchrl`."""
    from torchrl.data.replay_buffers import samplers
    from torchrl.data.replay_buffers.storages import ListStorage

    ours = both("torchrl")[0]
    sampler = samplers.PrioritizedSampler(8, alpha=0.7, beta=0.5)
    sampler._sum_tree, sampler._min_tree = ours.SumSegmentTreeFp32(8), ours.MinSegmentTreeFp32(8)
    storage = ListStorage(8)
    storage.set(range(8), list(range(8)))
    sampler.update_priority(torch.arange(8), torch.arange(8.0) + 1)
    index, info = sampler.sample(storage, 64)
    lightest = (1.0 / (index + 1.0)) ** (0.7 * 0.5)
    torch.testing.assert_close(info["priority_weight"].float(), lightest)
