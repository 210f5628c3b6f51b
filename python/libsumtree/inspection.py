"""What checkpoints hold, without making a buffer of them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import checkpoint
from .checkpoint import state
from .errors import CheckpointError
from .ids import Ids
from .masses import MAX_MASS
from .records import dtype_from_text

_LOOKS = 5  # at a folder whose writer goes on meanwhile

LEARNER = "learner/"
_ROWS_BYTES = 16 << 20


@dataclass(frozen=True)
class Contents:
    """The state of an open chain.

    Attributes
    ----------
    chain : Chain
    attributes : dict
        Of the newest file.
    dtype : numpy.dtype
        The record dtype.
    ids : ndarray of int64, shape (size,)
        Of the transitions held, oldest first.
    masses : ndarray of float64, shape (size,)
    """

    chain: checkpoint.Chain
    attributes: dict[str, checkpoint.Attribute]
    dtype: np.dtype[Any]
    ids: NDArray[np.int64]
    masses: NDArray[np.float64]

    def transitions(self) -> Iterator[NDArray[Any]]:
        """Yield the records in parts of at most 16 MiB, or one row, oldest first."""
        rows = max(1, _ROWS_BYTES // self.dtype.itemsize)
        for start in range(0, len(self.ids), rows):
            yield self.rows(start, min(start + rows, len(self.ids)))

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Return the records start .. stop, counted from the oldest that is held."""
        first = int(self.attributes["cursor"]) - len(self.ids) + start
        count = stop - start
        part = np.zeros(count, self.dtype)
        for link, extent in zip(self.chain.links, state.extents_of(self.chain), strict=True):
            stored = link.datasets[state.TRANSITIONS]
            low, high = max(first, extent.rows), min(first + count, extent.cursor)
            if low < high:
                target = state.as_stored(part, stored)[low - first : high - first]
                stored.read_rows(low - extent.rows, target)
        return part

    def learner(self) -> dict[str, NDArray[Any]]:
        """Return the learner state, by the names of its arrays."""
        return {
            "/".join(map(checkpoint.unescape_name, name[len(LEARNER) :].split("/"))): stored.read()
            for name, stored in self.chain.newest.datasets.items()
            if name.startswith(LEARNER)
        }

    def times_sampled(self) -> NDArray[np.int64] | None:
        """Return how often each was drawn, shape (size,); None where nothing is counted."""
        return state.times_of(self.chain) if "max_times_sampled" in self.attributes else None

    def priorities(self) -> NDArray[np.float64]:
        """Return mass ** (1 / alpha) of the positive masses; the masses where alpha is 0."""
        alpha = float(self.attributes["alpha"])
        positive = self.masses[self.masses > 0]
        return positive if alpha == 0.0 else positive ** (1.0 / alpha)


def contents_of(chain: checkpoint.Chain) -> Contents:
    """Return what a chain holds, having checked that it is a buffer.

    Raises
    ------
    CheckpointCorruptError
        Its files do not fit each other, or a mass is none.
    """
    newest = chain.newest
    masses = state.masses_of(chain)
    bad = ~((masses >= 0) & (masses <= MAX_MASS))
    if bad.any():
        at = int(np.argmax(bad))
        raise state.no_buffer(
            newest, f"masses[{at}] is {masses[at]}: a mass must be a number in 0 .. 2^960"
        )
    cursor = int(newest.attributes["cursor"])
    try:
        numbers = np.arange(cursor - len(masses), cursor)
        ids = Ids(newest.datasets[state.EPOCHS].read(), cursor).of_numbers(numbers)
        positive = masses[masses > 0]
        ends = {"min": positive.min(initial=np.inf), "max": positive.max(initial=0.0)}
        state.check_sums(newest, ends)
        dtype = dtype_from_text(str(newest.attributes["dtype"]))
        float(newest.attributes["alpha"])
    except CheckpointError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise state.no_buffer(newest, error) from error
    return Contents(chain, newest.attributes, dtype, ids, masses)


# ---- what a folder holds ----


@dataclass(frozen=True)
class Listed:
    """A file of a folder, from its first bytes and its length alone.

    Attributes
    ----------
    path : pathlib.Path
    nbytes : int
        Of the file.
    modified : float
        Seconds since 1970.
    parent : str, optional
        Name of the file that it goes on from.
    files : int
        How many files its state needs, itself among them.
    problem : str
        What is wrong; empty if nothing is, as far as that can be seen.
    shards : int, optional
        Of a manifest: how many files it names. None of a checkpoint.
    """

    path: Path
    nbytes: int
    modified: float
    parent: str | None
    files: int
    problem: str
    shards: int | None = None


def list_folder(folder: Path) -> list[Listed]:
    """Return the checkpoints of a folder, whatever their names, and its manifests, by name.

    Raises
    ------
    CheckpointError
        The folder cannot be read.
    """
    whole = dict(checkpoint.headers(folder))
    by_digest = {h.digest: path for path, h in whole.items() if _size(path) == h.length}
    of_shards = _OfShards()
    listed = []
    for path in {*whole, *(path for _, path in _numbered(folder))}:
        with contextlib.suppress(FileNotFoundError):  # its writer has removed it meanwhile
            if path in whole:
                listed.append(_listed(path, whole, by_digest))
            elif path.suffix == checkpoint.MANIFEST_SUFFIX:
                listed.append(of_shards.listed(path))
            else:
                listed.append(_damaged(path))
    return sorted(listed, key=lambda file: file.path)


def _size(path: Path) -> int:
    """Return a file's bytes; -1 if it is no longer there."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1


def _numbered(folder: Path) -> list[tuple[int, Path]]:
    try:
        return checkpoint.numbered_states(folder)
    except OSError as error:
        raise CheckpointError(f"cannot read folder {folder}: {error.strerror}") from error


def _listed(path: Path, whole: dict[Path, checkpoint.Header], by_digest: dict[str, Path]) -> Listed:
    status, header, count, problem = path.stat(), whole[path], 1, ""
    parent = None if header.parent is None else by_digest.get(header.parent)
    if status.st_size != header.length:
        problem = f"cut short: {status.st_size} bytes of {header.length}"
    at: str | None = header.parent
    while not problem and at is not None:
        if at not in by_digest:
            problem = f"goes on from a file that is not there, sha256 {at[:12]}..."
            break
        count += 1
        if count > len(by_digest):
            problem = "goes on from itself"
        at = whole[by_digest[at]].parent
    name = None if parent is None else parent.name
    return Listed(path, status.st_size, status.st_mtime, name, count, problem)


def _damaged(path: Path) -> Listed:
    status = path.stat()
    try:
        checkpoint.read_header(path)
        problem = "appeared just now"
    except (CheckpointError, OSError) as error:
        problem = str(error)
    return Listed(path, status.st_size, status.st_mtime, None, 0, problem)


class _OfShards:
    """Lists manifests; a folder of their files is read once."""

    def __init__(self) -> None:
        self._folders: dict[Path, dict[Path, Listed]] = {}

    def listed(self, path: Path) -> Listed:
        """List one manifest, with the first thing that is wrong with its files."""
        status = path.stat()
        try:
            manifest = checkpoint.parse_manifest(path)
        except CheckpointError as error:
            return Listed(path, status.st_size, status.st_mtime, None, 0, str(error))
        shards, count, problems = len(manifest.files), 0, []
        for shard, (file, digest) in enumerate(zip(manifest.files, manifest.digests, strict=True)):
            found = self._in(file.parent).get(file)
            count += 1 if found is None else found.files
            problem = _problem_of_part(found, digest)
            if problem:
                problems.append(f"shard {shard}: {file.name} {problem}")
        told = ""
        if problems:
            told = f"{len(problems)} of {shards} files cannot be used; {problems[0]}"
        return Listed(path, status.st_size, status.st_mtime, None, count, told, shards)

    def _in(self, folder: Path) -> dict[Path, Listed]:
        if folder not in self._folders:
            found: list[Listed] = []
            with contextlib.suppress(CheckpointError):  # then none of its files is there
                found = list_folder(folder)
            self._folders[folder] = {file.path: file for file in found}
        return self._folders[folder]


def _problem_of_part(found: Listed | None, digest: str) -> str:
    """Say what is wrong with a file that a manifest names by its digest."""
    if found is None:
        return "is not there"
    if found.problem:
        return found.problem
    try:
        is_meant = checkpoint.read_header(found.path).digest == digest
    except (OSError, CheckpointError) as error:
        return str(error)
    return "" if is_meant else "is of another moment"


def newest_whole(folder: Path) -> Path:
    """Return the newest state of a folder that is whole, every byte of its files checked.

    Newest by serial; in a folder without states that have one, by the time of the file.

    Raises
    ------
    CheckpointError
        There is none.
    """
    listed: list[Listed] = []
    for _ in range(_LOOKS):
        before, listed = listed, list_folder(folder)
        serials = {path: serial for serial, path in _numbered(folder)}
        listed.sort(key=lambda f: (serials.get(f.path, -1), f.modified), reverse=True)
        if listed == before:
            break  # its writer has not changed it meanwhile
        for file in listed:
            with contextlib.suppress(CheckpointError, FileNotFoundError):
                check_state(file.path)
                return file.path
    raise CheckpointError(f"no checkpoint in {folder} is whole; {len(listed)} are there")


def check_state(path: Path) -> int:
    """Check all bytes and all masses of a state, or of a manifest; return how many files it needs.

    Raises
    ------
    CheckpointError
        Something is wrong; the message says what.
    """
    if path.suffix == checkpoint.MANIFEST_SUFFIX:
        return sum(map(check_state, checkpoint.files_of(path)))
    with checkpoint.read_chain(path) as chain:
        contents_of(chain)
        return len(chain.links)


# ---- two states ----


def differences(one: Contents, other: Contents) -> dict[str, Any]:
    """Return what differs between two states; empty if nothing does.

    Returns
    -------
    dict
        ``attributes``: name to the two values. ``transitions``: how many are held by the first and
        the second alone, and of those held by both (by id) how many have another mass and another
        record. ``learner``: names of the arrays that differ.
    """
    found = {
        "attributes": _attribute_differences(one.attributes, other.attributes),
        "transitions": _transition_differences(one, other),
        "learner": _learner_differences(one.learner(), other.learner()),
    }
    return {name: value for name, value in found.items() if value}


def _attribute_differences(
    one: dict[str, checkpoint.Attribute], other: dict[str, checkpoint.Attribute]
) -> dict[str, list[Any]]:
    names = sorted(one.keys() | other.keys())
    pairs = {name: [plain(one.get(name)), plain(other.get(name))] for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1] and name != "created"}


def plain(value: Any) -> Any:
    """Turn an attribute into what JSON knows."""
    if isinstance(value, str) and value.startswith("["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value.tolist() if isinstance(value, np.ndarray) else value


def _transition_differences(one: Contents, other: Contents) -> dict[str, int]:
    common, here, there = np.intersect1d(
        one.ids, other.ids, assume_unique=True, return_indices=True
    )
    found = {
        "only_in_first": len(one.ids) - len(common),
        "only_in_second": len(other.ids) - len(common),
        "other_mass": int(np.count_nonzero(one.masses[here] != other.masses[there])),
    }
    if one.dtype == other.dtype and len(common):
        found["other_record"] = _other_records(one, other, here, there)
    return found if any(found.values()) else {}


def _other_records(
    one: Contents, other: Contents, here: NDArray[np.int64], there: NDArray[np.int64]
) -> int:
    """Count the records that differ, in parts: those held by both are a run in either."""
    rows = max(1, _ROWS_BYTES // one.dtype.itemsize)
    count = 0
    for start in range(0, len(here), rows):
        length = min(rows, len(here) - start)
        a = one.rows(int(here[start]), int(here[start]) + length)
        b = other.rows(int(there[start]), int(there[start]) + length)
        same = a.view(np.uint8).reshape(length, -1) == b.view(np.uint8).reshape(length, -1)
        count += int(np.count_nonzero(~same.all(axis=1)))
    return count


def _learner_differences(one: dict[str, NDArray[Any]], other: dict[str, NDArray[Any]]) -> list[str]:
    def differs(name: str) -> bool:
        if name not in one or name not in other:
            return True
        a, b = one[name], other[name]
        return (a.dtype, a.shape, a.tobytes()) != (b.dtype, b.shape, b.tobytes())

    return sorted(name for name in one.keys() | other.keys() if differs(name))
