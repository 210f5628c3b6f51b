"""Every page runs, and every command on a page is one that there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import TOP, blocks_of, commands_of, run_page
from test_first_pages import FIRST

from libsumtree.cli import make_parser

PAGES = sorted(
    str(path.relative_to(TOP)) for path in (*TOP.glob("*.md"), *TOP.glob("docs/**/*.md"))
)


def runs(name: str) -> bool:
    blocks = blocks_of(TOP / name)
    return any(b.language in ("python", "sh", "console") and not b.not_run for b in blocks)


@pytest.mark.parametrize("name", [n for n in PAGES if runs(n) and n not in FIRST])
def test_page_runs(name: str, tmp_path: Path) -> None:
    assert run_page(TOP / name, tmp_path) > 0
