"""One rank of a job: runs a command, and leaves word of how the replay rank ended."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

from ..errors import SumTreeError
from ..files import write_atomically

# Those of `replay.signals`, which cannot be imported before MPI has started.
_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
_LINE_SECONDS = 0.5

FINISHED = "finished"


def run_rank(ranks: int, mark: Path, command: Callable[[], int], speak: bool) -> int | None:
    """Run `command` in this rank, and write in rank 0 to `mark` how it ended.

    The mark says ``finished``, or ``stopped`` and the signal that came first; it is written only if
    the command's status is 0.

    Parameters
    ----------
    ranks : int
        How many ranks the launcher was asked for; with another number nothing is run.
    mark : Path
        The file to write.
    command : callable
        Runs the program and returns its exit status.
    speak : bool
        Whether this process is to raise if the number of ranks is wrong.

    Returns
    -------
    int or None
        The command's exit status; None if the number of ranks is wrong and another process says so.

    Raises
    ------
    WorldError
        If the number of ranks is wrong.
    """
    # MPI takes signals for itself while it starts: they wait until the flag is there.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    from ..replay import check_world, install_signal_flag
    from ..replay.channel import MPI

    with install_signal_flag() as flag:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        comm = MPI.COMM_WORLD
        try:
            check_world(comm, ranks)
        except SumTreeError:
            if speak:
                raise
            time.sleep(_LINE_SECONDS)  # launchers that end a job with its first rank lose lines
            return None
        rank = comm.Get_rank()
        status = command()
        if status == 0 and rank == 0:
            write_mark(mark, f"stopped {flag.name}" if flag else FINISHED)
    return status


def write_mark(path: Path, word: str) -> None:
    """Write a mark so that it is there whole or not at all.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    write_atomically(path, f"{word}\n".encode("ascii"))
