"""Runs one target in this process: on kept inputs, on mutations of seeds, or with Atheris.

    python tests/fuzz/execute.py TARGET --inputs FILE...
    python tests/fuzz/execute.py TARGET --seconds S [--seed N] --failure FILE
    python tests/fuzz/execute.py TARGET --atheris [OPTION of libFuzzer...]

A target is a module beside this one with two functions: ``seeds() -> list[bytes]`` gives inputs to
begin with, and ``one(data: bytes) -> None`` tries one and raises if something is wrong. The process
ends with a status other than 0 at the first input that raises, hangs or takes too much memory;
`--failure` says where that input is then found, whatever ended the process.
"""

from __future__ import annotations

import argparse
import importlib
import mmap
import os
import random
import resource
import signal
import struct
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent
HANG_SECONDS = 10.0
MEMORY_BYTES = 3 << 30  # less than what run.py has libFuzzer end a process for
LONGEST = 1 << 14
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "LIBSUMTREE_BACKEND": "cpu",
    "XDG_CONFIG_HOME": "/nonexistent",
}


class Hang(BaseException):
    """An input took longer than `HANG_SECONDS`."""


def load(name: str) -> ModuleType:
    """Import a target."""
    sys.path.insert(0, str(HERE))
    return importlib.import_module(name)


def limit_memory() -> None:
    """Make what allocates without bound fail."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def mutated(generator: random.Random, seeds: list[bytes]) -> bytes:
    """Return one of the seeds, changed in a few places; nothing of a seed, now and then."""
    if generator.random() < 0.2:
        return generator.randbytes(generator.randrange(200))
    data = bytearray(generator.choice(seeds))
    for _ in range(generator.choice((1, 1, 2, 4, 16))):
        at = generator.randrange(len(data) + 1)
        kind = generator.randrange(5)
        if kind == 0:
            data[at : at + 1] = generator.randbytes(1)
        elif kind == 1:
            data[at:at] = generator.randbytes(generator.randrange(1, 9))
        elif kind == 2:
            del data[at : at + generator.randrange(1, 9)]
        elif kind == 3:
            data[at : at + 8] = struct.pack("<q", generator.choice((0, 1, -1, 255, 2**31, 2**62)))
        else:
            other = generator.choice(seeds)
            begin = generator.randrange(len(other) + 1)
            data[at:] = other[begin:]
    return bytes(data[:LONGEST])


class Current:
    """The input that is being tried, in a file that outlives the process."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w+b")
        self._file.truncate(8 + LONGEST)
        self._map = mmap.mmap(self._file.fileno(), 8 + LONGEST)

    def note(self, data: bytes) -> None:
        self._map[: 8 + len(data)] = struct.pack("<Q", len(data)) + data


def noted(path: Path) -> bytes:
    """Return the input that `Current` noted last."""
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    return content[8 : 8 + length]


def blind(target: ModuleType, seconds: float, seed: int, failure: Path) -> int:
    """Try the seeds and then mutations of them; return how many inputs were tried."""
    generator, seeds = random.Random(seed), target.seeds()
    current = Current(failure)
    end, count = time.monotonic() + seconds, 0
    while count < len(seeds) or time.monotonic() < end:
        data = seeds[count] if count < len(seeds) else mutated(generator, seeds)
        current.note(data[:LONGEST])
        attempt(target, data[:LONGEST])
        count += 1
    failure.unlink()
    return count


def attempt(target: ModuleType, data: bytes) -> None:
    """Try one input."""
    signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
    target.one(data)
    signal.setitimer(signal.ITIMER_REAL, 0)


def guided(name: str, options: list[str]) -> None:
    """Hand the target to Atheris, which measures what of libsumtree each input reaches."""
    import atheris

    with atheris.instrument_imports(include=["libsumtree"]):
        target = load(name)
    atheris.Setup([sys.argv[0], *options], target.one, internal_libfuzzer=True)
    atheris.Fuzz()


def _hang(*_: Any) -> None:
    raise Hang(f"no end after {HANG_SECONDS} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target")
    parser.add_argument("--inputs", nargs="+", type=Path, default=[])
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--failure", type=Path)
    parser.add_argument("--atheris", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    limit_memory()
    if args.atheris is not None:
        guided(args.target, args.atheris)
        return 0
    signal.signal(signal.SIGALRM, _hang)
    target = load(args.target)
    for path in args.inputs:
        attempt(target, path.read_bytes())
    if args.seconds:
        with tempfile.TemporaryDirectory(prefix="libsumtree-fuzz-") as folder:
            failure = args.failure or Path(folder) / "input"
            tried = blind(target, args.seconds, args.seed, failure)
            print(f"{args.target}: {tried} inputs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
