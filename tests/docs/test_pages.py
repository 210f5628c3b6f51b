"""Every page runs, every command on a page is one that there is, and every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from libsumtree.cli import make_parser
from libsumtree.cli.complaints import UsageError
from libsumtree.cli.statuses import TABLE
from pages import TOP, Block, blocks_of, commands_of, run_page
from test_first_pages import FIRST

PAGES = sorted(
    str(path.relative_to(TOP)) for path in (*TOP.glob("*.md"), *TOP.glob("docs/**/*.md"))
)
LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)")


def runs(name: str) -> bool:
    blocks = blocks_of(TOP / name)
    return any(b.language in ("python", "sh", "console") and not b.not_run for b in blocks)


@pytest.mark.parametrize("name", [name for name in PAGES if runs(name) and name not in FIRST])
def test_page_runs(name: str, tmp_path: Path) -> None:
    assert run_page(TOP / name, tmp_path) > 0


@pytest.mark.parametrize("name", PAGES)
def test_commands_exist(name: str) -> None:
    for block in blocks_of(TOP / name):
        for words in commands_of(block):
            check_command(words, block)


def check_command(words: list[str], block: Block) -> None:
    try:
        make_parser().parse_args(words)
    except UsageError as error:
        pytest.fail(f"{block.place}: libsumtree {' '.join(words)}: {error}")
    except SystemExit:  # --help and --version
        return


@pytest.mark.parametrize("name", PAGES)
def test_parts_of_the_tests_exist(name: str) -> None:
    script = (TOP / "tests/run.sh").read_text()
    named = re.compile(r"(?:^|`)sh tests/run\.sh ([a-z][a-z0-9]*)(?=`| | *$)", re.MULTILINE)
    for part in named.findall((TOP / name).read_text()):
        assert f"{part}_part()" in script, f"{name}: tests/run.sh has no part {part}"


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    text = re.sub(r"^```.*?^```", "", (TOP / name).read_text(), flags=re.DOTALL | re.MULTILINE)
    for link in LINK.findall(text):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = (TOP / name).parent / path if path else TOP / name
        assert target.exists(), f"{name}: {link}"
        if anchor:
            assert anchor in anchors_of(target), f"{name}: {link}"


def anchors_of(page: Path) -> set[str]:
    """Give the names of a page's headings, as GitHub and MyST make them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", title.replace("`", "").lower()) for title in titles)
    return {title.replace(" ", "-") for title in plain}


def test_exit_statuses_are_those_of_the_commands() -> None:
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", (TOP / "docs/command-line.md").read_text(), re.M)
    assert {int(status): meaning for status, meaning in rows} == TABLE


def test_every_program_that_pages_name_exists() -> None:
    named = re.compile(r"\b(?:examples|tests|src|docs|jobs|python)/[\w/\-]+\.(?:py|sh|c|h|md)\b")
    for name in PAGES:
        for path in named.findall((TOP / name).read_text()):
            assert (TOP / path).exists(), f"{name}: {path}"


def test_every_file_that_the_architecture_names_exists() -> None:
    quoted = re.findall(r"`([^`\n]+)`", (TOP / "docs/architecture.md").read_text())
    tops = {path.name for path in TOP.iterdir() if path.is_dir()}
    paths = {text for text in quoted if text.split("/")[0] in tops and "<" not in text}
    assert len(paths) > 40
    assert [path for path in sorted(paths) if not (TOP / path).exists()] == []
