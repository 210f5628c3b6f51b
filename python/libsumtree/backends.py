"""The backends: shared libraries beside the binding, opened by absolute path and checked."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from . import _core
from .errors import BackendError

BACKENDS = ("cpu", "multicore", "gpu")
AUTO = "auto"
AUTO_VARIABLE = "LIBSUMTREE_BACKEND"
_DEFAULT = "cpu"


def resolve(requested: str) -> str:
    """Turn the backend that was asked for into the one to open.

    Parameters
    ----------
    requested : str
        ``"cpu"``, ``"multicore"``, ``"gpu"``, or ``"auto"``: what the environment variable
        ``LIBSUMTREE_BACKEND`` names, else ``"cpu"``.

    Returns
    -------
    str
        One of `BACKENDS`.

    Raises
    ------
    BackendError
        If the name is not one of these.
    """
    where = "backend"
    name = requested
    if requested == AUTO:
        name = os.environ.get(AUTO_VARIABLE) or _DEFAULT
        where = f"the environment variable {AUTO_VARIABLE}"
        name = _DEFAULT if name == AUTO else name
    if name not in BACKENDS:
        expected = ", ".join(repr(backend) for backend in (*BACKENDS, AUTO))
        raise BackendError(f"{where} is {name!r}: it must be one of {expected}")
    return name


def installed() -> list[str]:
    """Name the backends that are part of this installation."""
    return [name for name in BACKENDS if _path(name).exists()]


def _path(name: str) -> Path:
    return Path(_core.__file__).resolve().parent / "lib" / f"libsumtree_{name}.so"


@cache
def open_backend(name: str) -> _core.Backend:
    """Open a backend once per process.

    Parameters
    ----------
    name : str
        One of `BACKENDS`.

    Raises
    ------
    BackendError
        If it was not built into this installation, cannot be loaded, or has another ABI version.
    """
    path = _path(name)
    if not path.exists():
        found = ", ".join(installed()) or "none"
        raise BackendError(f"backend {name!r} is not part of this installation (it has: {found})")
    try:
        backend = _core.Backend(str(path))
    except RuntimeError as error:
        raise BackendError(f"backend {name!r} cannot be loaded: {error}") from None
    if backend.abi_version != _core.ABI_VERSION:
        raise BackendError(
            f"{path} has ABI version {backend.abi_version} where {_core.ABI_VERSION} is needed: "
            "install the backends and the Python package from the same release"
        )
    return backend
