"""The package as a whole: what it needs, what it ships, and the one direction of its imports."""

from __future__ import annotations

import ast
import doctest
import importlib
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

import libsumtree

PACKAGE = Path(str(files("libsumtree")))

# From the bottom up: a module imports only from those before it, or from its own layer.
LAYERS = [
    ["_core", "errors"],
    ["machine", "files"],
    ["tuning"],
    ["arguments", "philox", "backends", "records", "forking"],
    ["frames"],
    ["vectors"],
    ["devices", "device_arrays"],
    ["failures"],
    ["leaves"],
    ["sums", "masses"],
    ["tree", "ids"],
    ["checkpoint"],
    ["reference"],
    ["annealing", "snapshot", "withdrawal"],
    ["ring"],
    ["intake"],
    ["persistence"],
    ["buffer", "inspection", "redistribution", "verification"],
    ["compat"],
    ["__init__"],
    ["metrics"],
    ["adapters"],
    ["replay"],
    ["apex"],
    ["jobs"],
    ["bench"],
    ["cli"],
    ["__main__"],
]
OPTIONAL = ("h5py", "mpi4py", "gymnasium", "matplotlib", "zmq", "rich", "shtab")


def layer(module: str) -> int:
    return next(i for i, names in enumerate(LAYERS) if module in names)


def own_modules(path: Path) -> set[str]:
    """Give the parts of libsumtree that one file imports, wherever in the file."""
    depth = len(path.relative_to(PACKAGE).parts)
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("libsumtree.")}
        elif isinstance(node, ast.ImportFrom):
            parts = (node.module or "").split(".") if node.module else []
            if node.level == 0 and parts[:1] == ["libsumtree"]:
                parts = parts[1:]
            elif node.level != depth:
                continue
            found |= {parts[0]} if parts else {a.name for a in node.names}
    return found


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    known = {name for names in LAYERS for name in names}
    imported = own_modules(path) & known
    above = {name for name in imported if layer(name) > layer(own)}
    assert not above, f"{path.name} imports {above} from above"


def test_every_module_has_a_layer() -> None:
    tops = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in sources()}
    assert tops <= {name for names in LAYERS for name in names}


def test_import_needs_numpy_alone() -> None:
    program = (
        "import sys\n"
        f"for name in {OPTIONAL!r}: sys.modules[name] = None\n"
        "import libsumtree as st\n"
        "buffer = st.PrioritizedReplayBuffer(4, [('reward', 'f8')], seed=0)\n"
        "buffer.add((1.0,))\n"
        "try: buffer.save('unwritten.h5')\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "libsumtree[hdf5]" in done.stdout


def test_version_stands_in_one_place() -> None:
    top = Path(__file__).resolve().parents[2]
    assert libsumtree.__version__ == (top / "VERSION").read_text().strip()


def test_no_start_waits_for_what_looks_versions_up() -> None:
    program = "import sys, libsumtree.replay; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not {"importlib.metadata", "email"} & set(done.stdout.split())


def test_types_are_shipped() -> None:
    assert (PACKAGE / "py.typed").exists()
    assert (PACKAGE / "_core.pyi").exists()


def test_public_names_exist() -> None:
    for name in libsumtree.__all__:
        assert hasattr(libsumtree, name)


@pytest.mark.parametrize("module", ["libsumtree.sums", "libsumtree.buffer", "libsumtree.frames"])
def test_examples_in_docstrings(module: str) -> None:
    outcome = doctest.testmod(importlib.import_module(module), extraglobs={"np": np})
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_nothing_is_said_where_nobody_reads_on() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "libsumtree", "info"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait(60) == 1
