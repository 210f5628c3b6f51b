"""Hand in a job, signal it, and see it go on from its checkpoint after a requeue; for Slurm."""

from __future__ import annotations

import argparse
import re
import subprocess
import time
from pathlib import Path

RANKS = 4
PROGRAM = ["apex", "--steps", "24000", "--samples-per-insert", "16", "--batch-size", "128"]


def main() -> None:
    """Lead one job through the cycle."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--site", required=True)
    parser.add_argument("--patience", type=float, default=600.0, help="seconds for each stage")
    options = parser.parse_args()
    command = ["libsumtree", "jobs", "submit", "--really", "--scheduler", "slurm"]
    command += ["--site", options.site, "--ranks", str(RANKS), "--minutes", "15", "--name", "cycle"]
    number = re.search(r"\d+", ask([*command, *PROGRAM]))
    if number is None:
        raise SystemExit("sbatch gave no job number")
    job = number[0]
    log = Path(f"cycle-{job}.log")
    print(f"job {job}", flush=True)
    try:
        until(log, r"^ +[0-9.]+ s  steps ", options.patience)
        ask(["scancel", "--batch", "--signal=USR1", job])
        held = until(log, r"going on from \S+\.h5: (\d+) transitions", options.patience)
        told = until(log, r"going on from a checkpoint at ([\d,]+) of", options.patience)
        until(log, rf"^libsumtree: job {job}\.1: finished$", options.patience)
    finally:
        subprocess.run(["scancel", job], check=False)
    if held[1] != told[1].replace(",", ""):
        raise SystemExit(f"the buffer holds {held[1]} transitions, the program says {told[1]}")
    print("cycle: good")


def ask(command: list[str]) -> str:
    """Run a command and return what it printed; end if it failed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with status {done.returncode}")
    return done.stdout


def until(log: Path, pattern: str, seconds: float) -> re.Match[str]:
    """Wait until the log has a match; end, showing the log, if it comes too late."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        text = log.read_text(errors="replace") if log.exists() else ""
        if (match := re.search(pattern, text, re.MULTILINE)) is not None:
            return match
        time.sleep(0.5)
    raise SystemExit(f"no {pattern!r} within {seconds:g} s in:\n{text}")


if __name__ == "__main__":
    main()
