"""What a learner step takes through Python: update 512, then draw 512 of 2^21 leaves.

    python tests/device/time_python.py

Medians of microseconds a step, with new indices and masses in every step: from NumPy arrays, and
from arrays of each library that is there, whose results are new arrays of it, or written in place.
"""

from __future__ import annotations

import importlib
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import numpy as np

import libsumtree as st
from libsumtree.backends import open_backend

LEAVES, COUNT, STEPS, WARM = 2**21, 512, 500, 50

Batches = Sequence[tuple[Any, Any]]


def median(call: Callable[[Any, Any], object], batches: Batches) -> float:
    spent = []
    for indices, masses in batches:
        began = time.perf_counter()
        call(indices, masses)
        spent.append(time.perf_counter() - began)
    return statistics.median(spent[WARM:]) * 1e6


def report(name: str, tree: st.PriorityTree, batches: Batches, draw: Callable[[], Any]) -> None:
    def step(indices: Any, masses: Any) -> None:
        tree.update(indices, masses)
        draw()

    parts = {
        "step": step,
        "update": tree.update,
        "draw": lambda _indices, _masses: draw(),
    }
    times = [f"{part} {median(call, batches):6.1f}" for part, call in parts.items()]
    print(f"{name:<28} {'   '.join(times)}")


def from_library(name: str, tree: st.PriorityTree, batches: Batches) -> None:
    try:
        module = importlib.import_module(name)
    except ImportError:
        print(f"{name:<28} not here")
        return
    if name == "jax":
        module.config.update("jax_enable_x64", True)
        xp = importlib.import_module("jax.numpy")
        put = xp.asarray
    elif name == "torch":
        xp, put = module, lambda array: module.from_numpy(array).cuda()
    else:
        xp, put = module, module.asarray
    there = [(put(indices), put(masses)) for indices, masses in batches]
    report(f"{name}, results of it", tree, there, lambda: tree.sample(COUNT, 0.4, xp=xp))
    if name != "jax":
        out = st.TreeSample(*(put(np.zeros(COUNT, dtype)) for dtype in ("i8", "f8", "f8")))
        report(f"{name}, results in place", tree, there, lambda: tree.sample(COUNT, 0.4, out=out))


def main() -> None:
    print(f"{open_backend('gpu').device_name(0)}, microseconds, {COUNT} of {LEAVES} leaves")
    tree = st.PriorityTree(LEAVES, seed=0, backend="gpu", device=0)
    rng = np.random.default_rng(0)
    tree[:] = 1.0 - rng.random(LEAVES)
    batches = [(rng.integers(0, LEAVES, COUNT), rng.random(COUNT)) for _ in range(WARM + STEPS)]
    report("NumPy", tree, batches, lambda: tree.sample(COUNT, 0.4))
    for name in ("torch", "cupy", "jax"):
        from_library(name, tree, batches)


if __name__ == "__main__":
    main()
