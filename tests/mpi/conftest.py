"""What the tests of real MPI jobs share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from launch import Jobs


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    started = Jobs(tmp_path)
    yield started
    started.sweep()
