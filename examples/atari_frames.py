"""Atari frames stored once: the bytes against the naive layout, and every drawn stack checked.

    pip install 'libsumtree[atari]'
    python examples/atari_frames.py --game breakout --steps 20000

Several environments of ale-py are played at random. Their transitions go into two buffers with the
same seed: one stores each frame once, the other stores s and s' of every transition, 8 frames, as
the environments themselves stack them. Both must draw the very same ids, weights and stacks.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from libsumtree import PrioritizedReplayBuffer
from libsumtree.frames import FrameLayout, FrameWriter

STACK = 4
# ale-py fills a stack with zeros before the first frame of an episode.
LAYOUT = FrameLayout(
    STACK,
    (84, 84),
    [("action", "i4"), ("reward", "f4"), ("discount", "f4")],
    padding="zero",
)
Array = NDArray[Any]


class Player:
    """One environment's writer, and the naive records of the transitions that it has noted."""

    def __init__(self, length: int) -> None:
        self.writer = FrameWriter(LAYOUT, length)
        self.naive: list[Array] = []

    def note(self, before: Array, after: Array, values: dict[str, Any], priority: float) -> None:
        """Take one step: the newest frame for the writer, both stacks for the naive record."""
        self.writer.append(after[-1])
        self.writer.transition(values, priority=priority)
        record = np.zeros((), LAYOUT.stacked)
        record["observation"], record["next_observation"] = before, after
        for name, value in values.items():
            record[name] = value
        self.naive.append(record)

    def hand_over(self, once: PrioritizedReplayBuffer, naive: PrioritizedReplayBuffer) -> None:
        """Add what was noted to both buffers; a bare record is an empty naive one, never drawn."""
        batch = self.writer.take()
        rows = np.zeros(len(batch.transitions), LAYOUT.stacked)
        begins = np.flatnonzero(batch.transitions["ahead"])
        for at, record in zip(begins, self.naive, strict=True):
            rows[at] = record
        self.naive.clear()
        once.add(*batch)
        naive.add(rows, batch.priorities)


def play(options: argparse.Namespace, buffers: tuple[Any, Any]) -> None:
    """Play at random; the checks go along."""
    environments = make_environments(options)
    rng = np.random.default_rng(options.seed)
    players = [Player(options.batch) for _ in range(options.environments)]
    stacks, _ = environments.reset(seed=options.seed)
    for player, stack in zip(players, stacks, strict=True):
        player.writer.reset(stack[-1])
    over = np.zeros(len(players), np.bool_)
    for step in range(options.steps // len(players)):
        actions = rng.integers(0, 4, len(players))
        after, rewards, terminated, truncated, _ = environments.step(actions)
        for at, player in enumerate(players):
            if over[at]:  # this step was the reset
                player.writer.reset(after[at, -1])
                continue
            values = {"action": actions[at], "reward": rewards[at], "discount": not terminated[at]}
            player.note(stacks[at], after[at], values, rng.random())
            if player.writer.full:
                player.hand_over(*buffers)
        stacks, over = after.copy(), terminated | truncated
        if step % 100 == 99:
            check_draws(*buffers, n=32)
    for player in players:
        player.hand_over(*buffers)


def make_environments(options: argparse.Namespace) -> Any:
    try:
        from ale_py.vector_env import AtariVectorEnv
    except ImportError as error:
        sys.exit(f"this example needs ale-py ({error}): pip install 'libsumtree[atari]'")
    return AtariVectorEnv(options.game, num_envs=options.environments, stack_num=STACK)


def check_draws(once: PrioritizedReplayBuffer, naive: PrioritizedReplayBuffer, n: int) -> None:
    """Draw from both, and set new priorities; nothing may differ."""
    if naive.tree.total == 0.0:
        return
    first, second = once.sample(n), naive.sample(n)
    for name in ("ids", "indices", "masses", "weights", "transitions"):
        if getattr(first, name).tobytes() != getattr(second, name).tobytes():
            sys.exit(f"{name} differ from those of the naive buffer")
    priorities = first.weights + 0.1
    if once.update_priorities(first.ids, priorities) or naive.update_priorities(
        second.ids, priorities
    ):
        sys.exit("what was just drawn is stale")


def report(once: PrioritizedReplayBuffer, naive: PrioritizedReplayBuffer) -> None:
    found, stored = once.footprint(), naive.dtype.itemsize
    each = found.held_bytes / found.transitions
    print(f"{found.transitions} transitions held, in {found.records} records of one frame")
    print(f"stored once:  {found.held_bytes:>13,} bytes, {each:,.0f} a transition")
    print(f"naive layout: {found.naive_bytes:>13,} bytes, {stored:,} a transition")
    print(f"ratio: {found.naive_bytes / found.held_bytes:.2f}")
    million = 1 << 20
    print(f"2**20 transitions: {million * each / 2**30:.1f} GiB instead of "
          f"{million * stored / 2**30:.1f} GiB")  # fmt: skip


def time_draws(buffer: PrioritizedReplayBuffer, n: int = 512, rounds: int = 5) -> float:
    """Return the milliseconds of one draw, the best of some."""
    seconds = []
    for _ in range(rounds):
        begin = time.perf_counter()
        buffer.sample(n)
        seconds.append(time.perf_counter() - begin)
    return 1e3 * min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--game", default="breakout", help="name of the ROM (default: breakout)")
    parser.add_argument("--steps", type=int, default=10_000, help="steps of all environments")
    parser.add_argument("--environments", type=int, default=4)
    parser.add_argument("--capacity", type=int, default=4000, help="records; 56 KB each, naive")
    parser.add_argument("--batch", type=int, default=64, help="transitions of one batch")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    buffers = tuple(
        PrioritizedReplayBuffer(options.capacity, dtype, seed=options.seed)
        for dtype in (LAYOUT.record, LAYOUT.stacked)
    )
    play(options, (buffers[0], buffers[1]))
    report(*buffers)
    for _ in range(20):
        check_draws(*buffers, n=128)
    print("every draw was the naive buffer's, to the last bit")
    if options.capacity >= 1000:
        once, naive = (time_draws(buffer) for buffer in buffers)
        print(f"a draw of 512: {once:.1f} ms, naive {naive:.1f} ms")


if __name__ == "__main__":
    main()
