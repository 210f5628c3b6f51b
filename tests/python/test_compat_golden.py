"""What the real packages answered, and what stands in for them answers.

`compat_steps.py` says how the files in tests/data/compat were made. cpprb is small, and is asked
again here; Tianshou and TorchRL are in tests/adapters.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from compat_theirs import (
    DATA,
    TOP,
    check_answers,
    check_example,
    check_side_by_side,
    printed_by,
    recorded,
)

from libsumtree.compat.cpprb import PrioritizedReplayBuffer

STANDS_IN = {"stable_baselines": "baselines", "rllib": "baselines", "di_engine": "baselines"}
EXAMPLES = ["baselines", "tianshou", "torchrl", "cpprb"]


@pytest.mark.parametrize("name", sorted(path.stem for path in DATA.glob("*.json")))
def test_same_answers_as_the_real_one(name: str) -> None:
    pairs = recorded(name)
    if importlib.util.find_spec("torch") is None:
        # Those trees are gone through in tests/adapters, where PyTorch is.
        pairs = [(step, theirs) for step, theirs in pairs if "tensors" not in step[0]]
    check_answers(importlib.import_module(f"libsumtree.compat.{STANDS_IN.get(name, name)}"), pairs)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_print_what_they_print_there(name: str) -> None:
    text = (TOP / "examples" / "compat" / f"{name}.py").read_text()
    assert re.findall(r"libsumtree\.compat\.\w+", text) == [f"libsumtree.compat.{name}"]
    assert printed_by(text) == Path(DATA / f"example-{name}.txt").read_text()


@pytest.fixture
def cpprb() -> ModuleType:
    return pytest.importorskip("cpprb", reason="cpprb 11 is not for Python 3.13 and newer")


def test_cpprb_itself(cpprb: ModuleType) -> None:
    check_answers(cpprb, recorded("cpprb"))
    for seed in range(1, 11):
        check_side_by_side("cpprb", cpprb, seed)
    check_example("cpprb", "cpprb")


def test_frequencies_are_those_of_cpprb(cpprb: ModuleType) -> None:
    counts = []
    for make in (PrioritizedReplayBuffer, cpprb.PrioritizedReplayBuffer):
        buffer = make(8, {"a": {}}, alpha=0.6, eps=0.0)
        buffer.add(a=np.arange(8), priorities=np.arange(1, 9) ** (1 / 0.6))
        counts.append(np.bincount(buffer.sample(36_000)["indexes"].astype(int)))
    # Stratified draws: each count is within two of its expectation; float32 adds some there.
    np.testing.assert_allclose(counts[0], 1000 * np.arange(1, 9), atol=2)
    np.testing.assert_allclose(counts[1], counts[0], atol=20)
