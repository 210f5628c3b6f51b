"""Vector levels: which vector units a backend's descents are made for. All give the same bits.

Selecting one is for benchmarks and verification; it holds for the whole process, and no other
thread may use the backend meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .backends import c_functions
from .errors import BackendError


def vector_level(backend: str) -> str:
    """Name the level in force, such as ``"avx512"``.

    Raises
    ------
    BackendError
        If the backend cannot be opened.
    """
    level: bytes = c_functions(backend).sumtree_vector_level()
    return level.decode()


def vector_levels(backend: str) -> list[str]:
    """Name the levels that this processor has: ``"baseline"`` first, the widest last.

    Raises
    ------
    BackendError
        If the backend cannot be opened.
    """
    levels: bytes = c_functions(backend).sumtree_vector_levels()
    return levels.decode().split()


def select_vector_level(backend: str, level: str) -> None:
    """Take another level from now on.

    Raises
    ------
    BackendError
        If the backend cannot be opened, or has no such level here.
    """
    if c_functions(backend).sumtree_select_vector_level(level.encode()) != 0:
        known = ", ".join(vector_levels(backend))
        raise BackendError(f"backend {backend!r} has no vector level {level!r} here, only {known}")


@contextmanager
def at_vector_level(backend: str, level: str) -> Iterator[None]:
    """Take a level for the time of a ``with`` block.

    Raises
    ------
    BackendError
        As `select_vector_level`.
    """
    before = vector_level(backend)
    select_vector_level(backend, level)
    try:
        yield
    finally:
        select_vector_level(backend, before)
