"""What is wrong with the shared libraries of an installation, if it is to be moved."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

# Part of every Linux: the C library, the loader and, with a driver, CUDA's.
OF_THE_SYSTEM = re.compile(
    r"^(linux-vdso|ld-linux-.*|lib(c|m|dl|rt|pthread|util|cuda))\.so(\.\d+)?$"
)


def libraries(folder: Path) -> list[Path]:
    """Find every ELF file below a folder, links left out."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    found.append(path)
    return found


def _dynamic(path: Path, tag: str) -> list[str]:
    with path.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".dynamic")
        tags = [] if section is None else list(section.iter_tags())
        attribute = {"DT_NEEDED": "needed", "DT_SONAME": "soname"}.get(tag, tag[3:].lower())
        return [getattr(entry, attribute) for entry in tags if entry.entry.d_tag == tag]


def soname(path: Path) -> str | None:
    """Tell the soname of a library."""
    return next(iter(_dynamic(path, "DT_SONAME")), None)


def absolute_rpaths(folder: Path) -> list[str]:
    """Complain of each rpath that does not move with the files."""
    complaints = []
    for path in libraries(folder):
        for rpath in _dynamic(path, "DT_RPATH") + _dynamic(path, "DT_RUNPATH"):
            for part in rpath.split(":"):
                if not part.startswith("$ORIGIN"):
                    complaints.append(f"{path.name}: the rpath {part!r} is absolute")
    return complaints


def foreign_libraries(folder: Path, prefix: Path) -> list[str]:
    """Complain of each library that a file would take from outside of a prefix, or not find."""
    complaints = []
    for path in libraries(folder):
        environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
        command = ["ldd", str(path)]
        found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        resolved = dict(re.findall(r"^\s*(\S+) => (\S+)", found.stdout, re.MULTILINE))
        for name in _dynamic(path, "DT_NEEDED"):
            source = resolved.get(name, "")
            if not OF_THE_SYSTEM.match(name) and not source.startswith(f"{prefix}/"):
                complaints.append(f"{path.name}: {name} comes from {source or 'nowhere'}")
    return complaints


def newest_glibc(folder: Path) -> tuple[int, int]:
    """Tell the glibc that the libraries of a folder need."""
    newest = (0, 0)
    for path in libraries(folder):
        with path.open("rb") as file:
            section = ELFFile(file).get_section_by_name(".gnu.version_r")
            if not isinstance(section, GNUVerNeedSection):
                continue
            names = [aux.name for _, entries in section.iter_versions() for aux in entries]
        for name in names:
            match = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", name)
            if match:
                newest = max(newest, (int(match[1]), int(match[2])))
    return newest


def paths_inside(folder: Path, *paths: str) -> list[str]:
    """Complain of each file that names one of some paths."""
    complaints = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            complaints += [
                f"{path.name} names {name}" for name in paths if name.encode() in content
            ]
    return complaints
