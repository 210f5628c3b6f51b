"""The files of one folder by their serials."""

from __future__ import annotations

import re
from pathlib import Path

_NAME = re.compile(r"replay-(\d{12,})\.h5")


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
