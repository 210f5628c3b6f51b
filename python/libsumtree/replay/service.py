"""What a replay rank does with each message; `libsumtree.replay.client` is the other half."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from ..buffer import PrioritizedReplayBuffer
from ..errors import ArgumentTypeError, OutOfMemoryError, ProtocolError
from ..intake import Intake
from ..records import check_record_dtype, dtype_from_text, dtype_to_text
from . import archive
from .adds import Adds
from .channel import Malformed
from .console import say
from .intake import Announced, PayloadIntake, Purpose
from .messages import Bytes, Code, Flag, Kind, Message, Wait
from .pacing import Pacing
from .peers import Peer, Peers, RefusedError, check_role
from .samples import Samples
from .streams import ALONE, MOST_LEARNERS, seed_text
from .terms import Terms

_MESSAGES_A_TURN = 32
# Once a message came, so many looks in vain for the next, for a turn costs as much as they do.
_LOOKS = 6


class Asked(NamedTuple):
    """A checkpoint that a learner waits for: whose, the request, and the state to be in it."""

    peer: Peer
    request: Message
    state: archive.State


class Service:
    """Answers the clients of one replay rank, never waiting for any of them.

    Parameters
    ----------
    peers : Peers
        The state, shared with the caller.
    make_buffer : callable
        Called with the record dtype of the first client if there is no buffer yet.

    Attributes
    ----------
    states : int
        Learner states that were the newest since the start.
    """

    def __init__(
        self, peers: Peers, make_buffer: Callable[[np.dtype[Any]], PrioritizedReplayBuffer]
    ) -> None:
        self._peers = peers
        self._channel = peers.channel
        self._make_buffer = make_buffer
        self._intake = PayloadIntake(self._channel, self._begin_add, self._append, self._landed)
        self._adds = Adds(peers, self._intake)
        self._samples = Samples(peers, lambda: self._intake.announced > 0)
        self._pacing = Pacing(peers, self._intake, self._adds, self._samples)
        self._handlers: dict[Kind, Callable[[Message, Peer], None]] = {
            Kind.ADD: self._adds.handle,
            Kind.SAMPLE: self._samples.handle,
            Kind.DRAW: self._samples.handle,
            Kind.UPDATE: self._samples.update,
            Kind.CHECKPOINT: self._checkpoint,
            Kind.STOP: self._stop,
            Kind.BYE: self._bye,
            Kind.LIMIT: self._pacing.limit,
            Kind.ASK: self._ask,
        }
        self._leaving: list[Peer] = []
        self.states = 0
        self._asked: deque[Asked] = deque()

    @property
    def checkpoint_asked(self) -> Asked | None:
        """What is to be written next, its state is the newest; None if no learner waits."""
        return self._asked[0] if self._asked else None

    @property
    def is_moving(self) -> bool:
        """Whether a long message is on its way in or out, see `Backoff`."""
        return self._intake.is_receiving or self._channel.is_moving

    @property
    def updates(self) -> int:
        """Batches of priorities taken since the start."""
        return self._samples.updates

    def depths(self) -> dict[str, int]:
        """Return how much waits: requests, acknowledgements, payloads, and answers unsent."""
        return {
            "requests": self._samples.waiting,
            "held": self._adds.held,
            "payloads": self._intake.announced,
            "unsent": self._channel.unsent_to_all(),
        }

    def turn(self) -> bool:
        """Do whatever can be done without waiting; return whether there was anything."""
        busy = self._take_messages()
        busy = self._intake.turn() or busy
        busy = self._samples.serve() or busy
        busy = self._adds.release() or busy
        busy = self._say_goodbye() or busy
        self._channel.reap()
        return busy or self._drop_stray()

    def _take_messages(self) -> bool:
        """Take the messages that are there; acknowledge, and look again while more come."""
        taken, looks = 0, _LOOKS
        while taken < _MESSAGES_A_TURN:
            received = self._channel.next()
            if received is not None:
                if isinstance(received, Malformed):
                    self._handle(received)
                elif not self._adds.take(received[0], received[1]):
                    self._adds.release()  # actors go on while a learner is served
                    self._handle(self._channel.read(received))
                taken += 1
                looks = _LOOKS
            elif self._adds.release():
                pass
            elif not taken or not looks or self._intake.announced:
                break
            else:
                looks -= 1
        return taken > 0

    def begin_stop(self) -> None:
        """Tell the learners that the service is ending; give no more samples."""
        self._samples.serve(at_once=True)
        self._peers.stopping = True
        members = self._peers.members.values()
        self._tell_stopping(peer for peer in members if peer.role == Flag.LEARNER)
        self._samples.refuse_all()

    def tell_actors(self) -> None:
        """Tell the actors that were not told yet, but for those whose payload is still to come.

        To send to a rank that died may hang or crash in MPI, and one that died while it sent owes
        a payload.
        """
        self._tell_stopping(
            peer
            for peer in self._peers.members.values()
            if peer.role == Flag.ACTOR and not peer.told and not self._intake.backlog(peer.rank)
        )

    def _tell_stopping(self, peers: Iterable[Peer]) -> None:
        for peer in peers:
            peer.told = True
            self._channel.send(peer.rank, Message(Kind.STOPPING))

    def answer_checkpoint(self, name: str, failure: str) -> None:
        """Answer the learner that asked: with the file's name, or what went wrong."""
        asked = self._asked.popleft()
        if failure and self._peers.has(asked.peer):
            self._peers.refuse(asked.request, Code.CHECKPOINT, failure)
        else:
            self._peers.send(asked.peer, asked.request.answer(Kind.CHECKPOINTED), name.encode())
        self._note_state()

    def tell_checkpoint_due(self) -> bool:
        """Ask a learner for its state; return whether there is one to ask."""
        learner = self._learner()
        if learner is not None:
            self._channel.send(learner.rank, Message(Kind.DUE))
        return learner is not None

    def has_learner(self) -> bool:
        """Whether a learner is there that may still send its state."""
        return self._learner() is not None

    def _learner(self) -> Peer | None:
        for peer in self._peers.members.values():
            if peer.role == Flag.LEARNER and peer.leaving is None and not peer.broken:
                return peer
        return None

    # ---- messages ----

    def _handle(self, message: Message | Malformed) -> None:
        peer = self._peers.members.get(message.source)
        if isinstance(message, Malformed):
            self._drop_malformed(message, peer)
            return
        self._peers.counters.received(message)
        try:
            if message.kind is Kind.HELLO:
                self._hello(message, peer)
            else:
                self._dispatch(message, peer)
        except RefusedError as refusal:
            self._discard_payload(message, peer)
            self._peers.reject(message, refusal.code, refusal.text)

    def _dispatch(self, message: Message, peer: Peer | None) -> None:
        if peer is None:
            raise RefusedError(Code.UNKNOWN_CLIENT, f"{message.kind.name} before HELLO")
        if peer.broken and message.kind is not Kind.BYE:
            raise RefusedError(
                Code.PROTOCOL, f"{message.kind.name} after a message out of protocol"
            )
        if message.kind not in self._handlers:
            raise RefusedError(Code.PROTOCOL, f"{message.kind.name} is not a client's to send")
        self._handlers[message.kind](message, peer)

    def _drop_malformed(self, message: Malformed, peer: Peer | None) -> None:
        """Count it; whether a payload follows is unknown, so the client must say HELLO again."""
        if peer is not None:
            self._break(peer)
        lost = Message(Kind.REFUSED, source=message.source)
        if message.source >= 0:
            self._peers.reject(lost, Code.PROTOCOL, message.reason)
        else:
            self._peers.count_rejected(message.source, Code.PROTOCOL)

    def _break(self, peer: Peer) -> None:
        peer.broken = True
        self._intake.forget(peer.rank)

    def _discard_payload(self, message: Message, peer: Peer | None) -> None:
        """Expect the payload of a refused request, lest it be taken for that of the next."""
        if peer is None or peer.broken or message.announced == 0:
            return
        if self._intake.backlog(peer.rank) > 4 * self._peers.config.actor_credits:
            self._break(peer)
        else:
            self._intake.announce(
                Announced(Purpose.DISCARD, peer, message.sequence, message.announced)
            )

    def _drop_stray(self) -> bool:
        """Drop a payload that nothing announced, nor will: no control message is there either."""
        source = self._channel.payload_waiting()
        if source is None or self._intake.backlog(source) or self._channel.control_waiting(source):
            return False
        nbytes = self._intake.drop_stray(source)
        peer = self._peers.members.get(source)
        self._peers.count_rejected(source, Code.PAYLOAD)
        if peer is not None and not peer.broken:
            lost = Message(Kind.REFUSED, source=source)
            text = f"a payload of {nbytes} bytes that nothing announced"
            self._peers.refuse(lost, Code.PAYLOAD, text)
        return True

    def _begin_add(self, announced: Announced) -> Intake:
        return self._peers.ring().begin_add(announced.count, announced.elsewhere)

    def _append(self, announced: Announced, rows: Bytes) -> None:
        self._peers.ring().append(rows, announced.masses, announced.elsewhere)

    def _landed(self, announced: Announced, data: Bytes, failure: str) -> None:
        if announced.inline is None:
            self._peers.counters.bytes_in += len(data)
        if announced.purpose is Purpose.ADD:
            self._adds.landed(announced, failure)
        elif announced.purpose is Purpose.STATE:
            self._take_state(announced, data, failure)
        elif failure:
            lost = Message(Kind.REFUSED, source=announced.peer.rank)
            self._peers.reject(lost, Code.PAYLOAD, failure)

    # ---- the beginning ----

    def _hello(self, message: Message, before: Peer | None) -> None:
        role = message.flags & (Flag.ACTOR | Flag.LEARNER)
        if role not in (Flag.ACTOR, Flag.LEARNER):
            raise RefusedError(Code.ROLE, "a client is either an actor or a learner")
        try:
            dtype = check_record_dtype(dtype_from_text(message.text))
        except ArgumentTypeError as error:
            raise RefusedError(Code.DTYPE, str(error)) from None
        if self._peers.buffer is None:
            try:
                self._peers.buffer = self._make_buffer(dtype)
            except OutOfMemoryError as error:
                self._peers.left[message.source] = max(1, self._peers.left[message.source])
                raise RefusedError(Code.DTYPE, str(error)) from None
        if dtype != self._peers.buffer.dtype:
            here = dtype_to_text(self._peers.buffer.dtype)
            raise RefusedError(
                Code.DTYPE, f"record dtype {dtype_to_text(dtype)} is not the buffer's, {here}"
            )
        learner = self._number(message, role)
        if before is not None:
            self._forget(before)
        while self._intake.drop_stray(message.source) is not None:
            self._peers.count_rejected(message.source, Code.PAYLOAD)
        peer = Peer(message.source, role, learner, told=self._peers.stopping)
        self._peers.members[message.source] = peer
        self._welcome(message, peer)

    def _number(self, message: Message, role: int) -> int:
        """Return the number of a learner, unless another one draws by it."""
        if role != Flag.LEARNER:
            return ALONE
        number, shards = message.value - 1, self._peers.shards
        if not ALONE <= number < MOST_LEARNERS:
            raise RefusedError(
                Code.ROLE, f"learner {number}: 0 .. {MOST_LEARNERS - 1} are possible"
            )
        for peer in self._peers.members.values():
            same = peer.role == role and peer.learner == number and peer.rank != message.source
            if same and (number != ALONE or shards > 1):
                name = "a learner without a number" if number == ALONE else f"learner {number}"
                raise RefusedError(
                    Code.ROLE,
                    f"{name} is there already, on rank {peer.rank}: give each of several learners "
                    "a number of its own, as in learner=0, learner=1",
                )
        return number

    def _welcome(self, message: Message, peer: Peer) -> None:
        peers, config, buffer = self._peers, self._peers.config, self._peers.ring()
        terms = Terms(
            capacity=buffer.capacity,
            epoch=buffer.epoch,
            actor_credits=config.actor_credits,
            sample_credits=config.sample_credits,
            update_credits=config.update_credits,
            max_batch=config.max_batch,
            most_rows=peers.most_rows(),
            checkpoints=config.checkpoint_dir is not None,
            shards=peers.shards,
            shard=peers.shard,
            seed=seed_text(peers.streams().seed) if peer.role == Flag.LEARNER else "",
            position=peers.position_of(peer) if peer.role == Flag.LEARNER else 0,
            status=peers.status(),
        )
        learner, state = peers.progress.learner, None
        if peer.role == Flag.LEARNER and learner is not None:
            state = archive.pack(learner)
        answer = message.answer(
            Kind.WELCOME,
            payload=0 if state is None else state.nbytes,
            flags=Flag.STOPPING if peers.stopping else Flag.NONE,
        )
        peers.send(peer, answer, terms.to_json().encode(), payload=state)

    def _forget(self, peer: Peer) -> None:
        """Owe nothing more to a client that left, or begins anew."""
        self._peers.counters.times.forget(peer.rank)
        self._intake.forget(peer.rank)
        self._adds.forget(peer)
        self._samples.forget(peer)
        if peer in self._leaving:
            self._leaving.remove(peer)
        if self._asked_of(peer) is not None:
            first = self._asked[0]
            self._asked = deque(asked for asked in self._asked if asked.peer is not peer)
            if first.peer is peer:
                self._note_state()

    # ---- checkpoints and the end ----

    def _checkpoint(self, message: Message, peer: Peer) -> None:
        check_role(message, peer, Flag.LEARNER)
        if self._peers.config.checkpoint_dir is None:
            raise RefusedError(Code.CHECKPOINT, "the replay rank has no checkpoint folder")
        if self._peers.shard > 0:
            raise RefusedError(
                Code.CHECKPOINT,
                f"a checkpoint is of all shards: ask shard 0, not shard {self._peers.shard}, as "
                "ShardedLearner.checkpoint does",
            )
        if self._asked_of(peer) is not None or self._intake.backlog(peer.rank):
            raise RefusedError(Code.CREDIT, "a checkpoint is being written already")
        if message.payload == 0:
            raise RefusedError(Code.SHAPE, "a checkpoint without a learner state")
        self._intake.announce(Announced(Purpose.STATE, peer, message.sequence, message.payload))

    def _take_state(self, announced: Announced, data: Bytes, failure: str) -> None:
        peer = announced.peer
        request = Message(Kind.CHECKPOINT, sequence=announced.sequence, source=peer.rank)
        try:
            if failure:
                raise ProtocolError(failure)
            state = archive.unpack(data)
        except ProtocolError as error:
            self._peers.reject(request, Code.PAYLOAD, str(error))
            return
        if self._peers.has(peer):
            self._asked.append(Asked(peer, request, state))
            if len(self._asked) == 1:
                self._note_state()

    def _note_state(self) -> None:
        """Have the next checkpoint hold the state of the learner that waits for it."""
        if self._asked:
            self._peers.progress.learner = self._asked[0].state
            self.states += 1

    def _asked_of(self, peer: Peer) -> Asked | None:
        """Return what a learner waits for."""
        return next((asked for asked in self._asked if asked.peer is peer), None)

    def _ask(self, message: Message, peer: Peer) -> None:
        if self._asked_of(peer) is not None:
            answer = message.answer(Kind.REASON, value=int(Wait.CHECKPOINT))
            self._peers.send(peer, answer, b"is writing the checkpoint")
        else:
            self._pacing.ask(message, peer)

    def _stop(self, message: Message, peer: Peer) -> None:
        check_role(message, peer, Flag.LEARNER)
        self._peers.stop_reason = self._peers.stop_reason or f"{peer} asked for it"

    def _bye(self, message: Message, peer: Peer) -> None:
        if peer.leaving is None:
            self._leaving.append(peer)
        peer.leaving = message
        if message.flags & Flag.FAILED:
            say(f"{peer} failed")
            if peer.role == Flag.LEARNER:
                self._peers.stop_reason = self._peers.stop_reason or f"{peer} failed"

    def _say_goodbye(self) -> bool:
        """Let those go who said BYE, once all that they sent is in."""
        if not self._leaving:
            return False
        leaving = [peer for peer in self._leaving if not self._owes(peer)]
        for peer in leaving:
            self._adds.settle(peer)
            self._leaving.remove(peer)
            assert peer.leaving is not None
            self._peers.send(peer, peer.leaving.answer(Kind.GOODBYE))
            self._forget(peer)
            del self._peers.members[peer.rank]
            self._peers.left[peer.rank] += 1
        return bool(leaving)

    def _owes(self, peer: Peer) -> bool:
        return self._intake.backlog(peer.rank) > 0 or self._asked_of(peer) is not None
