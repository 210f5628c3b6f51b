"""Which files of a folder of checkpoints are needed, and which may go."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import CheckpointError
from .block import Header, read_header

_NAME = re.compile(r"replay-(\d{12,})\.h5")


@dataclass(frozen=True)
class StateFile:
    """A file ``replay-<serial>.h5`` whose first bytes are whole."""

    serial: int
    path: Path
    header: Header


def numbered_files(folder: Path) -> list[tuple[int, Path]]:
    """Return serial and path of each file ``replay-<serial>.h5``, the newest first.

    Raises
    ------
    OSError
        The folder cannot be read.
    """
    found = ((_NAME.fullmatch(path.name), path) for path in folder.iterdir() if not path.is_dir())
    return sorted(((int(m[1]), path) for m, path in found if m), reverse=True)


def path_of(folder: Path, serial: int) -> Path:
    """Return the file with a serial."""
    return folder / f"replay-{serial:012d}.h5"


def removable(folder: Path, keep: int, oldest: int = 0) -> list[Path]:
    """Return the files that are neither among the newest `keep` states nor needed for them.

    If `keep` is above 1 and all of these go on from one full file, the newest state that does not
    is kept, too: no single damaged file makes all of them useless.

    Parameters
    ----------
    folder : pathlib.Path
    keep : int
        At least 1. Files whose first bytes are damaged do not count.
    oldest : int
        Files of lower serials are left alone.

    Raises
    ------
    OSError
        The folder cannot be read.
    """
    numbered = [(serial, path) for serial, path in numbered_files(folder) if serial >= oldest]
    states = []
    for serial, path in numbered:
        with contextlib.suppress(OSError, CheckpointError):
            states.append(StateFile(serial, path, read_header(path)))
    if len(states) <= keep:
        return []
    needed, limit = _needed_for(states, keep), states[keep - 1].serial
    return [path for serial, path in numbered if serial < limit and path not in needed]


def _needed_for(states: list[StateFile], keep: int) -> set[Path]:
    by_digest = {state.header.digest: state for state in states}

    def chain_of(state: StateFile) -> list[StateFile]:
        chain = [state]
        while (parent := by_digest.get(chain[-1].header.parent or "")) is not None:
            if parent in chain:
                break  # no writer makes a ring: these first bytes are made up
            chain.append(parent)
        return chain

    chains = [chain_of(state) for state in states]
    kept = chains[:keep]
    roots = {chain[-1].path for chain in kept}
    if keep > 1 and len(roots) == 1:
        kept += [chain for chain in chains[keep:] if chain[-1].path not in roots][:1]
    return {state.path for chain in kept for state in chain}
