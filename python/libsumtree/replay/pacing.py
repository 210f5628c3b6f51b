"""The rate limiter while it runs: who waits for it, and learners that change it."""

from __future__ import annotations

from ..errors import ArgumentError, ArgumentTypeError
from .adds import Adds
from .console import say
from .intake import PayloadIntake
from .limiter import RateLimit
from .messages import Code, Flag, Kind, Message, Wait
from .peers import MOST_UNSENT, Peer, Peers, RefusedError, check_role
from .samples import Samples


class Pacing:
    """What a replay rank does with LIMIT and ASK."""

    def __init__(self, peers: Peers, intake: PayloadIntake, adds: Adds, samples: Samples) -> None:
        self._peers = peers
        self._intake = intake
        self._adds = adds
        self._samples = samples

    def limit(self, message: Message, peer: Peer) -> None:
        """Change the rate limiter if the message says how; answer with what is in force.

        Raises
        ------
        RefusedError
            If it cannot be so; nothing has changed.
        """
        check_role(message, peer, Flag.LEARNER)
        if message.text:
            self._change(message.text, peer)
        if self._peers.channel.unsent(peer.rank) < MOST_UNSENT:
            text = self._peers.limiter.limit.to_json()
            self._peers.send(peer, message.answer(Kind.LIMITED), text.encode())

    def _change(self, text: str, peer: Peer) -> None:
        peers = self._peers
        try:
            limit = RateLimit.from_json(text)
        except (ArgumentError, ArgumentTypeError) as error:
            raise RefusedError(Code.LIMIT, f"rate limit: {error}") from None
        if limit.min_size_to_sample > peers.ring().capacity:
            raise RefusedError(
                Code.LIMIT,
                f"rate limit: min_size_to_sample is {limit.min_size_to_sample}, more than the "
                f"capacity of {peers.ring().capacity}: nothing could ever be drawn",
            )
        largest = self._samples.largest()
        if limit.error_buffer is not None and largest > 2 * limit.error_buffer:
            raise RefusedError(
                Code.LIMIT,
                f"rate limit: error_buffer is {limit.error_buffer:g}, and a request of {largest} "
                f"samples that waits could never pass it: at least {largest / 2:g} is needed",
            )
        peers.limiter.change(limit, peers.ring().inserted)
        say(f"{peer} changed the rate limit: {limit.to_json()}")

    def ask(self, message: Message, peer: Peer) -> None:
        """Answer what a client waits for."""
        if self._peers.channel.unsent(peer.rank) < MOST_UNSENT:
            wait, text = self._reason(peer)
            self._peers.send(peer, message.answer(Kind.REASON, value=int(wait)), text.encode())

    def _reason(self, peer: Peer) -> tuple[Wait, str]:
        why = self._samples.why(peer) if peer.role == Flag.LEARNER else self._adds.why(peer)
        if why is None and self._intake.backlog(peer.rank):
            why = Wait.PAYLOAD, "waits for bytes of this client that were announced and are not in"
        return why or (Wait.ANSWER, "owes no answer that is not on its way")
