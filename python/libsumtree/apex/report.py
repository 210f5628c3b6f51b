"""The words of a run on screen, apart from its progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .options import CURVE_FILE, POLICY_FILE

if TYPE_CHECKING:
    from .options import ApexOptions
    from .progress import Progress
    from .training import Training


def opening(options: ApexOptions, resumed: bool, done: int) -> str:
    """Return the first line: what is about to run."""
    start = f"{options.steps:,d} environment steps"
    if resumed or done:
        start = f"going on from a checkpoint at {done:,d} of {start}"
    if done and not resumed:
        start += ", with a new network, for the checkpoint holds none"
    actors = "1 actor" if options.actors == 1 else f"{options.actors} actors"
    if options.shards > 1:
        actors += f", {options.shards} shards"
    return f"Ape-X DQN on {options.env}: {actors}, seed {options.seed}, {start}"


def summary(
    options: ApexOptions,
    training: Training,
    progress: Progress,
    signal: str | None,
    saved: bool,
) -> str:
    """Return the lines that end a run, but for the last."""
    best, counters = training.best, training.counters()
    episodes = f"{progress.episodes:,d} episodes in this run"
    lines = [
        "",
        f"time                 {progress.elapsed:.1f} s",
        f"environment steps    {counters.inserted:,d} ({episodes})",
        f"learner steps        {training.learner.steps:,d} of {options.batch_size} transitions",
        f"samples              {counters.sampled:,d}, priorities stale {counters.stale:,d}",
        f"prefetch             {options.prefetch}, {training.mean_lag:.1f} updates too late for a "
        "sample on average",
        f"best policy          mean return {best.validation_return:.2f} over "
        f"{training.validation_episodes} validation seeds, at {best.environment_steps:,d} steps",
        f"saved                {options.output_dir / POLICY_FILE}, "
        f"{options.output_dir / CURVE_FILE}",
    ]
    if counters.inserted < options.steps:
        cause = signal or "a signal to another rank"
        rest = options.steps - counters.inserted
        resumable = saved and options.checkpoint_dir is not None
        again = "; the same command goes on from the checkpoint" if resumable else ""
        lines.insert(1, f"stopped by {cause}, {rest:,d} steps before the end{again}")
    return "\n".join(lines)


def last_line(mean_return: float) -> str:
    """Return the last line of a run and of an evaluation."""
    return f"greedy mean return {mean_return:.2f} over 20 evaluation seeds"
