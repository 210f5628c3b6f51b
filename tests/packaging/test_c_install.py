"""The C library as `cmake --install` leaves it: components, pkg-config, moved, built twice."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import elf
from conftest import Run

BACKENDS = ("cpu", "multicore")


@pytest.fixture(scope="module")
def build(
    run: Run, export: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """Build the library, with debug information, in a folder of its own."""

    def build(name: str) -> Path:
        folder = tmp_path_factory.mktemp(name)
        source = export(folder / "source")
        tree = folder / "build"
        run("cmake", "-S", source, "-B", tree, "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-GNinja")
        run("cmake", "--build", tree)
        return tree

    return build


@pytest.fixture(scope="module")
def tree(build: Callable[[str], Path]) -> Path:
    return build("one")


@pytest.fixture
def installed(run: Run, tree: Path, tmp_path: Path) -> Path:
    run("cmake", "--install", tree, "--prefix", tmp_path / "first")
    (tmp_path / "first").rename(tmp_path / "moved here")
    return tmp_path / "moved here"


def contents(prefix: Path) -> set[str]:
    """Name what lies below a prefix, without folders, whatever the library folder is called."""
    return {
        re.sub(r"^lib(64|/[a-z0-9_]+-linux-gnu)?/", "lib/", str(path.relative_to(prefix)))
        for path in prefix.rglob("*")
        if not path.is_dir()
    }


def test_components(run: Run, tree: Path, tmp_path: Path) -> None:
    abi = re.search(r"ABI_VERSION (\d+)", (tree / "../source/src/sumtree.h").read_text())[1]
    version = (tree / "../source/VERSION").read_text().strip()
    for component in ("runtime", "development"):
        prefix = tmp_path / component
        run("cmake", "--install", tree, "--component", component, "--prefix", prefix)
    libraries = {
        f"lib/libsumtree_{backend}.so.{number}" for backend in BACKENDS for number in (abi, version)
    }
    modulefiles = {f"share/modulefiles/libsumtree/{version}{end}" for end in ("", ".lua")}
    runtime = contents(tmp_path / "runtime")
    jobs = {name for name in runtime if name.startswith("share/libsumtree/jobs/")}
    assert jobs
    assert runtime - jobs == libraries | modulefiles
    development = {
        "include/sumtree.h",
        "lib/pkgconfig/libsumtree.pc",
        *(f"lib/pkgconfig/libsumtree-{backend}.pc" for backend in BACKENDS),
        *(f"lib/libsumtree_{backend}.so" for backend in BACKENDS),
        "lib/cmake/libsumtree/libsumtreeConfig.cmake",
        "lib/cmake/libsumtree/libsumtreeConfigVersion.cmake",
        "lib/cmake/libsumtree/libsumtreeTargets.cmake",
        "lib/cmake/libsumtree/libsumtreeTargets-relwithdebinfo.cmake",
    }
    assert contents(tmp_path / "development") == development


def test_soname_is_the_abi_version(installed: Path) -> None:
    abi = re.search(r"ABI_VERSION (\d+)", (installed / "include/sumtree.h").read_text())[1]
    names = {elf.soname(path) for path in elf.libraries(installed)}
    assert names == {f"libsumtree_{backend}.so.{abi}" for backend in BACKENDS}


def test_nothing_names_a_place(installed: Path, tree: Path) -> None:
    assert len(elf.libraries(installed)) == len(BACKENDS)
    assert elf.absolute_rpaths(installed) == []
    shutil.rmtree(installed / "share/modulefiles")  # they name the prefix, for copies elsewhere
    assert elf.paths_inside(installed, str(tree.parent), str(installed.parent)) == []


@pytest.mark.parametrize("module", ["libsumtree", *(f"libsumtree-{b}" for b in BACKENDS)])
def test_pkg_config(run: Run, installed: Path, checkout: Path, tmp_path: Path, module: str) -> None:
    folder = next(installed.rglob("libsumtree.pc")).parent
    flags = run(
        "pkgconf", "--cflags", "--libs", module, env={"PKG_CONFIG_PATH": str(folder)}
    ).replace("\\ ", "\0")
    arguments = [flag.replace("\0", " ") for flag in flags.split()]
    program = tmp_path / "draw"
    run(
        "cc",
        checkout / "examples/c/draw.c",
        *arguments,
        f"-Wl,-rpath,{folder.parent}",
        "-o",
        program,
    )
    backend = module.removeprefix("libsumtree").removeprefix("-") or "cpu"
    assert run(program).startswith(f"backend {backend}, total 499500\n")


def test_a_backend_that_was_not_built(
    run: Run, installed: Path, checkout: Path, tmp_path: Path
) -> None:
    said = run(
        *("cmake", "-S", checkout / "examples/c", "-B", tmp_path / "b", "-GNinja"),
        *("-DBACKEND=gpu", f"-DCMAKE_PREFIX_PATH={installed}"),
        fails=True,
    )
    assert "the backend 'gpu' is not part of this installation" in " ".join(said.split())


def test_another_minor_version_is_refused(
    run: Run, installed: Path, checkout: Path, tmp_path: Path
) -> None:
    shutil.copytree(checkout / "examples/c", tmp_path / "c")
    lists = tmp_path / "c/CMakeLists.txt"
    lists.write_text(lists.read_text().replace("libsumtree 0.1 ", "libsumtree 0.0 "))
    said = run(
        *("cmake", "-S", tmp_path / "c", "-B", tmp_path / "b", "-GNinja"),
        f"-DCMAKE_PREFIX_PATH={installed}",
        fails=True,
    )
    assert 'compatible with requested version "0.0"' in " ".join(said.split())


def test_an_option_that_does_not_exist(run: Run, checkout: Path, tmp_path: Path) -> None:
    said = run("cmake", "-S", checkout, "-B", tmp_path, "-DSUMTREE_BACKEND=cpu", fails=True)
    assert "libsumtree has no option SUMTREE_BACKEND; its options are" in " ".join(said.split())


def test_an_absolute_library_folder_is_refused(run: Run, checkout: Path, tmp_path: Path) -> None:
    said = run(
        "cmake", "-S", checkout, "-B", tmp_path, "-DCMAKE_INSTALL_LIBDIR=/opt/lib", fails=True
    )
    assert "must be relative to the prefix" in " ".join(said.split())


def test_two_builds_give_identical_files(
    run: Run, build: Callable[[str], Path], tree: Path, tmp_path: Path
) -> None:
    for name, folder in (("one", tree), ("two", build("another-name"))):
        destination = {"DESTDIR": str(tmp_path / name)}
        run("cmake", "--install", folder, "--prefix", "/opt/libsumtree", env=destination)
    one, two = (
        {str(p.relative_to(prefix)): p.read_bytes() for p in prefix.rglob("*") if p.is_file()}
        for prefix in (tmp_path / "one", tmp_path / "two")
    )
    assert one.keys() == two.keys()
    assert [name for name in one if one[name] != two[name]] == []
