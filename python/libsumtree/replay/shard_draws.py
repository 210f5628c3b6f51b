"""A learner's draws over several shards, from its targets to the transitions of all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import DTypeLike

from ..arguments import Doubles, Indices
from ..errors import EmptyTreeError, ProtocolError, SumTreeError
from .channel import MPI
from .client import error_of
from .draws import body_of
from .learner import LearnerClient
from .messages import Bytes, Code, Kind, Message
from .receiving import Receive
from .routing import Routing, parts_of, targets_of


@dataclass(frozen=True, slots=True)
class Part:
    """What one shard gave of a draw.

    Attributes
    ----------
    ids, indices : ndarray of int64, shape (k,)
        As the shard has them.
    masses : ndarray of float64, shape (k,)
    transitions : structured ndarray, shape (k,)
    least : float
        The least positive mass in the shard at that moment.
    beta : float
        The shard's own.
    updates : int
        How many updates of this learner had come before.
    """

    ids: Indices
    indices: Indices
    masses: Doubles
    transitions: npt.NDArray[np.void]
    least: float
    beta: float
    updates: int


class ShardLearner(LearnerClient):
    """The client of one of several shards; see `ShardedLearner`."""

    def __init__(
        self,
        comm: MPI.Intracomm,
        dtype: DTypeLike,
        shards: int,
        shard: int,
        timeout: float,
        learner: int | None,
        idle_sleep: float,
        receive: Receive,
    ) -> None:
        self._place = shards, shard
        self._parts: dict[int, Part | SumTreeError | None] = {}
        super().__init__(comm, dtype, shard, timeout, learner, idle_sleep, receive)
        self.status = self._agreed.status

    @property
    def updates_sent(self) -> int:
        """How many updates were sent to the shard."""
        return self._updates_sent

    def has_update_credit(self) -> bool:
        """Whether an update can be sent without waiting."""
        return self._has_update_credit()

    def send_draw(self, rests: Doubles, whole: int, position: int) -> int:
        """Ask for what stands at these targets; return the number of the request.

        Parameters
        ----------
        rests : ndarray of float64, shape (k,)
            Of the total that was told last.
        whole : int
            Samples of the whole draw; 0 if it was counted before.
        position : int
            How many doubles this learner has taken from its stream.
        """
        message = Message(
            Kind.DRAW,
            sequence=self._next_sequence(),
            count=len(rests),
            value=whole,
            real=self.status.total,
        )
        self._send(message, *body_of(position, rests))
        self._parts[message.sequence] = None
        return message.sequence

    @property
    def sample_dtype(self) -> np.dtype[Any]:
        """What is drawn, see `PrioritizedReplayBuffer.sample_dtype`."""
        return self._sample_dtype

    def answered(self, sequence: int) -> bool:
        """Whether a request has its answer."""
        return self._parts[sequence] is not None

    def take(self, sequence: int) -> Part | SumTreeError | None:
        """Return an answer; one that is not there yet is dropped once it comes."""
        return self._parts.pop(sequence)

    def refusal(self, sequence: int) -> SumTreeError | None:
        """Return why a request was refused; None if it was not."""
        answer = self._parts[sequence]
        return answer if isinstance(answer, SumTreeError) else None

    def _handle(self, message: Message, payload: Bytes) -> None:
        if message.kind is Kind.DRAWN:
            self._take_drawn(message, payload)
        else:
            super()._handle(message, payload)

    def _take_drawn(self, message: Message, payload: Bytes) -> None:
        wanted = message.sequence in self._parts
        if message.code is not Code.OK:
            if wanted:
                self._parts[message.sequence] = error_of(message)
            return
        drawn = self._read_drawn(message, payload)
        if wanted:
            part = Part(*drawn, self.status.min, message.real, message.value)
            self._parts[message.sequence] = part


@dataclass(slots=True)
class Result:
    """What a draw has brought together, in the order of its targets.

    Attributes
    ----------
    shards, ids, indices : ndarray of int64, shape (n,)
    masses : ndarray of float64, shape (n,)
    transitions : structured ndarray, shape (n,)
    least : float
        The least positive mass in any shard, each as of its part of the draw.
    beta : float
        The buffer's own.
    updates : dict of int to int
        How many updates of this learner had come to each shard before it drew.
    """

    shards: Indices
    ids: Indices
    indices: Indices
    masses: Doubles
    transitions: npt.NDArray[Any]
    least: float = math.inf
    beta: float = 0.0
    updates: dict[int, int] = field(default_factory=dict)

    @classmethod
    def empty(cls, n: int, dtype: np.dtype[Any]) -> Result:
        """Return room for n transitions."""
        shards, ids, indices = np.zeros((3, n), np.int64)
        return cls(shards, ids, indices, np.zeros(n), np.empty(n, dtype))

    def put(self, shard: int, positions: npt.NDArray[np.intp], part: Part) -> None:
        """Put the part of one shard into its places."""
        self.shards[positions] = shard
        self.ids[positions] = part.ids
        self.indices[positions] = part.indices
        self.masses[positions] = part.masses
        self.transitions[positions] = part.transitions


@dataclass(slots=True)
class Draw:
    """A draw on its way: asked for, routed, answered by every shard.

    Attributes
    ----------
    n : int
    beta : float, optional
    fractions : ndarray of float64, shape (n,), optional
        Where in 0 .. 1 its targets lie, once its random numbers are taken.
    result : Result, optional
        What has come so far.
    done : bool
        All has come, or `error` says why it will not.
    """

    n: int
    beta: float | None
    fractions: Doubles | None = None
    result: Result | None = None
    done: bool = False
    error: SumTreeError | None = None
    _asked: dict[int, int] = field(default_factory=dict)
    _urged: bool = False
    _places: dict[int, npt.NDArray[np.intp]] = field(default_factory=dict)

    def missing(self) -> list[int]:
        """Return the shards whose answers this draw waits for."""
        return [] if self.done else sorted(self._asked) or [0]

    # ---- before there is anything to draw from ----

    def look(self, clients: list[ShardLearner], position: int) -> bool:
        """Ask every shard for its total, unless that was done; tell whether all have answered.

        The first shard that has something to draw from answers; the others are asked once more
        then, which they take as a word to answer as they are.
        """
        if not self._asked:
            self._urged = False
            for shard, client in enumerate(clients):
                self._asked[shard] = client.send_draw(np.zeros(0), 0, position)
        self._stop_if_refused(clients)
        late = [shard for shard, n in self._asked.items() if not clients[shard].answered(n)]
        if len(late) < len(self._asked) and not self._urged:
            self._urged = True
            for shard in late:
                clients[shard].take(clients[shard].send_draw(np.zeros(0), 0, position))
        return self.done or not late

    def forget(self, clients: list[ShardLearner]) -> None:
        """Ask no more: answers that are still to come count for their totals alone."""
        for shard, sequence in self._asked.items():
            clients[shard].take(sequence)
        self._asked.clear()

    def _stop_if_refused(self, clients: list[ShardLearner]) -> None:
        for shard, sequence in self._asked.items():
            error = clients[shard].refusal(sequence)
            if error is not None:
                self.end(error)
                self.forget(clients)
                return

    # ---- the draw ----

    def route(self, clients: list[ShardLearner], fractions: Doubles, position: int) -> None:
        """Send every shard its targets, and every other one the draw alone."""
        self.fractions = fractions
        self.result = Result.empty(self.n, clients[0].sample_dtype)
        self._send(clients, np.arange(self.n), self.n, position)

    def _send(self, clients: list[ShardLearner], which: Indices, whole: int, position: int) -> None:
        assert self.fractions is not None
        routing = Routing([client.status.total for client in clients])
        if routing.total == 0.0:
            self.end(EmptyTreeError("no shard holds a positive mass"))
            return
        routed = routing.route(targets_of(self.fractions[which], routing.total))
        for shard, part in enumerate(parts_of(routed.shards, len(clients))):
            if whole or len(part):
                rests = routed.rests[part]
                self._asked[shard] = clients[shard].send_draw(rests, whole, position)
                self._places[shard] = which[part]

    def advance(self, clients: list[ShardLearner], position: int) -> None:
        """Take the answers that are there; what a shard that became empty left, is drawn again."""
        for shard in [s for s, n in self._asked.items() if clients[s].answered(n)]:
            answer = clients[shard].take(self._asked.pop(shard))
            if isinstance(answer, SumTreeError):
                self.end(self.error or answer)
            elif not self.done:
                assert answer is not None
                self._take(shard, answer)
        if self._asked or self.done:
            return
        left = [places for places in self._places.values() if len(places)]
        self._places.clear()
        if left:
            self._send(clients, np.concatenate(left), 0, position)
        else:
            self.done = True

    def _take(self, shard: int, part: Part) -> None:
        result, places = self.result, self._places[shard]
        assert result is not None
        if len(part.ids) not in (0, len(places)):
            raise ProtocolError(f"shard {shard} gave {len(part.ids)} samples of {len(places)}")
        result.least = min(result.least, part.least)
        result.updates[shard] = min(part.updates, result.updates.get(shard, part.updates))
        if shard == 0:
            result.beta = part.beta
        if len(part.ids):
            result.put(shard, places, part)
            del self._places[shard]

    def end(self, error: SumTreeError) -> None:
        """Give up."""
        self.done, self.error = True, error
