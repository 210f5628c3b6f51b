"""mpi4py, or a clear word that it is missing."""

from __future__ import annotations

from ..errors import no_mpi

try:
    from mpi4py import MPI
except ImportError as error:
    raise ImportError(
        "the replay rank and its clients need mpi4py, which cannot be imported "
        f"({error}): pip install 'libsumtree[mpi]'"
    ) from error
except RuntimeError as error:  # mpi4py is there, and no MPI
    raise ImportError(no_mpi(error)) from error

__all__ = ["MPI"]
