"""``libsumtree info``: what is installed, and what it runs on."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .. import _core, machine, tuning
from ..backends import (
    AUTO,
    AUTO_VARIABLE,
    DEFAULT,
    device_names,
    installed,
    library_path,
    open_backend,
    problem,
)
from ..errors import TuningError
from ..vectors import vector_level, vector_levels

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[Any]

OPTIONAL = ("h5py", "mpi4py", "gymnasium", "matplotlib")


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the subcommand ``info`` and return its parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "info",
        help="say what is installed and what it runs on",
        description="Print the versions, the backends with their compilers, flags, vector levels, "
        "threads and devices, or why one cannot run here, what the backend "
        f'"{AUTO}" means, and the processors and memory that this process may use.',
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    return parser


def main(args: argparse.Namespace) -> int:
    """Print the facts; return the exit status."""
    known = facts()
    if args.json:
        print(json.dumps(known, indent=1))
    else:
        for name, value in _lines(known):
            print(f"{name:<12} {value}")
    return 0


def facts() -> dict[str, Any]:
    """Gather everything, as JSON can hold it."""
    from .. import __version__

    packages = {name: _version_or_none(name) for name in ("numpy", *OPTIONAL)}
    return {
        "libsumtree": __version__,
        "abi version": _core.ABI_VERSION,
        "python": platform.python_version(),
        "packages": packages,
        "machine": {
            "processor": machine.processor(),
            "architecture": platform.machine(),
            "cores": machine.cores(),
            "gpus": machine.gpus(),
            "memory available": _memory_available(),
        },
        "backends": {name: _backend(name) for name in installed()},
        AUTO: _auto(),
    }


def _version_or_none(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _memory_available() -> int | None:
    return open_backend(DEFAULT).memory_available() if problem(DEFAULT) is None else None


def _backend(name: str) -> dict[str, Any]:
    known: dict[str, Any] = {"path": str(library_path(name)), "problem": problem(name)}
    if known["problem"] is not None:
        return known
    known["build"] = open_backend(name).build
    known["vector level"] = vector_level(name)
    known["vector levels"] = vector_levels(name)
    known["threads"] = machine.threads() if name == "multicore" else 1
    known["devices"] = device_names() if name == "gpu" else []
    return known


def _auto() -> dict[str, Any]:
    """Say what "auto" means, and from where."""
    known: dict[str, Any] = {AUTO_VARIABLE: os.environ.get(AUTO_VARIABLE) or None}
    known |= {"tuning file": None, "problem": None, "batch": None, "choices": {}}
    try:
        kind = tuning.Kind.here(installed())
        known["tuning file"] = str(tuning.path_of(kind))
        tuned = tuning.read(kind)
    except TuningError as error:
        known["problem"] = str(error)
    else:
        if tuned is not None:
            known |= {"batch": tuned.batch, "choices": dict(tuned.choices)}
    return known


def _lines(known: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    here = known["machine"]
    yield "libsumtree", f"{known['libsumtree']}, ABI version {known['abi version']}"
    yield "python", f"{known['python']}, {here['architecture']}"
    for package, found in known["packages"].items():
        yield package, found or "not installed"
    yield "processor", f"{here['processor']}, {here['cores']} cores may be used"
    for gpu in here["gpus"]:
        yield "GPU", gpu
    if here["memory available"] is not None:
        yield "memory", f"{here['memory available'] / 2**30:.1f} GiB may still be taken"
    for name, backend in known["backends"].items():
        yield from _backend_lines(name, backend)
    yield AUTO, _auto_line(known[AUTO])


def _backend_lines(name: str, backend: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if backend["problem"] is not None:
        yield name, f"backend, cannot run here: {backend['problem']}"
        return
    yield name, f"backend, built by {backend['build']}"
    if name == "gpu":
        for number, device in enumerate(backend["devices"]):
            yield "", f"device {number}: {device}"
        return
    levels = ", ".join(backend["vector levels"])
    yield "", f"vector level {backend['vector level']} of {levels}; threads: {backend['threads']}"


def _auto_line(auto: Mapping[str, Any]) -> str:
    if auto[AUTO_VARIABLE] not in (None, AUTO):
        return f"{auto[AUTO_VARIABLE]}, by the environment variable {AUTO_VARIABLE}"
    if auto["problem"] is not None:
        return f"{DEFAULT}; {auto['problem']}"
    if not auto["choices"]:
        return f"{DEFAULT}; nothing was measured on this machine, see `libsumtree tune`"
    choices = ", ".join(f"{name} at {capacity:,}" for capacity, name in auto["choices"].items())
    return f"by capacity, for batches of {auto['batch']}: {choices} ({auto['tuning file']})"
