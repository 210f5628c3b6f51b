"""What is written down more than once says the same everywhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version


@pytest.fixture(scope="module")
def version(checkout: Path) -> str:
    return (checkout / "VERSION").read_text().strip()


def test_versions(checkout: Path, version: str) -> None:
    recipe = yaml.safe_load((checkout / "conda-recipe/recipe.yaml").read_text())
    assert recipe["context"]["version"] == version
    assert yaml.safe_load((checkout / "CITATION.cff").read_text())["version"] == version
    minor = ".".join(version.split(".")[:2])
    assert (
        f"find_package(libsumtree {minor} " in (checkout / "examples/c/CMakeLists.txt").read_text()
    )


def test_spack_releases_exist(checkout: Path, version: str) -> None:
    """A recipe may be behind the sources, never ahead of them."""
    for recipe in (checkout / "spack").rglob("package.py"):
        for release in re.findall(r'version\(\s*"(\d[^"]*)"', recipe.read_text()):
            assert tuple(map(int, release.split("."))) <= tuple(map(int, version.split(".")))


def test_addresses(checkout: Path) -> None:
    urls = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]["urls"]
    about = yaml.safe_load((checkout / "conda-recipe/recipe.yaml").read_text())["about"]
    assert (about["homepage"], about["repository"]) == (urls["Homepage"], urls["Repository"])
    for recipe in (checkout / "spack").rglob("package.py"):
        text = recipe.read_text()
        assert f'homepage = "{urls["Homepage"]}"' in text
        assert f'git = "{urls["Repository"]}"' in text


def test_conda_needs_what_pip_needs(checkout: Path) -> None:
    project = tomllib.loads((checkout / "pyproject.toml").read_text())
    recipe = yaml.safe_load((checkout / "conda-recipe/recipe.yaml").read_text())["requirements"]

    def pinned(requirements: list[object]) -> set[str]:
        return {re.sub(r"\s", "", item) for item in requirements if isinstance(item, str)}

    extras = project["project"]["optional-dependencies"]
    runs = project["project"]["dependencies"] + extras["hdf5"] + extras["mpi"]
    assert pinned(recipe["run"]) == {*runs, "python"}
    builds = {*project["build-system"]["requires"], "python", "pip", "libgomp"}
    assert pinned(recipe["host"]) == builds


def test_the_oldest_versions_are_those_that_pip_allows(checkout: Path) -> None:
    """mpi4py, which has no wheels as old, is the exception that tests/oldest.txt tells of."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    bounds: dict[str, Version] = {}

    def collect(requirements: list[str]) -> None:
        for requirement in map(Requirement, requirements):
            if requirement.name == "libsumtree":
                for extra in requirement.extras:
                    collect(extras[extra])
            for bound in requirement.specifier:
                least = Version(bound.version)
                bounds[requirement.name] = max(least, bounds.get(requirement.name, least))

    collect(project["dependencies"] + extras["test"])
    lines = (checkout / "tests/oldest.txt").read_text().splitlines()
    oldest = dict(line.split("==") for line in lines if not line.startswith("#"))
    bounds["mpi4py"] = Version("4.1.0")
    assert {name: Version(version) for name, version in oldest.items()} == bounds


def test_python_versions(checkout: Path) -> None:
    """conda builds for every Python from the least that pyproject names."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]
    variants = yaml.safe_load((checkout / "conda-recipe/variants.yaml").read_text())
    minors = [int(re.match(r"3\.(\d+)\.", python)[1]) for python in variants["python"]]
    assert project["requires-python"] == f">=3.{minors[0]}"
    assert minors == list(range(minors[0], minors[-1] + 1))
