"""An offline conda channel with what the recipe asks for, made of what this environment holds.

Real: Python, and every distribution that is installed here (NumPy, h5py, mpi4py, MPICH, CMake,
ninja, pip ...). Stand-ins: the machine's GCC under conda's names, with the variables that conda's
activation sets, and its run-time libraries. What it cannot show is how conda-forge's own compilers
build.
"""

from __future__ import annotations

import bz2
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SUBDIR = {"x86_64": "linux-64", "aarch64": "linux-aarch64"}[platform.machine()]
HOST = f"{platform.machine()}-conda-linux-gnu"
MINOR = "{}.{}".format(*sys.version_info)
TAG = "cp{}{}".format(*sys.version_info)

# What the recipe names, and what its tests need; their own requirements follow.
DISTRIBUTIONS = (
    "cmake",
    "ninja",
    "pip",
    "scikit-build-core",
    "nanobind",
    "numpy",
    "h5py",
    "mpi4py",
)

ACTIVATION = """\
if [ "${{CONDA_BUILD:-0}}" = 1 ]; then prefix=$PREFIX; else prefix=$CONDA_PREFIX; fi
export CC=$CONDA_PREFIX/bin/{host}-cc CXX=$CONDA_PREFIX/bin/{host}-c++
export CPPFLAGS="-DNDEBUG -D_FORTIFY_SOURCE=2 -O2 -isystem $prefix/include"
export CFLAGS="-ftree-vectorize -fPIC -fstack-protector-strong -fno-plt -O2 -pipe"
export CFLAGS="$CFLAGS -isystem $prefix/include"
export CXXFLAGS="$CFLAGS"
export LDFLAGS="-Wl,-O2 -Wl,--as-needed -Wl,-z,relro -Wl,-z,now -Wl,--disable-new-dtags"
export LDFLAGS="$LDFLAGS -Wl,--gc-sections -Wl,-rpath,$prefix/lib -L$prefix/lib"
export CMAKE_ARGS="-DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=$prefix"
export CMAKE_ARGS="$CMAKE_ARGS -DCMAKE_INSTALL_LIBDIR=lib"
export CMAKE_PREFIX_PATH="$prefix" CONDA_BUILD_SYSROOT="$CONDA_PREFIX/{host}/sysroot"
"""


@dataclass
class Package:
    """A conda package to be: its names, what it needs, and its files below a folder."""

    name: str
    version: str
    build: str
    root: Path
    depends: list[str] = field(default_factory=list)
    constrains: list[str] = field(default_factory=list)
    run_exports: dict[str, list[str]] = field(default_factory=dict)
    noarch: bool = False
    placeholder: str | None = None


class Channel:
    """A folder of packages and the `repodata.json` of each platform."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder = folder
        self._scratch = scratch
        self._records: dict[str, dict[str, object]] = {SUBDIR: {}, "noarch": {}}
        for subdir in self._records:
            (folder / subdir).mkdir(parents=True)

    def stage(self, name: str) -> Path:
        """Make an empty folder for the files of a package."""
        folder = self._scratch / name
        folder.mkdir(parents=True)
        return folder

    def add(self, package: Package) -> None:
        """Write a package."""
        subdir = "noarch" if package.noarch else SUBDIR
        index = {
            "name": package.name,
            "version": package.version,
            "build": package.build,
            "build_number": 0,
            "depends": package.depends,
            "constrains": package.constrains,
            "subdir": subdir,
            "license": "LicenseRef-stand-in",
            **({"noarch": "generic"} if package.noarch else {}),
        }
        name = f"{package.name}-{package.version}-{package.build}.tar.bz2"
        content = bz2.compress(self._archive(package, index), compresslevel=1)
        (self.folder / subdir / name).write_bytes(content)
        digests = {kind: hashlib.new(kind, content).hexdigest() for kind in ("md5", "sha256")}
        self._records[subdir][name] = index | digests | {"size": len(content)}

    def close(self) -> None:
        """Write what solvers read."""
        for subdir, records in self._records.items():
            repodata = {"info": {"subdir": subdir}, "packages": records, "packages.conda": {}}
            (self.folder / subdir / "repodata.json").write_text(json.dumps(repodata))

    def _archive(self, package: Package, index: dict[str, object]) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            paths = []
            for path in sorted(package.root.rglob("*")):
                if path.is_dir() and not path.is_symlink():
                    continue
                name = str(path.relative_to(package.root))
                paths.append(_path_entry(path, name, package.placeholder))
                archive.add(path, name, recursive=False)
            info = {
                "info/index.json": index,
                "info/paths.json": {"paths": paths, "paths_version": 1},
                "info/run_exports.json": package.run_exports,
            }
            for name, value in info.items():
                content = json.dumps(value).encode()
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return buffer.getvalue()


def _path_entry(path: Path, name: str, placeholder: str | None) -> dict[str, object]:
    if path.is_symlink():
        return {"_path": name, "path_type": "softlink"}
    content = path.read_bytes()
    entry: dict[str, object] = {
        "_path": name,
        "path_type": "hardlink",
        "sha256": hashlib.sha256(content).hexdigest(),
        "size_in_bytes": len(content),
    }
    if placeholder is not None and placeholder.encode() in content and b"\0" not in content:
        entry |= {"prefix_placeholder": placeholder, "file_mode": "text"}
    return entry


def _set_rpath(path: Path, folder: Path) -> None:
    relative = os.path.relpath(folder, path.parent)
    subprocess.run(
        ["patchelf", "--force-rpath", "--set-rpath", f"$ORIGIN/{relative}", path],
        check=True,
        capture_output=True,
    )


def add_python(channel: Channel) -> None:
    """Add the interpreter that runs this, without its tests and its packages."""
    base, root = Path(sys.base_prefix), channel.stage("python")
    library = root / f"lib/python{MINOR}"
    left_out = ("site-packages", "test", "tests", "__pycache__", "idlelib", "turtledemo", "*.a")
    left_out += ("ensurepip", "tkinter", "lib2to3", "pydoc_data", "EXTERNALLY-MANAGED")
    shutil.copytree(
        base / f"lib/python{MINOR}",
        library,
        symlinks=True,
        ignore=shutil.ignore_patterns(*left_out),
    )
    _install_as_upstream(library)
    (library / "site-packages").mkdir()
    (library / "site-packages/README.txt").write_text("packages\n")
    for shared in (base / "lib").glob("libpython3*.so*"):
        shutil.copy2(shared, root / "lib", follow_symlinks=False)
    shutil.copytree(base / f"include/python{MINOR}", root / f"include/python{MINOR}")
    (root / "bin").mkdir()
    shutil.copy2(base / f"bin/python{MINOR}", root / "bin")
    for name in ("python", "python3"):
        (root / "bin" / name).symlink_to(f"python{MINOR}")
    for path in [root / f"bin/python{MINOR}", *root.glob("lib/*.so*"), *library.glob("*/*.so")]:
        if not path.is_symlink():
            _set_rpath(path, root / "lib")
    build = f"0_{'cpython' if sys.version_info < (3, 13) else TAG}"
    abi = f"python_abi {MINOR}.* *_{TAG}"
    channel.add(
        Package(
            "python_abi",
            MINOR,
            f"8_{TAG}",
            channel.stage("abi"),
            [],
            [f"python {MINOR}.*"],
            noarch=True,
        )
    )
    channel.add(
        Package(
            *("python", platform.python_version(), build, root, [], [abi]),
            run_exports={"noarch": ["python"], "weak": [abi]},
            placeholder=str(base),
        )
    )


def _install_as_upstream(library: Path) -> None:
    """Undo what Debian changes: where packages of its Python are installed to, and looked for."""
    sysconfig_file = library / "sysconfig.py"
    text = sysconfig_file.read_text()
    if "dist-packages" in text:
        text = text.replace("dist-packages", "site-packages").replace("}/local", "}")
        sysconfig_file.write_text(text)
        # site.py is frozen into the interpreter
        (library / "dist-packages").symlink_to("site-packages")


def add_distribution(channel: Channel, name: str, done: set[str]) -> None:
    """Add an installed distribution, and those that it needs."""
    if name in done:
        return
    done.add(name)
    found = distribution(name)
    depends = ["python", f"python_abi {MINOR}.* *_{TAG}"]
    for text in found.requires or ():
        need = Requirement(text)
        if need.marker is None or need.marker.evaluate({"extra": ""}):
            depends.append(
                f"{canonicalize_name(need.name)} {need.specifier}".replace("~=", ">=").strip()
            )
            add_distribution(channel, canonicalize_name(need.name), done)
    if name == "mpi4py":
        depends.append("mpich")
    root = channel.stage(name)
    _copy_distribution(name, root)
    if name in ("cmake", "ninja", "mpich"):
        depends = []
    channel.add(Package(name, found.version, f"py{TAG}_0", root, depends, placeholder=sys.prefix))


def _copy_distribution(name: str, root: Path) -> None:
    """Copy the files of a distribution to where they lie below a prefix."""
    site = Path(sysconfig.get_path("platlib"))
    for path in distribution(name).files or ():
        source = Path(os.path.normpath(site / path))
        if "__pycache__" in source.parts or not source.exists():
            continue
        target = root / source.relative_to(sys.prefix)
        if name == "cmake":  # its programs look for their data beside themselves
            parts = path.parts
            if parts[:2] != ("cmake", "data"):
                continue
            target = root / Path(*parts[2:])
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target, follow_symlinks=False)
    installer = next(iter(root.rglob("*.dist-info/INSTALLER")), None)
    if installer is not None:
        installer.write_text("conda\n")


def _from_compiler(name: str) -> Path:
    found = subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    )
    return Path(found.stdout.strip()).resolve()


def add_runtimes(channel: Channel) -> None:
    """Add GCC's libraries. As on conda-forge, `_openmp_mutex` owns the soname of libgomp."""
    for name, library, depends in (
        ("libgcc", "libgcc_s.so.1", ["_openmp_mutex >=4.5"]),
        ("libstdcxx", "libstdc++.so.6", ["libgcc"]),
        ("libgomp", "libgomp.so.1", []),
    ):
        root = channel.stage(name)
        (root / "lib").mkdir()
        target = library + ".0.0" if name == "libgomp" else library
        shutil.copy2(_from_compiler(library), root / "lib" / target)
        exports = {"strong": ["_openmp_mutex >=4.5"]} if name == "libgomp" else {}
        channel.add(Package(name, "99.0.0", "0", root, depends, run_exports=exports))
    root = channel.stage("_openmp_mutex")
    (root / "lib").mkdir()
    (root / "lib/libgomp.so.1").symlink_to("libgomp.so.1.0.0")
    exports = {"strong": ["_openmp_mutex >=4.5"]}
    channel.add(Package("_openmp_mutex", "4.5", "20_gnu", root, ["libgomp"], run_exports=exports))


def add_compilers(channel: Channel, version: str, glibc: str) -> None:
    """Add the machine's GCC under conda's names."""
    for package, programs in (
        ("gcc", {"cc": "gcc", "gcc": "gcc", "ar": "ar", "ranlib": "ranlib", "ld": "ld"}),
        ("gxx", {"c++": "g++", "g++": "g++"}),
    ):
        root = channel.stage(package)
        (root / "bin").mkdir()
        for name, program in programs.items():
            wrapper = root / "bin" / f"{HOST}-{name}"
            wrapper.write_text(f'#!/bin/sh\nexec {shutil.which(program)} "$@"\n')
            wrapper.chmod(0o755)
        if package == "gcc":
            (root / "etc/conda/activate.d").mkdir(parents=True)
            script = root / "etc/conda/activate.d/activate-gcc.sh"
            script.write_text(ACTIVATION.format(host=HOST))
        depends = ["sysroot_" + SUBDIR] if package == "gcc" else ["gcc_" + SUBDIR]
        exports = {
            "strong": [f"libgcc >={version}", *([f"libstdcxx >={version}"] * (package == "gxx"))]
        }
        name = f"{package}_{SUBDIR}"
        channel.add(Package(name, f"{version}.0.0", "0", root, depends, run_exports=exports))
    root = channel.stage("sysroot")
    folder = root / HOST / "sysroot/lib64"
    folder.mkdir(parents=True)
    for name in ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"):
        (folder / name).touch()  # the names that a link check looks for
    exports = {"strong": [f"__glibc >={glibc},<3.0.a0"]}
    name = f"sysroot_{SUBDIR}"
    channel.add(Package(name, glibc, "0", root, run_exports=exports, noarch=True))


def make(folder: Path, scratch: Path, compiler: str, glibc: str, say: Callable[[str], None]) -> str:
    """Make the channel and give its URL."""
    channel = Channel(folder, scratch)
    add_python(channel)
    add_runtimes(channel)
    add_compilers(channel, compiler, glibc)
    done: set[str] = set()
    for name in ("mpich", *DISTRIBUTIONS):
        add_distribution(channel, name, done)
    channel.close()
    say(f"channel of {sum(1 for _ in _packages(folder))} packages")
    return folder.as_uri()


def _packages(folder: Path) -> Iterable[Path]:
    return folder.glob("*/*.tar.bz2")
