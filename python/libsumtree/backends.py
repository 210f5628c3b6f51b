"""The backends: shared libraries beside the binding, opened by absolute path and checked."""

from __future__ import annotations

import os
import warnings
from functools import cache
from pathlib import Path

from . import _core
from .errors import BackendError
from .tuning import recall

BACKENDS = ("cpu", "multicore", "gpu")
AUTO = "auto"
AUTO_VARIABLE = "LIBSUMTREE_BACKEND"
DEFAULT = "cpu"


def resolve(requested: str, capacity: int) -> str:
    """Turn the backend that was asked for into the one to open.

    Parameters
    ----------
    requested : str
        ``"cpu"``, ``"multicore"``, ``"gpu"``, or ``"auto"``: what the environment variable
        ``LIBSUMTREE_BACKEND`` names, else what ``libsumtree tune`` measured to pay on this machine
        for the capacity, else ``"cpu"``.
    capacity : int
        Of the tree, >= 1.

    Returns
    -------
    str
        One of `BACKENDS`.

    Raises
    ------
    BackendError
        If the name is not one of these.
    """
    if requested != AUTO:
        return _checked(requested, "backend")
    named = os.environ.get(AUTO_VARIABLE) or AUTO
    if named != AUTO:
        return _checked(named, f"the environment variable {AUTO_VARIABLE}")
    return _tuned(capacity)


def _checked(name: str, where: str) -> str:
    if name not in BACKENDS:
        expected = ", ".join(repr(backend) for backend in (*BACKENDS, AUTO))
        raise BackendError(f"{where} is {name!r}: it must be one of {expected}")
    return name


def _tuned(capacity: int) -> str:
    """Give what was measured to pay for a capacity, if it runs here; else the default."""
    tuning = recall(installed())
    if tuning is None:
        return DEFAULT
    name = tuning.choice(capacity)
    return name if _runs(name) else DEFAULT


@cache
def _runs(name: str) -> bool:
    """Tell whether a backend can run here, and warn, once in a process, if not."""
    reason = problem(name)
    if reason is not None:
        warnings.warn(
            f"backend 'auto' is {DEFAULT!r} and not {name!r}, which `libsumtree tune` found to "
            f"pay: {reason}",
            RuntimeWarning,
            stacklevel=5,
        )
    return reason is None


def problem(name: str) -> str | None:
    """Say why a backend cannot run here; None if it can.

    Parameters
    ----------
    name : str
        One of `BACKENDS`.
    """
    try:
        library = open_backend(name)
        return library.device_problem or None if name == "gpu" else None
    except BackendError as error:
        return str(error)


def device_names() -> list[str]:
    """Name the devices that the gpu backend can run on.

    Raises
    ------
    BackendError
        If it cannot be opened.
    """
    library = open_backend("gpu")
    return [library.device_name(device) for device in range(library.device_count)]


@cache
def installed() -> tuple[str, ...]:
    """Name the backends that are part of this installation."""
    return tuple(name for name in BACKENDS if library_path(name).exists())


def library_path(name: str) -> Path:
    """Give the absolute path of a library of this installation: beside the binding."""
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
    path = library_path(name)
    if not path.exists():
        found = installed()
        wanted = ";".join(dict.fromkeys((*found, name)))
        raise BackendError(
            f"backend {name!r} is not part of this installation (it has: "
            f"{', '.join(found) or 'none'}): pip install . "
            f"--config-settings=cmake.define.SUMTREE_BACKENDS='{wanted}' builds it"
        )
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
