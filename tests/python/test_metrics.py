"""Histograms are exact within a bucket; metrics are written and read, whatever happens."""

from __future__ import annotations

import json
import math
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metrics_lines import line, service

from libsumtree.errors import ArgumentError, MetricsError
from libsumtree.metrics import (
    Histogram,
    MetricsReader,
    MetricsSink,
    decode_line,
    encode_line,
    read_metrics,
    shard_path,
    summarize,
)
from libsumtree.metrics.histogram import STEPS, bounds

TIMES = st.integers(0, 2**62 - 1) | st.integers(0, 10_000)


def filled(times: list[int]) -> Histogram:
    histogram = Histogram()
    for nanoseconds in times:
        histogram.add(nanoseconds)
    return histogram


# ---- histograms ----


@given(TIMES)
def test_a_time_lies_within_the_bounds_of_its_bucket(nanoseconds: int) -> None:
    ((bucket, count),) = filled([nanoseconds]).counts.items()
    low, high = bounds(bucket)
    assert count == 1
    assert low <= nanoseconds < high
    assert high - low <= max(1, low // STEPS)


def test_buckets_leave_no_gap() -> None:
    for bucket in range(470):
        assert bounds(bucket)[1] == bounds(bucket + 1)[0]


@given(st.lists(TIMES, min_size=1), st.floats(0.0, 1.0) | st.sampled_from([0.5, 0.99, 1.0]))
def test_quantile_is_a_bound_of_the_nearest_rank(times: list[int], share: float) -> None:
    exact = sorted(times)[max(1, math.ceil(share * len(times))) - 1]
    found = filled(times).quantile(share)
    assert found is not None
    nanoseconds = found * 1e9
    assert exact * (1 - 1e-12) <= nanoseconds <= exact * (1 + 1 / STEPS) * (1 + 1e-12)
    assert nanoseconds <= max(times) * (1 + 1e-12)


@given(st.lists(TIMES | st.integers(-3, 2**52)), st.lists(st.integers(0, 2**52 - 1)))
def test_many_at_once_count_as_one_after_another(some: list[int], others: list[int]) -> None:
    at_once = Histogram()
    for part in (some, [], others):
        at_once.add_all(part)
    assert at_once.as_json() == filled(some + others).as_json()


@given(st.lists(TIMES), st.lists(TIMES))
def test_merged_is_as_if_counted_together(some: list[int], others: list[int]) -> None:
    merged, together = filled(some), filled(some + others)
    merged.merge(filled(others))
    assert merged.as_json() == together.as_json()


@given(st.lists(st.integers(0, 2**50)))
def test_histogram_is_read_as_written(times: list[int]) -> None:
    fields = json.loads(json.dumps(filled(times).as_json()))
    again = Histogram.from_json(fields)
    assert again.counts == filled(times).counts
    assert again.as_json() == fields


def test_no_times_have_no_quantile_and_strange_ones_are_counted() -> None:
    assert Histogram().quantile(0.5) is None
    strange = filled([-5, 2**80])
    assert (strange.count, strange.least, strange.most) == (2, 0, 2**62 - 1)
    with pytest.raises(ArgumentError, match=r"share is 1\.5"):
        strange.quantile(1.5)


# ---- lines ----


def test_what_is_not_finite_is_null() -> None:
    assert encode_line({"a": [math.inf, {"b": math.nan}], "c": 1.5}) == (
        b'{"a":[null,{"b":null}],"c":1.5}\n'
    )


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"schema": 2}, "schema 2, and this version reads 1"),
        ({"schema": None}, "no object with a 'schema'"),
        ({"event": "middle"}, "event 'middle' is none of start, interval, end"),
        ({"time": "now"}, "'time' is 'now'"),
        ({"buffer": None}, "'buffer' is None"),
        ({"buffer": {}}, "no 'buffer.size'"),
        ({"process": {"rss": 1.5, "cpu": 1}}, "'process.rss' is 1.5"),
        ({"latency": {}}, "no 'latency.add'"),
        ({"version": None}, "'version' is None"),
        ({"time": 1e300}, "'time' is 1e+300"),
        ({"time": -1}, "'time' is -1"),
        ({"time": math.nan}, "'time' is nan"),
        ({"uptime": 10**400}, "'uptime' is 1000"),
        ({"seconds": math.inf}, "'seconds' is inf"),
        ({"process": {"rss": 10**400, "cpu": 1}}, "'process.rss' is 1000"),
    ],
)
def test_line_that_lacks_something_is_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(MetricsError) as caught:
        decode_line(json.dumps(line() | change))
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [{}, {"buckets": []}, {"buckets": {"3": 0}}, {"buckets": {"x": 1}}, {"buckets": {"3": 2}}],
)
def test_histogram_that_is_none_is_refused(fields: dict[str, Any]) -> None:
    latency = line()["latency"] | {"add": {"count": 1, **fields}}
    with pytest.raises(MetricsError, match=r"latency\.add"):
        decode_line(json.dumps(line() | {"latency": latency}))


def test_shards_have_files_of_their_own() -> None:
    assert shard_path(Path("a/m.jsonl"), 2) == Path("a/m.shard2.jsonl")
    assert shard_path(Path("m"), 0) == Path("m.shard0")


# ---- reading ----


def write(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_bytes(b"".join(map(encode_line, lines)))
    return path


def test_torn_last_line_is_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path / "m", *service(4))
    whole = path.read_bytes()
    for length in (1, 20, len(encode_line(line())) - 1):
        path.write_bytes(whole + encode_line(line())[:length])
        lines, torn = read_metrics(path)
        assert (len(lines), torn) == (4, 1)


def test_torn_line_of_a_crash_is_passed_over_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "m"
    parts = list(map(encode_line, service(3)))
    path.write_bytes(parts[0] + parts[1][:50] + b"\n\n" + parts[2])
    lines, torn = read_metrics(path)
    assert (len(lines), torn) == (2, 1)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "holds no line of metrics yet"),
        (b'{"schema": 1, "ev', "holds no line of metrics yet"),
        (b"hello\nworld\n", "is no metrics file: its first line is 'hello'"),
        (b"\x89HDF\r\n\x1a\n" + bytes(99), "is no metrics file but an HDF5 file"),
        (b"\x89PNG\r\n\x1a\n" + bytes(99), "is no metrics file but a picture"),
        (b"PK\x03\x04" + bytes(99), "is no metrics file but a zip or .npz archive"),
        (b"libsumtree checkpoint\nformat 1\n", "is no metrics file but a checkpoint"),
        (b"{" + bytes(99), "is no metrics file but something binary"),
        (b"{}\n", "line 1: JSON, but no object with a 'schema'"),
        (b"{nonsense}\n", "line 1: '{nonsense}' is no JSON"),
        (b"{" + b"x" * (1 << 21), "its first line has no end"),
        (b"[" * 100_000 + b"\n", "is no metrics file: its first line is '[["),
        (b'{"a":' * 100_000 + b"\n", "is no JSON"),
        (b'{"schema": 7}\n', "line 1: schema 7, and this version reads 1"),
    ],
)
def test_nonsense_is_refused_with_what_it_is(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "m"
    path.write_bytes(content)
    with pytest.raises(MetricsError) as caught:
        read_metrics(path)
    message = str(caught.value)
    assert text in message
    assert str(path) in message
    assert len(message) < 300 + len(str(path))
    assert "\n" not in message


def test_reader_gives_what_came_since(tmp_path: Path) -> None:
    path = write(tmp_path / "m", line("start"))
    reader = MetricsReader(path)
    assert [found["event"] for found in reader.read()] == ["start"]
    assert reader.read() == []
    new = encode_line(line())
    with path.open("ab") as file:
        file.write(new[:40])
        file.flush()
        assert reader.read() == []
        assert reader.unfinished
        file.write(new[40:] + encode_line(line("end")))
    assert [found["event"] for found in reader.read()] == ["interval", "end"]
    write(path, line("start"))  # begun anew
    assert [found["event"] for found in reader.read()] == ["start"]


# ---- writing ----


def test_lines_are_appended_after_a_torn_one(tmp_path: Path) -> None:
    path = write(tmp_path / "m", line("start"))
    with path.open("ab") as file:
        file.write(b'{"sch')
    said: list[str] = []
    sink = MetricsSink(path, said.append)
    for event in ("start", "end"):
        sink.put(encode_line(line(event)))
    assert sink.close(60.0)
    lines, torn = read_metrics(path)
    assert [found["event"] for found in lines] == ["start", "start", "end"]
    assert (torn, sink.lost, said) == (1, 0, [])


def test_full_disk_is_said_once_and_every_lost_line_counts() -> None:
    said: list[str] = []
    sink = MetricsSink(Path("/dev/full"), said.append)
    for _ in range(5):
        sink.put(encode_line(line()))
    assert sink.close(60.0)
    assert sink.lost == 5
    assert len(said) == 1
    assert "METRICS LOST" in said[0]
    assert "No space left on device" in said[0]


def test_pipe_that_nobody_empties_holds_nobody_up(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(MetricsError, match="cannot be written"):
        MetricsSink(path, print)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    said: list[str] = []
    try:
        sink = MetricsSink(path, said.append)
        for _ in range(40):
            sink.put(b"x" * 9999 + b"\n")
        assert sink.close(60.0)
    finally:
        os.close(reading)
    assert 0 < sink.lost <= 40
    assert len(said) == 1


def test_whoever_hands_over_never_waits_for_a_slow_disk(tmp_path: Path) -> None:
    """The thread is held up by what it says: the lines beyond the queue are lost and counted."""
    held, entered = threading.Event(), threading.Event()

    def say(text: str) -> None:
        entered.set()
        held.wait(60.0)

    sink = MetricsSink(Path("/dev/full"), say)
    sink.put(b"first\n")
    assert entered.wait(60.0)
    for _ in range(1000):
        sink.put(b"more\n")
    assert sink.lost >= 1000 - 64
    assert not sink.close(0.01)
    held.set()
    assert sink.close(60.0)
    assert sink.lost == 1001


@pytest.mark.parametrize("place", ["", "none/m", "file/m"])
def test_file_that_cannot_be_opened_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MetricsError, match=r"metrics file .* cannot be written"):
        MetricsSink(tmp_path / place, print)


# ---- summing up ----


def test_summary_is_of_the_last_service() -> None:
    first, second = service(9, added=10), service(4, added=100)
    summary = summarize([*first, *second], torn=2)
    assert (summary.runs, summary.lines, summary.torn) == (2, 4, 2)
    assert summary.reason == "a test"
    assert summary.rates["added"].mean == pytest.approx(100.0)
    assert summary.rates["added"].max == 100.0
    assert summary.latency["sample"]["count"] == 3 * 100
    assert summary.latency["sample"]["p50"] == pytest.approx(50e-6, rel=1 / STEPS)
    assert summary.latency["sample"]["p99"] == pytest.approx(99e-6, rel=1 / STEPS)
    assert summarize(second[:-1]).reason is None


def test_mean_is_over_the_time_and_not_over_the_lines() -> None:
    lines = service(3, added=10)
    lines[1]["seconds"], lines[2]["seconds"] = 9.0, 1.0
    lines[2]["rates"]["added"] = 1010.0
    assert summarize(lines).rates["added"].mean == pytest.approx(110.0)


def test_histogram_of_many_times_stays_small() -> None:
    histogram = filled([round(1000 * 1.0001**k) for k in range(100_000)])
    assert histogram.count == 100_000
    assert len(histogram.counts) < 130
    assert len(json.dumps(histogram.as_json())) < 2500
