"""The options of a run: one table for the command line and for programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ..checkpoint import MOST_FILES
from .errors import OptionError
from .network import DEFAULT_NETWORK

#: Seconds between two checkpoints, and how many are kept, if nothing is said.
CHECKPOINT_INTERVAL = 60.0
KEEP = 3
FULL_EVERY = 8
#: Seconds between two lines of metrics, if nothing is said.
METRICS_INTERVAL = 10.0

#: Names of the files in the output folder.
POLICY_FILE = "policy.npz"
CURVE_FILE = "learning-curve.png"


def _option(default: Any, metavar: str, text: str, parse: Callable[[str], Any]) -> Any:
    metadata = {"metavar": metavar, "help": text, "parse": parse}
    return field(default=default, metadata=metadata)


def _widths(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part.strip())


def _folder(text: str) -> Path:
    if not text:
        raise ValueError("an empty path would mean the current folder")
    return Path(text)


def _file(text: str) -> Path:
    if not text:
        raise ValueError("an empty path is no file")
    return Path(text)


def _ratio(text: str) -> float | None:
    return None if text == "none" else float(text)


_EXPECTED: dict[Callable[[str], Any], str] = {
    int: "a whole number",
    float: "a number",
    _widths: "whole numbers with commas between, as in 128,128",
    _ratio: "a number or 'none'",
    _folder: "the path of a folder",
    _file: "the path of a file",
}


@dataclass(frozen=True)
class ApexOptions:
    """What `run` does. Each field is the command-line option of the same name."""

    env: str = _option("CartPole-v1", "ID", "Gymnasium environment with discrete actions", str)
    actors: int = _option(
        4, "N", "actors; the job has N + 2 ranks, one more for each shard beyond the first", int
    )
    shards: int = _option(1, "N", "replay ranks that share the buffer out", int)
    steps: int = _option(60_000, "N", "environment steps of all actors together", int)
    seed: int = _option(0, "S", "seed of environments, exploration, network and replay", int)
    output_dir: Path = _option(
        Path("apex-output"), "DIR", "where policy.npz and learning-curve.png go", _folder
    )
    network: str = _option(DEFAULT_NETWORK, "MODULE:FACTORY", "makes the Q-network", str)
    hidden: tuple[int, ...] = _option(
        (128, 128), "N,N", "widths of the network's hidden layers", _widths
    )
    learning_rate: float = _option(2e-3, "X", "step size of the optimizer", float)
    gamma: float = _option(0.99, "X", "discount of one environment step", float)
    n_step: int = _option(5, "N", "rewards in one return", int)
    batch_size: int = _option(512, "N", "transitions in one learner step", int)
    prefetch: int = _option(
        2, "N", "samples drawn and on their way while the learner computes, 0 to 3", int
    )
    target_interval: int = _option(
        50, "N", "learner steps between two copies to the target network", int
    )
    publish_interval: int = _option(
        10, "N", "learner steps between two versions of the actors' parameters", int
    )
    validation_interval: int = _option(
        100, "N", "learner steps between two validations of the greedy policy", int
    )
    actor_batch: int = _option(50, "N", "transitions in one message of an actor", int)
    capacity: int = _option(32_768, "N", "transitions that the replay buffer holds", int)
    alpha: float = _option(0.6, "X", "exponent of priorities", float)
    beta: float = _option(0.4, "X", "exponent of importance-sampling weights", float)
    learning_starts: int = _option(1000, "N", "transitions held before the first sample", int)
    samples_per_insert: float | None = _option(
        64.0,
        "X",
        "samples for each transition added: how actors and learner pace each other; "
        "'none' lets both run freely",
        _ratio,
    )
    backend: str = _option("auto", "NAME", "backend of the replay buffer's tree", str)
    checkpoint_dir: Path | None = _option(
        None, "DIR", "write checkpoints here, and go on from the last one found here", _folder
    )
    checkpoint_interval: float | None = _option(
        None, "SECONDS", f"time between two checkpoints (default: {CHECKPOINT_INTERVAL:g})", float
    )
    keep: int | None = _option(None, "N", f"checkpoints kept (default: {KEEP})", int)
    resume: str | None = _option(
        None,
        "WHAT",
        "'auto' goes on from the newest good checkpoint if there is one, 'never' starts anew, "
        "a path goes on from that file (default: auto)",
        str,
    )
    full_every: int | None = _option(
        None,
        "N",
        f"of N checkpoints in a row, at most {MOST_FILES}, one is full, the others hold what "
        "changed "
        f"(default: {FULL_EVERY})",
        int,
    )
    metrics: Path | None = _option(
        None, "FILE", "append lines of JSON to this file, for `libsumtree stats`", _file
    )
    metrics_interval: float | None = _option(
        None, "SECONDS", f"time between two lines (default: {METRICS_INTERVAL:g})", float
    )
    status_interval: float = _option(
        0.0, "SECONDS", "time between two status lines of the replay rank; 0: none", float
    )
    timeout: float = _option(
        300.0, "SECONDS", "how long a rank waits for another one before the job is given up", float
    )

    def check(self) -> None:
        """Raise unless every value can be, and none contradicts another.

        Raises
        ------
        OptionError
            Naming the option, its value, and what would be right.
        FileNotFoundError
            If the checkpoint to resume from does not exist.
        """
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise OptionError(f"{flag(name)} is {value}: it must be above 0")
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise OptionError(f"{flag(name)} is {value}: it must be {least} to {most}")
        if not self.hidden or min(self.hidden) < 1:
            widths = ",".join(map(str, self.hidden))
            raise OptionError(f"--hidden is {widths!r}: it must be widths above 0, as in 128,128")
        if self.metrics_interval is not None and self.metrics is None:
            raise OptionError("--metrics-interval needs --metrics")
        self._check_sizes()
        self._check_checkpoints()

    def _check_sizes(self) -> None:
        if self.learning_starts > self.capacity:
            raise OptionError(
                f"--learning-starts {self.learning_starts} is above --capacity {self.capacity}: "
                "the buffer would never hold enough to learn from"
            )
        if self.learning_starts > self.steps:
            raise OptionError(
                f"--learning-starts {self.learning_starts} is above --steps {self.steps}: "
                "nothing would be learned"
            )

    def _check_checkpoints(self) -> None:
        if self.checkpoint_dir is None:
            for name in ("checkpoint_interval", "keep", "full_every"):
                if getattr(self, name) is not None:
                    raise OptionError(f"{flag(name)} needs --checkpoint-dir")
            if self.resume in ("auto", "never"):
                raise OptionError(f"--resume {self.resume} needs --checkpoint-dir")
        if self.resume not in (None, "auto", "never") and not Path(self.resume).is_file():
            raise FileNotFoundError(
                f"--resume {self.resume} is not a file: give the path of a checkpoint, "
                "'auto' or 'never'"
            )


_POSITIVE = (
    "actors",
    "shards",
    "steps",
    "learning_rate",
    "n_step",
    "batch_size",
    "target_interval",
    "publish_interval",
    "validation_interval",
    "actor_batch",
    "capacity",
    "learning_starts",
    "samples_per_insert",
    "checkpoint_interval",
    "keep",
    "full_every",
    "metrics_interval",
    "timeout",
)
_RANGES = {
    "gamma": (0, 1),
    "alpha": (0, math.inf),
    "actors": (1, 4096),
    "shards": (1, 4096),
    "n_step": (1, 1000),
    "prefetch": (0, 3),
    "batch_size": (1, 65_536),
    "actor_batch": (1, 65_536),
    "beta": (0, 1),
    "seed": (0, 2**63 - 1),
    "status_interval": (0, math.inf),
    "full_every": (1, MOST_FILES),
}


def flag(name: str) -> str:
    """Return the command-line spelling of a field's name."""
    return "--" + name.replace("_", "-")


def option_fields() -> list[tuple[str, str, str, str]]:
    """Return, for each option: its name, metavar, help, and default as text."""
    rows = []
    for entry in fields(ApexOptions):
        default = entry.default
        text = ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
        shown = "" if default is None else text
        rows.append((entry.name, entry.metadata["metavar"], entry.metadata["help"], shown))
    return rows


def read_options(texts: Mapping[str, str]) -> ApexOptions:
    """Return the options that these texts give, with defaults for the others; not checked yet.

    Parameters
    ----------
    texts : mapping of str to str
        Texts by the names of fields.

    Raises
    ------
    OptionError
        If a text is not a value of its option.
    """
    parsers = {entry.name: entry.metadata["parse"] for entry in fields(ApexOptions)}
    values = {}
    for name, text in texts.items():
        try:
            values[name] = parsers[name](text)
        except ValueError:
            expected = _EXPECTED[parsers[name]]
            raise OptionError(f"{flag(name)} is {text!r}: it must be {expected}") from None
    return ApexOptions(**values)
