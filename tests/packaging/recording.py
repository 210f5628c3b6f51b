"""Reads a Spack recipe without Spack: stand-ins for the modules it imports record its directives.

Conditions are evaluated only as far as the recipes of this repository use them: variants and the C
compiler of one concrete choice. Nothing here concretizes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DIRECTIVES = ("version", "variant", "depends_on", "requires", "conflicts", "license", "maintainers")
BASES = {"python": "PythonPackage", "cmake": "CMakePackage", "cuda": "CudaPackage"}


class SkipTest(Exception):  # noqa: N818 -- Spack's name
    """A stand-alone test that has nothing to test here."""


@dataclass
class Directive:
    """One call of a directive in the class body."""

    arguments: tuple[Any, ...]
    keywords: dict[str, Any]


@dataclass
class Recording:
    """What a recipe said, and its class."""

    name: str
    path: Path
    directives: dict[str, list[Directive]] = field(default_factory=dict)
    cls: Any = None

    def defaults(self) -> dict[str, object]:
        """Choose every variant's default; conditional ones are left out."""
        return {
            d.arguments[0]: d.keywords["default"]
            for d in self.directives["variant"]
            if "when" not in d.keywords
        }

    def dependencies(self, spec: Spec) -> dict[str, tuple[str, set[str]]]:
        """Give the version and the types of each dependency that a choice has."""
        found: dict[str, tuple[str, set[str]]] = {}
        for directive in self.directives["depends_on"]:
            if not spec.satisfies(directive.keywords.get("when", "")):
                continue
            name, version = re.match(r"([a-z0-9-]+)(@[^ +~]*)?", directive.arguments[0]).groups()
            kinds = directive.keywords["type"]
            found[name] = (version or "", {kinds} if isinstance(kinds, str) else set(kinds))
        return found


class Spec(dict):
    """One concrete choice of variants and C compiler."""

    def __init__(self, variants: dict[str, object], compiler: str = "gcc") -> None:
        super().__init__()
        self.values_of, self.compiler = variants, compiler

    @property
    def variants(self) -> dict[str, types.SimpleNamespace]:
        """Spack's way to the value of a variant."""
        return {name: types.SimpleNamespace(value=v) for name, v in self.values_of.items()}

    def satisfies(self, text: str) -> bool:
        """Evaluate a condition on variants and on the C compiler."""
        return all(self._one(part) for part in re.findall(r"[+~]\w+|[^\s+~]+", text))

    def _one(self, part: str) -> bool:
        if part[0] in "+~":
            return bool(self.values_of.get(part[1:])) == (part[0] == "+")
        if part.startswith("%c="):
            return part[3:] == self.compiler
        name, value = part.split("=")
        held = self.values_of.get(name, ("none",))
        return held in (value, (value,))

    def __contains__(self, text: object) -> bool:
        return self.satisfies(str(text))


class Executable:
    """A program, called as Spack calls it."""

    def __init__(self, path: str, environment: dict[str, str], folder: Path) -> None:
        self.path, self.environment, self.folder = path, environment, folder

    def __call__(
        self, *arguments: str, output: object = None, error: object = None, extra_env: Any = None
    ) -> str:
        environment = {**self.environment, **(extra_env or {})}
        command = [self.path, *arguments]
        done = subprocess.run(
            command, env=environment, cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr


def find_libraries(names: Any, root: str, shared: bool, recursive: bool) -> types.SimpleNamespace:
    """Find libraries below a prefix."""
    wanted = [names] if isinstance(names, str) else names
    (folder,) = {path.parent for name in wanted for path in Path(root).rglob(f"{name}.so")}
    flags = " ".join([f"-L{folder}", *(f"-l{name.removeprefix('lib')}" for name in wanted)])
    return types.SimpleNamespace(directories=[str(folder)], ld_flags=flags)


def read(path: Path) -> Recording:
    """Run a recipe's class body over the stand-ins."""
    recording = Recording(path.parent.name.replace("_", "-"), path)
    contexts: list[dict[str, Any]] = [{}]

    def directive(name: str) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            entry = Directive(arguments, {**contexts[-1], **keywords})
            recording.directives.setdefault(name, []).append(entry)
            return lambda function: function

        return call

    @contextlib.contextmanager
    def default_args(**keywords: Any) -> Iterator[None]:
        contexts.append({**contexts[-1], **keywords})
        yield
        contexts.pop()

    @contextlib.contextmanager
    def test_part(package: Any, name: str, purpose: str) -> Iterator[None]:
        yield

    names = {
        **{name: directive(name) for name in DIRECTIVES},
        "default_args": default_args,
        "test_part": test_part,
        "any_combination_of": lambda *values: values,
        "run_after": directive("run_after"),
        "join_path": os.path.join,
        "which": shutil.which,
        "find_libraries": find_libraries,
        "cache_extra_test_sources": lambda package, source: None,
        "make_jobs": os.cpu_count(),
        "SkipTest": SkipTest,
    }
    with _stand_ins(names, directive("generator")):
        loader = importlib.util.spec_from_file_location(f"recipe_{path.parent.name}", path)
        module = importlib.util.module_from_spec(loader)
        loader.loader.exec_module(module)
    class_name = "".join(word.capitalize() for word in recording.name.split("-"))
    recording.cls = getattr(module, class_name)
    recording.cls.module = module
    return recording


@contextlib.contextmanager
def _stand_ins(names: dict[str, Any], generator: Any) -> Iterator[None]:
    modules = {name: types.ModuleType(name) for name in ("spack", "spack.package", "spack_repo")}
    modules["spack.package"].__dict__.update(names)
    systems = "spack_repo.builtin.build_systems"
    for name in ("spack_repo.builtin", systems):
        modules[name] = types.ModuleType(name)
    for name, base in BASES.items():
        module = modules[f"{systems}.{name}"] = types.ModuleType(name)
        setattr(module, base, type(base, (), {"cuda_arch_values": ("70", "80", "90", "90a")}))
    modules[f"{systems}.cmake"].__dict__["generator"] = generator
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
