"""How a module of `libsumtree.compat` is held to the real package beside it."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from compat_steps import FAMILIES, Step, perform, same

TOP = Path(__file__).resolve().parents[2]
DATA = TOP / "tests" / "data" / "compat"


def recorded(name: str) -> list[tuple[Step, Any]]:
    """Give the steps that were recorded with a package, and its answers."""
    _, *pairs = json.loads((DATA / f"{name}.json").read_text())
    assert len(pairs) >= 50
    return [(step, answer) for step, answer in pairs]


def check_answers(module: ModuleType, pairs: list[tuple[Step, Any]]) -> None:
    """Hold a module to what another one answered."""
    answers = perform(module, [step for step, _ in pairs])
    for (step, theirs), ours in zip(pairs, answers, strict=True):
        accuracy = 2e-6 if step[1] == "weights" else 0.0  # float32 there
        assert same(ours, theirs, accuracy), f"{step}: {ours}, not {theirs}"


def check_side_by_side(name: str, theirs: ModuleType, seed: int) -> None:
    """Perform new steps with both, and compare."""
    steps = json.loads(json.dumps(list(FAMILIES[name](np.random.default_rng(seed)))))
    answers = perform(theirs, steps)
    ours = importlib.import_module(f"libsumtree.compat.{name}")
    check_answers(ours, list(zip(steps, answers, strict=True)))


def printed_by(program: str) -> str:
    """Run a program, and give what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_example(name: str, theirs: str) -> None:
    """Run an example with the import as it is, and with the real package's."""
    text = (TOP / "examples" / "compat" / f"{name}.py").read_text()
    changed = text.replace(f"from libsumtree.compat.{name} import", f"from {theirs} import")
    assert "libsumtree" not in changed.split('"""')[2]
    assert printed_by(text) == printed_by(changed)
