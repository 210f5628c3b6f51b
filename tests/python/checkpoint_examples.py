"""A checkpoint file of every kind of array, and what is done to it."""

from __future__ import annotations

import subprocess
import sys
import zlib
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from libsumtree import checkpoint

RECORD = np.dtype([("observation", ">f4", (3,)), ("label", "U3"), ("done", "?")])


def example_attributes() -> dict[str, checkpoint.Attribute]:
    return {
        "alpha": 0.6,
        "cursor": 7,
        "full": True,
        "dtype": '[["a","<f4"]]',
        "empty": "",
        "philox_key": np.array([2**64 - 1, 3], np.uint64),
    }


def example_datasets() -> dict[str, list[np.ndarray]]:
    masses = np.random.default_rng(1).random(50)
    records = np.zeros(9, RECORD)
    records["observation"] = np.arange(27).reshape(9, 3)
    records["label"] = ["a", "bc", "ü"] * 3
    records["done"] = [True, False, True] * 3
    return {
        "tree/masses": [masses[20:], masses[:20]],
        "storage/observation": [records["observation"][4:], records["observation"][:4]],
        "storage/label": [np.frombuffer(records["label"].tobytes(), np.uint8).reshape(9, 12)],
        "storage/done": [records["done"]],
        "learner/step": [np.array(17)],
        "learner/none": [np.zeros((0, 4), np.complex64)],
    }


def whole(arrays: list[np.ndarray]) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, dtype=arrays[0].dtype)


def write_example(path: Path) -> None:
    checkpoint.write(path, example_attributes(), example_datasets())


def rewrite_sealed(path: Path, change: Callable[[Any], None]) -> None:
    """Change a checkpoint with plain h5py and give it a right digest again."""
    with h5py.File(path, "r+") as file:
        change(file)
    body = path.read_bytes()[512:]
    lines = b"libsumtree checkpoint\nformat 1\nlength %016d\nsha256 %s\nparent none\n" % (
        512 + len(body),
        sha256(body).hexdigest().encode(),
    )
    block = lines + b"block %08x\n" % zlib.crc32(lines)
    path.write_bytes(block.ljust(512, b"\0") + body)


def run_script(script: str, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)
