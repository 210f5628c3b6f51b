"""Vector levels: which vector units a backend's descents are made for. All give the same bits.

Selecting one is for benchmarks and verification; it holds for the whole process, and no other
thread may use the backend meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from . import _core
from .backends import open_backend
from .errors import BackendError


def vector_level(backend: str) -> str:
    """Name the level in force, such as ``"avx512"``.

    Raises
    ------
    BackendError
        If the backend cannot be opened.
    """
    return open_backend(backend).vector_level


def vector_levels(backend: str) -> list[str]:
    """Name the levels that this processor has: ``"baseline"`` first, the widest last.

    Raises
    ------
    BackendError
        If the backend cannot be opened.
    """
    return open_backend(backend).vector_levels.split()


def select_vector_level(backend: str, level: str) -> None:
    """Take another level from now on.

    Raises
    ------
    BackendError
        If the backend cannot be opened, or has no such level here.
    """
    try:
        open_backend(backend).select_vector_level(level)
    except _core.Failure:
        known = ", ".join(vector_levels(backend))
        raise BackendError(
            f"backend {backend!r} has no vector level {level!r} here, only {known}"
        ) from None


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
