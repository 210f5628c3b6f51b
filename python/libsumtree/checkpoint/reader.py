"""Reading a checkpoint: every byte is checked before HDF5 sees the file, and little is believed."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import os
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import (
    ArgumentError,
    CheckpointCorruptError,
    CheckpointError,
    ShapeError,
)
from ..files import read_all
from .block import BLOCK_SIZE, FORMAT, Header, open_regular, parse_block
from .storable import Array, is_storable
from .writer import (
    FORMAT_ATTRIBUTE,
    PARENT_ATTRIBUTE,
    Attribute,
    common_shape,
    import_h5py,
    row_ranges,
)

_HASH_BYTES = 1 << 20
_TOLD: ContextVar[Callable[[int], object]] = ContextVar("_TOLD", default=lambda count: None)
_CHUNK_LIMIT = 64 << 20
_DEFLATE, _SHUFFLE, _LZF, _ZSTD = 1, 2, 32000, 32015
#: How many bytes one stored byte can become, by the filter that it went through last.
_EXPANSION = {_DEFLATE: 1100, _LZF: 300, _ZSTD: 1 << 17, _SHUFFLE: 1}


class StoredArray:
    """A dataset of an open checkpoint: its values stay in the file until they are asked for.

    Attributes
    ----------
    name : str
    shape : tuple of int
    dtype : numpy.dtype
        Structured for records.
    """

    def __init__(self, name: str, dataset: Any, descriptor: int, offset: int | None) -> None:
        self.name = name
        self.shape: tuple[int, ...] = dataset.shape
        self.dtype: np.dtype[Any] = dataset.dtype
        self._dataset = dataset
        self._descriptor = descriptor
        self._offset = offset

    def read(self) -> Array:
        """Return the values as a new array."""
        values: Array = np.empty(self.shape, self.dtype)
        if self.shape == ():
            self.read_into(values)
        else:
            self.read_rows(0, values)
        return values

    def read_into(self, *arrays: Array) -> None:
        """Fill arrays with the values, one after another along axis 0.

        Parameters
        ----------
        *arrays : numpy.ndarray
            Writable, of this dtype; together they have this shape. They may be strided views: at
            most 4 MiB, or one row, is copied at a time.

        Raises
        ------
        ShapeError
            dtype or shape differ; nothing is written.
        ArgumentError
            An array is read-only; nothing is written.
        CheckpointError
            The checkpoint is closed.
        CheckpointCorruptError
            HDF5 cannot read the values.
        """
        shape = common_shape(self.name, arrays)
        if shape != self.shape or arrays[0].dtype != self.dtype:
            raise ShapeError(
                f"dataset {self.name!r} is {self.dtype} {self.shape}; it cannot fill "
                f"{arrays[0].dtype} {shape}"
            )
        if not all(array.flags.writeable for array in arrays):
            raise ArgumentError(f"dataset {self.name!r} cannot fill a read-only array")
        if self.shape == ():
            self._check_open()
            with hdf5_errors(f"dataset {self.name!r}"):
                arrays[0][...] = self._dataset[()]
            return
        start = 0
        for array in arrays:
            self.read_rows(start, array)
            start += len(array)

    def read_rows(self, start: int, target: Array) -> None:
        """Fill `target` with the rows from `start` on.

        Parameters
        ----------
        start : int
            >= 0.
        target : numpy.ndarray
            Writable, of this dtype, with this shape but for axis 0; ``start + len(target)`` is at
            most the number of rows.

        Raises
        ------
        ShapeError, CheckpointError, CheckpointCorruptError
            See `read_into`.
        """
        if target.dtype != self.dtype or target.shape[1:] != self.shape[1:]:
            raise ShapeError(
                f"dataset {self.name!r} is {self.dtype} {self.shape}; it cannot fill "
                f"{target.dtype} {target.shape}"
            )
        if not 0 <= start <= start + len(target) <= self.shape[0]:
            raise ShapeError(
                f"dataset {self.name!r} has {self.shape[0]} rows; {len(target)} from {start} on "
                "are asked for"
            )
        self._check_open()
        for low, high in row_ranges(len(target), target.nbytes):
            self._read_block(start + low, target[low:high])

    def _read_block(self, start: int, target: Array) -> None:
        with hdf5_errors(f"dataset {self.name!r}"):
            if self._offset is None:
                target[...] = self._dataset[start : start + len(target)]
                return
            rows = target if target.flags.c_contiguous else np.empty(target.shape, target.dtype)
            place = self._offset + start * (rows.nbytes // len(rows))
            read_all(self._descriptor, rows.reshape(-1).view(np.uint8), place)
            if rows is not target:
                target[...] = rows

    def _check_open(self) -> None:
        if not self._dataset:
            raise CheckpointError(f"dataset {self.name!r}: its checkpoint is closed")


@dataclass(frozen=True)
class Checkpoint:
    """An open checkpoint whose digest was right; a context manager that closes the file.

    Attributes
    ----------
    path : pathlib.Path
    header : Header
        Its user block.
    attributes : dict of str to bool, int, float, str or numpy.ndarray
    datasets : dict of str to StoredArray
        Names such as ``tree/masses``.
    """

    path: Path
    header: Header
    attributes: dict[str, Attribute]
    datasets: dict[str, StoredArray]
    _resources: contextlib.ExitStack

    @property
    def format(self) -> int:
        """The format of the file."""
        return FORMAT

    def close(self) -> None:
        """Close the file; its datasets cannot be read any more."""
        self._resources.close()

    def __enter__(self) -> Checkpoint:
        """Return the checkpoint itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the file."""
        self.close()


def read(path: str | os.PathLike[str]) -> Checkpoint:
    """Open a checkpoint, once all of its bytes are known to be those that were written.

    The digest is checked by plain reads before HDF5 sees the file, and HDF5 reads the very file
    that was checked, whatever becomes of `path` meanwhile.

    Returns
    -------
    Checkpoint
        To be closed by the caller; use ``with``. Of an incremental checkpoint, this is one file
        alone: see `read_chain`.

    Raises
    ------
    CheckpointError
        There is no such file, or it cannot be opened.
    CheckpointCorruptError
        The file is no checkpoint, is cut short or was altered, or holds anything but plain arrays.
    CheckpointFormatError
        The file has a newer format.
    ImportError
        h5py is not installed.

    Notes
    -----
    Time is linear in the bytes of the file; memory is constant until datasets are read.
    """
    h5py = import_h5py()
    where = Path(path)
    with contextlib.ExitStack() as resources:
        file = resources.enter_context(_open(where))
        header = _check_bytes(where, file)
        with hdf5_errors(f"checkpoint {where}"):
            hdf5 = resources.enter_context(h5py.File(file, "r"))
            attributes = _read_attributes(where, hdf5)
            collector = _Collector(h5py, where, file.fileno())
            collector.collect(hdf5, "")
        _check_own(where, header, attributes)
        return Checkpoint(where, header, attributes, collector.datasets, resources.pop_all())
    raise AssertionError("unreachable")


def check(path: str | os.PathLike[str]) -> Header:
    """Check all bytes of a file, by plain reads; return its header. Raises as `read` does."""
    where = Path(path)
    with _open(where) as file:
        return _check_bytes(where, file)


def _open(path: Path) -> io.FileIO:
    try:
        return open_regular(path)
    except FileNotFoundError:
        raise CheckpointError(f"checkpoint {path} does not exist") from None
    except OSError as error:
        raise CheckpointError(f"cannot open checkpoint {path}: {error.strerror}") from error


def _check_bytes(path: Path, file: io.FileIO) -> Header:
    try:
        block = file.read(BLOCK_SIZE)
        header = parse_block(path, block)
        length, digest = file.seek(0, os.SEEK_END), ""
        if length == header.length:
            digest = _digest(file)
    except OSError as error:
        raise CheckpointError(f"cannot read checkpoint {path}: {error.strerror}") from error
    if digest != header.digest:
        raise CheckpointCorruptError(
            f"checkpoint {path}: its {length} bytes are not those that were written (cut short or "
            "altered); use an older checkpoint"
        )
    return header


def _digest(file: io.FileIO) -> str:
    hasher = hashlib.sha256()
    piece = bytearray(_HASH_BYTES)
    file.seek(BLOCK_SIZE)
    told = _TOLD.get()
    while done := file.readinto(piece):
        hasher.update(memoryview(piece)[:done])
        told(done)
    return hasher.hexdigest()


@contextlib.contextmanager
def bytes_told(tell: Callable[[int], object]) -> Iterator[None]:
    """Have `tell` called with the number of bytes of each piece whose digest is taken meanwhile."""
    token = _TOLD.set(tell)
    try:
        yield
    finally:
        _TOLD.reset(token)


@contextlib.contextmanager
def hdf5_errors(what: str) -> Iterator[None]:
    """Turn what h5py raises about a file into the one error that a caller expects."""
    try:
        yield
    except (CheckpointError, MemoryError):
        raise
    except (
        *(OSError, EOFError, RuntimeError, ValueError, KeyError, TypeError),
        OverflowError,  # an address beyond those of files
    ) as error:
        raise CheckpointCorruptError(f"{what} cannot be read by HDF5: {error}") from error


def _check_name(path: Path, name: str | bytes) -> None:
    """Refuse a name that is not UTF-8, which h5py gives as bytes."""
    if isinstance(name, bytes):
        raise CheckpointCorruptError(f"checkpoint {path}: the name {name!r} is not UTF-8")


def _read_attributes(path: Path, hdf5: Any) -> dict[str, Attribute]:
    attributes: dict[str, Attribute] = {}
    for name in hdf5.attrs:
        _check_name(path, name)
        kind = hdf5.attrs.get_id(name).dtype
        value = hdf5.attrs[name] if is_storable(kind) or kind.hasobject else None
        if isinstance(value, np.generic):
            value = value.item() if is_storable(value.dtype) else None
        if not isinstance(value, bool | int | float | str) and not (
            isinstance(value, np.ndarray) and is_storable(value.dtype)
        ):
            raise CheckpointCorruptError(
                f"checkpoint {path}: attribute {name!r} is neither text nor plain numbers"
            )
        attributes[name] = value
    return attributes


def _check_own(path: Path, header: Header, attributes: dict[str, Attribute]) -> None:
    """Take out the attributes that repeat the user block, for the digest covers only them."""
    own = {FORMAT_ATTRIBUTE: FORMAT, PARENT_ATTRIBUTE: header.parent}
    for name, value in own.items():
        found = attributes.pop(name, None)
        if type(found) is not type(value) or found != value:
            raise CheckpointCorruptError(
                f"checkpoint {path}: attribute {name!r} is not the {value} of its first lines"
            )


class _Collector:
    """Collects the datasets of a file, which may hold groups and plain arrays only."""

    def __init__(self, h5py: Any, path: Path, descriptor: int) -> None:
        self.datasets: dict[str, StoredArray] = {}
        self._h5py = h5py
        self._path = path
        self._descriptor = descriptor

    def collect(self, group: Any, prefix: str) -> None:
        """Take in what is under `group`.

        Every object has one hard link, so the groups are a tree and the recursion ends.
        """
        h5py = self._h5py
        for name in group:
            _check_name(self._path, name)
            full = prefix + name
            link = group.get(name, getlink=True)
            member = group[name] if isinstance(link, h5py.HardLink) else None
            if member is None or h5py.h5o.get_info(member.id).rc != 1:
                raise CheckpointCorruptError(
                    f"checkpoint {self._path}: {full!r} is a link, or has another name too"
                )
            if isinstance(member, h5py.Group):
                self.collect(member, full + "/")
                continue
            if not isinstance(member, h5py.Dataset) or not self._is_plain(member):
                raise CheckpointCorruptError(
                    f"checkpoint {self._path}: {full!r} is not a plain array of numbers or records"
                )
            self.datasets[full] = StoredArray(
                full, member, self._descriptor, self._offset_of(member)
            )

    def _is_plain(self, dataset: Any) -> bool:
        """Tell whether the values stand in this file, all of them, and what they take is bounded.

        Nothing is read, and no filter is looked up, before this holds.
        """
        h5d = self._h5py.h5d
        properties = dataset.id.get_create_plist()
        if properties.get_external_count() or dataset.shape is None:
            return False
        if not self._is_plain_dtype(dataset.dtype):
            return False
        nbytes, stored = dataset.size * dataset.dtype.itemsize, dataset.id.get_storage_size()
        if properties.get_layout() in (h5d.CONTIGUOUS, h5d.COMPACT):
            return bool(nbytes == stored)
        return bool(
            properties.get_layout() == h5d.CHUNKED
            and int(np.prod(dataset.chunks, dtype=object)) * dataset.dtype.itemsize <= _CHUNK_LIMIT
            and nbytes <= stored * _expansion(properties)
        )

    def _is_plain_dtype(self, dtype: np.dtype[Any]) -> bool:
        if dtype.names is not None:
            fields = [dtype[name].base for name in dtype.names]
            return all(field.names is None and self._is_plain_dtype(field) for field in fields)
        base = dtype.base
        return is_storable(base) and self._h5py.check_enum_dtype(base) is None

    def _offset_of(self, dataset: Any) -> int | None:
        """Where the values stand as they are, for plain reads; None if HDF5 is to read them."""
        contiguous = (
            dataset.id.get_create_plist().get_layout() == self._h5py.h5d.CONTIGUOUS and dataset.size
        )
        return int(dataset.id.get_offset()) if contiguous else None


def _expansion(properties: Any) -> int:
    """Return how many bytes a stored byte can become, 0 with a filter that is not known.

    What else HDF5 might load as a filter, from wherever its environment says, stays unloaded.
    """
    most = 1
    for at in range(properties.get_nfilters()):
        number = properties.get_filter(at)[0]
        if number == _ZSTD and importlib.util.find_spec("hdf5plugin") is None:
            return 0
        most *= _EXPANSION.get(number, 0)
    if any(properties.get_filter(at)[0] == _ZSTD for at in range(properties.get_nfilters())):
        import hdf5plugin  # noqa: F401 - registers the filter
    return most
