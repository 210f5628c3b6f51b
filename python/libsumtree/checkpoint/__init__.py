"""Checkpoint files: named arrays and attributes in HDF5, whole or not at all.

The format is written down in ``docs/checkpoint-format.md``. From the bottom up: `storable` (what
HDF5 can hold), `block` (the first bytes of a file), `lock` (one writer of a folder), `ledger` (the
epochs that were opened), `writer`, `reader`, `chain` (full and incremental files), `state` (what
the files of a chain say of a buffer), `manifest` (the files of several shards) and `folder` (the
states in one, their names, and what of it is needed).

This package knows nothing of buffers. It needs h5py, the extra ``hdf5``, only once a file is
written or read.
"""

from ..ids import MAX_EPOCH
from .block import BLOCK_SIZE, FORMAT, Header, read_header
from .chain import MOST_FILES, Chain, headers, read_chain
from .folder import (
    MANIFEST_SUFFIX,
    file_of,
    files_of,
    manifest_of,
    next_serial,
    numbered_files,
    numbered_states,
    removable,
    shard_folder,
)
from .ledger import LEDGER_NAME, open_epoch, open_epoch_in
from .lock import FolderLock
from .manifest import Manifest, parse_manifest, read_manifest, write_manifest
from .reader import Checkpoint, StoredArray, bytes_told, check, read
from .storable import (
    escape_name,
    is_storable,
    storable_record,
    unescape_name,
)
from .writer import COMPRESSIONS, Attribute, Stream, compression_filters, write

__all__ = [
    "BLOCK_SIZE",
    "COMPRESSIONS",
    "FORMAT",
    "LEDGER_NAME",
    "MANIFEST_SUFFIX",
    "MAX_EPOCH",
    "MOST_FILES",
    "Attribute",
    "Chain",
    "Checkpoint",
    "FolderLock",
    "Header",
    "Manifest",
    "StoredArray",
    "Stream",
    "bytes_told",
    "check",
    "compression_filters",
    "escape_name",
    "file_of",
    "files_of",
    "headers",
    "is_storable",
    "manifest_of",
    "next_serial",
    "numbered_files",
    "numbered_states",
    "open_epoch",
    "open_epoch_in",
    "parse_manifest",
    "read",
    "read_chain",
    "read_header",
    "read_manifest",
    "removable",
    "shard_folder",
    "storable_record",
    "unescape_name",
    "write",
    "write_manifest",
]
