"""Fuzzes targets, several at a time, and keeps what fails.

    python tests/fuzz/run.py TARGET... --seconds N [--jobs J] [--corpus DIR]

TARGET is a module beside this one with ``one`` and ``seeds`` (see execute.py), ``tree`` for tree.c,
or ``all``. Each runs for N seconds in J processes, which share a corpus: with Atheris where it can
be imported (``pip install -r tests/fuzz/requirements.txt``), by blind mutations otherwise. Of the
inputs that fail in the same way, the smallest is made smaller and kept under
tests/data/fuzz/TARGET; tests/python/test_fuzz.py tries it ever after. Prints what each did; ends
with status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from execute import HANG_SECONDS, LONGEST, load, noted

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
KEPT = ROOT / "tests" / "data" / "fuzz"
TARGETS = ("messages", "checkpoints", "manifests", "sites", "command_line", "arrays", "tree")
SMALLER_SECONDS = 60.0
_COMPILE = (
    *("clang-16", "-std=gnu11", "-w", "-g", "-O1", "-ffp-contract=off", "-DSUMTREE_BACKEND_CPU"),
    *("-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=undefined"),
)


def build_tree(folder: Path) -> Path:
    """Compile tree.c with libFuzzer and the sanitizers; return the program."""
    sources = [p for p in (ROOT / "src").glob("*.c") if not re.search("device|driver", p.name)]
    program = folder / "tree"
    command = [*_COMPILE, f"-I{ROOT / 'src'}", *map(str, sources), str(HERE / "tree.c")]
    subprocess.run([*command, "-o", str(program), "-lm"], check=True)
    return program


@dataclass
class Run:
    """The processes of one target."""

    target: str
    folder: Path
    corpus: Path
    program: Path | None = None
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    began: float = 0.0

    @property
    def guided(self) -> bool:
        return self.program is not None or importlib.util.find_spec("atheris") is not None

    def command(self, seconds: float, job: int) -> list[str]:
        options = [
            f"-max_total_time={seconds:.0f}",
            f"-timeout={HANG_SECONDS:.0f}",
            "-rss_limit_mb=4096",
            f"-max_len={LONGEST}",
            f"-seed={job + 1 + time.time_ns() % 10**6 * 100}",
            "-print_final_stats=1",
            f"-artifact_prefix={self.folder}/failed-{job}-",
            str(self.corpus),
        ]
        if self.program is not None:
            return [str(self.program), *options]
        python = [sys.executable, str(HERE / "execute.py"), self.target]
        if self.guided:
            return [*python, "--atheris", *options]
        noted_in = str(self.folder / f"noted-{job}")
        seed = str(time.time_ns() % 2**32 + job)
        return [*python, "--seconds", str(seconds), "--seed", seed, "--failure", noted_in]

    def start(self, seconds: float, jobs: int) -> None:
        self.corpus.mkdir(parents=True, exist_ok=True)
        kept = [path.read_bytes() for path in kept_inputs(self.target)]
        made = [] if self.program is not None else load(self.target).seeds()
        for data in [*made, *kept]:
            (self.corpus / hashlib.sha1(data).hexdigest()).write_bytes(data)
        self.began = time.monotonic()
        for job in range(jobs):
            with (self.folder / f"log-{job}").open("wb") as log:
                self.processes.append(
                    subprocess.Popen(
                        self.command(seconds, job),
                        stdout=log,
                        stderr=log,
                        env={**os.environ, "TMPDIR": str(self.folder)},
                    )
                )

    def end(self) -> bool:
        """Wait for all; report, and keep what failed. Return whether nothing did."""
        before = cpu_seconds()
        statuses = [process.wait() for process in self.processes]
        wall, cpu = time.monotonic() - self.began, cpu_seconds() - before
        tried = sum(executions(self.folder / f"log-{job}") for job in range(len(statuses)))
        print(
            f"{self.target}: {tried} inputs in {wall:.0f} s of {len(statuses)} processes, "
            f"{cpu:.0f} s of processors",
            flush=True,
        )
        groups: dict[str, list[int]] = {}
        for job, status in enumerate(statuses):
            if status != 0:
                said = (self.folder / f"log-{job}").read_text(errors="replace")
                groups.setdefault(summary(said), []).append(job)
        for name, jobs in groups.items():
            self.report(name, jobs)
        return not any(statuses)

    def report(self, name: str, jobs: list[int]) -> None:
        """Show how the first of the processes that failed in one way did; keep one input."""
        log = (self.folder / f"log-{jobs[0]}").read_text(errors="replace").splitlines()
        told = [line for line in log if not line.startswith(("INFO", "#"))]
        print(f"{self.target}: {len(jobs)} processes failed: {name}", *told[-40:], sep="\n  ")
        failed = [data for job in jobs for data in self.failed(job)]
        if failed:
            print(f"{self.target}: kept {keep(self, min(failed, key=len))}", flush=True)

    def failed(self, job: int) -> list[bytes]:
        """Return the inputs on which a process ended."""
        found = [path.read_bytes() for path in self.folder.glob(f"failed-{job}-*")]
        return found + [noted(path) for path in self.folder.glob(f"noted-{job}")]


def summary(said: str) -> str:
    """Return how something failed: the last line of its exception, and the line that it is from.

    Numbers, and what stands between quotes, are left out. What has no exception says a summary.
    """
    found = re.findall(r"^ *((?:\w+\.)*\w*(?:Error|Exception|Hang)\b.*)$", said, re.M)
    found = found or re.findall(r"^ *SUMMARY: (.*)$", said, re.M) or ["no word"]
    places = re.findall(r'^ *File ".*?([^/"]+)", line (\d+)', said, re.M)
    place = ":".join(places[-1]) if places else ""
    text = re.sub(r"'[^']*'", "'...'", found[-1].rpartition("execute.")[2])
    return f"{re.sub(r'[0-9]+', 'N', text):.200} {place}".strip()


def cpu_seconds() -> float:
    """What the processes that have ended took."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def executions(log: Path) -> int:
    """How many inputs a process says that it tried."""
    text = log.read_text(errors="replace")
    found = re.findall(r"number_of_executed_units: (\d+)|^#(\d+)\s|: (\d+) inputs$", text, re.M)
    return max((int("".join(groups)) for groups in found), default=0)


def kept_inputs(target: str) -> list[Path]:
    """The inputs of a target that failed once."""
    return sorted((KEPT / target).glob("*"))


def failure(run: Run, data: bytes) -> str | None:
    """Return how an input fails, as `summary` says it; None if it does not."""
    path = run.folder / "trial"
    path.write_bytes(data)
    if run.program is not None:
        command = [str(run.program), f"-timeout={HANG_SECONDS:.0f}", str(path)]
    else:
        command = [sys.executable, str(HERE / "execute.py"), run.target, "--inputs", str(path)]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=6 * HANG_SECONDS, text=True, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return "no end"
    return summary(done.stdout + done.stderr) if done.returncode else None


def smaller(run: Run, data: bytes) -> bytes:
    """Leave out parts, large ones first, as long as what is left fails in the same way."""
    end = time.monotonic() + SMALLER_SECONDS
    how = failure(run, data)
    if how is None:
        return data  # it needs what came before it, or time
    width = max(1, len(data) // 2)
    while width and time.monotonic() < end:
        at = 0
        while at < len(data) and time.monotonic() < end:
            shorter = data[:at] + data[at + width :]
            if failure(run, shorter) == how:
                data = shorter
            else:
                at += width
        width //= 2
    return data


def keep(run: Run, data: bytes) -> Path:
    data = smaller(run, data)
    folder = KEPT / run.target
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha1(data).hexdigest()[:12]
    path.write_bytes(data)
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="+", choices=[*TARGETS, "all"], metavar="TARGET")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--corpus", type=Path)
    args = parser.parse_args()
    targets = TARGETS if "all" in args.targets else tuple(args.targets)
    scratch = Path(tempfile.mkdtemp(prefix="libsumtree-fuzz-"))
    corpus = args.corpus or scratch / "corpus"
    good = True
    for target in targets:
        folder = scratch / target
        folder.mkdir()
        program = build_tree(folder) if target == "tree" else None
        run = Run(target, folder, corpus / target, program)
        run.start(args.seconds, args.jobs)
        good = run.end() and good
    if good:
        shutil.rmtree(scratch)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
