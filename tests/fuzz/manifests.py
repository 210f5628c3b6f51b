"""Manifests of a folder of files: damaged ones are refused, made-up ones name nothing outside."""

from __future__ import annotations

import atexit
import os
import tempfile
import zlib
from functools import cache
from pathlib import Path

from libsumtree import checkpoint
from libsumtree.checkpoint import removable
from libsumtree.checkpoint.block import Header
from libsumtree.errors import CheckpointError

_DIGESTS = ("a" * 64, "0123456789abcdef" * 4)


@cache
def _folder() -> Path:
    holder = tempfile.TemporaryDirectory(prefix="libsumtree-fuzz-")
    atexit.register(holder.cleanup)
    folder = Path(holder.name)
    for shard, digest in enumerate(_DIGESTS):
        place = checkpoint.shard_folder(folder, shard)
        place.mkdir()
        (place / "replay-000000000007.h5").write_bytes(Header(512, digest, None).to_bytes())
    os.mkfifo(folder / "pipe")
    return folder


def _text() -> bytes:
    names = [f"shard-{shard:04d}/replay-000000000007.h5" for shard in range(2)]
    lines = [f"shard {digest} {name}" for digest, name in zip(_DIGESTS, names, strict=True)]
    return "\n".join(["libsumtree manifest", "format 1", *lines, ""]).encode()


def _signed(text: bytes) -> bytes:
    return text + b"block %08x\n" % zlib.crc32(text)


def one(data: bytes) -> None:
    sign, text = data[:1] != b"\0", data[1:]
    content = _signed(text) if sign else text
    path = checkpoint.manifest_of(_folder(), 7)
    path.write_bytes(content)
    removable(_folder(), 1)
    try:
        files = checkpoint.files_of(path)
    except CheckpointError as error:
        assert str(error)
        return
    whole = _signed(_text())
    assert sign or content == whole
    for file in files:
        assert file.resolve().is_relative_to(_folder().resolve())
        assert checkpoint.read_header(file).digest in _DIGESTS


def seeds() -> list[bytes]:
    one_shard = _text().rpartition(b"shard ")[0]
    outside = _text().replace(b"shard-0001/", b"../")
    made_up = [_text(), one_shard, outside, _text().replace(b"format 1", b"format 2")]
    return [b"\0" + _signed(_text()), *(b"\1" + text for text in made_up)]
