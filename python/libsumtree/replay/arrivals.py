"""Answers whose payloads are on their way to a rank, whichever client of it asked for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ProtocolError
from .channel import MPI, Channel, Incoming
from .messages import Bytes, Message
from .receiving import LOOKS_MOVING

_keyval = MPI.KEYVAL_INVALID


def arrivals_of(comm: MPI.Intracomm) -> dict[int, Arrival]:
    """Return what is on its way to this rank, by replay rank; the communicator keeps it.

    A payload belongs to the announcement before it, even if that was for a client that is no more.
    """
    global _keyval
    if _keyval == MPI.KEYVAL_INVALID:
        _keyval = MPI.Comm.Create_keyval()
    kept: Any = comm.Get_attr(_keyval)
    arrivals: dict[int, Arrival] = {} if kept is None else kept
    if kept is None:
        comm.Set_attr(_keyval, arrivals)
    return arrivals


class Arrival:
    """A control message whose payload is on its way, however often a wait for it is given up."""

    __slots__ = ("_incoming", "message")

    def __init__(self, message: Message) -> None:
        self.message = message
        self._incoming: Incoming | None = None

    def turn(self, channel: Channel) -> Bytes | None:
        """Return the payload once it is there.

        Raises
        ------
        ProtocolError
            If it is not as long as announced.
        """
        if self._incoming is None:
            probe = channel.probe(self.message.source)
            if probe is None:
                return None
            nbytes = self.message.payload
            if probe.nbytes != nbytes:
                raise ProtocolError(f"a payload of {probe.nbytes} bytes instead of {nbytes}")
            self._incoming = probe.receive(np.empty(nbytes, np.uint8))
        return self._incoming.buffer if self._incoming.done(LOOKS_MOVING) else None
