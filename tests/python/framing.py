"""Episodes of frames, as records that share them and as records that each hold all of theirs.

The stacks that are expected are put together as an environment would, frame by frame, from a list:
by none of the code under test.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from libsumtree import PrioritizedReplayBuffer
from libsumtree.frames import FrameBatch, FrameLayout, FrameWriter

FIELDS = [("action", "<i4"), ("reward", "<f8"), ("discount", "<f4")]
SHAPE = (3, 2)

Records = NDArray[Any]


def layout_with(stack: int = 4, padding: str = "repeat", dtype: str = "u1") -> FrameLayout:
    return FrameLayout(stack, SHAPE, FIELDS, dtype, padding)


def stack_at(frames: list[Records], at: int, layout: FrameLayout) -> Records:
    """Return the stack whose newest frame is `at`, as a wrapper of an environment makes it."""
    filler = frames[0] if layout.padding == "repeat" else np.zeros_like(frames[0])
    window = deque([filler] * layout.stack, maxlen=layout.stack)
    for frame in frames[: at + 1]:
        window.append(frame)
    return np.stack(window)


@dataclass
class Stream:
    """One environment: its writer, and all transitions that it has made, each with its frames."""

    layout: FrameLayout
    seed: int
    length: int = 7
    steps: int = 1
    naive: list[Records] = field(default_factory=list)
    taken: int = 0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.writer = FrameWriter(self.layout, self.length)

    def frame(self) -> Records:
        return self.rng.integers(0, 256, self.layout.shape).astype(self.layout.dtype)

    def play(self, steps: int, priorities: bool = True) -> list[tuple[FrameBatch, Records]]:
        """Play an episode; give the batches that came, each with its naive records."""
        frames, batches = [self.frame()], []
        self.writer.reset(frames[0])
        for step in range(1, steps + 1):
            frames.append(self.frame())
            self.writer.append(frames[-1])
            longest = min(self.steps, step)
            complete = range(longest, 0, -1) if step == steps else range(longest, longest - 1, -1)
            if step >= self.steps or step == steps:
                for n in complete:
                    self.note(frames, step - n, step, priorities)
            if self.writer.full:
                batches.append(self.take())
        return batches

    def note(self, frames: list[Records], start: int, stop: int, priorities: bool) -> None:
        values = {
            "action": int(self.rng.integers(0, 18)),
            "reward": float(self.rng.normal()),
            "discount": float(self.rng.integers(0, 2)),
        }
        priority = float(self.rng.integers(0, 4)) if priorities else None
        self.writer.transition(values, stop - start, priority)
        record = np.zeros((), self.layout.stacked)
        record["observation"] = stack_at(frames, start, self.layout)
        record["next_observation"] = stack_at(frames, stop, self.layout)
        for name, value in values.items():
            record[name] = value
        self.naive.append(record)

    def take(self) -> tuple[FrameBatch, Records]:
        """Take a batch, and the naive record of each of its records: zeros for a bare one."""
        batch = self.writer.take()
        rows = np.zeros(len(batch.transitions), self.layout.stacked)
        for at in np.flatnonzero(batch.transitions["ahead"]):
            rows[at] = self.naive[self.taken]
            self.taken += 1
        return batch, rows


def naive_priorities(buffer: PrioritizedReplayBuffer, batch: FrameBatch) -> Records:
    """Return the priorities that the naive buffer is given, whose alpha must be 1 for none."""
    if batch.priorities is not None:
        return batch.priorities
    return np.where(batch.transitions["ahead"] > 0, buffer.tree.max or 1.0, 0.0)


def assert_same_draws(one: PrioritizedReplayBuffer, naive: PrioritizedReplayBuffer, n: int) -> Any:
    """Draw from both; everything must be the same to the last bit."""
    assert (len(one), one.inserted, one.tree.total) == (
        len(naive),
        naive.inserted,
        naive.tree.total,
    )
    if naive.tree.total == 0.0:
        return None
    first, second = one.sample(n), naive.sample(n)
    assert first.transitions.dtype == second.transitions.dtype
    for name in ("ids", "indices", "masses", "weights", "transitions"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes(), name
    return first
