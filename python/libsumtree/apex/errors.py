"""Errors of the Ape-X agent, each a `SumTreeError` and the built-in that fits."""

from __future__ import annotations

from importlib.util import find_spec

from ..errors import SumTreeError, no_mpi


class EpisodesStoppedError(SumTreeError):
    """Greedy episodes were broken off, as the caller asked for."""


class OptionError(SumTreeError, ValueError):
    """An option has a value that cannot be, or two options contradict each other."""


class UnsuitableEnvironmentError(SumTreeError, ValueError):
    """The environment does not exist, cannot be made, or has spaces that DQN cannot take."""


class NetworkError(SumTreeError, ValueError):
    """A network cannot be found or made, or does not keep the `QFunction` contract."""


class PolicyFileError(SumTreeError, ValueError):
    """A policy file is damaged, of a newer format, or made for something else."""


class MissingExtraError(SumTreeError, ImportError):
    """An optional package is not installed; the message names the extra that brings it."""


def require(module: str, extra: str = "apex") -> None:
    """Raise `MissingExtraError` unless `module` can be imported.

    Parameters
    ----------
    module : str
        Name of a top-level module.
    extra : str
        The extra of this distribution that installs it.
    """
    if find_spec(module) is None:
        raise MissingExtraError(
            f"the Python package {module!r} is not installed; "
            f"it comes with: pip install 'libsumtree[{extra}]'"
        )


def require_mpi() -> None:
    """Start MPI, or raise `MissingExtraError`: without mpi4py, or without an MPI for it to load."""
    require("mpi4py")
    try:
        from mpi4py import MPI  # noqa: F401
    except RuntimeError as error:
        raise MissingExtraError(no_mpi(error)) from error
