"""The states of a folder: files of one shard, and manifests with the files of several.

A folder holds ``replay-<serial>.h5``, each a state of one shard, or ``replay-<serial>.manifest``,
each a state of several, whose files stand in the folders ``shard-<number>`` below. Both are
numbered by one count of serials, so that a service may change between one shard and several.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import CheckpointError
from .block import Header
from .chain import headers
from .manifest import read_manifest

_FILE = re.compile(r"replay-(\d{12,})\.h5")
_MANIFEST = re.compile(r"replay-(\d{12,})\.manifest")
_SHARD = re.compile(r"shard-\d{4,}")
MANIFEST_SUFFIX = ".manifest"
"""How the names of manifests end."""


def file_of(folder: Path, serial: int) -> Path:
    """Return the file of one shard with a serial."""
    return folder / f"replay-{serial:012d}.h5"


def manifest_of(folder: Path, serial: int) -> Path:
    """Return the manifest with a serial."""
    return folder / f"replay-{serial:012d}{MANIFEST_SUFFIX}"


def shard_folder(folder: Path, shard: int) -> Path:
    """Return the folder of one shard's files."""
    return folder / f"shard-{shard:04d}"


def numbered_files(folder: Path) -> list[tuple[int, Path]]:
    """Return serial and path of each file ``replay-<serial>.h5``, the newest first.

    Raises
    ------
    OSError
        The folder cannot be read.
    """
    found = ((_FILE.fullmatch(path.name), path) for path in folder.iterdir() if not path.is_dir())
    return sorted(((int(m[1]), path) for m, path in found if m), reverse=True)


def numbered_states(folder: Path) -> list[tuple[int, Path]]:
    """Return serial and path of each state, the newest first.

    Raises
    ------
    OSError
        The folder cannot be read.
    """
    found = ((_MANIFEST.fullmatch(path.name), path) for path in folder.iterdir())
    manifests = [(int(m[1]), path) for m, path in found if m and path.is_file()]
    return sorted(numbered_files(folder) + manifests, reverse=True)


def next_serial(folder: Path) -> int:
    """Return a serial above those of all states and files, whole or not."""
    serials = [serial for serial, _ in numbered_states(folder)]
    serials += [serial for place in _places(folder) for serial, _ in numbered_files(place)]
    return max(serials, default=0) + 1


def files_of(path: Path) -> tuple[Path, ...]:
    """Return the file of each shard of a state.

    Raises
    ------
    CheckpointCorruptError, CheckpointFormatError, CheckpointError
        See `read_manifest`.
    """
    return read_manifest(path).files if path.suffix == MANIFEST_SUFFIX else (path,)


def _places(folder: Path) -> list[Path]:
    """Return the folders that hold files: this one, and those of shards."""
    shards = (path for path in folder.iterdir() if _SHARD.fullmatch(path.name) and path.is_dir())
    return [folder, *sorted(shards)]


@dataclass(slots=True)
class _Known:
    """The files of one folder that are whole, as far as first bytes and lengths tell."""

    headers: dict[Path, Header] = field(default_factory=dict)
    by_digest: dict[str, Path] = field(default_factory=dict)

    def chain_of(self, path: Path) -> list[Path]:
        """Return a file and those that it goes on from; KeyError if one of them is not there."""
        chain = [path]
        while (parent := self.headers[chain[-1]].parent) is not None:
            found = self.by_digest[parent]
            if found in chain:
                raise KeyError(found)  # no writer makes a ring: these first bytes are made up
            chain.append(found)
        return chain


@dataclass(frozen=True, slots=True)
class _State:
    serial: int
    path: Path
    chains: tuple[tuple[Path, ...], ...]

    @property
    def roots(self) -> set[Path]:
        return {chain[-1] for chain in self.chains}


def removable(folder: Path, keep: int, oldest: int = 0) -> list[Path]:
    """Return what is neither one of the newest `keep` states nor needed for them, manifests first.

    If `keep` is above 1 and all of these go on from one full file of some shard, the newest state
    that needs none of such files is kept, too: no single damaged file makes all of them useless.

    Parameters
    ----------
    folder : pathlib.Path
    keep : int
        At least 1. States that are not whole, as far as first bytes and lengths of all their files
        tell, do not count.
    oldest : int
        What has lower serials is left alone.

    Raises
    ------
    OSError, CheckpointError
        A folder cannot be read.
    """
    known = {place: _known(place) for place in _places(folder)}
    numbered = [(serial, path) for serial, path in numbered_states(folder) if serial >= oldest]
    states = []
    for serial, path in numbered:
        with contextlib.suppress(OSError, CheckpointError, KeyError):
            chains = (known[file.parent].chain_of(file) for file in files_of(path))
            states.append(_State(serial, path, tuple(map(tuple, chains))))
    if len(states) <= keep:
        return []
    kept, limit = _kept(states, keep), states[keep - 1].serial
    needed = {file for state in kept for chain in state.chains for file in chain}
    needed |= {state.path for state in kept}
    candidates = [(serial, path) for serial, path in numbered if path.suffix == MANIFEST_SUFFIX]
    for place in known:
        candidates += [(s, path) for s, path in numbered_files(place) if s >= oldest]
    return [path for serial, path in candidates if serial < limit and path not in needed]


def _known(place: Path) -> _Known:
    known = _Known()
    for path, header in headers(place):
        with contextlib.suppress(OSError):
            if path.stat().st_size == header.length:
                known.headers[path] = header
                known.by_digest[header.digest] = path
    return known


def _kept(states: list[_State], keep: int) -> list[_State]:
    kept = states[:keep]
    shared = set.intersection(*(state.roots for state in kept))
    if keep > 1 and shared:
        kept += [state for state in states[keep:] if not state.roots & shared][:1]
    return kept
