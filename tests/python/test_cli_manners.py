"""What every command has in common: helps, statuses, one line for an error, JSON, completion."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from metrics_lines import service

from libsumtree import PrioritizedReplayBuffer
from libsumtree.cli import COMMANDS, main, make_parser, statuses
from libsumtree.cli.completion import SHELLS
from libsumtree.cli.help import EXAMPLES, commands_of
from libsumtree.metrics import encode_line

SECONDS = 60.0
PROGRAM = [sys.executable, "-m", "libsumtree"]
ESCAPE = "\x1b"
FOR_RANKS = {("jobs", "rank"), ("jobs", "probe")}
PATHS = [path for path, _ in commands_of(make_parser())]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "replay-000000000001.h5"
    buffer = PrioritizedReplayBuffer(64, [("x", "<f8")], seed=1)
    buffer.add(np.zeros(40, buffer.dtype), np.arange(1.0, 41.0))
    buffer.save(path)
    return path


def run(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [*PROGRAM, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, **options)


# ---- helps ----


@pytest.mark.parametrize("path", PATHS, ids="-".join)
def test_help_has_examples_and_the_statuses(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*path, "--help"])
    out = capsys.readouterr().out
    assert ended.value.code == 0
    assert "\nexamples:\n  " in out
    assert "exit status" in out
    assert "--debug" in out


def test_every_command_has_examples_of_its_own() -> None:
    assert set(PATHS) - FOR_RANKS == set(EXAMPLES)


@pytest.mark.parametrize("path", sorted(set(PATHS) - FOR_RANKS), ids="-".join)
def test_every_command_says_what_it_does(path: tuple[str, ...]) -> None:
    about = dict(commands_of(make_parser()))[path].description or ""
    assert re.match(r"[A-Z].+\.", about, re.DOTALL)


@pytest.mark.parametrize(
    "example",
    [line for lines in EXAMPLES.values() for line in lines if not line.startswith("mkdir ")],
)
def test_examples_can_be_read(example: str) -> None:
    words = shlex.split(re.split(r" : | [|>]", example)[0])
    options = make_parser().parse_args(words[words.index("libsumtree") + 1 :])
    assert options.command in COMMANDS


def test_help_has_the_one_table_of_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    assert statuses.lines() in out
    assert sorted(statuses.TABLE) == [0, 1, 2, 3, 130]


def test_paragraphs_are_filled_and_lists_are_left_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit):
        main(["verify", "--help"])
    out = capsys.readouterr().out
    assert "\n  libsumtree verify --backend cpu --json\n" in out
    assert all(len(line) <= 60 for line in out.split("examples:")[0].splitlines())


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    from libsumtree import __version__

    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"libsumtree {__version__}\n"
    assert "version" not in vars(make_parser().parse_args(["info"]))  # no option of a command


# ---- JSON ----


def strict(text: str) -> Any:
    """Read JSON that other languages read, too: no NaN, no Infinity."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_whatever_a_machine_reads_is_json(
    file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_bytes(b"".join(map(encode_line, service(3))))
    folder = str(file.parent)
    for words in (
        ["info"],
        ["verify", "--backend", "cpu"],
        ["tune", "--batch", "4", "--capacities", "16", "--rounds", "1"],
        ["tune", "--show"],
        ["bench", "--table", "fused", "--leaves", "1024", "--rounds", "3"],
        ["checkpoint", "list", folder],
        ["checkpoint", "show", str(file)],
        ["checkpoint", "verify", folder],
        ["checkpoint", "verify", "--newest", folder],
        ["checkpoint", "diff", str(file), str(file)],
        ["checkpoint", "prune", folder, "--keep", "1"],
        ["checkpoint", "export", str(file), str(tmp_path / "out.npz")],
        ["jobs", "list"],
        ["stats", str(metrics)],
    ):
        assert main([*words, "--json"]) == statuses.DONE, words
        out, err = capsys.readouterr()
        strict(out)
        assert err == "", words


def test_cleared_buffer_is_json_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The least positive mass of none is infinite, which JSON cannot say."""
    path = tmp_path / "empty.h5"
    buffer = PrioritizedReplayBuffer(8, [("x", "<f8")])
    buffer.add(np.zeros(3, buffer.dtype))
    buffer.clear()
    buffer.save(path)
    assert main(["checkpoint", "show", str(path), "--json"]) == 0
    assert strict(capsys.readouterr().out)["min"] is None
    assert main(["checkpoint", "show", str(path), "--histogram"]) == 0
    assert "inf" in capsys.readouterr().out


# ---- errors ----


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["nothing"], "invalid choice: 'nothing'"),
        (["info", "--bogus"], "unrecognized arguments: --bogus; see libsumtree info --help"),
        (
            ["checkpoint", "list", ".", "--jsn"],
            "--jsn, perhaps --json was meant; see libsumtree check",
        ),
        (["stats", "none.jsonl"], "none.jsonl: No such file or directory"),
        (["checkpoint", "show", "none.h5"], "none.h5"),
        (["completion", "tcsh"], "invalid choice: 'tcsh'"),
        (["verfy"], ", perhaps verify was meant; see libsumtree --help"),
        (["checkpoint", "lst", "."], ", perhaps list was meant; see libsumtree checkpoint --help"),
        (["jobs", "render", "--site", "none", "apex"], "none"),
    ],
)
def test_what_cannot_be_done_is_one_line(words: list[str], text: str, tmp_path: Path) -> None:
    done = run(*words, cwd=tmp_path)
    assert done.returncode == statuses.REFUSED
    assert done.stdout == ""
    assert done.stderr.startswith("libsumtree: error: ")
    assert done.stderr.count("\n") == 1
    assert text in done.stderr


def test_debug_shows_where_an_error_comes_from(tmp_path: Path) -> None:
    for words in (["--debug", "stats", "none"], ["stats", "none", "--debug"]):
        done = run(*words, cwd=tmp_path)
        assert done.returncode == statuses.REFUSED
        assert done.stderr.startswith("Traceback")
        assert done.stderr.splitlines()[-1].startswith("libsumtree: error: none: No such file")


def test_fault_is_one_line_with_its_type_and_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(args: object) -> int:
        return {}["what nobody\nthought of"]

    monkeypatch.setattr(COMMANDS["info"], "main", fail)
    assert main(["info"]) == statuses.FAULT
    err = capsys.readouterr().err
    assert re.fullmatch(
        r"libsumtree: error: KeyError: 'what nobody\\nthought of' \(test_cli_manners\.py, line "
        r"\d+\); --debug shows more\n",
        err,
    )
    assert main(["info", "--debug"]) == statuses.FAULT
    assert capsys.readouterr().err.startswith("Traceback")


def test_interrupt_is_its_own_status_without_a_word() -> None:
    program = "import sys; from libsumtree.cli import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "verify", "--backend", "cpu"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (statuses.INTERRUPTED, "")


# ---- colours and progress ----


def on_terminal(program: str, *words: object, **variables: str) -> tuple[int, str]:
    """Run a Python program on a terminal; return its status and all that it showed."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)],
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **variables},
    )
    os.close(slave)
    shown, deadline = b"", time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        part = b""
        with contextlib.suppress(OSError):  # EIO: nobody has the other end any more
            part = os.read(master, 65536)
        if not part:
            break
        shown += part
    os.close(master)
    return process.wait(SECONDS), shown.decode()


AT_ONCE = "import sys; from libsumtree.cli import main, progress; progress.PATIENCE_SECONDS = 0.0; "
RUN = "sys.exit(main(sys.argv[1:]))"


def test_progress_is_shown_on_a_terminal(file: Path) -> None:
    for words in (["checkpoint", "verify", file], ["checkpoint", "show", file]):
        status, shown = on_terminal(AT_ONCE + RUN, *words)
        assert status == 0
        assert file.name in shown
        assert "━" in shown
    status, shown = on_terminal(AT_ONCE + RUN, "verify", "--backend", "cpu")
    assert status == 0
    assert "checking cpu" in shown
    assert "verified: cpu" in shown


def test_progress_waits_until_it_takes_long(file: Path) -> None:
    patient = AT_ONCE.replace("0.0", "1e9")
    _, shown = on_terminal(patient + RUN, "checkpoint", "verify", file)
    assert ESCAPE not in shown
    assert "━" not in shown


def test_no_colours_where_none_are_wanted(file: Path) -> None:
    coloured = r"\x1b\[[0-9;]*3[0-9]"
    words = ["checkpoint", "verify", file]
    assert re.search(coloured, on_terminal(AT_ONCE + RUN, *words)[1])
    assert not re.search(coloured, on_terminal(AT_ONCE + RUN, *words, NO_COLOR="1")[1])


def test_no_terminal_gets_neither_colours_nor_progress(file: Path) -> None:
    for words in (
        ["checkpoint", "verify", file],
        ["checkpoint", "show", file, "--histogram"],
        ["verify", "--backend", "cpu"],
        ["--help"],
    ):
        command = [sys.executable, "-c", AT_ONCE + RUN, *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0
        assert ESCAPE not in done.stdout
        assert done.stderr == ""


def test_progress_needs_no_package(file: Path) -> None:
    program = "import sys; sys.modules['rich'] = None; " + AT_ONCE + RUN
    status, shown = on_terminal(program, "checkpoint", "verify", file)
    assert status == 0
    assert shown.split() == [f"{file}:", "whole"]


# ---- completion ----


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_knows_all_commands_and_options(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for path, parser in commands_of(make_parser()):
        if path in FOR_RANKS:
            continue
        words = [*path, *(o for a in parser._actions for o in a.option_strings)]
        for word in words:
            assert word.lstrip("-") in script, (path, word)


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("che", {"checkpoint"}),
        ("checkpoint s", {"show"}),
        ("checkpoint show --hi", {"--histogram"}),
        ("stats --f", {"--follow"}),
        ("replay --metrics-", {"--metrics-interval"}),
        ("completion ", {"bash", "zsh", "fish"}),
    ],
)
def test_bash_completes(typed: str, found: set[str], tmp_path: Path) -> None:
    script = tmp_path / "completion.bash"
    script.write_text(run("completion", "bash").stdout)
    words = ["libsumtree", *typed.split(" ")]
    program = (
        f'source {shlex.quote(str(script))}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
        'COMP_LINE="$*"; _shtab_libsumtree; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", program, "bash", *words], capture_output=True, text=True, timeout=SECONDS
    )
    assert done.stderr == ""
    completed = set(done.stdout.split())
    assert found <= completed
    assert completed == found or typed.endswith(" ")


def test_completion_without_its_package_says_which_extra(tmp_path: Path) -> None:
    program = "import sys; sys.modules['shtab'] = None; from libsumtree.cli import main; "
    done = subprocess.run(
        [sys.executable, "-c", program + RUN, "completion", "bash"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == statuses.REFUSED
    assert "pip install 'libsumtree[cli]'" in done.stderr
