"""Checkpoint files: named arrays and attributes in HDF5, whole or not at all.

A file of this format (0, a draft) is an HDF5 file behind a user block of 512 bytes: ASCII lines,
then zeros. ::

    libsumtree checkpoint
    format 0
    length 0000000000108657
    sha256 <64 hexadecimal digits: the SHA-256 of every byte after the user block>
    block <8 hexadecimal digits: the CRC-32 of the lines above>

Thus ``head -5 FILE`` shows what a file claims to be, ``tail -c +513 FILE | sha256sum`` checks it,
and plain ``h5dump`` or h5py read it. The first two lines, and ``block`` as the last one, stay the
same in every format.

This module knows nothing of buffers. It needs h5py, the extra ``hdf5``, only once a file is written
or read.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import os
import re
import secrets
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .errors import (
    ArgumentError,
    ArgumentTypeError,
    CheckpointCorruptError,
    CheckpointError,
    CheckpointFormatError,
    ShapeError,
)
from .ids import MAX_EPOCH

Array: TypeAlias = NDArray[Any]
Attribute: TypeAlias = bool | int | float | str | Array

FORMAT = 0
BLOCK_SIZE = 512
LEDGER_NAME = "libsumtree.epoch"

_MAGIC = b"libsumtree checkpoint\n"
_FORMAT_ATTRIBUTE = "format"
_CHUNK_BYTES = 8 << 20
_ATTRIBUTE_BYTES = 32 << 10  # HDF5's object headers end at 64 KiB
_LIBVER = ("earliest", "v110")
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


# ---- arrays and names that HDF5 can hold ----


def is_storable(dtype: np.dtype[Any]) -> bool:
    """Tell whether a dataset can have this dtype: a plain number that HDF5 knows natively."""
    return (dtype.kind in "biu") or (
        (dtype.kind == "f" and dtype.itemsize <= 8) or (dtype.kind == "c" and dtype.itemsize <= 16)
    )


def field_to_storable(array: Array) -> Array:
    """Return `array` in a dtype that a dataset can have: itself, or its bytes.

    Parameters
    ----------
    array : numpy.ndarray
        Any dtype without objects, any strides.

    Returns
    -------
    numpy.ndarray
        `array` itself where `is_storable` holds. Otherwise (text, bytes, times, nested records,
        long double) a uint8 view of the same memory with one more axis, the item size. The view is
        writable where `array` is, so that reading a dataset into it restores the field.

    Raises
    ------
    ArgumentTypeError
        The dtype holds Python objects.
    """
    if array.dtype.hasobject:
        raise ArgumentTypeError(f"dtype {array.dtype} holds Python objects, which cannot be saved")
    if is_storable(array.dtype):
        return array
    if array.dtype.itemsize == 0:
        return np.zeros((*array.shape, 0), np.uint8)
    return array[..., np.newaxis].view(np.uint8)


def field_from_storable(stored: Array, dtype: np.dtype[Any]) -> Array:
    """Return the array of `dtype` (without subarray) whose `field_to_storable` is `stored`.

    Raises
    ------
    ShapeError
        `stored` does not have the dtype and last axis that `field_to_storable` gives.
    """
    if is_storable(dtype):
        if stored.dtype != dtype:
            raise ShapeError(f"stored dtype is {stored.dtype} where {dtype} is needed")
        return stored
    if stored.dtype != np.uint8 or stored.ndim == 0 or stored.shape[-1] != dtype.itemsize:
        raise ShapeError(
            f"stored array has dtype {stored.dtype}, shape {stored.shape}; {dtype} is stored as "
            f"uint8 with a last axis of {dtype.itemsize}"
        )
    if dtype.itemsize == 0:
        # As a field: on its own, NumPy widens text of no characters to one.
        empty: Array = np.zeros(stored.shape[:-1], [("field", dtype)])["field"]
        return empty
    restored: Array = np.ascontiguousarray(stored).view(dtype)[..., 0]
    return restored


def escape_name(name: str) -> str:
    """Return a field name as one component of a dataset's name; `unescape_name` is the inverse.

    The characters ``%``, ``/`` and ``.``, control characters and lone surrogates become ``%`` and
    two hexadecimal digits for each of their UTF-8 bytes; the empty name becomes ``%``.
    """
    if not name:
        return "%"
    return re.sub(
        r"[%/.\x00-\x1f\x7f\ud800-\udfff]",
        lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass")),
        name,
    )


def unescape_name(escaped: str) -> str:
    """Return the field name that `escape_name` gave this component for.

    Raises
    ------
    CheckpointCorruptError
        `escape_name` gives no such component.
    """
    if escaped == "%":
        return ""
    with contextlib.suppress(ValueError):
        name = re.sub(
            r"(?:%[0-9A-F]{2})+",
            lambda match: bytes.fromhex(match[0].replace("%", "")).decode("utf-8", "surrogatepass"),
            escaped,
        )
        if escape_name(name) == escaped:
            return name
    raise CheckpointCorruptError(f"{escaped!r} is not an escaped field name")


# ---- writing ----


def write(
    path: str | os.PathLike[str],
    attributes: Mapping[str, Attribute],
    datasets: Mapping[str, Sequence[Array]],
) -> None:
    """Write a checkpoint: afterwards `path` is the new file, whole and on disk.

    Whatever happens on the way, a full disk or SIGKILL included, `path` is either the file that it
    was or the new one. The file is written under a temporary name, ``.NAME.<pid>.<random>.tmp`` in
    the same folder; it is removed on any failure, and by the next `write` if the process was
    killed.

    Parameters
    ----------
    path : path_like
        An existing file is replaced. One process at a time writes to one path.
    attributes : mapping of str to bool, int, float, str or numeric numpy.ndarray
        Stored as attributes of the root group. The name ``format`` is the file's own.
    datasets : mapping of str to sequence of numpy.ndarray
        Names such as ``tree/masses``. The arrays of one sequence have one dtype (see
        `is_storable`) and are written one after another along axis 0; a single array may have no
        axis. They may be strided views: at most 8 MiB, or one row, is copied at a time.

    Raises
    ------
    ArgumentTypeError
        An attribute or a dataset has a type that cannot be stored.
    ShapeError
        A sequence of arrays is empty, or they differ in more than axis 0.
    CheckpointError
        The file cannot be written; the message says why.
    ImportError
        h5py is not installed.

    Notes
    -----
    Time is linear in the bytes. File mode 0600.
    """
    h5py = _import_h5py()
    _check_attributes(attributes)
    _check_names(datasets)
    shapes = {name: _common_shape(name, arrays) for name, arrays in datasets.items()}
    destination = Path(path)
    if destination.is_dir():
        raise CheckpointError(
            f"cannot write checkpoint {destination}: it is a folder; add a file name"
        )
    if not destination.parent.is_dir():
        raise CheckpointError(
            f"cannot write checkpoint {destination}: make the folder of that file"
        )
    try:
        _remove_leftovers(destination)
        with _temporary_beside(destination) as (file, temporary):
            sink = _Sink(file)
            options = {"userblock_size": BLOCK_SIZE, "libver": _LIBVER}
            with _reporting(sink), h5py.File(sink, "w", **options) as hdf5:
                _fill(hdf5, sink, attributes, datasets, shapes)
            _seal(file)
            temporary.replace(destination)
            _sync_folder(destination.parent)
    except OSError as error:
        raise CheckpointError(
            f"cannot write checkpoint {destination}: {error.strerror or error}"
        ) from error


class _Sink(io.RawIOBase):
    """The file that HDF5 writes to; after a first failure it swallows everything.

    HDF5 must be able to close a file whose disk is full: otherwise it keeps it and fails again at
    exit. So no error reaches HDF5; `error` holds the first, for the caller to raise.
    """

    def __init__(self, file: io.FileIO) -> None:
        self.error: BaseException | None = None
        self._file = file

    def _attempt(self, operation: Any, *arguments: Any) -> Any:
        if self.error is None:
            try:
                return operation(*arguments)
            except BaseException as error:  # KeyboardInterrupt too: it is raised by the caller
                self.error = error
        return 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return int(self._attempt(self._file.seek, offset, whence))

    def tell(self) -> int:
        return int(self._attempt(self._file.tell))

    def write(self, data: Any) -> int:
        self._attempt(_write_all, self._file, data)
        return len(data)

    def readinto(self, buffer: Any) -> int:
        return int(self._attempt(self._file.readinto, buffer))

    def truncate(self, size: int | None = None) -> int:
        return int(self._attempt(self._file.truncate, size))

    def check(self) -> None:
        """Raise the first failure, if there was one."""
        if self.error is not None:
            raise self.error


@contextlib.contextmanager
def _reporting(sink: _Sink) -> Iterator[None]:
    """Put the failure of the file itself before whatever HDF5 made of it."""
    try:
        yield
    except Exception:
        sink.check()
        raise
    sink.check()


def _write_all(file: io.FileIO, data: Any) -> None:
    """Write every byte: one call of an unbuffered file may take fewer."""
    rest = memoryview(data).cast("B")
    while rest:
        rest = rest[file.write(rest) :]


def _check_attributes(attributes: Mapping[str, Attribute]) -> None:
    for name, value in attributes.items():
        if not _is_text(name) or not name or name == _FORMAT_ATTRIBUTE:
            raise ArgumentTypeError(
                f"attribute name {name!r}: give a string that is neither empty nor 'format'"
            )
        if isinstance(value, str):
            if not _is_text(value):
                raise ArgumentTypeError(f"attribute {name!r}: {value!r} has no UTF-8 form, or NULs")
        elif not _is_attribute(np.asarray(value)):
            raise ArgumentTypeError(
                f"attribute {name!r}: {value!r} is neither text nor a real number, or array of at "
                f"most {_ATTRIBUTE_BYTES} bytes of them, of at most 64 bits each"
            )


def _is_text(value: Any) -> bool:
    """Tell whether HDF5 can hold a string: UTF-8 without NUL."""
    return isinstance(value, str) and re.search("[\\0\ud800-\udfff]", value) is None


def _is_attribute(array: Array) -> bool:
    return is_storable(array.dtype) and array.dtype.kind != "c" and array.nbytes <= _ATTRIBUTE_BYTES


def _check_names(names: Iterable[str]) -> None:
    """Check that every name is a path, and none of them is the folder of another."""
    folders = {str(folder) for name in names for folder in PurePosixPath(name).parents}
    for name in names:
        if not _is_text(name) or not re.fullmatch(r"[^/.]+(/[^/.]+)*", name) or name in folders:
            raise ArgumentTypeError(
                f"dataset name {name!r}: give components such as 'tree/masses', without dots or a "
                "slash in front, that are not the beginning of another name"
            )


def _common_shape(name: str, arrays: Sequence[Array]) -> tuple[int, ...]:
    """Return the shape of the dataset that holds `arrays` one after another."""
    if len(arrays) == 0:
        raise ShapeError(f"dataset {name!r}: no array is given, so it has no dtype")
    first = arrays[0]
    for array in arrays:
        if not isinstance(array, np.ndarray) or not is_storable(array.dtype):
            kind = getattr(array, "dtype", type(array).__name__)
            raise ArgumentTypeError(
                f"dataset {name!r}: {kind} is not a plain numeric dtype; see field_to_storable"
            )
        if array.dtype != first.dtype or array.shape[1:] != first.shape[1:]:
            raise ShapeError(
                f"dataset {name!r}: {array.dtype} {array.shape} cannot follow "
                f"{first.dtype} {first.shape}"
            )
    if len(arrays) == 1:
        return first.shape
    if any(array.ndim == 0 for array in arrays):
        raise ShapeError(f"dataset {name!r}: arrays without an axis cannot follow one another")
    return (sum(len(array) for array in arrays), *first.shape[1:])


def _fill(
    hdf5: Any,
    sink: _Sink,
    attributes: Mapping[str, Attribute],
    datasets: Mapping[str, Sequence[Array]],
    shapes: Mapping[str, tuple[int, ...]],
) -> None:
    hdf5.attrs[_FORMAT_ATTRIBUTE] = FORMAT
    for name, value in attributes.items():
        hdf5.attrs[name] = value
    for name, arrays in datasets.items():
        dataset = hdf5.create_dataset(name, shapes[name], arrays[0].dtype)
        start = 0
        for array in arrays:
            for low, high in _row_chunks(array):
                dataset[start + low : start + high] = array[low:high]
                sink.check()
            if array.ndim == 0:
                dataset[()] = array
            else:
                start += len(array)


def _row_chunks(array: Array) -> Iterator[tuple[int, int]]:
    """Yield [low, high) ranges of rows that hold at most `_CHUNK_BYTES`, or one row."""
    if array.size:
        rows = len(array) if array.ndim else 0
        step = max(1, _CHUNK_BYTES // max(1, array.nbytes // max(1, rows)))
        for low in range(0, rows, step):
            yield low, min(rows, low + step)


@contextlib.contextmanager
def _temporary_beside(destination: Path) -> Iterator[tuple[io.FileIO, Path]]:
    """Create a locked temporary of `destination`; on exit it is gone, unless it was renamed.

    The lock lasts as long as the process: it tells `_remove_leftovers` that the file has an owner.
    """
    temporary = destination.with_name(
        f".{destination.name}.{os.getpid()}.{secrets.token_hex(8)}.tmp"
    )
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with io.FileIO(os.open(temporary, flags, 0o600), "w+") as file:
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield file, temporary
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
            raise


def _remove_leftovers(destination: Path) -> None:
    """Remove the temporaries of `destination` that killed processes left behind."""
    pattern = re.compile(re.escape(f".{destination.name}.") + r"\d+\.[0-9a-f]{16}\.tmp")
    for leftover in destination.parent.iterdir():
        if pattern.fullmatch(leftover.name):
            with contextlib.suppress(OSError), leftover.open("rb+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                leftover.unlink()


def _render_block(version: int, length: int, digest: str) -> bytes:
    lines = _MAGIC + f"format {version}\nlength {length:016d}\nsha256 {digest}\n".encode()
    return (lines + f"block {zlib.crc32(lines):08x}\n".encode()).ljust(BLOCK_SIZE, b"\0")


def _digest(file: io.FileIO | io.BufferedReader) -> str:
    file.seek(BLOCK_SIZE)
    return hashlib.file_digest(file, "sha256").hexdigest()


def _seal(file: io.FileIO) -> None:
    """Put the digest into the user block, and the file onto the disk."""
    length = file.seek(0, os.SEEK_END)
    block = _render_block(FORMAT, length, _digest(file))
    file.seek(0)
    _write_all(file, block)
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# ---- reading ----


class StoredArray:
    """A dataset of an open checkpoint: its values stay in the file until they are asked for.

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    """

    def __init__(self, name: str, dataset: Any) -> None:
        self.name = name
        self.shape: tuple[int, ...] = dataset.shape
        self.dtype: np.dtype[Any] = dataset.dtype
        self._dataset = dataset

    def read(self) -> Array:
        """Return the values as a new array."""
        values: Array = np.empty(self.shape, self.dtype)
        self.read_into(values)
        return values

    def read_into(self, *arrays: Array) -> None:
        """Fill arrays with the values, one after another along axis 0.

        Parameters
        ----------
        *arrays : numpy.ndarray
            Writable, of this dtype; together they have this shape. They may be strided views: at
            most 8 MiB, or one row, is copied at a time.

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
        shape = _common_shape(self.name, arrays)
        if shape != self.shape or arrays[0].dtype != self.dtype:
            raise ShapeError(
                f"dataset {self.name!r} is {self.dtype} {self.shape}; it cannot fill "
                f"{arrays[0].dtype} {shape}"
            )
        if not all(array.flags.writeable for array in arrays):
            raise ArgumentError(f"dataset {self.name!r} cannot fill a read-only array")
        if not self._dataset:
            raise CheckpointError(f"dataset {self.name!r}: its checkpoint is closed")
        start = 0
        with _hdf5_errors(f"dataset {self.name!r}"):
            for array in arrays:
                if array.ndim == 0:
                    array[...] = self._dataset[()]
                    continue
                for low, high in _row_chunks(array):
                    array[low:high] = self._dataset[start + low : start + high]
                start += len(array)


@dataclass(frozen=True)
class Checkpoint:
    """An open checkpoint whose digest was right; a context manager that closes the file.

    Attributes
    ----------
    format : int
        The format of the file.
    attributes : dict of str to bool, int, float, str or numpy.ndarray
    datasets : dict of str to StoredArray
        Names such as ``tree/masses``.
    """

    format: int
    attributes: dict[str, Attribute]
    datasets: dict[str, StoredArray]
    _resources: contextlib.ExitStack

    def close(self) -> None:
        """Close the file; its datasets cannot be read any more."""
        self._resources.close()

    def __enter__(self) -> Checkpoint:
        """Return the checkpoint itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the file."""
        self.close()


def read(path: str | os.PathLike[str]) -> Checkpoint:
    """Open a checkpoint, once all of its bytes are known to be those that were written.

    The digest is checked by plain reads before HDF5 sees the file, and HDF5 reads the very file
    that was checked, whatever becomes of `path` meanwhile.

    Returns
    -------
    Checkpoint
        To be closed by the caller; use ``with``.

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
    h5py = _import_h5py()
    where = Path(path)
    resources = contextlib.ExitStack()
    try:
        file = resources.enter_context(_open_regular(where))
        try:
            version = _check_block(where, file)
        except OSError as error:
            raise CheckpointError(f"cannot read checkpoint {where}: {error.strerror}") from error
        with _hdf5_errors(f"checkpoint {where}"):
            hdf5 = resources.enter_context(h5py.File(file, "r"))
            attributes = _read_attributes(where, hdf5)
            datasets: dict[str, StoredArray] = {}
            _collect(where, h5py, hdf5, "", datasets)
    except BaseException:
        resources.close()
        raise
    if attributes.pop(_FORMAT_ATTRIBUTE, None) != version:
        resources.close()
        raise CheckpointCorruptError(
            f"checkpoint {where}: attribute 'format' is not the {version} of its first lines"
        )
    return Checkpoint(version, attributes, datasets, resources)


def _open_regular(path: Path) -> io.BufferedReader:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise CheckpointError(f"checkpoint {path} does not exist") from None
    except OSError as error:
        raise CheckpointError(f"cannot open checkpoint {path}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CheckpointError(f"cannot open checkpoint {path}: it is not a regular file")
    return os.fdopen(descriptor, "rb")


def _check_block(path: Path, file: io.BufferedReader) -> int:
    """Check the user block and the digest; return the format."""
    block = file.read(BLOCK_SIZE)
    if not block.startswith(_MAGIC):
        raise CheckpointCorruptError(
            f"{path} is not a libsumtree checkpoint: it does not start with 'libsumtree checkpoint'"
        )
    lines, separator, _ = block.rpartition(b"block ")
    checksum = zlib.crc32(lines)
    found = re.match(rb"format (\d{1,9})\n", lines[len(_MAGIC) :])
    if found is None or block.rstrip(b"\0") != lines + separator + b"%08x\n" % checksum:
        raise CheckpointCorruptError(
            f"checkpoint {path}: its first {BLOCK_SIZE} bytes are not those that were written"
        )
    version = int(found[1])
    if version > FORMAT:
        raise CheckpointFormatError(
            f"checkpoint {path} has format {version}; this version of libsumtree reads formats up "
            f"to {FORMAT}: a newer version is needed"
        )
    length = file.seek(0, os.SEEK_END)
    if block != _render_block(version, length, _digest(file)):
        raise CheckpointCorruptError(
            f"checkpoint {path}: its {length} bytes are not those that were written (cut short or "
            "altered); use an older checkpoint"
        )
    return version


@contextlib.contextmanager
def _hdf5_errors(what: str) -> Iterator[None]:
    """Turn what h5py raises about a file into the one error that a caller expects."""
    try:
        yield
    except (CheckpointError, MemoryError):
        raise
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        raise CheckpointCorruptError(f"{what} cannot be read by HDF5: {error}") from error


def _read_attributes(path: Path, hdf5: Any) -> dict[str, Attribute]:
    attributes: dict[str, Attribute] = {}
    for name in hdf5.attrs:
        value = hdf5.attrs[name]
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


def _collect(
    path: Path, h5py: Any, group: Any, prefix: str, datasets: dict[str, StoredArray]
) -> None:
    """Collect the datasets under `group`, which may hold groups and plain arrays only.

    Every object has one hard link, so the groups are a tree and the recursion ends.
    """
    for name in group:
        full = prefix + name
        link = group.get(name, getlink=True)
        member = group[name] if isinstance(link, h5py.HardLink) else None
        if member is None or h5py.h5o.get_info(member.id).rc != 1:
            raise CheckpointCorruptError(
                f"checkpoint {path}: {full!r} is a link, or has another name too"
            )
        if isinstance(member, h5py.Group):
            _collect(path, h5py, member, full + "/", datasets)
        elif isinstance(member, h5py.Dataset) and _is_plain(h5py, member):
            datasets[full] = StoredArray(full, member)
        else:
            raise CheckpointCorruptError(
                f"checkpoint {path}: {full!r} is not a plain array of numbers"
            )


def _is_plain(h5py: Any, dataset: Any) -> bool:
    """Tell whether a dataset's numbers stand in this file, one after another, all of them."""
    properties = dataset.id.get_create_plist()
    if properties.get_layout() not in (h5py.h5d.CONTIGUOUS, h5py.h5d.COMPACT):
        return False
    if properties.get_external_count() or dataset.shape is None:
        return False
    dtype = dataset.dtype
    return (
        is_storable(dtype)
        and h5py.check_enum_dtype(dtype) is None
        and dataset.id.get_storage_size() == dataset.size * dtype.itemsize
    )


def _import_h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise ImportError(
            "checkpoint files need h5py, which cannot be imported "
            f"({error}): pip install 'libsumtree[hdf5]'"
        ) from error
    return h5py


# ---- epochs ----


def open_epoch(path: str | os.PathLike[str], saved_epoch: int) -> int:
    """Return a new epoch for a buffer that goes on from the checkpoint at `path`.

    No epoch is given out twice from one folder, whichever of its checkpoints is opened, by however
    many processes, and whenever one of them is killed: the highest one stands in the file
    ``libsumtree.epoch`` there, on disk before this function returns.

    Parameters
    ----------
    path : path_like
        The checkpoint. Only its folder matters.
    saved_epoch : int
        The epoch in the checkpoint, 0 .. 2**23 - 1.

    Returns
    -------
    int
        Above `saved_epoch` and above every epoch opened before in this folder.

    Raises
    ------
    CheckpointCorruptError
        ``libsumtree.epoch`` does not hold what was written: the highest epoch is not known.
    CheckpointError
        The folder cannot be written or locked, or there is no epoch left.
    ArgumentTypeError
        `saved_epoch` is not a whole number in that range.
    """
    if type(saved_epoch) is not int or not 0 <= saved_epoch <= MAX_EPOCH:
        raise ArgumentTypeError(f"saved_epoch {saved_epoch!r} is not an int in 0 .. {MAX_EPOCH}")
    ledger = Path(path).resolve().parent / LEDGER_NAME
    try:
        with _locked(ledger.with_name(f".{LEDGER_NAME}.lock")):
            epoch = max(_read_ledger(ledger), saved_epoch) + 1
            if epoch > MAX_EPOCH:
                raise CheckpointError(f"{ledger}: all epochs up to {MAX_EPOCH} were opened")
            _write_ledger(ledger, epoch)
            return epoch
    except OSError as error:
        hint = "its file system has no locks" if error.errno in _NO_LOCKS else error.strerror
        raise CheckpointError(
            f"cannot note a new epoch in {ledger}: {hint}. Without the note, ids given out now "
            "could be given out again after another restart, and name other transitions. Copy the "
            f"checkpoint {path} to a folder that can be written and locked, and open it there"
        ) from error


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file that is never removed and holds nothing."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _ledger_text(epoch: int) -> bytes:
    line = f"libsumtree epoch {epoch}"
    return f"{line} crc32 {zlib.crc32(line.encode()):08x}\n".encode()


def _read_ledger(ledger: Path) -> int:
    """Return the highest epoch that was opened, -1 where none ever was.

    The ledger comes into being whole, by a rename: an empty or altered one is never its beginning.
    """
    try:
        text = ledger.read_bytes()
    except FileNotFoundError:
        return -1
    found = re.match(rb"libsumtree epoch (\d{1,7}) ", text)
    if found is None or text != _ledger_text(int(found[1])):
        raise CheckpointCorruptError(
            f"{ledger} does not hold what was written, so the highest epoch opened in this folder "
            "is not known. Put the file back from a backup, or copy the checkpoint into an empty "
            "folder and let it live on there alone"
        )
    return int(found[1])


def _write_ledger(ledger: Path, epoch: int) -> None:
    """Replace the ledger, durably; the caller holds the lock."""
    _remove_leftovers(ledger)
    with _temporary_beside(ledger) as (file, temporary):
        _write_all(file, _ledger_text(epoch))
        os.fsync(file.fileno())
        temporary.replace(ledger)
    _sync_folder(ledger.parent)
