"""Runs the code blocks of a Markdown page, from its top to its end, in one folder of its own.

In the folder lies nothing but ``examples``, as in a checkout.

```python    runs; all blocks of a page share their names. One that begins with ``# NAME.py`` is
             written to that file instead, for a later block to run.
```python    that begins with ``>>>`` is a doctest: its output is compared.
```sh        runs under bash and must succeed.
```console   commands after ``$``, and what they print: compared, "..." standing for anything. They
             must succeed, but for those that print "error:".
```text      and other languages are for readers.

``<!-- not run: why -->`` right above a block keeps it from being run, and ``<!-- needs torch -->``
where there is no torch, which takes gigabytes: such pages are run by hand. ``<!-- nothing is run:
why -->`` anywhere is about a whole page. Of every block, run or not, the commands of this project
must be ones that it understands: see `commands_of`.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sybil import Document, Example, Region
from sybil.parsers.markdown.lexers import FencedCodeBlockLexer

TOP = Path(__file__).resolve().parents[2]
SECONDS = 300
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_NOT_RUN = re.compile(r"<!-- not run: (\S.*?) -->\s*\Z", re.DOTALL)
_NOTHING = re.compile(r"<!-- nothing is run: (\S.*?) -->", re.DOTALL)
_NEEDS = re.compile(r"<!-- needs (\w+) -->\s*\Z")
_FILE = re.compile(r"# (\w+\.py)\n")
_COMMAND = re.compile(
    r"(?:^|&& |-m |^(?:mpiexec|srun|salloc)(?: -\S+ \d+)+ )libsumtree (.+)$", re.MULTILINE
)
_END = re.compile(r" (?:\|\|?|;|&&|:|--|#|>|<)(?: |$)|\)|  +#")
_RUNNABLE = ("python", "sh", "console")


@dataclass
class Block:
    """One code block of a page."""

    page: Path
    line: int
    language: str
    source: str
    not_run: str = ""

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(TOP)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """Give the code blocks of a page, in order."""
    return [example.parsed for example in _parse(page).examples()]


def _parse(page: Path) -> Document:
    return Document.parse(str(page), _blocks, encoding="utf-8")


def _blocks(document: Document) -> Iterator[Region]:
    for region in FencedCodeBlockLexer(language=r"\w*")(document):
        above = document.text[: region.start]
        reason = _NOTHING.search(document.text) or _NOT_RUN.search(above)
        needed = _NEEDS.search(above)
        not_run = reason[1] if reason else ""
        if needed and find_spec(needed[1]) is None:
            not_run = f"{needed[1]} is not installed"
        block = Block(
            Path(document.path),
            document.text.count("\n", 0, region.start) + 2,
            region.lexemes["language"],
            str(region.lexemes["source"]),
            not_run,
        )
        yield Region(region.start, region.end, block, _evaluate)


@dataclass
class Running:
    """A page that is being run: its folder, its names, and what was run so far."""

    folder: Path
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__page__"})
    ran: int = 0


def run_page(page: Path, folder: Path) -> int:
    """Run what is to be run of a page, in a folder; return how many blocks that were."""
    document = _parse(page)
    document.namespace["running"] = running = Running(folder)
    before = Path.cwd()
    (folder / "examples").symlink_to(TOP / "examples")
    os.chdir(folder)
    try:
        for example in document.examples():
            example.evaluate()
    finally:
        os.chdir(before)
    return running.ran


def _evaluate(example: Example) -> str:
    """Run one block; what is wrong with it is what is returned."""
    block: Block = example.parsed
    running: Running = example.namespace["running"]
    if block.not_run or block.language not in _RUNNABLE:
        return ""
    running.ran += 1
    if block.language == "sh":
        return _run_shell(block, running)
    if block.language == "console":
        return _run_console(block, running)
    file = _FILE.match(block.source)
    if file:
        (running.folder / file[1]).write_text(block.source)
        return ""
    if block.source.startswith(">>>"):
        return _run_doctest(block, running)
    _run_python(block, running)
    return ""


def _run_python(block: Block, running: Running) -> None:
    padded = "\n" * (block.line - 1) + block.source
    exec(compile(padded, str(block.page), "exec", dont_inherit=True), running.names)


def _run_doctest(block: Block, running: Running) -> str:
    parsed = doctest.DocTestParser().get_doctest(
        block.source, running.names, block.place, str(block.page), block.line - 1
    )
    said = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    with contextlib.redirect_stdout(io.StringIO()):
        failed = runner.run(parsed, out=said.write, clear_globs=False).failed
    running.names.update(parsed.globs)
    return said.getvalue() if failed else ""


def environment() -> dict[str, str]:
    """Give the environment of a newcomer's shell: the package's own Python, and its MPI, first."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    beside = os.environ["PATH"]
    if "SUMTREE_MPIEXEC" in os.environ:
        launcher = shlex.split(os.environ["SUMTREE_MPIEXEC"])[0]
        beside = f"{Path(launcher).parent}{os.pathsep}{beside}"
    path = f"{Path(sys.executable).parent}{os.pathsep}{beside}"
    return {**os.environ, **threads, "PATH": path, "COLUMNS": "100"}


def _shell(command: str, running: Running) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=running.folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
    )


def _run_shell(block: Block, running: Running) -> str:
    done = _shell(block.source, running)
    if done.returncode == 0:
        return ""
    return f"{block.place}: ended with {done.returncode}:\n{block.source}\n{done.stdout}"


def _run_console(block: Block, running: Running) -> str:
    problems = []
    for command, expected in console_commands(block.source):
        done = _shell(command, running)
        got = done.stdout
        is_right = doctest.OutputChecker().check_output(expected, got, OPTIONS)
        if not is_right or (done.returncode and "error:" not in expected):
            problems.append(
                f"{block.place}: $ {command}\nexpected:\n{expected}\n"
                f"got, and status {done.returncode}:\n{got}"
            )
    return "\n".join(problems)


def console_commands(source: str) -> list[tuple[str, str]]:
    """Split a console's text into commands, those over several lines joined, and their output."""
    parts = re.split(r"^\$ ", source, flags=re.MULTILINE)
    if parts[0].strip():
        raise ValueError(f"a console block begins with a command after '$', not {parts[0]!r}")
    commands = []
    for part in parts[1:]:
        command, _, expected = part.replace("\\\n", "").partition("\n")
        commands.append((command, expected))
    return commands


def commands_of(block: Block) -> list[list[str]]:
    """Give the arguments of every ``libsumtree`` that a block starts, at the beginning or after
    ``&&``, ``-m`` or a launcher; a line with an ellipsis is for readers, and what is to print an
    error may be wrong.
    """
    if block.language == "console":
        given = console_commands(block.source)
        text = "\n".join(command for command, expected in given if "error:" not in expected)
    elif block.language == "sh":
        text = block.source.replace("\\\n", " ")
    else:
        return []
    starts = [_END.split(arguments)[0] for arguments in _COMMAND.findall(text)]
    return [shlex.split(arguments) for arguments in starts if "..." not in arguments]
