"""One table of errors: every status of the C library is one exception class, and each is raised."""

from __future__ import annotations

import inspect
import math
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import libsumtree as st
from libsumtree import _core, errors
from libsumtree.backends import BACKENDS, open_backend, resolve
from libsumtree.tree import masses_of

TOP = Path(__file__).resolve().parents[2]
PACKAGE = Path(st.__file__).parent

BUILT_IN: dict[str, type[Exception]] = {
    "ARGUMENT": ValueError,
    "CAPACITY": ValueError,
    "MEMORY": MemoryError,
    "INDEX": IndexError,
    "RANGE": IndexError,
    "MASS": ValueError,
    "VALUE": ValueError,
    "PRIORITY": ValueError,
    "TARGET": ValueError,
    "EXPONENT": ValueError,
    "EMPTY": ValueError,
    "KIND": TypeError,
    "CORRUPT": RuntimeError,
    "DEVICE": RuntimeError,
}


def all_errors() -> list[type[Exception]]:
    return [
        member
        for _, member in inspect.getmembers(errors, inspect.isclass)
        if issubclass(member, Exception)
    ]


# ---- the table -------------------------------------------------------------------------


def test_classes_and_statuses_are_one_for_one(backend: str) -> None:
    table = open_backend(backend).status_table()
    assert [code for code, _, _ in table] == list(range(len(table)))
    assert table[0][1:] == ("OK", "success")
    names = [name for _, name, _ in table[1:]]
    assert names == list(errors.STATUS_ERRORS)
    assert len(set(errors.STATUS_ERRORS.values())) == len(names)
    texts = [text for _, _, text in table]
    assert len(set(texts)) == len(texts)
    assert all(texts)


@pytest.mark.parametrize("name", errors.STATUS_ERRORS)
def test_each_is_the_built_in_that_fits(name: str) -> None:
    error = errors.STATUS_ERRORS[name]
    assert issubclass(error, st.SumTreeError)
    assert issubclass(error, BUILT_IN[name])


@pytest.mark.parametrize("error", all_errors())
def test_every_error_has_one_base_and_a_sentence(error: type[Exception]) -> None:
    assert issubclass(error, errors.SumTreeError)
    assert error.__doc__
    assert pickle.loads(pickle.dumps(error("text"))).args == ("text",)
    others = {base for base in error.__mro__ if base.__module__ == "builtins"}
    assert error is errors.SumTreeError or len(others - {Exception, BaseException, object}) > 0


# ---- each status through Python --------------------------------------------------------


def tree_of(kind: Any, *masses: float) -> Any:
    tree = kind(len(masses))
    tree[:] = masses
    return tree


RAISERS: dict[str, Callable[[], Any]] = {
    "ARGUMENT": lambda: st.PriorityTree(3).sample(-1),
    "CAPACITY": lambda: st.SumTree(0),
    "MEMORY": lambda: st.SumTree(st.MAX_CAPACITY),
    "INDEX": lambda: st.SumTree(3)[3],
    "RANGE": lambda: st.SumTree(3).sum(0, 4),
    "MASS": lambda: st.SumTree(3).update(0, -1.0),
    "VALUE": lambda: st.MinTree(3).update(0, math.nan),
    "PRIORITY": lambda: masses_of(np.array([1.0, -1.0]), 0.5),
    "TARGET": lambda: tree_of(st.SumTree, 1.0, 2.0).find(3.5),
    "EXPONENT": lambda: tree_of(st.PriorityTree, 1.0).sample(1, beta=2.0),
    "EMPTY": lambda: st.SumTree(3).find(0.0),
    "KIND": lambda: st.MinTree(3).nodes("sum"),
    "DEVICE": lambda: st.SumTree(3, backend="cpu", device=0),
}


@pytest.mark.parametrize("name", errors.STATUS_ERRORS)
def test_every_status_is_raised(name: str) -> None:
    if name == "CORRUPT":
        assert "CorruptTreeError" in corrupted_in_another_process()
        return
    with pytest.raises(errors.STATUS_ERRORS[name]) as caught:
        RAISERS[name]()
    assert type(caught.value) is errors.STATUS_ERRORS[name]
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


CORRUPTER = """
import numpy as np
import libsumtree as st
from libsumtree.errors import CorruptTreeError

tree = st.SumTree(2)
tree[0], tree[1] = 0.12345678901234567, 0.7654321098765432
nodes = np.array([tree.total, tree[0], tree[1]])
pattern = nodes.tobytes()
nodes += 1.0                       # so that the pattern stands in the tree's memory alone
tree.validate()
with open("/proc/self/maps") as maps, open("/proc/self/mem", "r+b", buffering=0) as memory:
    for line in maps:
        span, access, *_, last = line.split()
        if not access.startswith("rw") or last.startswith("[v"):
            continue
        start, stop = (int(end, 16) for end in span.split("-"))
        memory.seek(start)
        held = memory.read(stop - start)
        at = held.find(pattern)
        while at >= 0:
            if (start + at) % 8 == 0:
                memory.seek(start + at + 16)
                memory.write(np.float64(0.5).tobytes())
            at = held.find(pattern, at + 1)
        del held
try:
    tree.validate()
except CorruptTreeError as error:
    print(type(error).__name__, error)
"""


def corrupted_in_another_process() -> str:
    """Overwrite a leaf of a live tree from outside, and give what `validate` says."""
    done = subprocess.run(
        [sys.executable, "-c", CORRUPTER], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_corrupt_node_is_named() -> None:
    said = corrupted_in_another_process()
    assert said.startswith("CorruptTreeError node 1 of plane 'sum' is not")


def test_priorities() -> None:
    priorities = np.array([[0.0, -0.0, 4.0], [1.0, 5e-324, 2.0**960]])
    assert masses_of(priorities, 0.5)[0].tobytes() == np.array([0.0, 0.0, 2.0]).tobytes()
    assert masses_of(priorities, 0.0).tolist() == [[0.0, 0.0, 1.0], [1.0, 1.0, 1.0]]
    assert masses_of(priorities, 1.0).tobytes() == (priorities + 0.0).tobytes()
    for bad in (-5e-324, -1.0, math.nan, math.inf, 1.1 * 2.0**960):
        with pytest.raises(errors.PriorityError, match=r"priorities\[1, 0\] is .*alpha is 1\.0"):
            masses_of(np.array([[1.0], [bad]]), 1.0)
    with pytest.raises(errors.PriorityError, match=r"priorities\[0\] is 1e\+200.*alpha is 2\.0"):
        masses_of(np.array([1e200]), 2.0)
    for alpha in (-5e-324, math.nan, math.inf):
        with pytest.raises(errors.ExponentError, match=f"alpha is {alpha}"):
            masses_of(priorities, alpha)


# ---- what the binding lets through -----------------------------------------------------


def first_device(backend: str) -> int:
    return 0 if backend == "gpu" else -1


def test_the_binding_checks_the_state_of_the_rng(backend: str) -> None:
    core = _core.Tree(open_backend(backend), 4, 2, first_device(backend))
    for state in (
        ([1], [0] * 4, 4),
        ([1, 2], [0] * 3, 4),
        ([1, 2], [0] * 4, 5),
        ([1, 2], [0] * 4, -1),
    ):
        with pytest.raises(_core.Failure) as caught:
            core._rng = state
        assert caught.value.args[0] == "ARGUMENT"


@pytest.mark.parametrize("kind", [-1, 3])
def test_the_binding_refuses_an_unknown_kind(backend: str, kind: int) -> None:
    with pytest.raises(_core.Failure) as caught:
        _core.Tree(open_backend(backend), 4, kind, first_device(backend))
    assert caught.value.args[0] == "ARGUMENT"


# ---- backends --------------------------------------------------------------------------


def test_the_backend_that_runs_is_the_one_asked_for(backend: str) -> None:
    assert open_backend(backend).name == backend
    assert st.SumTree(3, backend=backend).backend == backend
    assert st.SumTree(3, backend="auto").backend == backend


@pytest.mark.parametrize("name", ["", "GPU", "cuda", "../cpu", None, 3, ["cpu"]])
def test_unknown_backends(name: Any) -> None:
    with pytest.raises(errors.BackendError, match=r"backend is .*: it must be one of 'cpu', "):
        st.SumTree(3, backend=name)


def test_what_auto_means(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))  # nothing was measured: test_tuning.py
    for value, expected in [("cpu", "cpu"), ("auto", "cpu"), ("", "cpu"), ("gpu", "gpu")]:
        monkeypatch.setenv("LIBSUMTREE_BACKEND", value)
        assert resolve("auto", 8) == expected
        assert resolve("multicore", 8) == "multicore"
    monkeypatch.delenv("LIBSUMTREE_BACKEND")
    assert resolve("auto", 8) == "cpu"
    monkeypatch.setenv("LIBSUMTREE_BACKEND", "fast")
    with pytest.raises(errors.BackendError, match="LIBSUMTREE_BACKEND is 'fast': it must be one"):
        st.SumTree(3)


def test_a_backend_that_is_not_installed_is_never_replaced() -> None:
    installed = {path.stem.removeprefix("libsumtree_") for path in PACKAGE.glob("lib/*.so")}
    assert "cpu" in installed
    for name in set(BACKENDS) - installed:
        with pytest.raises(errors.BackendError, match=f"'{name}' is not part .*it has: .*cpu"):
            st.SumTree(3, backend=name)


def run_with_library(folder: Path, library: Path | None) -> str:
    """Make a tree with a copy of the package whose cpu library was replaced; give the error."""
    shutil.copytree(PACKAGE, folder / "libsumtree")
    place = folder / "libsumtree" / "lib" / "libsumtree_cpu.so"
    if library is None:
        place.write_text("no library at all")
    else:
        shutil.copy(library, place)
    program = (
        "import libsumtree as st\n"
        "try: st.SumTree(3, backend='cpu')\n"
        "except st.errors.BackendError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


DEVICE_SOURCE = re.compile(r"device|driver")


def test_another_abi_version_is_refused(tmp_path: Path) -> None:
    sources = tmp_path / "src"
    shutil.copytree(TOP / "src", sources)
    header = sources / "sumtree.h"
    text = header.read_text()
    wanted = f"#define SUMTREE_ABI_VERSION {_core.ABI_VERSION}\n"
    assert wanted in text
    header.write_text(text.replace(wanted, "#define SUMTREE_ABI_VERSION 99\n"))
    library = tmp_path / "other.so"
    subprocess.run(
        ["cc", "-std=c11", "-shared", "-fPIC", "-DSUMTREE_BACKEND_CPU", "-o", library]
        + [path for path in sources.glob("*.c") if not DEVICE_SOURCE.search(path.name)]
        + ["-lm"],
        check=True,
    )
    message = run_with_library(tmp_path / "site", library)
    assert f"has ABI version 99 where {_core.ABI_VERSION} is needed" in message


def test_a_damaged_library_is_refused(tmp_path: Path) -> None:
    message = run_with_library(tmp_path, None)
    assert message.startswith("backend 'cpu' cannot be loaded: ")


# ---- what docstrings say ---------------------------------------------------------------


RECORD = np.dtype([("x", "<f8")])


def buffer_of(count: int, **options: Any) -> st.PrioritizedReplayBuffer:
    buffer = st.PrioritizedReplayBuffer(5, RECORD, seed=0, **options)
    buffer.add(np.zeros(count, RECORD))
    return buffer


TREE = tree_of(st.PriorityTree, 1.0, 2.0, 3.0)
BUFFER = st.PrioritizedReplayBuffer
NAMED: list[tuple[Any, Callable[[], Any]]] = [
    (st.SumTree, lambda: st.SumTree(1.5)),  # type: ignore[arg-type]
    (st.SumTree.update, lambda: TREE.update(0, [1.0, 2.0])),
    (st.SumTree.__getitem__, lambda: TREE[3]),
    (st.SumTree.__getitem__, lambda: TREE[0.5]),
    (st.SumTree.__getitem__, lambda: TREE[::0]),
    (st.SumTree.sum, lambda: TREE.sum(2, 1)),
    (st.SumTree.sum, lambda: TREE.sum(0.5)),
    (st.MinTree.min, lambda: st.MinTree(3).min(0, 4)),
    (st.MinTree.min, lambda: st.MinTree(3).min(0.5)),  # type: ignore[arg-type]
    (st.SumTree.find, lambda: TREE.find(1.0, "middle")),
    (st.PriorityTree, lambda: st.PriorityTree(3, seed=-1)),
    (st.PriorityTree.sample, lambda: TREE.sample(-1)),
    (st.PriorityTree.sample, lambda: TREE.sample(0.5)),
    (st.PriorityTree.sample, lambda: TREE.sample(2**50)),
    (st.PriorityTree.rng_state, lambda: setattr(TREE, "rng_state", {})),
    (st.BetaSchedule, lambda: st.BetaSchedule(stop=math.inf)),
    (st.BetaSchedule, lambda: st.BetaSchedule(samples=0)),
    (st.BetaSchedule, lambda: st.BetaSchedule(samples=0.5)),  # type: ignore[arg-type]
    (BUFFER, lambda: BUFFER(5, "f4")),
    (BUFFER, lambda: BUFFER(5, RECORD, max_age=0)),
    (BUFFER.add, lambda: (lambda b: (b.begin_add(1), b.add((1.0,))))(buffer_of(1))),
    (BUFFER.__getitem__, lambda: buffer_of(1)[0.5]),
    (BUFFER.sample, lambda: buffer_of(1).sample(-1)),
    (BUFFER.sample, lambda: buffer_of(1).sample(0.5)),  # type: ignore[call-overload]
    (BUFFER.sample, lambda: buffer_of(1).sample(2**50)),
    (BUFFER.save, lambda: buffer_of(1).save("x.h5", "rar")),
    (BUFFER.begin_add, lambda: buffer_of(1).begin_add(0.5)),  # type: ignore[arg-type]
    (BUFFER.probabilities, lambda: buffer_of(1).probabilities([0.5])),
    (BUFFER.set_alpha, lambda: buffer_of(1).set_alpha("x")),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("documented", "call"), NAMED)
def test_docstrings_name_the_errors(documented: Any, call: Callable[[], Any]) -> None:
    with pytest.raises(st.SumTreeError) as caught:
        call()
    assert re.search(rf"\b{type(caught.value).__name__}\b", documented.__doc__)


def test_docstrings_name_the_errors_of_load(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    buffer_of(1).save(path)
    for options in ({"capacity": 0}, {"capacity": 0.5}, {"backend": "x"}, {"device": 99}):
        with pytest.raises(st.SumTreeError) as caught:
            BUFFER.load(path, **options)
        assert type(caught.value).__name__ in str(BUFFER.load.__doc__)
