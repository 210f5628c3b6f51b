"""The replay rank: the one process of a job that owns the buffer."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..buffer import PrioritizedReplayBuffer
from ..errors import CheckpointError, OutOfMemoryError, WorldError
from ..records import dtype_from_text
from .channel import MPI, Backoff, Channel, wait_turns
from .checkpoints import Saving
from .config import ReplayConfig
from .console import say
from .observer import Observer
from .peers import Peers
from .restored import Progress, Restored
from .restoring import make_limiter, restore
from .service import Service
from .shard_folders import Round, finish, open_folders
from .shards import join
from .signals import StopFlag, install_signal_flag

_STATE_SECONDS = 5.0
_STATE_PATIENCE_SECONDS = 0.5
_LAST_SENDS_SECONDS = 1.0
# At the end, between a checkpoint of several shards that failed and the next try; then doubled.
_RETRY_SECONDS = 0.5
_MOST_DOUBLED = 3


@dataclass(frozen=True)
class ReplaySummary:
    """What a replay rank did, from its start to its end.

    Attributes
    ----------
    reason : str
        Why it ended.
    seconds : float
        How long it served.
    size, inserted, sampled, stale : int
        As in `ReplayStatus`, at the end.
    added : mapping of int to int
        Transitions taken from each rank.
    rejected : mapping of int to int
        Messages refused from each rank.
    stale_of : mapping of int to int
        Updates of each rank that were skipped since the start.
    shard, shards : int
        Which replay rank of how many this is; the other numbers are this one's.
    checkpoints : int
        Files written.
    checkpoint_failures : int
        Files that could not be written.
    last_checkpoint : pathlib.Path, optional
        The newest file of this service; of several shards, the newest manifest in shard 0.
    restored_from : pathlib.Path, optional
        The file that it went on from.
    saved : bool
        Whether everything is in a checkpoint, or no checkpoint was asked for.
    silent : tuple of int
        Ranks whose client did not take its leave in time.
    """

    reason: str
    seconds: float
    size: int
    inserted: int
    sampled: int
    stale: int
    added: Mapping[int, int] = field(default_factory=dict)
    rejected: Mapping[int, int] = field(default_factory=dict)
    checkpoints: int = 0
    checkpoint_failures: int = 0
    last_checkpoint: Path | None = None
    restored_from: Path | None = None
    saved: bool = True
    silent: tuple[int, ...] = ()
    stale_of: Mapping[int, int] = field(default_factory=dict)
    shard: int = 0
    shards: int = 1


class ReplayRank:
    """Owns a buffer and serves the actors and learners of one communicator.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        This rank and its clients; its tags 21331 and 21332 belong to the service. Give a duplicate
        of your own communicator if you use these tags yourself.
    config : ReplayConfig

    Raises
    ------
    WorldError
        If `comm` has no rank for a client.
    CheckpointError
        If the folder cannot be written, or the checkpoint to go on from cannot be read or is of
        another record dtype, capacity or alpha (`CheckpointMismatchError`).

    Notes
    -----
    A signal (SIGTERM, SIGUSR1, SIGINT) or a learner's `LearnerClient.stop` ends the service: the
    learners are told, and a checkpoint is written as soon as one has sent its state, so that both
    are of one moment; after half a second, or at once where there is no learner, without it, for
    SIGKILL may follow. Then the actors are told: where one of them is dead, and the launcher lets
    the job live, that may hang or crash in MPI. What clients have in flight is taken until all have
    left or `ReplayConfig.grace` is over; then, if anything has changed, comes a last checkpoint.
    What was acknowledged is in it.
    """

    def __init__(self, comm: MPI.Intracomm, config: ReplayConfig) -> None:
        if comm.Get_size() < 2:
            raise WorldError(
                "a replay rank alone in its world has no clients: "
                "start at least 2 ranks, as in `mpiexec -n 2 ...`"
            )
        self._ranks = comm.Get_size() - config.shards
        self._shards = join(comm, config)
        self._whole, config = config, config.of_shard(self._shards.shard)
        self._config = config
        self._folder = open_folders(config, self._shards)
        self._written_at: float | None = None
        self._checkpoints = 0
        self._failures = 0
        self._last: Path | None = None
        self._due = 0.0
        self._asked_for_state = False
        self._saving: Saving | Round | None = None
        self._saved_all = False
        self._saving_marks: tuple[int, ...] = ()
        self._saving_for: object = None
        self._failed_in_a_row = 0
        self._retry_at = 0.0
        self._alarmed = False
        self._tries_before = 0
        with ExitStack() as undo:
            if self._folder is not None:
                undo.callback(self._folder.close)
            restored = restore(config, self._folder, self._shards)
            self._restored_from = None if restored is None else restored.path
            self._peers = self._shards.together(lambda: self._make_peers(comm, restored))
            undo.callback(self._peers.channel.close)
            self._service = Service(self._peers, self._make_buffer)
            self._written = self._marks()
            self._observer = Observer(self._peers, self._service, self._checkpoint_facts)
            undo.pop_all()

    @property
    def buffer(self) -> PrioritizedReplayBuffer | None:
        """The buffer; None before the first client has named a record dtype."""
        return self._peers.buffer

    def run(self) -> ReplaySummary:
        """Serve until stopped; only the main thread may call it, and once.

        Returns
        -------
        ReplaySummary
        """
        begin = time.monotonic()
        try:
            with install_signal_flag() as flag:
                self._set_due()
                self._serve(flag)
                silent = self._end()
            self._observer.end(self._peers.stop_reason)
        finally:
            self._peers.channel.close()
            if self._folder is not None:
                self._folder.close()
        return self._summary(time.monotonic() - begin, silent)

    # ---- the loop ----

    def _serve(self, flag: StopFlag) -> None:
        backoff = Backoff(self._config.idle_sleep)
        while not self._wants_to_end(flag):
            # What comes in the turn that brings the end, is a try already.
            self._tries_before = self._tries + (self._saving is not None)
            busy = self._service.turn()
            self._tend_checkpoints()
            busy = self._tend_shards() or busy
            self._observer.turn()
            backoff.turn(busy, self._service.is_moving)

    def _wants_to_end(self, flag: StopFlag) -> bool:
        peers = self._peers
        if flag:
            peers.stop_reason = f"{flag.name} came"
        elif self._all_left():
            peers.stop_reason = peers.stop_reason or "all clients left"
        elif self._shards.stop_reason:
            peers.stop_reason = peers.stop_reason or self._shards.stop_reason
        return bool(peers.stop_reason)

    def _end(self) -> tuple[int, ...]:
        """Take what is in flight until every client has left; return the ranks that did not."""
        say(f"ending, for {self._peers.stop_reason}")
        self._shards.tell_stop(self._peers.stop_reason)
        urgent = time.monotonic() + (
            _STATE_PATIENCE_SECONDS if self._service.has_learner() else 0.0
        )
        self._service.begin_stop()
        backoff = Backoff(self._config.idle_sleep)
        deadline = math.inf
        while not self._all_left() and time.monotonic() < deadline:
            busy = self._service.turn()
            self._tend_saving()
            busy = self._tend_shards() or busy
            self._observer.turn()
            if time.monotonic() >= urgent and self._saving is None:
                self._begin_if_changed()
                urgent = math.inf
            if deadline < math.inf or self._may_tell_actors():
                deadline = min(deadline, time.monotonic() + self._config.grace)
                self._service.tell_actors()
            backoff.turn(busy, self._service.is_moving)
        silent = tuple(sorted(self._peers.members))
        if silent:
            ranks = ", ".join(map(str, silent))
            say(f"the clients on ranks {ranks} did not leave within {self._config.grace:g} s")
        self._finish_saving()
        self._settle_shards()
        self._finish_saving()
        self._begin_if_changed()
        self._finish_saving()
        self._saved_all = self._shards.end(self._folder is None or self._marks() == self._written)
        for _ in wait_turns(_LAST_SENDS_SECONDS):
            if not self._peers.channel.reap():
                break
        return silent

    def _settle_shards(self) -> None:
        """Wait until no client changes any shard; a further shard, until all is written."""
        self._note_if_changed()  # once shard 0 knows that this one is quiet, it asks no more
        self._shards.tell_quiet()
        backoff = Backoff(self._config.idle_sleep)
        while not self._shards.settled:
            busy = self._tend_shards()
            self._peers.channel.reap()  # a client that takes its leave still gets what it asked for
            self._finish_saving()
            if self._marks() != self._saving_marks and time.monotonic() >= self._retry_at:
                self._begin_if_changed()  # another shard may wait for it to let its actors go
            backoff.turn(busy, self._service.is_moving)

    def _tend_shards(self) -> bool:
        """Do what other shards ask for, and tell them of changes; return whether they asked."""
        shards = self._shards
        busy = shards.turn()
        if shards.dtype and self._peers.buffer is None:
            self._make_asked_for()
        if shards.save_asked is not None and self._saving is None:
            self._begin_saving()
        self._note_if_changed()
        return busy

    def _make_asked_for(self) -> None:
        """Make the buffer that shard 0 names; where memory cannot hold it, shard 0 is told."""
        shards = self._shards
        try:
            self._peers.buffer = self._make_buffer(dtype_from_text(shards.dtype))
        except OutOfMemoryError as error:
            if shards.leads:
                raise
            shards.refuse_save(str(error))
            self._note_failure(str(error))

    def _note_if_changed(self) -> None:
        """Tell shard 0 of what it does not know to be unwritten; a failure is known to it."""
        buffer = self._peers.buffer
        if self._shards.leads or self._folder is None or self._saving is not None or buffer is None:
            return
        if self._marks() not in (self._written, self._saving_marks):
            self._shards.note_changed(buffer.dtype)

    @property
    def _tries(self) -> int:
        """How many checkpoints were written, or failed."""
        return self._checkpoints + self._failures + self._shards.given_up

    def _may_tell_actors(self) -> bool:
        """Whether a checkpoint was tried since the end began, or none is due.

        To send to a dead actor may hang or crash in MPI: what was acknowledged is on disk before.
        """
        if self._folder is None or self._marks() == self._written:
            return True
        return self._saving is None and self._tries > self._tries_before

    def _all_left(self) -> bool:
        """Whether every client that was to come has left; a late one is told to leave, too."""
        left, clients = self._peers.left, self._config.clients
        enough = len(left) >= self._ranks if clients is None else left.total() >= clients
        return enough and not self._peers.members

    def _summary(self, seconds: float, silent: tuple[int, ...]) -> ReplaySummary:
        peers = self._peers
        status = peers.status()
        return ReplaySummary(
            reason=peers.stop_reason,
            seconds=seconds,
            size=status.size,
            inserted=status.inserted,
            sampled=status.sampled,
            stale=status.stale,
            stale_of=dict(peers.counters.stale_of),
            shard=self._shards.shard,
            shards=self._shards.shards,
            added=dict(peers.added),
            rejected=dict(peers.rejected),
            checkpoints=self._checkpoints,
            checkpoint_failures=self._failures,
            last_checkpoint=self._last,
            restored_from=self._restored_from,
            saved=self._saved_all,
            silent=silent,
        )

    # ---- checkpoints ----

    def _tend_checkpoints(self) -> None:
        """Begin to write by the clock, after asking a learner for its state."""
        self._tend_saving()
        busy = self._folder is None or self._saving is not None
        if busy or time.monotonic() < self._due or self._marks() == self._written:
            return
        if not self._asked_for_state and self._service.tell_checkpoint_due():
            self._asked_for_state = True
            self._due = time.monotonic() + min(_STATE_SECONDS, self._config.checkpoint_interval)
            return
        self._begin_saving()

    def _tend_saving(self) -> None:
        """End what a thread has written; begin what a learner has asked for."""
        if self._saving is not None:
            self._saving.give_turn()
            if self._saving.done:
                self._finish_saving()
        if self._saving is None and self._service.checkpoint_asked is not None:
            self._begin_saving()

    def _begin_if_changed(self) -> None:
        leads = self._folder is not None and self._shards.leads
        if leads and self._marks() != self._written:
            self._begin_saving()

    def _begin_saving(self) -> None:
        """Have a thread write everything as it is now; what was begun before is finished."""
        assert self._folder is not None
        assert self._saving is None
        peers = self._peers
        peers.progress.surplus = peers.limiter.surplus
        peers.progress.rate_limit = peers.limiter.saved()
        self._set_due()
        self._saving_marks = self._marks()
        self._saving_for = self._service.checkpoint_asked
        try:
            self._saving = self._folder.begin(peers.ring(), peers.progress)
        except CheckpointError as error:
            self._saved(str(error))

    def _finish_saving(self) -> None:
        """Wait for the thread that writes, if there is one."""
        if self._saving is None:
            return
        assert self._folder is not None
        saving, self._saving = self._saving, None
        try:
            self._last = finish(self._folder, saving)
        except CheckpointError as error:
            self._saved(str(error))
        else:
            self._written = self._saving_marks
            self._written_at = time.monotonic()
            self._checkpoints += 1
            self._failed_in_a_row = 0
            self._saved("")

    def _saved(self, failure: str) -> None:
        """Raise the alarm if it failed, for the service goes on; answer the learner that asked."""
        if failure:
            self._note_failure(failure)
        asked = self._service.checkpoint_asked
        if asked is not None and asked is self._saving_for:
            self._service.answer_checkpoint(self._last.name if self._last else "", failure)

    def _note_failure(self, failure: str) -> None:
        """Raise the alarm, once after the end has begun, and have the next try wait."""
        pause = _RETRY_SECONDS * 2 ** min(self._failed_in_a_row, _MOST_DOUBLED)
        self._retry_at = time.monotonic() + pause
        self._failures += 1
        self._failed_in_a_row += 1
        if not self._alarmed:
            say(f"CHECKPOINT FAILED, serving on without: {failure}")
        self._alarmed = self._peers.stopping

    def _set_due(self) -> None:
        self._due = time.monotonic() + self._config.checkpoint_interval
        self._asked_for_state = False

    def _marks(self) -> tuple[int, ...]:
        """Return numbers that differ whenever a checkpoint would."""
        buffer = self._peers.buffer
        if buffer is None:
            return ()
        service, changes = self._service, self._peers.limiter.changes
        return (
            buffer.inserted,
            len(buffer),
            buffer.sampled,
            service.updates,
            service.states,
            changes,
            self._shards.changes,
        )

    def _checkpoint_facts(self) -> dict[str, Any]:
        """Return what metrics say of checkpoints."""
        at = self._written_at
        return {
            "written": self._checkpoints,
            "failures": self._failures,
            "age": None if at is None else time.monotonic() - at,
            "writing": self._saving is not None,
        }

    # ---- the beginning ----

    def _make_buffer(self, dtype: np.dtype[Any]) -> PrioritizedReplayBuffer:
        config = self._config
        return PrioritizedReplayBuffer(
            config.capacity,
            dtype,
            config.alpha,
            beta=config.beta,
            seed=self._shards.seed(config),
            backend=config.backend,
            device=self._shards.device(config),
        )

    def _make_peers(self, comm: MPI.Intracomm, restored: Restored | None) -> Peers:
        config = self._config
        progress = Progress() if restored is None else restored.progress
        channel = Channel(comm, config.max_batch, receive=config.receive)
        peers = Peers(channel, config, make_limiter(config, restored, self._whole), progress)
        peers.shard, peers.shards = self._shards.shard, self._shards.shards
        progress.most_shards = max(progress.most_shards, peers.shards)
        if restored is not None:
            peers.buffer = restored.buffer
        elif config.dtype is not None:
            peers.buffer = self._make_buffer(config.dtype)
        return peers
