"""What the real packages answered, and what stands in for them answers.

`compat_steps.py` says how the files in tests/data/compat were made. The packages themselves are
asked again in tests/adapters.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from compat_steps import perform, same

TOP = Path(__file__).resolve().parents[2]
DATA = TOP / "tests" / "data" / "compat"
STANDS_IN = {"stable_baselines": "baselines", "rllib": "baselines", "di_engine": "baselines"}
EXAMPLES = ["baselines", "tianshou", "torchrl", "cpprb"]


@pytest.mark.parametrize("path", sorted(DATA.glob("*.json")), ids=lambda path: path.stem)
def test_same_answers_as_the_real_one(path: Path) -> None:
    head, *recorded = json.loads(path.read_text())
    assert len(recorded) >= 50, f"{path} holds too little: {head}"
    module = importlib.import_module(f"libsumtree.compat.{STANDS_IN.get(path.stem, path.stem)}")
    if importlib.util.find_spec("torch") is None:
        # Those trees are gone through in tests/adapters, where PyTorch is.
        recorded = [(step, theirs) for step, theirs in recorded if "tensors" not in step[0]]
    answers = perform(module, [step for step, _ in recorded])
    for (step, theirs), ours in zip(recorded, answers, strict=True):
        accuracy = 2e-6 if step[1] == "weights" else 0.0  # float32 there
        assert same(ours, theirs, accuracy), f"{step}: {ours} here, {theirs} there"


def run_example(name: str, text: str) -> str:
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_print_what_they_print_there(name: str) -> None:
    text = (TOP / "examples" / "compat" / f"{name}.py").read_text()
    assert re.findall(r"libsumtree\.compat\.\w+", text) == [f"libsumtree.compat.{name}"]
    assert run_example(name, text) == (DATA / f"example-{name}.txt").read_text()
