"""C contestants: the installed backends and the benchmark's own library, called from one C loop."""

from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arguments import Doubles, Indices
from ..backends import library_path, open_backend
from ..errors import BenchmarkError
from .racing import Updates

CLASSIC = "classic"
KINDS = {"SumTree": 0, "PriorityTree": 2}
PLANES = {"SumTree": ("sum",), "PriorityTree": ("sum", "min", "max")}
_PLANE_NUMBERS = {"sum": 0, "min": 1, "max": 2}


class Library:
    """A shared library of this installation, with the prototypes of ``sumtree.h``.

    Parameters
    ----------
    name : str
        A backend, or `CLASSIC`.

    Raises
    ------
    BackendError, BenchmarkError
        If it cannot be opened.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.prefix = "classic" if name == CLASSIC else "sumtree"
        self.functions = _open_classic() if name == CLASSIC else c_functions(name)

    def __getitem__(self, name: str) -> Any:
        """Give the function of that name, without the library's prefix."""
        return getattr(self.functions, f"{self.prefix}_{name}")

    @property
    def build(self) -> str:
        """The compiler and flags that built it."""
        build = self["build"]
        build.restype = ctypes.c_char_p
        text: bytes = build()
        return text.decode()


@cache
def c_functions(name: str) -> ctypes.CDLL:
    """Give the C functions of a backend: of its one library, which the binding has opened too.

    Raises
    ------
    BackendError
        As `open_backend`, which this comes after.
    """
    open_backend(name)
    return ctypes.CDLL(str(library_path(name)))


def _open_classic() -> ctypes.CDLL:
    path = library_path(CLASSIC)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise BenchmarkError(
            f"the benchmark's own library cannot be opened: {error}; install libsumtree again"
        ) from None


@cache
def library(name: str) -> Library:
    """Open a library once."""
    return Library(name)


class CTree:
    """A tree of a library, owned.

    Parameters
    ----------
    name : str
        A backend, or `CLASSIC`.
    kind : {"SumTree", "PriorityTree"}
    leaves : int

    Raises
    ------
    BenchmarkError
        If it cannot be made.
    """

    def __init__(self, name: str, kind: str, leaves: int) -> None:
        self.library = library(name)
        self.kind = kind
        self.leaves = leaves
        self.handle = ctypes.c_void_p()
        _check_memory(leaves, kind)
        status = self.library["create"](
            ctypes.c_int64(leaves), KINDS[kind], ctypes.byref(self.handle)
        )
        _check(status, f"making a tree of {leaves} leaves with {name}")
        weakref.finalize(self, self.library["free"], self.handle)

    def nodes(self, plane: str) -> Doubles:
        """Copy all nodes of a plane."""
        padded = 1 << (self.leaves - 1).bit_length()
        nodes = np.empty(2 * padded)
        status = self.library["nodes"](self.handle, _PLANE_NUMBERS[plane], _address(nodes))
        _check(status, f"reading the nodes of {self.library.name}")
        return nodes


def _check_memory(leaves: int, kind: str) -> None:
    """Refuse what the memory limit cannot hold: the benchmark's own library does not look."""
    planes = len(PLANES[kind])
    needed = planes * 16 * (1 << (leaves - 1).bit_length())
    available = open_backend("cpu").memory_available()
    if needed > available:
        raise BenchmarkError(
            f"a {kind} of {leaves} leaves takes {needed} bytes, of which the memory limit has "
            f"{available} left: measure fewer leaves"
        )


@dataclass(frozen=True)
class CUpdate:
    """A contestant: one way to update one tree.

    Attributes
    ----------
    name : str
    tree : CTree
    function : str
        Its name in the library, without the prefix.
    most : int or None
        Time the first so many batches of a round only, and do the rest in one call, untimed: for
        an update whose time does not depend on the batch.
    """

    name: str
    tree: CTree
    function: str = "update"
    most: int | None = None

    def time(self, work: Updates) -> float:
        """Do the updates; give the seconds of one."""
        batches = len(work.indices)
        timed = min(batches, self.most or batches)
        seconds = self._run(work.indices[:timed], work.masses[:timed])
        if timed < batches:
            self._run(work.indices[timed:].reshape(1, -1), work.masses[timed:].reshape(1, -1))
        return seconds / timed

    def fill(self, masses: Doubles) -> None:
        """Set all leaves."""
        self._run(np.arange(len(masses)).reshape(1, -1), masses.reshape(1, -1))

    def _run(self, indices: Indices, masses: Doubles) -> float:
        seconds: float = _timer("time_update")(
            self.tree.library[self.function],
            self.tree.handle,
            *indices.shape,
            _address(indices),
            _address(masses),
        )
        _check(-seconds, f"an update by {self.name}")
        return seconds


@dataclass(frozen=True)
class CFind:
    """A contestant: descents in one tree, which are kept in `found`.

    Attributes
    ----------
    name : str
    tree : CTree
    found : dict of str to ndarray
        The indices of the last round, by name.
    """

    name: str
    tree: CTree
    found: dict[str, NDArray[np.int64]]

    def time(self, work: Doubles) -> float:
        """Do the descents for the targets of shape (batches, count); give the seconds of one."""
        found = self.found.setdefault(self.name, np.empty(work.shape, np.int64))
        if found.shape != work.shape:
            found = self.found[self.name] = np.empty(work.shape, np.int64)
        seconds: float = _timer("time_find")(
            self.tree.library["find"],
            self.tree.handle,
            *work.shape,
            _address(work),
            _address(found),
        )
        _check(-seconds, f"descents by {self.name}")
        return seconds / len(work)


@cache
def _timer(name: str) -> Any:
    timer = library(CLASSIC)[name]
    timer.restype = ctypes.c_double
    timer.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 2 + [ctypes.c_void_p] * 2
    return timer


def _address(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _check(status: float, doing: str) -> None:
    if status > 0:
        name, text = open_backend("cpu").status_table()[int(status)][1:]
        raise BenchmarkError(f"{doing} failed: {name}, {text}")
