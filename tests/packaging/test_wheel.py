"""The source distribution and the wheel: what is in them, what they need, built twice."""

from __future__ import annotations

import os
import re
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import elf
from conftest import Run

PIP = (sys.executable, "-m", "pip", "--no-input")
EPOCH = {"SOURCE_DATE_EPOCH": "1700000000"}


def wheel_of(run: Run, source: Path, target: Path) -> Path:
    command = ("wheel", "--quiet", "--no-build-isolation", "--no-deps", "--no-index")
    run(*PIP, *command, "-w", target, source, env=EPOCH)
    (wheel,) = target.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wheel")


@pytest.fixture(scope="module")
def source(export: Callable[[Path], Path], place: Path) -> Path:
    return export(place / "source")


@pytest.fixture(scope="module")
def sdist(run: Run, source: Path, place: Path) -> Path:
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "-o", place, source, env=EPOCH)
    (sdist,) = place.glob("*.tar.gz")
    return sdist


@pytest.fixture(scope="module")
def unpacked(sdist: Path, place: Path) -> Path:
    with tarfile.open(sdist) as archive:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(place / "sdist")
    (folder,) = (place / "sdist").iterdir()
    return folder


@pytest.fixture(scope="module")
def wheel(run: Run, unpacked: Path, place: Path) -> Path:
    return wheel_of(run, unpacked, place / "one")


@pytest.fixture(scope="module")
def installed(wheel: Path, place: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place / "installed")
    return place / "installed"


def test_sdist_holds_what_every_way_in_needs(source: Path, unpacked: Path) -> None:
    def names(folder: Path) -> set[str]:
        return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}

    expected = {name for name in names(source) if not name.startswith(".ci/")}
    assert names(unpacked) == expected | {"PKG-INFO"}
    for way in (
        "conda-recipe/recipe.yaml",
        "spack/spack_repo/libsumtree/repo.yaml",
        "src/sumtree.h",
    ):
        assert way in expected


def test_wheel_tag(wheel: Path) -> None:
    python = "cp{0}{1}-cp{0}{1}".format(*sys.version_info)
    machine = os.uname().machine
    assert wheel.name.endswith(f"-{python}-linux_{machine}.whl")


def test_wheel_holds_the_package_alone(wheel: Path, checkout: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    package = checkout / "python/libsumtree"
    sources = {str(p.relative_to(package.parent)) for p in package.rglob("*.py*")}
    sources = {name for name in sources if "__pycache__" not in name}
    rest = {name for name in names if not re.match(r"libsumtree-[^/]+\.dist-info/", name)}
    (binding,) = (name for name in rest if name.startswith("libsumtree/_core.") and ".so" in name)
    jobs = {name for name in rest if name.startswith("libsumtree/jobs/templates/")}
    assert "libsumtree/jobs/templates/slurm/job.sh" in jobs
    built = ("cpu", "multicore", "classic")
    libraries = {f"libsumtree/lib/libsumtree_{name}.so" for name in built}
    assert rest - jobs == sources | {"libsumtree/py.typed", binding} | libraries


def test_nothing_in_the_wheel_names_a_place(installed: Path, place: Path) -> None:
    assert len(elf.libraries(installed)) == 4
    assert elf.absolute_rpaths(installed) == []
    assert elf.paths_inside(installed, str(place), sys.prefix) == []


def test_two_wheels_are_identical(run: Run, wheel: Path, source: Path, place: Path) -> None:
    assert wheel_of(run, source, place / "two").read_bytes() == wheel.read_bytes()


def test_repaired_wheel_stands_alone(run: Run, wheel: Path, tmp_path: Path) -> None:
    """After auditwheel, libgomp comes with it, and the tag states the glibc that is needed."""
    run("auditwheel", "repair", wheel, "-w", tmp_path / "repaired")
    (repaired,) = (tmp_path / "repaired").glob("*.whl")
    tags = [tuple(map(int, tag)) for tag in re.findall(r"manylinux_(\d+)_(\d+)_", repaired.name)]
    with zipfile.ZipFile(repaired) as archive:
        archive.extractall(tmp_path / "site")
    assert tags
    assert min(tags) >= elf.newest_glibc(tmp_path / "site")
    assert elf.absolute_rpaths(tmp_path / "site") == []
    said = run("ldd", tmp_path / "site/libsumtree/lib/libsumtree_multicore.so")
    assert re.search(rf"libgomp-\w+\.so\S* => {tmp_path}/site/\S*libsumtree\.libs/", said)
    verify = (sys.executable, "-m", "libsumtree", "verify")
    said = run(*verify, env={"PYTHONPATH": str(tmp_path / "site")}, cwd=tmp_path)
    assert "verified: cpu, multicore" in said
