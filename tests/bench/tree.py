"""How many times as fast as a plain C loop: updates and descents, side by side in one process.

    python tests/bench/tree.py [--leaves 2097152] [--rounds 96] [--backend PATH]

Both are called from the same C loop through function pointers, with other random numbers in every
call, by turns; the fastest round of each counts. Only the ratios hold on another machine, or on
another day. Needs a C compiler (`cc`, or what CC names). Ends with status 1 if any ratio is < 1.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

import libsumtree

HERE = Path(__file__).resolve().parent
INSTALLED = Path(libsumtree.__file__).resolve().parent / "lib" / "libsumtree_cpu.so"
COUNTS = [1, 2, 3, 4, 8, 15, 16, 50, 512, 32768]
ELEMENTS = 2**18  # random numbers, of which each round takes the next part
PART = 2**13  # elements of a round, unless a batch is longer
KINDS = {"SumTree": 0, "PriorityTree": 2}

Array = np.ndarray


@dataclass(frozen=True)
class Contestant:
    """One implementation: its functions, and a tree of each kind."""

    update: ctypes.c_void_p
    find: ctypes.c_void_p
    trees: dict[str, ctypes.c_void_p]


def compile_plain(folder: Path) -> ctypes.CDLL:
    library = folder / "plain.so"
    flags = ["-std=gnu11", "-O3", "-ffp-contract=off", "-shared", "-fPIC"]
    include = f"-I{HERE.parents[1] / 'src'}"
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, *flags, include, HERE / "plain.c", "-o", library, "-lm"], check=True)
    return ctypes.CDLL(str(library))


def pointer(library: ctypes.CDLL, name: str) -> ctypes.c_void_p:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p)


def plain(library: ctypes.CDLL, leaves: int) -> Contestant:
    library.plain_create.restype = ctypes.c_void_p
    library.plain_create.argtypes = [ctypes.c_int64, ctypes.c_int]
    trees = {
        name: ctypes.c_void_p(library.plain_create(leaves, kind)) for name, kind in KINDS.items()
    }
    return Contestant(pointer(library, "plain_update"), pointer(library, "plain_find"), trees)


def ours(library: ctypes.CDLL, leaves: int) -> Contestant:
    library.sumtree_create.argtypes = [ctypes.c_int64, ctypes.c_int, ctypes.c_void_p]
    trees = {}
    for name, kind in KINDS.items():
        trees[name] = ctypes.c_void_p()
        status = library.sumtree_create(leaves, kind, ctypes.byref(trees[name]))
        if status != 0:
            raise SystemExit(f"sumtree_create: status {status}")
    return Contestant(pointer(library, "sumtree_update"), pointer(library, "sumtree_find"), trees)


def timers(library: ctypes.CDLL) -> tuple[Callable[..., float], Callable[..., float]]:
    for timer in (library.time_update, library.time_find):
        timer.restype = ctypes.c_double
        timer.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 2 + [ctypes.c_void_p] * 2
    return library.time_update, library.time_find


def address(array: Array) -> int:
    return int(array.ctypes.data)


def race(calls: list[Callable[[int], float]], count: int, rounds: int) -> list[float]:
    """Give the microseconds a batch of each, by turns, in the fastest of so many rounds."""
    part = max(PART, count)
    starts = [k * part % ELEMENTS for k in range(rounds)]
    seconds = np.array([[call(start) for call in calls] for start in starts])
    return [float(fastest) * 1e6 * count / part for fastest in seconds.min(axis=0)]


def update_part(
    timer: Callable[..., float],
    one: Contestant,
    kind: str,
    count: int,
    indices: Array,
    masses: Array,
    start: int,
) -> float:
    batches = max(PART, count) // count
    place = address(indices[start:]), address(masses[start:])
    return timer(one.update, one.trees[kind], batches, count, *place)


def find_part(
    timer: Callable[..., float],
    one: Contestant,
    count: int,
    targets: Array,
    found: Array,
    start: int,
) -> float:
    batches = max(PART, count) // count
    place = address(targets[start:]), address(found[start:])
    return timer(one.find, one.trees["SumTree"], batches, count, *place)


def processor() -> str:
    """Name the machine: the model of its processor, or what the kernel calls it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{models[0] if models else platform.machine()}, {os.cpu_count()} cores"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--leaves", type=int, default=2**21, help="a power of two")
    parser.add_argument("--rounds", type=int, default=96)
    parser.add_argument("--backend", type=Path, default=INSTALLED, help="file of a backend")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    rng = np.random.default_rng(1)
    indices = rng.integers(0, options.leaves, ELEMENTS)
    masses = rng.random(ELEMENTS)
    found = [np.zeros(ELEMENTS, np.int64) for _ in range(2)]
    with tempfile.TemporaryDirectory() as folder:
        library = compile_plain(Path(folder))
    backend = ctypes.CDLL(str(options.backend.resolve()))
    pair = plain(library, options.leaves), ours(backend, options.leaves)
    time_update, time_find = timers(library)
    everywhere, filling = np.arange(options.leaves), rng.random(options.leaves)
    for one in pair:
        for tree in one.trees.values():
            time_update(one.update, tree, 1, options.leaves, address(everywhere), address(filling))
    ratios = []

    def report(name: str, count: int, calls: list[Callable[[int], float]]) -> None:
        plainly, fast = race(calls, count, options.rounds)
        ratios.append(plainly / fast)
        print(f"{name:24} {count:6} {plainly:12.3f} {fast:12.3f} {ratios[-1]:9.2f}")

    print(f"{processor()}; {options.backend.name}; {options.leaves} leaves; microseconds a batch")
    print(f"{'':24} {'batch':>6} {'plain loop':>12} {'libsumtree':>12} {'times':>9}")
    for kind in KINDS:
        for count in COUNTS:
            calls = [
                partial(update_part, time_update, one, kind, count, indices, masses) for one in pair
            ]
            report(f"{kind}.update", count, calls)
    total = ctypes.c_double()
    backend.sumtree_root(pair[1].trees["SumTree"], 0, ctypes.byref(total))
    targets = rng.random(ELEMENTS) * total.value
    for count in COUNTS:
        calls = [
            partial(find_part, time_find, one, count, targets, out)
            for one, out in zip(pair, found, strict=True)
        ]
        report("SumTree.find", count, calls)
        if not np.array_equal(*found):
            raise SystemExit("the two do not find the same leaves")
    return 0 if min(ratios) >= 1.0 else 1


if __name__ == "__main__":
    sys.exit(main())
