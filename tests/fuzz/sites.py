"""Site files, and the scripts rendered from them: what a site says is data, and no more than asked.

A site is bash, and bash runs what it says: so no text of the fuzzer is ever sourced as it is. It
stands between quotes, as the value of a variable, in what the product reads and what it writes.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import stat
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from choices import Choices

from libsumtree.jobs import places
from libsumtree.jobs.errors import JobError
from libsumtree.jobs.render import render
from libsumtree.jobs.request import Request
from libsumtree.jobs.site import read_site

_NUMBERS = ("ranks", "nodes", "minutes", "lead", "memory", "gpus")
_TEXTS = (
    *("srun", "mpiexec -n 2", "", " ", "-x", "--qos=long", "--a 'b c'", "'", '"', "$(id)", "`id`"),
    *("\n", "a\nb", "--x\n#SBATCH --y", "--x\r--y", "\0", "\\", "*", "~", "é", "\ud800", "١", "²"),
    *(
        "0",
        "1",
        "-1",
        "007",
        "1e3",
        "9" * 30,
        "9" * 5000,
        "0x10",
        " 5",
        "5 ",
        "+5",
        "nan",
        "a" * 9999,
    ),
    *(
        "# x",
        "#",
        "{}",
        "%s",
        "\x85",
        "\u2028",
        "--x\u2028#SBATCH --y",
        "\x1b[0m",
        ";",
        "&",
        "|",
        "!!",
    ),
)
_MODES = (0o644, 0o600, 0o400, 0o666, 0o664, 0o646, 0o755, 0o000)
_PREFIXES = {"slurm": "#SBATCH ", "pbs": "#PBS ", "lsf": "#BSUB "}


@cache
def _folder() -> Path:
    holder = tempfile.TemporaryDirectory(prefix="libsumtree-fuzz-")
    atexit.register(holder.cleanup)
    return Path(holder.name)


def _text(choose: Choices) -> str:
    """One of what breaks things, any text, or both."""
    how = choose.below(4)
    parts = [choose.pick(_TEXTS)] if how < 2 else [choose.text(12)]
    if how == 3:
        parts.append(choose.pick(_TEXTS))
    return "".join(parts)


def _number(choose: Choices) -> str:
    return str(choose.below(200)) if choose.below(3) else _text(choose)


def _quoted(text: str) -> bytes:
    return shlex.quote(text.replace("\0", "")).encode("utf-8", "surrogateescape")


def _content(choose: Choices) -> bytes:
    lines = [b"# " + _text(choose).replace("\n", " ").encode("utf-8", "replace")]
    if choose.below(8):
        launcher = _text(choose) if choose.flip() else "mpiexec"
        lines.append(b"site_launcher=" + _quoted_or_raw(launcher))
    if choose.flip():
        directives = "\n".join(_text(choose) for _ in range(choose.below(4)))
        lines.append(b"site_directives=" + _quoted_or_raw(directives))
    for name in _NUMBERS:
        if choose.below(4) == 0:
            lines.append(f"site_{name}=".encode() + _quoted_or_raw(_number(choose)))
    lines.append(choose.pick((b"", b"false", b"exit 3", b"return 1", b"echo said", b"site_ranks")))
    return b"\n".join(lines) + b"\n"


def _quoted_or_raw(text: str) -> bytes:
    return _quoted(text.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape"))


def _is_safe(path: Path) -> bool:
    mode = path.stat().st_mode
    return stat.S_ISREG(mode) and not mode & 0o022


def _find(choose: Choices) -> None:
    """Whatever a site is called, it is a file that is safe, or there is none."""
    try:
        found = places.find_site(_text(choose))
    except JobError as error:
        assert str(error)
        return
    assert _is_safe(found)


def _rendered(choose: Choices, path: Path) -> None:
    given = {name: choose.below(100) for name in _NUMBERS if choose.below(4) == 0}
    asked = Request(
        name=_text(choose) if choose.flip() else "job",
        directives=tuple(_text(choose) for _ in range(choose.below(3))),
        **given,
    )
    scheduler = choose.pick(tuple(_PREFIXES))
    program = ["apex", *(_text(choose) for _ in range(choose.below(3)))]
    settings = {"LIBSUMTREE_RUN_DIR": _text(choose)}
    try:
        site = read_site(path, max(asked.ranks, 1))
        request = site.fill(asked, set(given))
        script = render(scheduler, path, request, program, settings)
    except JobError as error:
        assert str(error)
        return
    check_script(scheduler, script, request, program, settings)


def check_script(
    scheduler: str, script: str, request: Request, program: list[str], settings: dict[str, str]
) -> None:
    """Scheduler and bash find in a script what was asked for, and nothing else."""
    head, _, _ = script.partition("\n\n")
    lines = script.split("\n")
    marked = [line for line in lines if re.match(r"#(SBATCH|PBS|BSUB)", line)]
    assert all(line.startswith(_PREFIXES[scheduler]) for line in marked)
    bare = len(render_plain(scheduler, request))
    assert len(marked) == bare + len(request.directives), head
    for name, value in settings.items():
        (line,) = [line for line in lines if line.startswith(f"{name}=")]
        assert shlex.split(line) == [f"{name}={value}"]
    (main,) = [line for line in lines if line.startswith("job_main ")]
    assert shlex.split(main) == ["job_main", *program]
    written = script.encode("utf-8", "surrogateescape")
    done = subprocess.run(["bash", "-n"], input=written, capture_output=True)
    assert done.returncode == 0, done.stderr


def render_plain(scheduler: str, request: Request) -> list[str]:
    """Return the lines for a scheduler that are of numbers alone."""
    from dataclasses import replace

    from libsumtree.jobs.request import directives

    return directives(scheduler, replace(request, directives=()))


def one(data: bytes) -> None:
    choose = Choices(data)
    os.environ["XDG_CONFIG_HOME"] = str(_folder())
    _find(choose)
    path = _folder() / "libsumtree" / "sites" / "mine.sh"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    content = _content(choose)
    path.write_bytes(content)
    path.chmod(choose.pick(_MODES))
    places.describe(path)
    try:
        found = places.find_site(choose.pick(("mine", str(path))))
    except JobError:
        assert not _is_safe(path)
        return
    assert _is_safe(found)
    _rendered(choose, found)


def seeds() -> list[bytes]:
    plain = bytes([0, 0, 0, 0, 1, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0])
    kept = [plain + bytes([1] * 6) + bytes([0, 0, which, 0]) for which in range(3)]
    kept += [bytes([0, text, 0, text, 1, 1, 0, text, 1, 2, 0, text]) for text in range(len(_TEXTS))]
    kept += [bytes(12) + bytes([which] * 24) for which in range(1, 20)]
    return kept
