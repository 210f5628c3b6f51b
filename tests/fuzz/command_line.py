"""The command line: whatever the words are, it ends with a status of its table, and one line.

Commands that only read, or write into the folder at hand, are run. Of those that start ranks or
measure for minutes (`replay`, `apex`, `bench`, `tune`, `verify`), the words are parsed.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import io
import os
import sys
import tempfile
from functools import cache, partial
from pathlib import Path

import numpy as np
from choices import INTEGERS, Choices

import libsumtree as st
from libsumtree.cli import COMMANDS, main, make_parser
from libsumtree.cli.complaints import UsageError
from libsumtree.cli.statuses import FAULT, REFUSED, TABLE

_RUN = {"info", "checkpoint", "stats", "jobs", "completion"}
_NEVER = {"--really", "--follow", "check", "submit", "rank", "probe"}
_FILES = (
    *("full.h5", "altered.h5", "empty", "text", "folder", "folder/replay-000000000001.h5", "none"),
    *(".", "..", "pipe", "loop", "metrics.jsonl", "out.png", "unreadable", "folder/x.manifest"),
)
_WORDS = (
    *("", "-", "--", "-1", "0", "1", "nan", "inf", "-inf", "1e400", "1_000", "²", "١", "\udcff"),
    *(
        "cpu",
        "auto",
        "gpu",
        "slurm",
        "pbs",
        "lsf",
        "workstation",
        "srun-pmix",
        "bash",
        "zsh",
        "fish",
    ),
    *("apex", "replay", "never", "[]", "{}", '[["x", "<f8"]]', "[" * 3000, "a b", "a\nb", "$(id)"),
    *("%s", "{}", "é", "--qos=x", "x" * 5000, "os:system", "libsumtree:nothing", "a=b", "=", "0,0"),
)


@cache
def _folder() -> Path:
    """Return a folder with files of every kind, which commands run in."""
    holder = tempfile.TemporaryDirectory(prefix="libsumtree-fuzz-")
    atexit.register(holder.cleanup)
    atexit.register(os.chdir, "/")
    here = Path(holder.name) / "inner"
    (here / "folder").mkdir(parents=True)
    os.mkfifo(here / "pipe")
    (here / "loop").symlink_to("loop")
    return here


def _fill_folder() -> None:
    """Put the files back: some commands write or remove."""
    here = _folder()
    content = _checkpoint()
    for name in ("full.h5", "folder/replay-000000000001.h5", "folder/replay-000000000002.h5"):
        (here / name).write_bytes(content)
    (here / "altered.h5").write_bytes(content[:-1] + b"\1")
    (here / "empty").write_bytes(b"")
    (here / "text").write_text("text\n")
    (here / "folder" / "x.manifest").write_text("libsumtree manifest\n")
    (here / "metrics.jsonl").write_text('{"schema": "libsumtree.replay.metrics/1"}\n[]\n')


@cache
def _checkpoint() -> bytes:
    path = _folder() / "full.h5"
    buffer = st.PrioritizedReplayBuffer(8, [("x", "<f8")], seed=1, backend="cpu")
    buffer.add(np.zeros(5, buffer.dtype), np.arange(5.0))
    buffer.save(path)
    return path.read_bytes()


@cache
def _vocabulary() -> dict[str, tuple[str, ...]]:
    """Return the options and sub-commands of each command."""
    found: dict[str, set[str]] = {}

    def walk(parser: argparse.ArgumentParser, words: set[str]) -> None:
        for action in parser._actions:
            words.update(action.option_strings)
            if isinstance(action, argparse._SubParsersAction):
                words.update(action.choices)
                for inner in action.choices.values():
                    walk(inner, words)

    (commands,) = (
        action
        for action in make_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    for name, parser in commands.choices.items():
        walk(parser, found.setdefault(name, set()))
    return {name: tuple(sorted(words - _NEVER)) for name, words in found.items()}


def _word(choose: Choices, command: str) -> str:
    how = choose.below(8)
    if how < 3:
        word = choose.pick(_vocabulary()[command] or ("--help",))
        return f"{word}={choose.pick(_WORDS)}" if choose.below(6) == 0 else word
    if how < 5:
        name = choose.pick(_FILES)
        return (
            "none" if (command, name) == ("stats", "pipe") else name
        )  # it would wait, as `cat` does
    if how == 5:
        return str(choose.pick(INTEGERS))
    return choose.pick(_WORDS) if how == 6 else choose.text(8).replace("\0", "").replace("/", "")


def _is_harmless(words: list[str]) -> bool:
    """Whether argparse cannot read one of `_NEVER` into the words, abbreviated or not."""
    return not any(word and any(n.startswith(word.split("=")[0]) for n in _NEVER) for word in words)


def one(data: bytes) -> None:
    choose = Choices(data)
    command = choose.pick(tuple(COMMANDS))
    words = [command, *(_word(choose, command) for _ in range(choose.below(7)))]
    _folder()
    os.chdir(_folder())
    os.environ["XDG_CONFIG_HOME"] = str(_folder() / "config")
    if command not in _RUN or not _is_harmless(words[1:]):
        parse(words)
        return
    _fill_folder()
    run(words)


def parse(words: list[str]) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            make_parser().parse_args(words)
        except UsageError as error:
            assert str(error)
        except SystemExit as end:
            assert end.code == 0


def run(words: list[str]) -> None:
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(words)
        except SystemExit as end:
            assert end.code == 0, (words, end.code)
            return
    said = err.getvalue()
    check = partial(_check, words, said)
    check(status in TABLE, f"status {status}")
    check(status != FAULT, said)
    if status == REFUSED and "--debug" not in words:
        check(said.startswith("libsumtree: error: "), "does not begin as an error")
        check(said.count("\n") == 1, "is not one line")
        check(len(said) > len("libsumtree: error: \n"), "says nothing")


def _check(words: list[str], said: str, good: bool, text: str) -> None:
    """Raise `text`, which is the same for other words; these are printed."""
    if not good:
        print(f"{words!a} said {said!a}", file=sys.__stderr__, flush=True)
        raise AssertionError(text)


def seeds() -> list[bytes]:
    kept = []
    for command in range(len(COMMANDS)):
        kept += [bytes([command, 1, 0, option, 1]) for option in range(4)]
        kept += [bytes([command, 2, 0, file % 7, 1, 4, file]) for file in range(len(_FILES))]
    return kept
