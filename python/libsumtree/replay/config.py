"""What a replay rank is asked to be."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..annealing import BetaSchedule
from ..arguments import as_integer, as_real
from ..checkpoint import MOST_FILES, compression_filters
from ..errors import ArgumentError, ArgumentTypeError
from ..metrics import shard_path
from ..records import check_record_dtype
from .limiter import RateLimit, check_pacing
from .messages import MESSAGE_LIMIT
from .receiving import Receive, check_receive


@dataclass(frozen=True)
class ReplayConfig:
    """The settings of a `ReplayRank`; bad ones are refused at once.

    Attributes
    ----------
    capacity : int
        Transitions that the buffer holds; those of all shards together.
    shards : int
        Replay ranks: ranks 0 .. shards - 1, each of which holds its part of the capacity, the
        minimum size and the error buffer.
    dtype : numpy.dtype, optional
        The record dtype. None: that of the first client.
    alpha, beta, seed, backend
        See `libsumtree.PrioritizedReplayBuffer`.
    checkpoint_dir : pathlib.Path, optional
        Folder for the files ``replay-<serial>.h5``; made if it does not exist. None: no
        checkpoints.
    checkpoint_interval : float
        Seconds between two checkpoints; nothing is written if nothing changed.
    keep : int
        States to keep in the folder: that many files, and those that they go on from. Where these
        all hang on one full file, the newest state that does not is kept, too.
    full_every : int
        Of so many checkpoints in a row, 1 .. 128, the first is full; the others hold what has
        changed. 1: every file stands alone.
    compression : {"lzf", "gzip", "zstd"}, optional
        See `libsumtree.checkpoint.write`.
    resume : str
        ``"auto"``: go on from the newest valid file of the folder, or start empty. ``"never"``:
        start empty. Anything else: the file to go on from. But for ``"auto"``, what is in the
        folder before is left alone, whatever `keep` says.
    min_size_to_sample, samples_per_insert, error_buffer
        See `libsumtree.replay.RateLimiter`.
    actor_credits : int
        Batches of one actor that may be without an answer.
    sample_credits, update_credits : int
        Requests and updates of one learner that may be without an answer.
    learner_share : float
        How much of the replay rank's time learners may take while actors flood it, above 0 and at
        most 1: further requests wait then, so that a learner that asks without a pause does not
        starve the actors; never for more than 5 ms. As long as no actor has more than half of its
        credits in use, no request waits.
    max_batch : int
        Transitions, samples or ids in one message.
    idle_sleep : float
        Longest sleep between two looks for messages, in seconds: the latency of an idle service.
        0: none at all, and a processor for it alone.
    receive : {"matched", "staged"}
        How messages are received. "matched" needs matched probes; where an MPI or its fabric has
        none that work, "staged" receives control messages into a ring of buffers that are posted
        beforehand (25 MiB a process, and for each further shard of a client). The results are the
        same.
    grace : float
        Seconds that clients have for taking their leave, once the service is ending.
    metrics : pathlib.Path, optional
        File that lines of JSON are appended to, see docs/metrics.md; of several shards, each has
        its own, as ``m.shard0.jsonl`` for ``m.jsonl``. None: no metrics.
    metrics_interval : float
        Seconds between two lines.
    status_interval : float
        Seconds between two status lines on standard error, where each takes the place of the one
        before on a terminal. 0: none.
    clients : int, optional
        The service ends by itself once so many clients have left and none is there; a rank whose
        client leaves and comes again counts each time. None: once a client of every rank that is no
        replay rank has left, and none is there. A client for whose records there is no memory
        counts as one that has left.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        Naming the first setting that is not possible.
    """

    capacity: int
    dtype: np.dtype[Any] | None = None
    alpha: float = 0.6
    beta: float | BetaSchedule = 0.4
    seed: int | None = None
    backend: str = "auto"
    checkpoint_dir: Path | None = None
    checkpoint_interval: float = 300.0
    keep: int = 3
    full_every: int = 8
    compression: str | None = None
    resume: str = "auto"
    min_size_to_sample: int = 1
    samples_per_insert: float | None = None
    error_buffer: float | None = None
    actor_credits: int = 3
    sample_credits: int = 3
    update_credits: int = 16
    learner_share: float = 0.15
    max_batch: int = 65536
    idle_sleep: float = 0.002
    receive: Receive = "matched"
    grace: float = 5.0
    metrics: Path | None = None
    metrics_interval: float = 10.0
    status_interval: float = 0.0
    clients: int | None = None
    shards: int = 1

    def __post_init__(self) -> None:
        for name in ("capacity", "keep", "actor_credits", "sample_credits", "update_credits"):
            self._check_positive(name)
        for name in ("max_batch", "full_every", "shards"):
            self._check_positive(name)
        if self.full_every > MOST_FILES:
            raise ArgumentError(
                f"full_every is {self.full_every}: at most {MOST_FILES}, for a state is read from "
                "so many files at once"
            )
        if self.clients is not None:
            self._check_positive("clients")
        if self.max_batch > MESSAGE_LIMIT // 64:
            raise ArgumentError(f"max_batch is {self.max_batch}: at most {MESSAGE_LIMIT // 64}")
        check_receive(self.receive, self.max_batch)
        object.__setattr__(self, "learner_share", as_real(self.learner_share, "learner_share"))
        if not 0.0 < self.learner_share <= 1.0:
            raise ArgumentError(f"learner_share is {self.learner_share}: above 0, and at most 1")
        self._check_seconds("checkpoint_interval", 0.0, math.inf, open_below=True)
        self._check_seconds("idle_sleep", 0.0, 1.0)
        self._check_seconds("grace", 0.0, math.inf)
        self._check_seconds("metrics_interval", 0.0, math.inf, open_below=True)
        self._check_seconds("status_interval", 0.0, math.inf)
        check_pacing(self.min_size_to_sample, self.samples_per_insert, self.error_buffer)
        if self.min_size_to_sample > self.capacity:
            raise ArgumentError(
                f"min_size_to_sample is {self.min_size_to_sample}, more than the capacity of "
                f"{self.capacity}: nothing could ever be drawn"
            )
        compression_filters(self.compression)
        self._check_shards()
        self._check_records()

    def _check_shards(self) -> None:
        if self.capacity % self.shards:
            raise ArgumentError(
                f"capacity is {self.capacity}, and shards is {self.shards}: it must be a multiple "
                f"of that, such as {-(-self.capacity // self.shards) * self.shards}"
            )
        least = max(1.0, self.samples_per_insert or 0.0)
        if self.error_buffer is not None and self.error_buffer / self.shards < least:
            raise ArgumentError(
                f"error_buffer is {self.error_buffer} over {self.shards} shards: at least "
                f"{self.shards} * max(1, samples_per_insert) = {self.shards * least:g}"
            )

    def of_shard(self, shard: int) -> ReplayConfig:
        """Return the settings of one shard: its part of everything that shards divide.

        Only shard 0 begins checkpoints by itself. Further shards have metrics files of their own,
        with the number of the shard before the suffix.
        """
        limit = RateLimit(self.min_size_to_sample, self.samples_per_insert, self.error_buffer).part(
            self.shards
        )
        metrics = self.metrics
        if metrics is not None and self.shards > 1:
            metrics = shard_path(metrics, shard)
        return replace(
            self,
            capacity=self.capacity // self.shards,
            min_size_to_sample=limit.min_size_to_sample,
            error_buffer=limit.error_buffer,
            checkpoint_interval=self.checkpoint_interval if shard == 0 else math.inf,
            metrics=metrics,
            shards=1,
        )

    def _check_records(self) -> None:
        if self.checkpoint_dir is not None:
            object.__setattr__(self, "checkpoint_dir", Path(self.checkpoint_dir))
        if self.metrics is not None:
            object.__setattr__(self, "metrics", Path(self.metrics))
        if self.dtype is not None:
            object.__setattr__(self, "dtype", check_record_dtype(self.dtype))
        if not isinstance(self.resume, str) or not self.resume:
            raise ArgumentTypeError(f"resume is {self.resume!r}: 'auto', 'never' or a path")

    def _check_positive(self, name: str) -> None:
        value = as_integer(getattr(self, name), name)
        if value < 1:
            raise ArgumentError(f"{name} is {value}: at least 1")

    def _check_seconds(
        self, name: str, low: float, high: float, *, open_below: bool = False
    ) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ArgumentTypeError(f"{name} is {value!r}: a number of seconds")
        if not low <= value <= high or (open_below and value == low):
            raise ArgumentError(f"{name} is {value} s: a number of seconds from {low} to {high}")
