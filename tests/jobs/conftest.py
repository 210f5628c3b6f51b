"""What the tests on a private Slurm share: the cluster, and jobs handed in to it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import Cluster
from slurm import PrivateSlurm

#: Where tests/run.sh has installed the product as a site would: Python, library, modules, templates.
PREFIX_VARIABLE = "SUMTREE_JOBS_PREFIX"


@pytest.fixture(scope="session")
def prefix() -> Path:
    """Give the installation that tests/run.sh has made."""
    named = os.environ.get(PREFIX_VARIABLE)
    assert named, f"{PREFIX_VARIABLE} is not set: run these tests by `sh tests/run.sh jobs`"
    return Path(named)


@pytest.fixture(scope="session")
def ground() -> Iterator[Path]:
    """Give a folder that every user can enter; it is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="libsumtree-jobs-"))
    folder.chmod(0o755)
    yield folder
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
