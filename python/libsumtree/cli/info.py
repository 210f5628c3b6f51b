"""``libsumtree info``: what is installed, and what it runs on."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from ..backends import AUTO, AUTO_VARIABLE, installed, open_backend, resolve
from ..errors import BackendError

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[Any]

_OPTIONAL = ("h5py", "mpi4py", "gymnasium", "matplotlib")


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the subcommand ``info`` and return its parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "info",
        help="say what is installed and what it runs on",
        description="Print the versions, the backends with the compilers that built them, and the "
        "processors and memory that this process may use.",
    )
    return parser


def main(args: argparse.Namespace) -> int:
    """Print the facts; return the exit status."""
    for name, value in _facts():
        print(f"{name:<12} {value}")
    return 0


def _facts() -> Iterator[tuple[str, str]]:
    yield "libsumtree", version("libsumtree")
    yield "python", f"{platform.python_version()}, {platform.machine()}"
    yield "numpy", version("numpy")
    for package in _OPTIONAL:
        yield package, _version_or_none(package)
    for name in installed():
        yield name, _build_of(name)
    yield AUTO, f"{resolve(AUTO)} ({AUTO_VARIABLE} is {os.environ.get(AUTO_VARIABLE, 'not set')})"
    cores = len(os.sched_getaffinity(0))
    yield "threads", f"{os.environ.get('OMP_NUM_THREADS', cores)} of {cores} cores (multicore)"
    yield "memory", f"{open_backend('cpu').memory_available() / 2**30:.1f} GiB may still be taken"


def _version_or_none(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _build_of(name: str) -> str:
    try:
        return f"backend, built by {open_backend(name).build}"
    except BackendError as error:
        return f"backend, not usable: {error}"
