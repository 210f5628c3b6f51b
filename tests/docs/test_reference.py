"""The reference is whole: what the header declares, and what the package gives, is all in it."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import FunctionType, MethodType

import pytest
from sphinx.util.inventory import InventoryFile

import c_header
from libsumtree import errors
from libsumtree.backends import library_path
from pages import TOP
from short_names import has_attribute

HEADER_FILE = TOP / "src/sumtree.h"
HEADER = HEADER_FILE.read_text()
PACKAGE = TOP / "python/libsumtree"
BUILT = TOP / "build/docs/objects.inv"
# Modules that nobody but the package itself imports, and errors that it catches itself.
INTERNAL = {
    *("arguments", "bench", "cli", "device_arrays", "failures", "files", "forking"),
    *("leaves", "masses", "persistence", "philox", "ring", "withdrawal"),
}
CAUGHT_INSIDE = {"AgreedError", "EpisodesStoppedError", "RefusedError", "UsageError"}


def inventory() -> set[str]:
    assert BUILT.exists(), "build the documentation first: sh tests/run.sh docs"
    with BUILT.open("rb") as file:
        loaded = InventoryFile.load(file, "", lambda base, path: path)
    return {name for kind, names in loaded.items() if kind[:2] in ("py", "c:") for name in names}


def page_of(text: str) -> str:
    return c_header.page(*c_header.read_header(text))


def functions_in(page: str) -> list[str]:
    return re.findall(r"^(?:\.\. c:function::|   +).*?\b(sumtree_\w+)\(", page, re.MULTILINE)


def exported() -> set[str]:
    done = subprocess.run(
        ["nm", "-D", "--defined-only", library_path("cpu")],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(re.findall(r" T (sumtree_\w+)", done.stdout))


def test_every_function_that_the_library_exports_is_described() -> None:
    assert len(exported()) > 30
    assert exported() <= inventory()
    assert set(functions_in(page_of(HEADER))) >= exported()


def test_no_function_is_described_twice() -> None:
    signatures = [line for line in page_of(HEADER).split("\n") if "c:function::" in line]
    assert len(signatures) == len(set(signatures)) > 20


def test_every_sentence_of_the_header_is_on_the_page() -> None:
    page = re.sub(r":c:expr:`(\w+)`\\ ", r"\1", page_of(HEADER)).replace("\\", "").replace("`", "")
    words_of_page = set(page.split())
    comments = re.findall(r"/\*(.*?)\*/", HEADER, re.DOTALL)
    words = {
        word
        for comment in comments
        for line in comment.split("\n")
        for word in re.sub(r"^ ?\* ?", "", line).replace("`", "").split()
        if "---" not in word
    }
    beside_code = {"hexadecimal:", "C99,", "C++17"}
    assert len(words) > 400
    assert words - beside_code <= words_of_page


def test_the_table_of_errors_is_that_of_python() -> None:
    rows = re.findall(r":c:enumerator:`SUMTREE_(\w+)`", page_of(HEADER))
    assert rows == ["OK", *errors.STATUS_ERRORS]


@pytest.mark.parametrize(
    "unknown",
    [
        "typedef union { int a; } sumtree_u;\n",
        "static inline int f(void) { return 1; }\n",
        "\n/* A comment about nothing. */\n\nint sumtree_f(void);\n",
    ],
)
def test_what_the_extractor_does_not_know_is_an_error(unknown: str) -> None:
    with pytest.raises(c_header.HeaderError):
        page_of(f"/* A header. */\n{unknown}")


def test_a_group_of_declarations_shares_a_comment() -> None:
    text = (
        "/* H. */\n\n/* Both. */\n"
        "int sumtree_a(void);\nint sumtree_b(int x,\n              int y);\n"
    )
    _, entries = c_header.read_header(text)
    assert [entry.comment for entry in entries] == ["Both."]
    assert entries[0].declarations == [
        "int sumtree_a(void);",
        "int sumtree_b(int x,\n              int y);",
    ]


def exported_by(source: Path) -> list[str]:
    """Give what ``__all__`` of a module lists, without importing it, for adapters need much."""
    for node in ast.parse(source.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def module_of(source: Path) -> str:
    parts = source.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


OFFERED = sorted(
    {source for source in PACKAGE.rglob("__init__.py") if exported_by(source)}
    | {source for kind in ("adapters", "compat") for source in (PACKAGE / kind).glob("*.py")}
)


@pytest.mark.parametrize("source", OFFERED, ids=module_of)
def test_every_name_that_a_package_offers_is_described(source: Path) -> None:
    described = {name.rsplit(".", 1)[-1] for name in inventory()}
    modules = {path.stem for path in source.parent.glob("*") if path.suffix in ("", ".py")}
    names = set(exported_by(source)) - (modules if source.name == "__init__.py" else set())
    assert names <= described, names - described


def members_of(owner: type) -> set[str]:
    """Give the methods and properties of a class that this package writes and documents."""
    found = set()
    for name, value in inspect.getmembers(owner):
        code = value.fget if isinstance(value, property) else value
        ours = (getattr(code, "__module__", None) or "").startswith("libsumtree")
        is_code = isinstance(code, FunctionType | MethodType)
        if not name.startswith("_") and ours and is_code and code.__doc__:
            found.add(name)
    return found


def test_every_method_of_a_described_class_is_described() -> None:
    described = inventory()
    for name in ("apex", "checkpoint", "inspection", "jobs.check", "metrics", "replay", "tuning"):
        importlib.import_module(f"libsumtree.{name}")
    names_of: dict[type, set[str]] = {}
    for full in described:
        module, _, name = full.rpartition(".")
        if module in sys.modules and isinstance(getattr(sys.modules[module], name, None), type):
            names_of.setdefault(getattr(sys.modules[module], name), set()).add(full)
    assert len(names_of) > 60
    missing = [
        f"{min(names)}.{member}"
        for owner, names in names_of.items()
        for member in members_of(owner)
        if not any(f"{name}.{member}" in described for name in names)
    ]
    assert missing == []


def test_every_module_is_described_or_named_as_internal() -> None:
    described = {".".join(name.split(".")[:2]) for name in inventory()}
    there = (path for path in PACKAGE.glob("[!_]*") if path.suffix in ("", ".py"))
    parts = {f"libsumtree.{path.stem}" for path in there}
    internal = {f"libsumtree.{name}" for name in INTERNAL}
    assert parts - described == internal


def test_every_error_is_described() -> None:
    defined = re.compile(r"^class (\w+Error)\(", re.MULTILINE)
    classes = {name for path in PACKAGE.rglob("*.py") for name in defined.findall(path.read_text())}
    described = {name.rsplit(".", 1)[-1] for name in inventory()}
    assert classes - described == CAUGHT_INSIDE


def test_pages_that_docstrings_name_exist() -> None:
    for path in (*PACKAGE.rglob("*.py"), HEADER_FILE):
        for page in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text()):
            assert (TOP / page).exists(), f"{path}: {page}"


def test_links_to_attributes_need_the_attribute() -> None:
    assert has_attribute("libsumtree.replay.ReplayConfig", "grace")
    assert has_attribute("libsumtree.replay.LearnerClient", "checkpoint_due")
    assert not has_attribute("libsumtree.replay.ReplayConfig", "graze")


def texts_of(picture: Path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", picture.read_text())


def test_figures_are_those_of_the_script(tmp_path: Path) -> None:
    subprocess.run([sys.executable, TOP / "docs/figures/draw.py", tmp_path], check=True)
    kept = {path.name for path in (TOP / "docs/figures").glob("*.svg")}
    drawn = {path.name for path in tmp_path.glob("*.svg")}
    assert drawn == kept - {"blind_cliffwalk.svg", "live.svg"}  # of an example, and of a run
    for name in drawn:
        assert texts_of(tmp_path / name) == texts_of(TOP / "docs/figures" / name)
        assert len(texts_of(tmp_path / name)) >= 5
