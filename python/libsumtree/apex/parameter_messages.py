"""Messages of the channel between learner and actors: a fixed header, then plain bytes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ProtocolError
from .errors import NetworkError

if TYPE_CHECKING:
    from mpi4py import MPI

Array = NDArray[Any]

#: Tag of every message on the channel.
TAG = 7
#: Episodes in one request; the oldest give way to the newest.
MAX_EPISODES = 1024
#: Bytes of the longest message: what a count of MPI is sure to express.
MESSAGE_LIMIT = 2**31 - 1
MAGIC = 0x4C535450
HEADER_DTYPE = np.dtype(
    [
        ("magic", "<u4"),
        ("kind", "<u4"),
        ("layout", "<u4"),
        ("length", "<u4"),
        ("version", "<i8"),
    ]
)
EPISODE_DTYPE = np.dtype([("episode_return", "<f8"), ("steps", "<i8")])


class Kind(IntEnum):
    """What a message is."""

    REQUEST = 1
    BYE = 2
    PARAMETERS = 3
    CLOSED = 4
    QUIT = 5


class Layout:
    """How a dictionary of parameters lies in one run of bytes.

    Parameters
    ----------
    parameters : mapping of str to numpy.ndarray
        An example; names, shapes and dtypes are taken from it.

    Raises
    ------
    NetworkError
        If the parameters are more than one message can carry.
    """

    def __init__(self, parameters: Mapping[str, Array]) -> None:
        self._entries = [(name, array.dtype, array.shape) for name, array in parameters.items()]
        self.nbytes = sum(array.nbytes for array in parameters.values())
        if self.nbytes > MESSAGE_LIMIT - HEADER_DTYPE.itemsize:
            raise NetworkError(
                f"the network's parameters are {self.nbytes} bytes, where one message to the "
                f"actors carries at most {MESSAGE_LIMIT - HEADER_DTYPE.itemsize}"
            )
        text = repr([(name, dtype.str, shape) for name, dtype, shape in self._entries])
        self.digest = zlib.crc32(text.encode())

    def pack(self, parameters: Mapping[str, Array], into: NDArray[np.uint8]) -> None:
        """Write the arrays one after another into ``into``, uint8, shape (nbytes,)."""
        start = 0
        for name, dtype, shape in self._entries:
            array = parameters[name]
            if array.dtype != dtype or array.shape != shape:
                raise ProtocolError(
                    f"the parameter {name!r} has become {array.dtype} {array.shape}; it was "
                    f"announced as {dtype} {shape}"
                )
            stop = start + array.nbytes
            into[start:stop] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            start = stop

    def unpack(self, data: NDArray[np.uint8]) -> dict[str, Array]:
        """Return copies of the arrays that lie in ``data``, uint8, shape (nbytes,)."""
        parameters = {}
        start = 0
        for name, dtype, shape in self._entries:
            stop = start + dtype.itemsize * int(np.prod(shape, dtype=np.int64))
            parameters[name] = data[start:stop].copy().view(dtype).reshape(shape)
            start = stop
        return parameters


def compose(kind: Kind, layout: Layout, payload_bytes: int, version: int = 0) -> NDArray[np.uint8]:
    """Return a message whose payload is still to be filled in."""
    message = np.zeros(HEADER_DTYPE.itemsize + payload_bytes, np.uint8)
    header = message[: HEADER_DTYPE.itemsize].view(HEADER_DTYPE)
    header[0] = (MAGIC, kind, layout.digest, payload_bytes, version)
    return message


def receive(
    comm: MPI.Comm, source: int, layout: Layout, lengths: Mapping[Kind, tuple[int, int]]
) -> tuple[int, Any, NDArray[np.uint8]] | None:
    """Take one waiting message, or None: (its source, its header, its payload).

    ``lengths`` gives, for each kind that may come, the payload's bytes at most and what they are
    a multiple of. A message is matched first and received into a buffer of exactly its size; a
    wrong one is received too, since its sender might wait for that for ever, and then refused.
    """
    from mpi4py import MPI

    status = MPI.Status()
    waiting = comm.Improbe(source, TAG, status)
    if waiting is None:
        return None
    sender, count = status.Get_source(), status.Get_count(MPI.BYTE)
    message = np.empty(count, np.uint8)
    waiting.Recv([message, MPI.BYTE])
    longest = HEADER_DTYPE.itemsize + max(most for most, _ in lengths.values())
    if not HEADER_DTYPE.itemsize <= count <= longest:
        raise ProtocolError(
            f"rank {sender} sent a message of {count} bytes over the parameter channel, where "
            f"{HEADER_DTYPE.itemsize} to {longest} are right"
        )
    header = message[: HEADER_DTYPE.itemsize].view(HEADER_DTYPE)[0]
    payload = message[HEADER_DTYPE.itemsize :]
    if header["magic"] != MAGIC or header["kind"] not in lengths:
        raise ProtocolError(f"rank {sender} sent something that is no message of this channel")
    if header["layout"] != layout.digest:
        raise ProtocolError(
            f"rank {sender} has a network of other parameters; every rank must be given the same "
            "options"
        )
    most, multiple = lengths[Kind(header["kind"])]
    if header["length"] != payload.size or payload.size > most or payload.size % multiple:
        raise ProtocolError(
            f"rank {sender} sent {payload.size} bytes after a header that says "
            f"{header['length']}, where a multiple of {multiple} up to {most} is right"
        )
    return sender, header, payload
