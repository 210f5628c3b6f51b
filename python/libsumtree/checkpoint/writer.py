"""Writing a checkpoint: HDF5 lays the file out, plain writes fill it and the digest goes along.

HDF5 writes everything but the large datasets, for which it only sets places aside. These are then
filled in the order in which they stand, each block being written and put into the digest at the
same time by two threads. So a byte is touched once, HDF5 holds no lock meanwhile, and the writing
can be left to a thread: nearly all of it happens with the GIL released.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError, CheckpointError, ShapeError
from ..files import publish, read_all, remove_leftovers, temporary_beside, write_all
from .block import BLOCK_SIZE, FORMAT, Header
from .sinks import Direct, Sparse, reporting
from .storable import Array, is_storable

Attribute: TypeAlias = bool | int | float | str | Array
"""What an attribute of a checkpoint can be."""

FORMAT_ATTRIBUTE, PARENT_ATTRIBUTE = "format", "parent"
BLOCK_BYTES = 4 << 20
#: What --compression takes, and the filters of HDF5 that stand for it.
COMPRESSIONS: Mapping[str, Mapping[str, Any]] = {
    "lzf": {"compression": "lzf", "shuffle": True},
    "gzip": {"compression": "gzip", "compression_opts": 4, "shuffle": True},
    "zstd": {"shuffle": True},
}

_ATTRIBUTE_BYTES = 32 << 10  # HDF5's object headers end at 64 KiB
_LIBVER = ("earliest", "v110")
_SMALL_BYTES = 64 << 10
_CHUNK_BYTES = 1 << 20
_CHUNK_CACHE_BYTES = 16 << 20


@dataclass(frozen=True)
class Stream:
    """Rows of a dataset that are made while they are written.

    Attributes
    ----------
    dtype : numpy.dtype
        Structured, of fields that `is_storable`, or such a dtype itself.
    shape : tuple of int
        Of all rows together.
    blocks : callable
        Called once, it yields C-contiguous arrays that together have this shape. Each is done with
        before the next is asked for: they may share their memory.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    blocks: Callable[[], Iterator[Array]]

    @property
    def nbytes(self) -> int:
        """The bytes of all rows."""
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize


def write(
    path: str | os.PathLike[str],
    attributes: Mapping[str, Attribute],
    datasets: Mapping[str, Sequence[Array] | Stream],
    *,
    parent: str | None = None,
    compression: str | None = None,
) -> Header:
    """Write a checkpoint: afterwards `path` is the new file, whole and on disk.

    Whatever happens on the way, a full disk or SIGKILL included, `path` is either the file that it
    was or the new one. The file is written under a temporary name, ``.NAME.<pid>.<random>.tmp`` in
    the same folder; it is removed on any failure, and by the next `write` if the process was
    killed.

    Parameters
    ----------
    path : path_like
        An existing file is replaced; of several writers at once, the last one wins.
    attributes : mapping of str to bool, int, float, str or numeric numpy.ndarray
        Stored as attributes of the root group. The names ``format`` and ``parent`` are the file's
        own.
    datasets : mapping of str to sequence of numpy.ndarray, or Stream
        Names such as ``tree/masses``. The arrays of one sequence have one dtype (see
        `is_storable`) and are written one after another along axis 0; a single array may have no
        axis. They may be strided views: at most 4 MiB, or one row, is copied at a time.
    parent : str, optional
        The digest of the checkpoint that this one goes on from.
    compression : {"lzf", "gzip", "zstd"}, optional
        Of datasets of 64 KiB and more; zstd needs hdf5plugin, the extra ``compression``.

    Returns
    -------
    Header
        What stands in the user block, its digest among it.

    Raises
    ------
    ArgumentTypeError
        An attribute or a dataset has a type that cannot be stored.
    ArgumentError
        `compression` is unknown.
    ShapeError
        A sequence of arrays is empty, or they differ in more than axis 0.
    CheckpointError
        The file cannot be written; the message says why.
    ImportError
        h5py, or what a compression needs, is not installed.

    Notes
    -----
    Time is linear in the bytes. File mode 0600. Memory: 4 MiB, or one row; 16 MiB more if
    compressed.
    """
    h5py = import_h5py()
    filters = compression_filters(compression)
    _check_attributes(attributes)
    _check_names(datasets)
    sources = {name: _as_stream(name, arrays) for name, arrays in datasets.items()}
    destination = _checked_destination(Path(path))
    try:
        remove_leftovers(destination.parent, destination.name)
        with temporary_beside(destination) as (file, temporary):
            own: dict[str, Attribute] = {FORMAT_ATTRIBUTE: FORMAT}
            if parent is not None:
                own[PARENT_ATTRIBUTE] = parent
            placed = _lay_out(h5py, file, {**own, **attributes}, sources, filters)
            length = file.seek(0, os.SEEK_END)
            digest = _fill(file.fileno(), length, placed)
            header = Header(length, digest, parent)
            write_all(file.fileno(), header.to_bytes(), 0)
            publish(file, temporary, destination)
            return header
    except OSError as error:
        raise CheckpointError(
            f"cannot write checkpoint {destination}: {error.strerror or error}"
        ) from error


def import_h5py() -> Any:
    """Return h5py.

    Raises
    ------
    ImportError
        Naming the extra that brings it.
    """
    try:
        import h5py
    except ImportError as error:
        raise ImportError(
            "checkpoint files need h5py, which cannot be imported "
            f"({error}): pip install 'libsumtree[hdf5]'"
        ) from error
    return h5py


def compression_filters(compression: str | None) -> Mapping[str, Any]:
    """Return what h5py is to be told for a compression, nothing for None.

    Raises
    ------
    ArgumentError, ImportError
        It is unknown, or not installed.
    """
    if compression is None:
        return {}
    if compression not in COMPRESSIONS:
        known = ", ".join(COMPRESSIONS)
        raise ArgumentError(f"compression is {compression!r}: it must be one of {known}, or None")
    if compression != "zstd":
        return COMPRESSIONS[compression]
    if importlib.util.find_spec("hdf5plugin") is None:
        raise ImportError("zstd needs hdf5plugin: pip install 'libsumtree[compression]'")
    import hdf5plugin

    return {**COMPRESSIONS[compression], **hdf5plugin.Zstd()}


# ---- what can be written ----


def _checked_destination(destination: Path) -> Path:
    if destination.is_dir():
        raise CheckpointError(
            f"cannot write checkpoint {destination}: it is a folder; add a file name"
        )
    if destination.exists() and not destination.is_file():
        raise CheckpointError(
            f"cannot write checkpoint {destination}: it is neither a file nor free"
        )
    if not destination.parent.is_dir():
        raise CheckpointError(
            f"cannot write checkpoint {destination}: make the folder of that file"
        )
    return destination


def _check_attributes(attributes: Mapping[str, Attribute]) -> None:
    for name, value in attributes.items():
        if not _is_text(name) or name in ("", FORMAT_ATTRIBUTE, PARENT_ATTRIBUTE):
            raise ArgumentTypeError(
                f"attribute name {name!r}: give a string that is not empty, 'format' or 'parent'"
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


def _as_stream(name: str, source: Sequence[Array] | Stream) -> Stream:
    if isinstance(source, Stream):
        return source
    shape = common_shape(name, source)
    return Stream(source[0].dtype, shape, lambda: _blocks_of(source))


def common_shape(name: str, arrays: Sequence[Array]) -> tuple[int, ...]:
    """Return the shape of the dataset that holds `arrays` one after another.

    Raises
    ------
    ArgumentTypeError, ShapeError
        They cannot be one dataset.
    """
    if len(arrays) == 0:
        raise ShapeError(f"dataset {name!r}: no array is given, so it has no dtype")
    first = arrays[0]
    for array in arrays:
        if not isinstance(array, np.ndarray) or not is_storable(array.dtype):
            kind = getattr(array, "dtype", type(array).__name__)
            raise ArgumentTypeError(
                f"dataset {name!r}: {kind} is not a plain numeric dtype; see is_storable"
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


def _blocks_of(arrays: Sequence[Array]) -> Iterator[Array]:
    for array in arrays:
        if array.ndim == 0 or array.flags.c_contiguous:
            yield array
        else:
            for low, high in row_ranges(len(array), array.nbytes):
                yield np.ascontiguousarray(array[low:high])


def row_ranges(rows: int, nbytes: int) -> Iterator[tuple[int, int]]:
    """Yield [low, high) ranges of rows that hold at most `BLOCK_BYTES`, or one row."""
    if nbytes:
        step = max(1, BLOCK_BYTES // max(1, nbytes // rows))
        for low in range(0, rows, step):
            yield low, min(rows, low + step)


# ---- HDF5's part ----


def _lay_out(
    h5py: Any,
    file: io.FileIO,
    attributes: Mapping[str, Attribute],
    sources: Mapping[str, Stream],
    filters: Mapping[str, Any],
) -> list[tuple[int, Stream]]:
    """Have HDF5 write all but the large datasets; return the places of these, in file order."""
    sink = Direct(file) if filters else Sparse()
    placed: list[tuple[int, Stream]] = []
    options = {"userblock_size": BLOCK_SIZE, "libver": _LIBVER, "rdcc_nbytes": _CHUNK_CACHE_BYTES}
    with reporting(sink), h5py.File(sink, "w", **options) as hdf5:
        for name, value in attributes.items():
            hdf5.attrs[name] = value
        for name, source in sources.items():
            if source.nbytes < _SMALL_BYTES:
                _write_through(sink, hdf5.create_dataset(name, source.shape, source.dtype), source)
            elif filters:
                chunks = _chunk_shape(source)
                dataset = hdf5.create_dataset(
                    name, source.shape, source.dtype, chunks=chunks, **filters
                )
                _write_through(sink, dataset, source)
            else:
                placed.append((_set_aside(h5py, hdf5, name, source), source))
    if isinstance(sink, Sparse):
        sink.save(file)
    return sorted(placed, key=lambda place: place[0])


def _set_aside(h5py: Any, hdf5: Any, name: str, source: Stream) -> int:
    """Create a dataset whose values HDF5 leaves alone; return where in the file they belong."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_layout(h5py.h5d.CONTIGUOUS)
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    dataset = hdf5.create_dataset(name, source.shape, source.dtype, dcpl=properties)
    return int(dataset.id.get_offset())


def _chunk_shape(source: Stream) -> tuple[int, ...]:
    row_bytes = max(1, source.nbytes // source.shape[0])
    rows = min(source.shape[0], max(1, _CHUNK_BYTES // row_bytes))
    return (rows, *source.shape[1:])


def _write_through(sink: Sparse | Direct, dataset: Any, source: Stream) -> None:
    start = 0
    for block in source.blocks():
        if source.shape == ():
            dataset[()] = block
        elif len(block):
            dataset[start : start + len(block)] = block
            start += len(block)
        sink.check()


# ---- the rest ----


def _fill(descriptor: int, length: int, placed: Sequence[tuple[int, Stream]]) -> str:
    """Write the large datasets to their places; return the digest of the whole file."""
    hasher = hashlib.sha256()
    position = BLOCK_SIZE
    with ThreadPoolExecutor(1, "libsumtree-digest") as other:
        for offset, source in placed:
            _take_in(hasher, descriptor, position, offset)
            begun = position = offset
            for block in source.blocks():
                data = block.reshape(-1).view(np.uint8)
                hashed = other.submit(_begin_and_hash, descriptor, begun, position, hasher, data)
                try:
                    write_all(descriptor, data, position)
                finally:
                    hashed.result()
                begun, position = position, position + data.nbytes
    _take_in(hasher, descriptor, position, length)
    return hasher.hexdigest()


def _begin_and_hash(descriptor: int, start: int, stop: int, hasher: Any, data: Array) -> None:
    """Have the kernel write start .. stop to the disk from now on; put `data` into the digest.

    The pages need not stay in memory either, which leaves the page cache to others.
    """
    if start < stop:
        os.posix_fadvise(descriptor, start, stop - start, os.POSIX_FADV_DONTNEED)
    hasher.update(data.data)


def _take_in(hasher: Any, descriptor: int, start: int, stop: int) -> None:
    """Put what HDF5 wrote at start .. stop into the digest."""
    for low in range(start, stop, BLOCK_BYTES):
        piece = bytearray(min(BLOCK_BYTES, stop - low))
        read_all(descriptor, piece, low)
        hasher.update(piece)
