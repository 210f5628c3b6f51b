"""Checkpoints of 2^21 CartPole transitions, side by side with a plain file on the same disk.

Prints docs/benchmarks/checkpoint.md, with the machine named:

* the bandwidth of a full save, and its ratio to plain sequential writes and fsync of as many bytes;
* with a writer of batches of 50 in the same process: the rate of intake while files are written, as
  a ratio to the rate without, and the 99th percentile and maximum of the time of one batch;
* the bytes of an incremental file after 1 % new rows and 1 % random priorities, as a ratio to a
  full one;
* the time of a load, and of one whose state is a chain.

    python tests/bench/checkpoint.py [--folder DIR] [--rounds N] [--capacity C] [--seconds S]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import libsumtree as st
from libsumtree.bench.report import Aim, describe_machine

RECORD = np.dtype(
    [
        ("observation", "<f4", (4,)),
        ("action", "<i4"),
        ("reward", "<f4"),
        ("next_observation", "<f4", (4,)),
        ("discount", "<f4"),
    ]
)
BATCH = 50
PIECE = 4 << 20


def filled(capacity: int) -> st.PrioritizedReplayBuffer:
    buffer = st.PrioritizedReplayBuffer(capacity, RECORD, seed=0)
    generator = np.random.default_rng(0)
    rows = generator.integers(0, 256, (1 << 16, RECORD.itemsize), np.uint8).view(RECORD)[:, 0]
    for _ in range(0, capacity + capacity // 3, len(rows)):
        buffer.add(rows, generator.random(len(rows)))
    return buffer


def plain_bandwidth(folder: Path, nbytes: int) -> float:
    """Bytes a second of sequential writes and one fsync."""
    path, piece = folder / "plain", np.random.default_rng(1).bytes(PIECE)
    begin = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for start in range(0, nbytes, PIECE):
            file.write(piece[: nbytes - start])
        os.fsync(file.fileno())
    seconds = time.perf_counter() - begin
    path.unlink()
    return nbytes / seconds


def save_bandwidth(buffer: st.PrioritizedReplayBuffer, path: Path) -> float:
    path.unlink(missing_ok=True)
    begin = time.perf_counter()
    buffer.save(path)
    return path.stat().st_size / (time.perf_counter() - begin)


class Intake:
    """Adds batches as fast as one thread can, and notes how long each took."""

    def __init__(self, buffer: st.PrioritizedReplayBuffer) -> None:
        self._buffer = buffer
        self._rows = np.zeros(BATCH, RECORD)
        self._priorities = np.random.default_rng(2).random(BATCH)

    def run_while(self, goes_on: Any) -> np.ndarray:
        """Return the times at which batches ended."""
        ends = [time.perf_counter()]
        while goes_on():
            self._buffer.add(self._rows, self._priorities)
            ends.append(time.perf_counter())
        return np.array(ends)


def serving(buffer: st.PrioritizedReplayBuffer, path: Path, seconds: float) -> dict[str, float]:
    """Rates and pauses of intake, without and with files being written one after another."""
    intake = Intake(buffer)
    limit = time.perf_counter() + seconds
    quiet = intake.run_while(lambda: time.perf_counter() < limit)
    saves: list[float] = []
    stop = threading.Event()
    asked: list[Any] = []

    def save() -> None:
        while not stop.is_set():
            if asked:
                begin = time.perf_counter()
                asked[0].write(path)
                saves.append(path.stat().st_size / (time.perf_counter() - begin))
                asked.clear()
            time.sleep(0.0005)

    writer = threading.Thread(target=save)
    writer.start()
    limit = time.perf_counter() + seconds

    def goes_on() -> bool:
        if not asked:
            asked.append(buffer.snapshot())
        return time.perf_counter() < limit or len(saves) < 3

    busy = intake.run_while(goes_on)
    stop.set()
    writer.join()
    pauses = np.diff(busy)
    return {
        "rate": (len(quiet) - 1) * BATCH / (quiet[-1] - quiet[0]),
        "rate_while_saving": (len(busy) - 1) * BATCH / (busy[-1] - busy[0]),
        "pause_p50": float(np.quantile(pauses, 0.5)),
        "pause_p99": float(np.quantile(pauses, 0.99)),
        "pause_max": float(pauses.max()),
        "quiet_max": float(np.diff(quiet).max()),
        "save_bandwidth": statistics.median(saves),
        "saves": len(saves),
    }


def incremental(buffer: st.PrioritizedReplayBuffer, folder: Path) -> dict[str, float]:
    generator = np.random.default_rng(3)
    base = buffer.snapshot().write(folder / "full.h5")
    count = buffer.capacity // 100
    buffer.add(np.zeros(count, RECORD), generator.random(count))
    numbers = buffer.inserted - 1 - generator.integers(0, buffer.capacity, count)
    ids = numbers | buffer.epoch << 40
    buffer.update_priorities(ids, generator.random(count))
    begin = time.perf_counter()
    buffer.snapshot(base).write(folder / "next.h5")
    seconds = time.perf_counter() - begin
    sizes = [(folder / name).stat().st_size for name in ("full.h5", "next.h5")]
    begin = time.perf_counter()
    st.PrioritizedReplayBuffer.load(folder / "full.h5")
    full_load = time.perf_counter() - begin
    begin = time.perf_counter()
    st.PrioritizedReplayBuffer.load(folder / "next.h5")
    return {
        "full_bytes": sizes[0],
        "incremental_bytes": sizes[1],
        "ratio": sizes[1] / sizes[0],
        "incremental_seconds": seconds,
        "load_seconds": full_load,
        "load_chain_seconds": time.perf_counter() - begin,
    }


class Figure(NamedTuple):
    """A row of the table: the ratio that an aim is for, or a figure beside it."""

    what: str
    found: str
    aim: str = ""
    met: str = ""


def aimed(what: str, value: float, aim: Aim, unit: str = "") -> Figure:
    sign = "<=" if aim.at_most else ">="
    met = "met" if aim.met(value) else "**missed**"
    return Figure(what, f"{value:.3g}{unit}", f"{sign} {aim.ratio:g}{unit}", met)


def full_saves(buffer: st.PrioritizedReplayBuffer, folder: Path, rounds: int) -> Iterator[Figure]:
    buffer.save(folder / "warm.h5")
    nbytes = (folder / "warm.h5").stat().st_size
    plain, saved = [], []
    for _ in range(rounds):
        plain.append(plain_bandwidth(folder, nbytes))
        saved.append(save_bandwidth(buffer, folder / "saved.h5"))
    ratio = statistics.median(a / b for a, b in zip(saved, plain, strict=True))
    yield aimed("bandwidth of a full save, of that of plain writes and one fsync", ratio, Aim(0.5))
    yield Figure("plain writes and one fsync", f"{statistics.median(plain) / 1e6:.0f} MB/s")
    yield Figure("a full save", f"{statistics.median(saved) / 1e6:.0f} MB/s, {nbytes} bytes")


def while_serving(
    buffer: st.PrioritizedReplayBuffer, folder: Path, seconds: float
) -> Iterator[Figure]:
    found = serving(buffer, folder / "serving.h5", seconds)
    ratio = found["rate_while_saving"] / found["rate"]
    files = f"while {found['saves']} files are written one after another"
    yield aimed(f"intake {files}, of the rate without", ratio, Aim(0.7))
    yield Figure("intake without saving", f"{found['rate'] / 1e6:.2f} M transitions/s")
    yield aimed(
        "time of one batch meanwhile, 99th percentile",
        found["pause_p99"] * 1e3,
        Aim(25.0, at_most=True),
        " ms",
    )
    yield Figure("the longest", f"{found['pause_max'] * 1e3:.1f} ms")
    yield Figure("the longest without saving", f"{found['quiet_max'] * 1e3:.1f} ms")


def small_changes(buffer: st.PrioritizedReplayBuffer, folder: Path) -> Iterator[Figure]:
    found = incremental(buffer, folder)
    what = "bytes of an incremental file after 1 % new rows and 1 % new priorities, of a full one"
    yield aimed(what, found["ratio"], Aim(0.04, at_most=True))
    yield Figure("writing it", f"{found['incremental_seconds'] * 1e3:.1f} ms")
    yield Figure("loading the full file", f"{found['load_seconds'] * 1e3:.1f} ms")
    yield Figure("loading both as a chain", f"{found['load_chain_seconds'] * 1e3:.1f} ms")


def heading(options: argparse.Namespace) -> str:
    machine = describe_machine(["cpu"])
    return f"""# Checkpoints

`python tests/bench/checkpoint.py`: {options.capacity:,} transitions of {RECORD.itemsize} bytes,
batches of {BATCH}, medians of {options.rounds} rounds. What is written, and how, stands in
[checkpoint format](../checkpoint-format.md).

- machine: {machine["processor"]}, {machine["cores"]} usable cores; {machine["system"]}
- load before: {machine["load"]:g}

| what | found | aim | |
| --- | ---: | ---: | --- |"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--capacity", type=int, default=1 << 21)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    print(heading(options))
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        buffer = filled(options.capacity)
        for figures in (
            full_saves(buffer, folder, options.rounds),
            while_serving(buffer, folder, options.seconds),
            small_changes(buffer, folder),
        ):
            for figure in figures:
                print(f"| {' | '.join(figure)} |")


if __name__ == "__main__":
    main()
