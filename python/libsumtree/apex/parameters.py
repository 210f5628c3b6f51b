"""The channel between the learner and the actors: parameters one way, episode returns the other.

It runs on a duplicate of the communicator, so that its messages never meet the replay rank's.
Every message is a fixed header and a payload of known type, sent as bytes. An actor asks, with
what it has to report, and the learner answers once it has parameters newer than the actor's; so
at most one request and one answer are under way for each actor, an answer always carries the
latest parameters, and neither side can flood the other. An actor that leaves says so and reads on
until the learner's CLOSED, so that no message is left behind.

========== ================= ===========================================================
kind       direction         payload
========== ================= ===========================================================
REQUEST    actor to learner  finished episodes, `EPISODE_DTYPE`, at most `MAX_EPISODES`
BYE        actor to learner  the same; all steps are made
QUIT       actor to learner  the same; a signal came before
PARAMETERS learner to actor  the parameters, one array after another
CLOSED     learner to actor  none
========== ================= ===========================================================
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ProtocolError, ReplayTimeoutError
from .parameter_messages import (
    EPISODE_DTYPE,
    HEADER_DTYPE,
    MAX_EPISODES,
    TAG,
    Kind,
    Layout,
    compose,
    receive,
)

if TYPE_CHECKING:
    from mpi4py import MPI

Array = NDArray[Any]

#: Seconds between two looks at the channel, while nothing else is to be done.
POLL_SECONDS = 0.0005


class ParameterSource:
    """The learner's end.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
        A communicator that this channel has for itself.
    actors : sequence of int
        The actors' ranks.
    parameters : mapping of str to numpy.ndarray
        The first parameters, version 1; they also fix the layout.

    Attributes
    ----------
    interrupted : bool
        Whether an actor has left before its steps were made.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        actors: range,
        parameters: Mapping[str, Array],
    ) -> None:
        self._comm = comm
        self._layout = Layout(parameters)
        self._asking: dict[int, int] = {}
        self._open = set(actors)
        self._sending: list[tuple[MPI.Request, Array]] = []
        self._version = 0
        self.interrupted = False
        self._packed = np.empty(self._layout.nbytes, np.uint8)
        most = MAX_EPISODES * EPISODE_DTYPE.itemsize
        self._lengths = dict.fromkeys(
            (Kind.REQUEST, Kind.BYE, Kind.QUIT), (most, EPISODE_DTYPE.itemsize)
        )
        self.publish(parameters)

    @property
    def open(self) -> int:
        """How many actors have not taken leave."""
        return len(self._open)

    def publish(self, parameters: Mapping[str, Array]) -> None:
        """Make these the latest parameters; they are sent to whoever asks."""
        self._layout.pack(parameters, self._packed)
        self._version += 1

    def poll(self) -> NDArray[np.void]:
        """Serve the actors without waiting.

        Returns
        -------
        numpy.ndarray
            Episodes that actors have reported, `EPISODE_DTYPE`, shape (number,).
        """
        episodes = [np.empty(0, EPISODE_DTYPE)]
        while (message := self._take()) is not None:
            episodes.append(message)
        for actor, version in list(self._asking.items()):
            if version < self._version:
                del self._asking[actor]
                self._send(actor, Kind.PARAMETERS, self._packed)
        self._sending = [entry for entry in self._sending if not entry[0].Test()]
        return np.concatenate(episodes)

    def close(self, timeout: float) -> NDArray[np.void]:
        """Serve until every actor has taken leave and every message has been taken.

        Returns
        -------
        numpy.ndarray
            Episodes reported meanwhile.

        Raises
        ------
        ReplayTimeoutError
            If that takes more than ``timeout`` seconds.
        """
        episodes = [self.poll()]
        deadline = time.monotonic() + timeout
        while self._open or self._sending:
            if time.monotonic() > deadline:
                raise ReplayTimeoutError(
                    f"the actors at ranks {sorted(self._open)} have not taken their leave of the "
                    f"learner within {timeout:g} s"
                )
            time.sleep(POLL_SECONDS)
            episodes.append(self.poll())
        return np.concatenate(episodes)

    def _take(self) -> NDArray[np.void] | None:
        from mpi4py import MPI

        received = receive(self._comm, MPI.ANY_SOURCE, self._layout, self._lengths)
        if received is None:
            return None
        sender, header, payload = received
        if sender not in self._open:
            raise ProtocolError(f"rank {sender} is no actor, or has taken leave before")
        if header["kind"] != Kind.REQUEST:
            self.interrupted = self.interrupted or header["kind"] == Kind.QUIT
            self._open.discard(sender)
            self._asking.pop(sender, None)
            self._send(sender, Kind.CLOSED, np.empty(0, np.uint8))
        else:
            self._asking[sender] = int(header["version"])
        return payload.view(EPISODE_DTYPE)

    def _send(self, actor: int, kind: Kind, payload: NDArray[np.uint8]) -> None:
        from mpi4py import MPI

        message = compose(kind, self._layout, payload.size, self._version)
        message[HEADER_DTYPE.itemsize :] = payload
        request = self._comm.Isend([message, MPI.BYTE], actor, TAG)
        self._sending.append((request, message))


class ParameterSink:
    """An actor's end.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
        A communicator that this channel has for itself.
    learner : int
        The learner's rank.
    parameters : mapping of str to numpy.ndarray
        Parameters of the actor's own network, for the layout.

    Attributes
    ----------
    version : int
        Version of the parameters received last; 0 before the first.
    """

    def __init__(self, comm: MPI.Comm, learner: int, parameters: Mapping[str, Array]) -> None:
        self._comm = comm
        self._learner = learner
        self._layout = Layout(parameters)
        self._episodes: list[tuple[float, int]] = []
        self._sending: list[tuple[MPI.Request, Array]] = []
        self._asked = False
        self._closed = False
        self.version = 0
        self._lengths = {Kind.PARAMETERS: (self._layout.nbytes, 1), Kind.CLOSED: (0, 1)}

    def report(self, episode_return: float, steps: int) -> None:
        """Note a finished episode for the next request; the oldest give way to the newest."""
        self._episodes.append((episode_return, steps))
        del self._episodes[:-MAX_EPISODES]

    def poll(self) -> dict[str, Array] | None:
        """Return new parameters if some have come, and ask for the next; never waits."""
        parameters = self._take()
        if not self._asked:
            self._asked = True
            self._send(Kind.REQUEST)
        self._sending = [entry for entry in self._sending if not entry[0].Test()]
        return parameters

    def close(self, timeout: float, *, interrupted: bool = False) -> None:
        """Report what is left, take leave and wait until the learner has answered.

        Parameters
        ----------
        timeout : float
            Seconds to wait.
        interrupted : bool
            Whether steps are left unmade, because a signal came.

        Raises
        ------
        ReplayTimeoutError
            If the learner does not answer within ``timeout`` seconds.
        """
        self._send(Kind.QUIT if interrupted else Kind.BYE)
        deadline = time.monotonic() + timeout
        while not (self._closed and not self._sending):
            if time.monotonic() > deadline:
                raise ReplayTimeoutError(
                    f"the learner at rank {self._learner} has not answered a farewell within "
                    f"{timeout:g} s"
                )
            if self._take() is None:
                time.sleep(POLL_SECONDS)
            self._sending = [entry for entry in self._sending if not entry[0].Test()]

    def _take(self) -> dict[str, Array] | None:
        received = receive(self._comm, self._learner, self._layout, self._lengths)
        if received is None:
            return None
        _, header, payload = received
        self._asked = False
        if header["kind"] == Kind.CLOSED:
            self._closed = True
            return None
        self.version = int(header["version"])
        return self._layout.unpack(payload)

    def _send(self, kind: Kind) -> None:
        from mpi4py import MPI

        episodes = np.array(self._episodes, EPISODE_DTYPE)
        self._episodes.clear()
        message = compose(kind, self._layout, episodes.nbytes, self.version)
        message[HEADER_DTYPE.itemsize :] = episodes.view(np.uint8)
        request = self._comm.Isend([message, MPI.BYTE], self._learner, TAG)
        self._sending.append((request, message))
