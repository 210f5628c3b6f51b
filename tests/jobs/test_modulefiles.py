"""The modulefiles under both module systems: paths, conflicts, prerequisites."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from cluster import LMOD

SHOWN = (
    "LIBSUMTREE_ROOT",
    "LIBSUMTREE_JOBS",
    "PATH",
    "LD_LIBRARY_PATH",
    "CPATH",
    "CMAKE_PREFIX_PATH",
)


@pytest.fixture(scope="module", params=["Lmod", "Environment Modules"])
def modules(request: pytest.FixtureRequest, environment_modules: str) -> str:
    """Give the line that makes the command `module`, by either system."""
    return LMOD if request.param == "Lmod" else environment_modules


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", script],
        env={"PATH": "/usr/bin:/bin", "HOME": "/dev/null"},
        capture_output=True,
        text=True,
    )


def loaded(modules: str, folder: Path, names: str = "libsumtree") -> dict[str, str]:
    script = (
        f"{modules}\nmodule use {shlex.quote(str(folder))}\nmodule load {names} || exit 9\n"
        + "\n".join(f'printf "%s\\0%s\\0" {name} "${name}"' for name in SHOWN)
    )
    done = run(script)
    assert done.returncode == 0, done.stderr
    parts = done.stdout.split("\0")
    return dict(zip(parts[::2], parts[1::2], strict=False))


def copy(prefix: Path, into: Path, lua: bool) -> Path:
    """Copy an installation, without Python: as `cmake --install` leaves it."""
    for name in ("share", "lib", "include"):
        shutil.copytree(
            prefix / name, into / name, symlinks=True, ignore=shutil.ignore_patterns("python*")
        )
    if not lua:
        for path in into.rglob("*.lua"):
            path.unlink()
    return into


@pytest.mark.parametrize("lua", [True, False], ids=["Lua and Tcl", "Tcl alone"])
def test_paths_follow_the_prefix(modules: str, prefix: Path, tmp_path: Path, lua: bool) -> None:
    moved = copy(prefix, tmp_path / "moved", lua)
    seen = loaded(modules, moved / "share" / "modulefiles")
    assert seen["LIBSUMTREE_ROOT"] == str(moved)
    assert seen["LIBSUMTREE_JOBS"] == str(moved / "share" / "libsumtree" / "jobs")
    assert Path(seen["LIBSUMTREE_JOBS"], "body.sh").is_file()
    assert seen["PATH"].split(":")[0] == str(moved / "bin")
    library = Path(seen["LD_LIBRARY_PATH"].split(":")[0])
    assert list(library.glob("libsumtree_cpu.so*"))
    assert Path(seen["CPATH"].split(":")[0], "sumtree.h").is_file()
    assert seen["CMAKE_PREFIX_PATH"].split(":")[0] == str(moved)


def test_copied_out_of_its_installation_a_modulefile_knows_the_prefix(
    modules: str, prefix: Path, tmp_path: Path
) -> None:
    shutil.copytree(prefix / "share" / "modulefiles", tmp_path / "central")
    assert loaded(modules, tmp_path / "central")["LIBSUMTREE_ROOT"] == str(prefix)


def test_unloading_leaves_nothing(modules: str, prefix: Path) -> None:
    folder = prefix / "share" / "modulefiles"
    done = run(
        f"{modules}\nmodule use {folder}\nmodule load libsumtree && module unload libsumtree\n"
        'echo "[${LIBSUMTREE_ROOT-}${LIBSUMTREE_JOBS-}${LD_LIBRARY_PATH-}]$PATH"'
    )
    assert done.stdout.startswith("[]"), done
    assert str(prefix) not in done.stdout


def test_two_versions_exclude_each_other(modules: str, prefix: Path, tmp_path: Path) -> None:
    moved = copy(prefix, tmp_path / "moved", lua=True)
    folder = moved / "share" / "modulefiles" / "libsumtree"
    (version,) = {path.name.removesuffix(".lua") for path in folder.iterdir()}
    for path in list(folder.iterdir()):
        shutil.copy(path, folder / path.name.replace(version, "99.0"))
    loads = f"module load libsumtree/{version}; module load libsumtree/99.0; echo =$LOADEDMODULES="
    done = run(f"{modules}\nmodule use {folder.parent}\n{loads}")
    # Lmod takes the other version instead; Environment Modules refuses it.
    assert done.stdout.count("libsumtree/") == 1, done


def test_prerequisites_are_asked_for(
    modules: str, prefix: Path, tmp_path: Path, cmake_install: str
) -> None:
    built = tmp_path / "with"
    subprocess.run(
        [cmake_install, str(built), "-DSUMTREE_MODULE_PREREQUISITES=an-mpi/1.0"],
        check=True,
        capture_output=True,
    )
    folder = built / "share" / "modulefiles"
    opening = f"{modules}\nmodule use {folder}\n"
    missing = run(f"{opening}module load libsumtree; echo =${{LIBSUMTREE_ROOT-}}=")
    assert "==" in missing.stdout
    assert "an-mpi" in missing.stderr
    (folder / "an-mpi").mkdir()
    (folder / "an-mpi" / "1.0").write_text("#%Module1.0\nsetenv AN_MPI 1\n")
    assert loaded(modules, folder, "an-mpi libsumtree")["LIBSUMTREE_ROOT"] == str(built)
