"""Folders that are there, and can be written, before anything is made to go into them."""

from __future__ import annotations

from pathlib import Path

from ..files import make_writable
from .errors import OptionError


def prepare_folder(option: str, path: Path) -> None:
    """Make the folder that an option names, and prove that it can be written.

    Raises
    ------
    OptionError
        If it cannot be made or written.
    """
    try:
        make_writable(path)
    except OSError as error:
        raise OptionError(
            f"{option} {path} cannot be written ({error.strerror}): name a folder of yours"
        ) from error
