"""Count instructions: this library's calls as a ratio to the classic loops of the same binary.

    python tests/instructions/run.py PROGRAM [--store]

PROGRAM is build/cpu/tests/c/count_instructions. Instructions do not depend on what else the machine
does, so a slower kernel shows here before it shows in a benchmark. They do depend on the compiler:
the ratios in tests/data/instructions.csv are of the one that it names. Ends with status 1 if a
ratio is more than 3 % above the stored one; --store writes the ratios of today instead.
"""

from __future__ import annotations

import argparse
import csv
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

STORED = Path(__file__).resolve().parents[1] / "data" / "instructions.csv"
CASES = ["update_8", "update_512", "sample_512"]
TOLERANCE = 0.03


def tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise SystemExit(f"{name} is missing: apt install valgrind")
    return path


def count(program: Path) -> dict[str, int]:
    """Run the program under callgrind; give the instructions of each of its measured functions."""
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts"
        command = [tool("valgrind"), "--tool=callgrind", f"--callgrind-out-file={counts}", program]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise SystemExit(f"{program} failed under valgrind:\n{run.stderr[-2000:]}")
        command = [tool("callgrind_annotate"), "--inclusive=yes", "--threshold=100", counts]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^ *([\d,]+) .*:((?:our|plain)_\w+?_\d+)\b", listed, re.MULTILINE)
    return {name: int(number.replace(",", "")) for number, name in found}


def ratios(program: Path) -> dict[str, float]:
    counted = count(program)
    missing = [c for c in CASES if f"our_{c}" not in counted or f"plain_{c}" not in counted]
    if missing:
        raise SystemExit(f"callgrind lists no instructions of {', '.join(missing)}")
    return {case: counted[f"our_{case}"] / counted[f"plain_{case}"] for case in CASES}


def compiler() -> str:
    version = subprocess.run(["cc", "--version"], capture_output=True, text=True, check=True)
    return version.stdout.splitlines()[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--store", action="store_true", help="write the ratios of today")
    options = parser.parse_args()
    today = ratios(options.program.resolve())
    if options.store:
        lines = [f"{case},{today[case]:.4f},{compiler()}" for case in CASES]
        STORED.write_text("\n".join(["case,ratio,compiler", *lines]) + "\n")
        print(f"{STORED} written")
        return 0
    with STORED.open(newline="") as file:
        stored = {
            row["case"]: (float(row["ratio"]), row["compiler"]) for row in csv.DictReader(file)
        }
    above = 0
    for case in CASES:
        ratio, by = stored[case]
        worse = today[case] > ratio * (1 + TOLERANCE)
        above += worse
        print(
            f"{case:12} {today[case]:.4f} of the classic loop's instructions; stored {ratio:.4f} "
            f"({by}){': TOO MANY' if worse else ''}"
        )
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
