"""``libsumtree stats``: tables, JSON, pictures, and a view that follows a file."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from metrics_lines import line, service

from libsumtree.cli import main
from libsumtree.cli.live import position_bar, sparkline
from libsumtree.cli.metrics_text import duration, limiter_text
from libsumtree.cli.plots import draw_metrics
from libsumtree.metrics import encode_line

SECONDS = 60.0
STATS = [sys.executable, "-m", "libsumtree", "stats"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.jsonl"
    append(path, *service(6))
    return path


def append(path: Path, *lines: dict[str, Any]) -> None:
    with path.open("ab") as stored:
        stored.write(b"".join(map(encode_line, lines)))


def test_table_says_what_stands_in_the_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", str(file)]) == 0
    out = capsys.readouterr().out
    rows = {words[0]: words[1:] for text in out.splitlines() if (words := text.split())}
    assert "metrics.jsonl: 1 service, 6 lines, libsumtree 0.1.0" in out
    assert ", 50.0 s: a test" in out
    assert rows["added"] == ["(/s)", "10.0", "10.0", "10.0"]
    assert rows["out"] == ["(MB/s)", "2.1", "2.2", "2.2"]
    assert rows["sample"][0] == "500"
    assert "17 stale, 3 rejected, 1 clamped, 0 lines lost" in out
    assert "4 actors, 5 of 12 in use; 1 learner, 1 of 3" in out
    assert "2 samples per insert, surplus -50 within 200" in out
    assert "500 of 1,000 transitions" in out


def test_a_limiter_that_lacks_a_number_is_told_without() -> None:
    limiter = line()["limiter"] | {"samples_per_insert": 2.0, "surplus": None}
    assert "2 samples per insert" in limiter_text(limiter)
    assert "surplus" not in limiter_text(limiter)


def test_files_of_shards_are_added_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / f"m.shard{shard}.jsonl" for shard in (0, 1)]
    for file, added in zip(files, (10.0, 30.0), strict=True):
        append(file, *service(6, added))
    assert main(["stats", *map(str, files)]) == 0
    out = capsys.readouterr().out
    rows = {words[0]: words[1:] for text in out.splitlines() if (words := text.split())}
    assert "m.shard0.jsonl + m.shard1.jsonl: 1 service, 12 lines" in out
    assert rows["added"] == ["(/s)", "40.0", "40.0", "40.0"]
    assert rows["sample"][:1] == ["1,000"]
    assert "34 stale, 6 rejected, 2 clamped" in out
    assert "4 actors, 10 of 24 in use; 1 learner, 2 of 6" in out
    assert "200 transitions first, 2 samples per insert, surplus -100 within 400" in out
    assert "1,500 of 2,000 transitions; 2,000 ever added" in out
    assert "2 written, 0 failed" in out
    assert main(["stats", *map(str, files), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["last"]["buffer"]["total"] == 11.0
    assert found["latency"]["add"]["p50"] == pytest.approx(50e-6, rel=1 / 8)


@pytest.mark.parametrize("option", [["--follow"], ["--output", "m.png"]])
def test_several_files_are_neither_followed_nor_plotted(
    file: Path, option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stats", str(file), str(file), *option]) == 2
    assert "--follow and --output are for one file" in capsys.readouterr().err


def test_json_is_the_summary(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["reason"] == "a test"
    assert found["rates"]["added"] == {"mean": 10.0, "max": 10.0, "last": 10.0}
    assert found["latency"]["add"]["count"] == 500
    assert found["last"]["event"] == "end"


@pytest.mark.parametrize("content", ["hello\n", "", "{}\n"])
def test_nonsense_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    path = tmp_path / "m"
    path.write_text(content)
    for options in ([], ["--json"], ["--output", str(tmp_path / "x.png")]):
        assert main(["stats", str(path), *options]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("libsumtree: error: ")
        assert err.count("\n") == 1
    assert not (tmp_path / "x.png").exists()


def test_missing_file_and_contradictions_are_one_line(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, text in (
        ([str(tmp_path / "none")], "No such file"),
        ([str(tmp_path)], "Is a directory"),
        ([str(file), "--follow", "--output", "x.png"], "exclude each other"),
    ):
        assert main(["stats", *words]) == 2
        err = capsys.readouterr().err
        assert text in err
        assert err.count("\n") == 1


# ---- the picture ----


def test_picture_is_one_of_lines_that_differ_without_colour(file: Path, tmp_path: Path) -> None:
    from matplotlib import image

    append(file, *service(30, added=200.0))
    path = tmp_path / "metrics.png"
    assert main(["stats", str(file), "--output", str(path)]) == 0
    picture = image.imread(path)[..., :3]
    assert picture.shape[0] > 900
    assert np.ptp(picture, axis=2).max() == 0.0  # no colour at all
    assert (picture < 0.5).mean() > 0.005


def test_no_curve_of_the_picture_is_cut_off() -> None:
    figure = draw_metrics("m", [*service(20), line("interval", 20, added=1e4)])
    figure.canvas.draw()
    for axes in figure.axes:
        highest = max(np.nanmax(curve.get_ydata()) for curve in axes.lines)
        assert axes.transData.transform((0, highest))[1] < axes.bbox.y1 - 3
    assert "10,000" in [label.get_text() for label in figure.axes[0].get_yticklabels()]


def test_picture_is_whole_or_not_there(file: Path, tmp_path: Path) -> None:
    assert main(["stats", str(file), "--output", str(tmp_path / "none" / "m.png")]) == 2
    assert sorted(tmp_path.iterdir()) == [file]


def test_picture_of_a_single_line(tmp_path: Path) -> None:
    path = tmp_path / "m"
    append(path, line("start"))
    assert main(["stats", str(path), "--output", str(tmp_path / "m.png")]) == 0


# ---- following ----


def test_plain_lines_follow_until_the_service_ends(tmp_path: Path) -> None:
    path = tmp_path / "m"
    lines = service(5)
    append(path, *lines[:2])
    process = subprocess.Popen(
        [*STATS, str(path), "--follow"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert "started, libsumtree 0.1.0" in process.stdout.readline()
    assert "10 added/s" in process.stdout.readline()
    append(path, *lines[2:])
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert len(out.splitlines()) == 3
    assert out.splitlines()[-1].endswith("ended: a test")
    assert "\x1b" not in out
    assert err == ""


def test_followed_json_is_the_lines_themselves(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stats", str(file), "--follow", "--json"]) == 0
    found = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert found == service(6)


def test_interrupt_ends_following_cleanly(tmp_path: Path) -> None:
    path = tmp_path / "m"
    append(path, line("start"))
    process = subprocess.Popen(
        [*STATS, str(path), "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, out, err) == (0, "", "")


def on_terminal(command: list[str], **variables: str) -> tuple[int, str]:
    """Run a command on a terminal of 100 columns; return its status and what it showed."""
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "50"}
    process = subprocess.Popen(
        command, stdout=slave, stderr=slave, stdin=slave, env={**environment, **variables}
    )
    os.close(slave)
    shown, deadline = b"", time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            part = os.read(master, 65536)
        except OSError:
            part = b""  # EIO: nobody has the other end any more
        if not part:
            break
        shown += part
    os.close(master)
    with contextlib.suppress(ProcessLookupError):
        process.wait(SECONDS)
    return process.returncode, shown.decode()


def test_view_on_a_terminal(file: Path) -> None:
    status, shown = on_terminal([*STATS, str(file), "--follow"], PYTHONIOENCODING="utf-8")
    assert status == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert "500 of 1,000 transitions" in text
    assert re.search(r"added +10 +/s +▁▇▇▇▇▇", text)
    assert "samples ahead [" in text
    assert "ended: a test" in text
    assert "RSS" in text


def test_view_has_no_colours_where_none_are_wanted(file: Path) -> None:
    status, shown = on_terminal([*STATS, str(file), "--follow"], NO_COLOR="1")
    assert status == 0
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", shown)


def test_curves_and_bars() -> None:
    assert sparkline([0.0, 1.0, 2.0, 4.0]) == "▁▃▄▇"
    assert sparkline([0.0, 4.0], ascii_only=True) == "_#"
    assert sparkline([0.0, 0.0]) == "▁▁"
    assert sparkline([]) == ""
    assert len(sparkline([1.0] * 99, width=30)) == 30
    paced = line()["limiter"]
    bar = position_bar(paced | {"surplus": -200.0}, 11)
    assert bar == "samples ahead [o----|-----] inserts ahead"
    assert "[-----o-----]" in position_bar(paced | {"surplus": 0.0}, 11)
    assert "[-----|----o]" in position_bar(paced | {"surplus": 9e9}, 11)
    assert position_bar(paced | {"surplus": None}) == ""
    assert limiter_text(paced | {"surplus": None, "samples_per_insert": None, "changes": 2}) == (
        "100 transitions first, changed 2 times"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((None, "-"), (0.0, "0 ns"), (5e-8, "50 ns"), (1.5e-6, "1.5 us"), (0.00099951, "1 ms")),
        *((0.25, "250 ms"), (0.99951, "1 s"), (12.0, "12 s"), (3600.0, "3,600 s")),
    ],
)
def test_durations_have_units(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text
