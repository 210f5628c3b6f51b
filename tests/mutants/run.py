"""Turn the suite red: apply each fault of `table.MUTANTS`, one at a time, and run the tests.

Usage: run.py [NAME ...] [--jobs 2] [--list | --check]

The package is copied as it is installed, with the Python files of this checkout put over it. The
tests must pass on that copy. Then, for each mutant, one text in one file of a fresh copy is
replaced, the cpu backend is built anew if the file is one of src/, or the binding if it is one of
python/bindings/, and the mutant's tests must fail
by an assertion: a mutant that passes has survived, and anything else (an error of collection, a
crash, a timeout) is no proof either. Ends with status 1 unless every mutant was killed, but for
those of vector levels that this processor does not have: these are named as absent. Before anything
runs, each mutant must fit the code as it is; with --check that is all that is done.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import nanobind
import numpy as np
from mutant import Mutant
from table import MUTANTS

from libsumtree.vectors import vector_levels

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGE = Path("python/libsumtree")
TEMPLATES = PACKAGE / "jobs" / "templates"
BINDING, BINDINGS = Path("python/bindings.cpp"), Path("python/bindings")
SOURCES = [
    *("sumtree.c", "checks.c", "vectors.c", "philox.c", "memory.c"),
    *("kernels_host.c", "updates_host.c", "descents_host.c", "descents_x86.c"),
]
# What src/CMakeLists.txt says, but for the warnings.
FLAGS = "-O3 -fPIC -shared -fvisibility=hidden -ffp-contract=off -fno-fast-math -fno-math-errno"
BINDING_FLAGS = "-O1 -fPIC -shared -fvisibility=hidden -fno-strict-aliasing -DNDEBUG -w"
TIMEOUT = 150  # seconds for one mutant's tests


def mutated(mutant: Mutant, text: str) -> str:
    """Return a file's text with the mutant's fault, which must fit it."""
    found = text.count(mutant.old)
    if found != 1:
        raise SystemExit(
            f"mutant {mutant.name!r}: its old text stands {found} times in {mutant.file}, not "
            "once: bring tests/mutants up to date"
        )
    faulty = text.replace(mutant.old, mutant.new)
    if mutant.file.endswith(".py"):
        try:
            compile(faulty, mutant.file, "exec")
        except SyntaxError as error:
            raise SystemExit(f"mutant {mutant.name!r}: {error}") from None
    return faulty


def check_fit(mutants: list[Mutant]) -> None:
    """See that each mutant fits the code of the checkout."""
    for mutant in mutants:
        file = Path(mutant.file)
        if file.is_relative_to(TEMPLATES):  # the package has copies
            file = "jobs" / file.relative_to(TEMPLATES)
        mutated(mutant, (CHECKOUT / file).read_text())


class Workplace:
    """A copy of the package in a folder of its own, beside a copy of src/."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = folder / PACKAGE
        shutil.copytree(CHECKOUT / "src", folder / "src")
        hidden = shutil.ignore_patterns("__pycache__")
        shutil.copytree(_installed_package(), self.package, ignore=hidden)
        shutil.copytree(CHECKOUT / PACKAGE, self.package, ignore=hidden, dirs_exist_ok=True)
        shutil.copytree(CHECKOUT / BINDINGS, folder / BINDINGS)
        shutil.copy(CHECKOUT / BINDING, folder / BINDING)

    def apply(self, mutant: Mutant) -> None:
        """Replace the mutant's text."""
        file = self.folder / mutant.file
        file.write_text(mutated(mutant, file.read_text()))

    def build(self) -> None:
        """Build the cpu backend from the copy of src/."""
        library = self.package / "lib" / "libsumtree_cpu.so"
        library.unlink()
        command = [os.environ.get("CC", "cc"), "-std=gnu11", *FLAGS.split()]
        command += ["-DSUMTREE_BACKEND_CPU", *SOURCES, "-lm", "-o", str(library)]
        self._run(command)

    def build_binding(self) -> None:
        """Build the binding from the copy of python/bindings/, with the nanobind that is here."""
        (library,) = self.package.glob("_core.*.so")
        library.unlink()
        places = [nanobind.include_dir(), np.get_include(), sysconfig.get_paths()["include"]]
        combined = Path(nanobind.source_dir()) / "nb_combined.cpp"
        maps = Path(nanobind.include_dir()).parent / "ext" / "robin_map" / "include"
        command = [os.environ.get("CXX", "c++"), "-std=c++17", *BINDING_FLAGS.split(), "-I."]
        command += [f"-I{place}" for place in [*places, maps]]
        command += [str(self.folder / BINDING), str(combined), "-ldl", "-o", str(library)]
        self._run(command)

    def _run(self, command: list[str]) -> None:
        built = subprocess.run(command, cwd=self.folder / "src", capture_output=True, text=True)
        if built.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{built.stderr}")

    def test(self, targets: list[str]) -> subprocess.CompletedProcess[str]:
        """Run tests of the checkout on the copy of the package."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.folder / "python"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self.folder / "hypothesis"),
        }
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        command += ["--basetemp", str(self.folder / "tests"), *targets]
        return subprocess.run(
            command,
            cwd=CHECKOUT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT,
        )


def _installed_package() -> Path:
    spec = find_spec("libsumtree")
    if spec is None or spec.origin is None:
        raise SystemExit("libsumtree is not installed in this environment: pip install it first")
    return Path(spec.origin).parent


def judge(mutant: Mutant) -> tuple[str, str]:
    """Apply and test one mutant: ``killed`` and by what, or what happened instead."""
    if mutant.level not in vector_levels("cpu"):
        return "absent", f"this processor has no {mutant.level}: nothing can notice"
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        workplace = Workplace(Path(folder) / "copy")
        workplace.apply(mutant)
        if mutant.file.startswith("src/"):
            workplace.build()
        if mutant.file.startswith(str(BINDINGS)):
            workplace.build_binding()
        try:
            tested = workplace.test(mutant.targets)
        except subprocess.TimeoutExpired:
            return "TIMEOUT", f"no end after {TIMEOUT} s"
    failed = re.search(r"^FAILED (\S+)", tested.stdout, re.MULTILINE)
    if tested.returncode == 1 and failed:
        return "killed", failed[1].rpartition("/")[2]
    if tested.returncode == 0:
        return "SURVIVED", " ".join(mutant.targets)
    return "BROKEN", f"pytest ended with {tested.returncode}:\n{tested.stdout[-2000:]}"


def check_unmutated(mutants: list[Mutant]) -> None:
    """Run all targets on an unmutated copy, with a backend built here: they must pass."""
    suites: dict[str, list[str]] = {}
    for target in dict.fromkeys(target for mutant in mutants for target in mutant.targets):
        suites.setdefault(target.rpartition("/")[0], []).append(target)
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        workplace = Workplace(Path(folder) / "copy")
        workplace.build()
        for targets in suites.values():
            tested = workplace.test(targets)
            if tested.returncode:
                raise SystemExit(f"the tests fail without any mutant:\n{tested.stdout[-6000:]}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="of mutants; all if none is given")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    parser.add_argument("--list", action="store_true", help="name the mutants and end")
    parser.add_argument("--check", action="store_true", help="see that each fits the code, and end")
    options = parser.parse_args()
    unknown = set(options.names).difference(mutant.name for mutant in MUTANTS)
    if unknown:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}; see --list")
    return options


def main() -> int:
    options = parse()
    mutants = [m for m in MUTANTS if not options.names or m.name in options.names]
    if options.list:
        print("\n".join(f"{mutant.name:34} {mutant.file}" for mutant in mutants))
        return 0
    check_fit(mutants)
    if options.check:
        print(f"{len(mutants)} mutants fit the code")
        return 0
    start = time.monotonic()
    check_unmutated(mutants)
    print(f"unmutated: green after {time.monotonic() - start:.0f} s\n")
    verdicts = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, (verdict, reason) in zip(mutants, pool.map(judge, mutants), strict=True):
            print(f"{verdict:9} {mutant.name:34} {reason}", flush=True)
            verdicts.append(verdict)
    seconds = time.monotonic() - start
    killed, absent = verdicts.count("killed"), verdicts.count("absent")
    print(f"\n{killed} of {len(mutants)} mutants killed, {absent} absent, in {seconds:.0f} s")
    return 0 if killed + absent == len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())
