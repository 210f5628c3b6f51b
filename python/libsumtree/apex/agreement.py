"""One rank speaks for all: errors that every rank should hear of before the work begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..errors import SumTreeError

if TYPE_CHECKING:
    from mpi4py import MPI

_TEXT_BYTES = 2000


class AgreedError(SumTreeError):
    """Something that at least one rank found wrong, raised in every rank.

    Attributes
    ----------
    comm : mpi4py.MPI.Comm
        The communicator of these ranks; its rank 0 should be the one to speak.
    """

    def __init__(self, text: str, comm: MPI.Intracomm) -> None:
        super().__init__(text)
        self.comm = comm


def agree(comm: MPI.Intracomm, error: Exception | None) -> None:
    """Raise in every rank what went wrong in the lowest one that has an error; collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        The ranks that take part, all of them.
    error : Exception or None
        What this rank found wrong.

    Raises
    ------
    AgreedError
        If any rank has an error.
    """
    mine = np.zeros(_TEXT_BYTES, np.uint8)
    if error is not None:
        said = str(error) or type(error).__name__
        text = said.encode("utf-8", "backslashreplace")[:_TEXT_BYTES]
        mine[: len(text)] = np.frombuffer(text, np.uint8)
    texts = np.zeros((comm.Get_size(), _TEXT_BYTES), np.uint8)
    comm.Allgather(mine, texts)
    for row in texts:
        text = row.tobytes().rstrip(b"\0")
        if text:
            raise AgreedError(text.decode(errors="replace"), comm) from error
