"""These tests need TorchRL, Tianshou and Stable-Baselines3: `sh tests/run.sh adapters`."""

from __future__ import annotations

import sys
from pathlib import Path

# What the other tests of `libsumtree.compat`, and of MPI jobs, share with these.
for folder in ("python", "mpi"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / folder))
