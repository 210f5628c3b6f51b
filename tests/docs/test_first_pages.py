"""What a newcomer reads first must run."""

from __future__ import annotations

from pathlib import Path

import pytest

from pages import TOP, run_page

FIRST = ["README.md", "docs/tutorial.md"]


@pytest.mark.parametrize("name", FIRST)
def test_page_runs(name: str, tmp_path: Path) -> None:
    assert run_page(TOP / name, tmp_path) > 0
