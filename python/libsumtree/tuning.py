"""The tuning file: what ``libsumtree tune`` measured, and what ``backend="auto"`` takes from it.

One file for each kind of machine, so that nodes of several kinds may share a home directory::

    $XDG_CONFIG_HOME/libsumtree/tune-<fingerprint>.json      (default: ~/.config)

It is read once in a process, by the first tree that asks for ``"auto"``; a tree has one backend, so
what is decided then is decided by its capacity, for batches of the size that `Tuning.batch` names.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from . import machine
from .errors import TuningError
from .files import make_writable, write_atomically

FORMAT = 1


@dataclass(frozen=True)
class Kind:
    """A kind of machine: where two of them are equal, a measurement on one holds on the other.

    Attributes
    ----------
    processor : str
    threads : int
        That multicore may use.
    gpus : tuple of str
    backends : tuple of str
        That are installed.
    """

    processor: str
    threads: int
    gpus: tuple[str, ...]
    backends: tuple[str, ...]

    @classmethod
    def here(cls, backends: Sequence[str]) -> Kind:
        """Describe the machine that this process runs on.

        Parameters
        ----------
        backends : sequence of str
            The backends that are installed.
        """
        return cls(
            machine.processor(), machine.threads(), tuple(machine.gpus()), tuple(sorted(backends))
        )

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits of a digest of all of it."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Tuning:
    """What was measured on one kind of machine.

    Attributes
    ----------
    version : str
        Of libsumtree.
    kind : Kind
    batch : int
        The batch size that `choices` are for.
    choices : dict of int to str
        The backend that pays, by capacity.
    rows : list of dict
        The measurements: ``capacity``, ``batch``, the backend that ``pays``, and in
        ``microseconds`` the time of an update and a sample of so many, by backend.
    """

    version: str
    kind: Kind
    batch: int
    choices: Mapping[int, str]
    rows: Sequence[Mapping[str, Any]]

    def choice(self, capacity: int) -> str:
        """Give the backend for a capacity: that of the nearest one measured, by ratio."""
        nearest = min(self.choices, key=lambda known: abs(math.log2(known / capacity)))
        return self.choices[nearest]


def path_of(kind: Kind) -> Path:
    """Give the place of the tuning file of a kind of machine."""
    return folder() / f"tune-{kind.fingerprint}.json"


def folder() -> Path:
    """Give the folder of the tuning files.

    Raises
    ------
    TuningError
        If there is no home directory to put it in.
    """
    configured = os.environ.get("XDG_CONFIG_HOME", "")
    if configured.startswith("/"):  # the XDG specification: a relative path is to be ignored
        return Path(configured) / "libsumtree"
    try:
        return Path.home() / ".config" / "libsumtree"
    except RuntimeError as error:
        raise TuningError(f"no folder for a tuning file: {error}; set XDG_CONFIG_HOME") from None


def read(kind: Kind) -> Tuning | None:
    """Read the tuning file of a kind of machine; None if there is none.

    Raises
    ------
    TuningError
        If it is damaged, or was measured by another version or on another kind of machine.
    """
    path = path_of(kind)
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise TuningError(f"the tuning file {path} cannot be read ({error.strerror})") from None
    try:
        tuning = _parse(json.loads(content))
    except (ArithmeticError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise TuningError(f"{path} is not a tuning file, or is damaged") from None
    if tuning.kind != kind:
        raise TuningError(f"the tuning file {path} was measured on another kind of machine")
    from . import __version__

    if tuning.version != __version__:
        raise TuningError(f"the tuning file {path} is of libsumtree {tuning.version}")
    return tuning


def prepare() -> None:
    """Make the folder of the tuning files, and prove that it can be written.

    Raises
    ------
    TuningError
        If it cannot be made or written.
    """
    where = folder()
    try:
        make_writable(where)
    except OSError as error:
        raise _unwritable(where, error) from None


def _unwritable(path: Path, error: OSError) -> TuningError:
    return TuningError(
        f"{path} cannot be written ({error.strerror}): set XDG_CONFIG_HOME to a folder of yours"
    )


def write(tuning: Tuning) -> Path:
    """Write the tuning file of its kind of machine, whole or not at all; return its place.

    Raises
    ------
    TuningError
        If the folder cannot be made or written.
    """
    path = path_of(tuning.kind)
    content = {"format": FORMAT, **asdict(tuning)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(content, indent=1).encode() + b"\n")
    except OSError as error:
        raise _unwritable(path, error) from None
    recall.cache_clear()
    return path


def remove(kind: Kind) -> bool:
    """Remove the tuning file of a kind of machine; tell whether there was one.

    Raises
    ------
    TuningError
        If it cannot be removed.
    """
    path = path_of(kind)
    try:
        path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise TuningError(f"{path} cannot be removed ({error.strerror})") from None
    finally:
        recall.cache_clear()
    return True


@cache
def recall(backends: tuple[str, ...]) -> Tuning | None:
    """Read the tuning file of this machine, once in a process; warn if it is of no use.

    Parameters
    ----------
    backends : tuple of str
        The backends that are installed.

    Returns
    -------
    Tuning or None
        None if there is none, or none of use.
    """
    try:
        return read(Kind.here(backends))
    except TuningError as error:
        remedy = "run `libsumtree tune` again, or `libsumtree tune --reset`"
        warnings.warn(f"ignored: {error}; {remedy}", RuntimeWarning, stacklevel=5)
        return None


def _parse(content: Any) -> Tuning:
    if content["format"] != FORMAT:
        raise ValueError
    stored = content["kind"]
    kind = Kind(
        str(stored["processor"]),
        int(stored["threads"]),
        tuple(map(str, stored["gpus"])),
        tuple(map(str, stored["backends"])),
    )
    choices = {int(capacity): str(name) for capacity, name in content["choices"].items()}
    if not choices or min(choices) < 1 or not set(choices.values()) <= set(kind.backends):
        raise ValueError
    measured = [_parse_row(row) for row in content["rows"]]
    return Tuning(str(content["version"]), kind, int(content["batch"]), choices, measured)


def _parse_row(stored: Any) -> dict[str, Any]:
    times = {str(name): float(time) for name, time in stored["microseconds"].items()}
    return {
        "capacity": int(stored["capacity"]),
        "batch": int(stored["batch"]),
        "pays": str(stored["pays"]),
        "microseconds": times,
    }
