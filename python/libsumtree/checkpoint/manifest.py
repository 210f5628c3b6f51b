"""Manifests: which files of several shards are one state.

Each shard writes its own checkpoint; then, last, the manifest is published, and with it the state.
It names the files by digest, so that a file of another moment is never taken for one of it. ::

    libsumtree manifest
    format 1
    shard <sha256> <path of the file, relative to the manifest's folder>
    ...
    block <8 hexadecimal digits: the CRC-32 of the lines above>
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import ArgumentError, CheckpointCorruptError, CheckpointError, CheckpointFormatError
from ..files import write_atomically
from .block import open_regular, read_header

MANIFEST_FORMAT = 1

_MAGIC = b"libsumtree manifest\n"
_SHARD = re.compile(r"shard ([0-9a-f]{64}) ([^\n\0]+)")
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Manifest:
    """A state of several shards.

    Attributes
    ----------
    path : pathlib.Path
    files : tuple of pathlib.Path
        The checkpoint of each shard, in the order of shards.
    digests : tuple of str
        Of each of these.
    """

    path: Path
    files: tuple[Path, ...]
    digests: tuple[str, ...]


def write_manifest(
    path: str | os.PathLike[str], files: Sequence[str | os.PathLike[str]]
) -> Manifest:
    """Publish a state of several shards, whose files are on disk.

    Parameters
    ----------
    path : path_like
        An existing manifest is replaced, atomically.
    files : sequence of path_like
        One checkpoint of each shard, in the manifest's folder or below it.

    Raises
    ------
    ArgumentError
        There is no file, or one stands elsewhere.
    CheckpointError
        A file is no checkpoint, or the manifest cannot be written.
    """
    destination = Path(path)
    if not files:
        raise ArgumentError("a manifest without shards: give one file for each")
    try:
        digests = [read_header(Path(file)).digest for file in files]
        names = [_relative(Path(file), destination.parent) for file in files]
        lines = [f"shard {d} {n}" for d, n in zip(digests, names, strict=True)]
        text = _MAGIC + os.fsencode("\n".join([f"format {MANIFEST_FORMAT}", *lines, ""]))
        write_atomically(destination, text + b"block %08x\n" % zlib.crc32(text), 0o600)
    except OSError as error:
        raise CheckpointError(
            f"cannot write manifest {destination}: {error.strerror or error}"
        ) from error
    return Manifest(destination, tuple(map(Path, files)), tuple(digests))


def parse_manifest(path: str | os.PathLike[str]) -> Manifest:
    """Return what a manifest says; its files are not looked at.

    Raises
    ------
    CheckpointCorruptError
        It is no manifest, or was altered.
    CheckpointFormatError
        It has a newer format.
    CheckpointError
        It cannot be read.
    """
    where = Path(path)
    entries = _parse(where, _read_text(where))
    files = tuple(where.parent / name for _, name in entries)
    return Manifest(where, files, tuple(digest for digest, _ in entries))


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """Return the files of a state, having compared their first bytes with what is written.

    Raises
    ------
    CheckpointCorruptError
        Also where a file is missing, or another one.
    CheckpointFormatError, CheckpointError
        See `parse_manifest`.
    """
    manifest = parse_manifest(path)
    where = manifest.path
    for file, digest in zip(manifest.files, manifest.digests, strict=True):
        try:
            found = read_header(file).digest
        except (OSError, CheckpointError) as error:
            raise CheckpointCorruptError(f"manifest {where} names {file}: {error}") from error
        if found != digest:
            raise CheckpointCorruptError(
                f"manifest {where} names {file} with sha256 {digest[:12]}..., but the one there "
                f"has {found[:12]}...: it is of another moment"
            )
    return manifest


def _relative(file: Path, folder: Path) -> str:
    try:
        name = str(file.resolve().relative_to(folder.resolve()))
    except ValueError:
        raise ArgumentError(f"{file} does not stand in {folder} or below it") from None
    if "\n" in name:
        raise ArgumentError(f"{file} has a line feed in its name")
    return name


def _read_text(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            text = file.read(_MOST_BYTES)
    except OSError as error:
        raise CheckpointError(f"cannot read manifest {path}: {error.strerror}") from error
    if not text.startswith(_MAGIC):
        raise CheckpointCorruptError(f"{path} is not a libsumtree manifest")
    return text


def _parse(path: Path, text: bytes) -> list[tuple[str, str]]:
    lines, _, _ = text.rpartition(b"block ")
    if text != lines + b"block %08x\n" % zlib.crc32(lines):
        raise CheckpointCorruptError(f"manifest {path} is not the one that was written")
    version, *shards = os.fsdecode(lines[len(_MAGIC) :]).removesuffix("\n").split("\n")
    found = re.fullmatch(r"format ([0-9]{1,9})", version)
    if found is None or int(found[1]) != MANIFEST_FORMAT:
        raise CheckpointFormatError(
            f"manifest {path} says {version!r}; this version of libsumtree reads format "
            f"{MANIFEST_FORMAT}"
        )
    entries = [_SHARD.fullmatch(line) for line in shards]
    names = [entry[2] for entry in entries if entry is not None]
    if not names or len(names) != len(entries) or any(map(_leaves_folder, names)):
        raise CheckpointCorruptError(f"manifest {path} does not name files of shards below it")
    return [(entry[1], entry[2]) for entry in entries if entry is not None]


def _leaves_folder(name: str) -> bool:
    return Path(name).is_absolute() or ".." in Path(name).parts
