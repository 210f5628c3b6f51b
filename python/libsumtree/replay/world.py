"""Whether the launcher started the ranks that were asked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import WorldError

if TYPE_CHECKING:
    from mpi4py import MPI

_LAUNCHED = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS")


def check_world(comm: MPI.Intracomm, expected: int) -> None:
    """Raise unless `comm` has exactly `expected` ranks.

    Raises
    ------
    WorldError
        Saying how many there are, and the command that starts the right number.
    """
    size = comm.Get_size()
    if size == expected:
        return
    ranks = "1 rank" if size == 1 else f"{size} ranks"
    verb = "was" if expected == 1 else "were"
    raise WorldError(
        f"the launcher started {ranks} where {expected} {verb} asked for: {_remedy(size, expected)}"
    )


def _remedy(size: int, expected: int) -> str:
    launched = next((os.environ[v] for v in _LAUNCHED if os.environ.get(v, "1") != "1"), None)
    if size == 1 and launched is not None:
        return (
            f"it did start {launched} processes, but each is a world of its own, "
            "so it belongs to another MPI than mpi4py; use the mpiexec of mpi4py's MPI"
        )
    return f"run it as `mpiexec -n {expected} python -m mpi4py ...`"
