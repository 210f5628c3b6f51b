"""These tests need TorchRL, Tianshou, cpprb and Stable-Baselines3: `sh tests/run.sh adapters`."""

from __future__ import annotations

import sys
from pathlib import Path

# What the tests of `libsumtree.compat` share.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
