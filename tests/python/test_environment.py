"""The variables of the environment that the product reads: each stands in the documentation."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from libsumtree.cli.complaints import launched_rank
from libsumtree.devices import LOCAL_RANK_VARIABLES, local_rank
from libsumtree.machine import cores, threads, whole_number

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "command-line.md"
NAME = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+|HOME|PATH")
NO_VARIABLES = {"BEST_EFFORT"}
SET_FOR_CHILDREN = {
    *("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OPENBLAS_NUM_THREADS"),
}


def of_python(path: Path) -> Iterator[str]:
    """Give what may be a name of a variable in a file that reads the environment."""
    text = path.read_text()
    if "os.environ" in text or "os.getenv" in text:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and NAME.fullmatch(str(node.value)):
                yield str(node.value)


def of_shell(path: Path) -> Iterator[str]:
    """Give the names of upper case that a script expands and does not set itself."""
    text = "\n".join(re.sub(r"(^|\s)#.*", "", line) for line in path.read_text().splitlines())
    for name in re.findall(r"\$\{?([A-Z][A-Z0-9_]+)", text):
        if not re.search(rf"^\s*(local |export )?{name}=(?!.*\$\{{{name}\b)", text, re.MULTILINE):
            yield name


def variables() -> set[str]:
    found: set[str] = set()
    for path in (ROOT / "python").rglob("*.py"):
        found.update(of_python(path))
    for folder in (ROOT / "src", ROOT / "python" / "bindings"):
        for path in [*folder.glob("*.[ch]"), *folder.glob("*.cpp")]:
            found.update(re.findall(r'getenv\("(\w+)"\)', path.read_text()))
    for path in [*(ROOT / "jobs").glob("*/*.sh"), ROOT / "jobs/body.sh", ROOT / "jobs/local.sh"]:
        found.update(of_shell(path))
    return found - NO_VARIABLES - SET_FOR_CHILDREN


def test_every_variable_that_is_read_is_documented() -> None:
    section = PAGE.read_text().partition("## Environment variables")[2].partition("\n## ")[0]
    rows = "".join(line.split("|")[1] for line in section.splitlines() if line.startswith("|"))
    documented = set(re.findall(r"`([A-Z][A-Z0-9_]+)`", rows))
    found = variables()
    assert {"LIBSUMTREE_BACKEND", "OMP_NUM_THREADS", "SLURM_LOCALID"} <= found
    assert sorted(found - documented) == []
    assert sorted(documented - found) == []


@pytest.mark.parametrize("text", ["", "²", "١", "-1", "9" * 5000, "0x1", "1 ", "many"])
def test_what_is_no_number_is_passed_over(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert whole_number(text) is None
    for name in (*LOCAL_RANK_VARIABLES, "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.setenv(name, text)
    assert (local_rank(), launched_rank()) == (0, None)
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert threads() == (1 if text == "1 " else cores())
