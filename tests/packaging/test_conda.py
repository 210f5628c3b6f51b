"""The conda recipe: built with its own tests, solved, installed, and broken on purpose."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import rattler
import yaml
from rattler_build import Stage0Recipe, ToolConfiguration, VariantConfig
from rattler_build.progress import SimpleProgressCallback

import channel
import elf
from conftest import Run


class Log(SimpleProgressCallback):
    """What a build says."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def on_log(self, event: object) -> None:
        self.text += f"{event.message}\n"


class Builder:
    """Builds the CPU package for this Python from a recipe folder, against the offline channel."""

    def __init__(self, url: str, output: Path) -> None:
        self.url, self.output = url, output

    def variants(self, recipe: Path) -> list[object]:
        config = VariantConfig.from_files([recipe / "variants.yaml"])
        return list(Stage0Recipe.from_file(recipe / "recipe.yaml").render(config))

    def build(self, recipe: Path, tests: bool = True) -> tuple[bool, str]:
        """Tell whether the build and the recipe's tests succeeded, and what they said."""
        python = f"py{sys.version_info.major}{sys.version_info.minor}h"
        wanted = f"cpu_{python}"
        (variant,) = (
            v
            for v in self.variants(recipe)
            if str(v.recipe.to_dict()["build"]["string"]).startswith(wanted)
        )
        log = Log()
        try:
            variant.run_build(
                tool_config=ToolConfiguration(
                    test_strategy="native" if tests else "skip", compression_threads=1
                ),
                output_dir=self.output,
                channels=[self.url],
                package_format="conda:1",
                progress_callback=log,
            )
        except Exception as error:  # the one class that it raises is no public name
            return False, f"{log.text}\n{error}"
        return True, log.text


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("conda")


@pytest.fixture(scope="module")
def url(place: Path, checkout: Path) -> str:
    variants = yaml.safe_load((checkout / "conda-recipe/variants.yaml").read_text())
    compiler, glibc = variants["c_compiler_version"][0], variants["c_stdlib_version"][0]
    return channel.make(place / "channel", place / "stage", compiler, glibc, print)


@pytest.fixture(scope="module")
def source(export: Callable[[Path], Path], place: Path) -> Path:
    return export(place / "source")


@pytest.fixture(scope="module")
def builder(url: str, place: Path) -> Builder:
    # Packages are unpacked once into a cache of rattler's own, which knows them by name.
    patch = pytest.MonkeyPatch()
    patch.setenv("RATTLER_CACHE_DIR", str(place / "cache"))
    yield Builder(url, place / "output")
    patch.undo()


@pytest.fixture(scope="module")
def built(builder: Builder, source: Path) -> str:
    success, said = builder.build(source / "conda-recipe")
    assert success, said[-6000:]
    return said


def install(builder: Builder, prefix: Path, *specs: str) -> dict[str, rattler.RepoDataRecord]:
    """Solve as `conda install` would, and link what was chosen into a new prefix."""

    async def solve_and_link() -> list[rattler.RepoDataRecord]:
        virtual = [package.into_generic() for package in rattler.VirtualPackage.detect()]
        virtual = [package for package in virtual if package.name.normalized != "__cuda"]
        records = await rattler.solve(
            [builder.output.as_uri(), builder.url],
            list(specs),
            platforms=[channel.SUBDIR, "noarch"],
            virtual_packages=virtual,
        )
        await rattler.install(records, target_prefix=str(prefix), show_progress=False)
        return records

    return {record.name.normalized: record for record in asyncio.run(solve_and_link())}


@pytest.fixture(scope="module")
def prefix(builder: Builder, built: str, place: Path) -> Path:
    records = install(builder, place / "prefix", "libsumtree")
    assert str(records["libsumtree"].build).startswith("cpu_")
    assert {"numpy", "h5py", "mpi4py", "_openmp_mutex", "libgomp"} <= records.keys()
    return place / "prefix"


def package_files(prefix: Path) -> Path:
    return next(prefix.glob("lib/python3*/site-packages/libsumtree"))


def test_variants(builder: Builder, source: Path) -> None:
    """Each Python has a CPU package and, preferred where there is a driver, a GPU package."""
    rendered = [v.recipe.to_dict() for v in builder.variants(source / "conda-recipe")]
    strings = [recipe["build"]["string"] for recipe in rendered]
    assert len(set(strings)) == len(strings) == 2 * len(yaml_pythons(source))
    numbers: dict[bool, set[int]] = {True: set(), False: set()}
    for recipe in rendered:
        gpu = recipe["build"]["string"].startswith("gpu_")
        numbers[gpu].add(recipe["build"]["number"])
        assert any(need.startswith("__cuda") for need in recipe["requirements"]["run"]) == gpu
    assert numbers == {False: {0}, True: {200}}


def yaml_pythons(source: Path) -> list[str]:
    return yaml.safe_load((source / "conda-recipe/variants.yaml").read_text())["python"]


def test_recipe_tests_ran(built: str) -> None:
    for said in ("verified: cpu", "verified: multicore", "2 ranks: 1000 transitions arrived"):
        assert said in built


def test_installed_package(run: Run, prefix: Path) -> None:
    environment = {"PATH": f"{prefix}/bin:/usr/bin:/bin", "CONDA_PREFIX": str(prefix)}
    assert "verified: cpu, multicore" in run(prefix / "bin/libsumtree", "verify", env=environment)
    command = ("mpiexec", "-n", "2", "python", "-m", "mpi4py")
    program = Path(__file__).resolve().parents[2] / "conda-recipe/two_ranks.py"
    said = run(*command, program, env=environment, cwd="/")
    assert "2 ranks: 1000 transitions arrived and were saved" in said


def test_libraries_come_from_the_prefix(prefix: Path) -> None:
    folder = package_files(prefix)
    assert len(elf.libraries(folder)) == 4
    assert elf.absolute_rpaths(folder) == []
    assert elf.foreign_libraries(folder, prefix) == []


# A package that is not to be kept is compiled quickly.
QUICKLY = (
    "build.sh",
    "set -eu\n",
    "set -eu\nexport CXXFLAGS=-O0 SKBUILD_CMAKE_BUILD_TYPE=Debug\n",
)


def broken(source: Path, tmp_path: Path, *changes: tuple[str, str, str]) -> Path:
    """Copy the sources and change the recipe: (file, what stands there, what then does)."""
    shutil.copytree(source, tmp_path / "broken")
    recipe = tmp_path / "broken/conda-recipe"
    for name, old, new in changes:
        text = (recipe / name).read_text()
        assert text.count(old) == 1, f"{name} has {old!r} {text.count(old)} times"
        (recipe / name).write_text(text.replace(old, new))
    return recipe


def test_missing_dependency_turns_red(
    builder: Builder, built: str, source: Path, tmp_path: Path
) -> None:
    recipe = broken(source, tmp_path, QUICKLY, ("recipe.yaml", "    - h5py >=3.10\n", ""))
    success, said = Builder(builder.url, tmp_path).build(recipe)
    assert not success
    assert "No module named 'h5py'" in said or "h5py" in said.split("two_ranks.py")[-1]


def test_misspelt_option_turns_red(
    builder: Builder, built: str, source: Path, tmp_path: Path
) -> None:
    recipe = broken(source, tmp_path, ("build.sh", ".SUMTREE_BACKENDS=", ".SUMTREE_BACKEND="))
    success, said = Builder(builder.url, tmp_path).build(recipe, tests=False)
    assert not success
    assert "libsumtree has no option SUMTREE_BACKEND" in " ".join(said.split())


def test_absolute_rpath_turns_red(
    builder: Builder, built: str, source: Path, tmp_path: Path
) -> None:
    """conda's linker flags name the prefix; what makes them relative is switched off."""
    line = "  skip: not linux\n"
    change = f"{line}  dynamic_linking:\n    binary_relocation: false\n"
    recipe = broken(source, tmp_path, QUICKLY, ("recipe.yaml", line, change))
    other = Builder(builder.url, tmp_path / "output")
    success, said = other.build(recipe, tests=False)
    assert success, said[-3000:]
    install(other, tmp_path / "prefix", "libsumtree")
    complaints = elf.absolute_rpaths(package_files(tmp_path / "prefix"))
    assert len(complaints) >= 3, complaints
    assert all(complaint.endswith(" is absolute") for complaint in complaints)


def test_gpu_package_without_a_compiler_turns_red(run: Run, source: Path, tmp_path: Path) -> None:
    """No compiler that offloads was named: the build says so, and builds nothing else instead."""
    environment = {"BACKENDS": "cpu;multicore;gpu", "PYTHON": "false"}
    said = run("sh", source / "conda-recipe/build.sh", env=environment, cwd=tmp_path, fails=True)
    assert "The GPU package cannot be built: set NVHPC_ROOT" in said
    environment |= {"NVHPC_ROOT": str(tmp_path)}
    said = run("sh", source / "conda-recipe/build.sh", env=environment, cwd=tmp_path, fails=True)
    assert f"there is no compiler '{tmp_path}/compilers/bin/nvc'" in said
