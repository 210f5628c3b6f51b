"""What the tests on a private Slurm share: the cluster, and jobs handed in to it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import Cluster
from slurm import PrivateSlurm

#: Where tests/run.sh has installed the product as a site would: Python, library, templates.
PREFIX_VARIABLE = "SUMTREE_JOBS_PREFIX"
#: Set it to look at what Slurm and the jobs have written.
KEEP_VARIABLE = "SUMTREE_JOBS_KEEP"


@pytest.fixture(scope="session")
def prefix() -> Path:
    """Give the installation that tests/run.sh has made."""
    named = os.environ.get(PREFIX_VARIABLE)
    assert named, f"{PREFIX_VARIABLE} is not set: run these tests by `sh tests/run.sh jobs`"
    return Path(named)


@pytest.fixture(scope="session")
def ground() -> Iterator[Path]:
    """Give a folder that every user can enter; removed at the end, unless told to keep it."""
    folder = Path(tempfile.mkdtemp(prefix="libsumtree-jobs-"))
    folder.chmod(0o755)
    yield folder
    if KEEP_VARIABLE not in os.environ:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def slurm(ground: Path) -> Iterator[PrivateSlurm]:
    """Give a running Slurm."""
    folder = ground / "slurm"
    folder.mkdir()
    with PrivateSlurm(folder) as running:
        yield running


@pytest.fixture
def cluster(slurm: PrivateSlurm, prefix: Path, ground: Path) -> Iterator[Cluster]:
    """Give the Slurm with a folder to hand jobs in from; what is left of them is cancelled."""
    folder = Path(tempfile.mkdtemp(dir=ground))
    folder.chmod(0o755)
    made = Cluster(slurm, prefix, folder)
    yield made
    made.sweep()


@pytest.fixture(scope="session")
def mpich(ground: Path) -> Path:
    """Give a folder with Debian's MPICH under the name that MPIs have for programs."""
    folder = ground / "mpich"
    folder.mkdir()
    listed = subprocess.run(
        ["dpkg", "-L", "libmpich12"], capture_output=True, text=True, check=True
    )
    library = next(line for line in listed.stdout.split() if line.endswith("/libmpich.so.12"))
    for name in ("libmpi.so", "libmpi.so.12"):
        (folder / name).symlink_to(library)
    return folder


@pytest.fixture(scope="session")
def environment_modules(ground: Path) -> str:
    """Give the line that makes `module` by Environment Modules.

    Debian lets it not be installed beside Lmod: its program is taken out of the package.
    """
    folder = ground / "environment-modules"
    folder.mkdir()
    subprocess.run(
        ["apt-get", "download", "-qq", "environment-modules"],
        cwd=folder,
        check=True,
    )
    (package,) = folder.glob("*.deb")
    subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
    program = next(path for path in folder.rglob("modulecmd.tcl") if not path.is_symlink())
    (folder / "init").mkdir()
    init = folder / "init" / "bash"
    init.write_text(f'module() {{ eval "$(/usr/bin/tclsh {program} bash "$@")"; }}\n')
    return f"export MODULESHOME={folder}; . {init}"


@pytest.fixture(scope="session")
def cmake_install(ground: Path) -> str:
    """Give a program that builds the C library with options $2... and installs it to $1."""
    checkout = Path(__file__).resolve().parents[2]
    cmake = Path(sys.executable).with_name("cmake")
    program = ground / "cmake-install"
    program.write_text(
        "#!/bin/sh\nset -eu\nprefix=$1\nshift\n"
        f'"{cmake}" -S "{checkout}" -B "$prefix.build" -DSUMTREE_BACKENDS=cpu "$@"\n'
        f'"{cmake}" --build "$prefix.build"\n'
        f'"{cmake}" --install "$prefix.build" --prefix "$prefix"\n'
    )
    program.chmod(0o755)
    return str(program)
