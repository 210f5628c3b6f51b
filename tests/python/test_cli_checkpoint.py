"""``libsumtree checkpoint``: what it says, its statuses, and one line where something is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from libsumtree import PrioritizedReplayBuffer, checkpoint
from libsumtree.cli import main

RECORD = np.dtype([("value", "<i8"), ("label", "U3")])
LEARNER: dict[str, list[Any]] = {"learner/step": [np.array(40)], "learner/w": [np.ones((2, 3))]}


def add(buffer: PrioritizedReplayBuffer, count: int) -> None:
    rows = np.zeros(count, RECORD)
    rows["value"] = np.arange(buffer.inserted, buffer.inserted + count)
    buffer.add(rows, 1.0 + np.arange(count))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five states: a full file with two that go on from it, and a full file with one."""
    path = tmp_path / "files"
    path.mkdir()
    buffer, base = PrioritizedReplayBuffer(50, RECORD, alpha=0.5, seed=1), None
    for serial in range(1, 6):
        add(buffer, 60 if serial == 1 else 4)
        taken = buffer.snapshot(None if serial == 4 else base)
        base = taken.write(path / f"replay-{serial:012d}.h5", {"replay_stale": serial}, LEARNER)
    return path


def file(folder: Path, serial: int) -> Path:
    return folder / f"replay-{serial:012d}.h5"


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


class Outcome:
    def __init__(self, capsys: pytest.CaptureFixture[str], *words: object) -> None:
        self.status = main(["checkpoint", *map(str, words)])
        self.out, self.err = capsys.readouterr()

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def complaint(self) -> str:
        assert self.status == 2
        (line,) = self.err.splitlines()
        assert line.startswith("libsumtree: error: ")
        return line


def test_list(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file(folder, 1).unlink()
    file(folder, 5).write_bytes(file(folder, 5).read_bytes()[:-7])
    (folder / "replay-000000000009.h5").write_text("something else")
    told = Outcome(capsys, "list", folder)
    assert told.status == 0
    words = [line.split("  ")[-1] for line in told.out.splitlines()]
    assert words[0].startswith("DAMAGED: goes on from a file that is not there, sha256 ")
    assert words[2] == "full"
    assert "cut short" in words[3]
    assert "not a libsumtree checkpoint" in words[4]
    listed = Outcome(capsys, "list", folder, "--json").json
    assert [entry["name"] for entry in listed] == [file(folder, n).name for n in (2, 3, 4, 5, 9)]
    assert [entry["problem"] is None for entry in listed] == [False, False, True, False, False]
    assert listed[3]["parent"] == file(folder, 4).name
    empty = folder / "empty"
    empty.mkdir()
    assert "no checkpoints in" in Outcome(capsys, "list", empty).out


def test_show(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot = tmp_path / "priorities.png"
    told = Outcome(capsys, "show", folder, "--output", plot)
    assert told.status == 0
    assert plot.read_bytes().startswith(b"\x89PNG")
    facts = dict(line.split(maxsplit=1) for line in told.out.splitlines() if line[0] != " ")
    assert facts["size"] == "50"
    assert facts["alpha"] == "0.5"
    assert facts["kind"] == "incremental, of 2 files"
    assert facts["file"].endswith("replay-000000000005.h5")
    assert "learner step" in told.out
    shown = Outcome(capsys, "show", file(folder, 1), "--json").json
    assert shown["kind"] == "full"
    assert shown["learner step"] == 40
    assert shown["dtype"] == [["value", "<i8"], ["label", "<U3"]]
    histogram = shown["histogram"]
    assert sum(histogram["counts"]) == 50
    assert histogram["edges"][0] == pytest.approx(11.0)
    assert histogram["edges"][-1] == pytest.approx(60.0)


def test_show_of_an_empty_buffer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    PrioritizedReplayBuffer(3, RECORD).save(tmp_path / "b.h5")
    told = Outcome(capsys, "show", tmp_path / "b.h5", "--output", tmp_path / "b.png")
    assert told.status == 0
    assert (tmp_path / "b.png").exists()


def test_verify(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = Outcome(capsys, "verify", folder)
    assert told.status == 0
    assert [line.rsplit(": ")[1] for line in told.out.splitlines()] == ["whole"] * 5
    damage(file(folder, 4))
    told = Outcome(capsys, "verify", folder)
    assert "2 of 5 checkpoints cannot be used" in told.complaint()
    lines = told.out.splitlines()
    assert "cut short or altered" in lines[3]
    assert "goes on from" in lines[4]
    found = Outcome(capsys, "verify", file(folder, 3), file(folder, 4), "--json").json
    assert found[str(file(folder, 3))] is None
    assert "altered" in found[str(file(folder, 4))]


def test_the_newest_whole_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def newest() -> str:
        told = Outcome(capsys, "verify", "--newest", folder)
        assert told.status == 0
        return Path(told.out.strip()).name

    assert newest() == file(folder, 5).name
    damage(file(folder, 4))
    assert newest() == file(folder, 3).name
    damage(file(folder, 1))
    told = Outcome(capsys, "verify", "--newest", folder)
    assert "no checkpoint in" in told.complaint()
    assert (
        "--newest takes one folder" in Outcome(capsys, "verify", "--newest", __file__).complaint()
    )


def test_verify_finds_masses_that_are_none(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in (-1.0, np.nan, np.inf):
        with checkpoint.read(file(folder, 1)) as stored:
            attributes = dict(stored.attributes)
            arrays = {name: array.read() for name, array in stored.datasets.items()}
        arrays["tree/masses"][7] = value
        streams = {
            name: checkpoint.Stream(a.dtype, a.shape, lambda a=a: iter([a]))
            for name, a in arrays.items()
        }
        checkpoint.write(folder / "bad.h5", attributes, streams)
        told = Outcome(capsys, "verify", folder / "bad.h5")
        assert f"masses[7] is {value}" in told.out
        assert told.status == 2


def test_diff(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same = Outcome(capsys, "diff", file(folder, 3), file(folder, 3))
    assert (same.status, same.out) == (0, "")
    told = Outcome(capsys, "diff", file(folder, 3), file(folder, 5), "--json")
    assert told.status == 1
    assert told.json["transitions"] == {
        "only_in_first": 8,
        "only_in_second": 8,
        "other_mass": 0,
        "other_record": 0,
    }
    assert told.json["attributes"]["cursor"] == [68, 76]
    assert "learner" not in told.json
    buffer = PrioritizedReplayBuffer.load(file(folder, 5))
    buffer.update_priorities([70, 71], 99.0)
    buffer.snapshot().write(folder / "other.h5", None, {"learner/step": [np.array(41)]})
    text = Outcome(capsys, "diff", file(folder, 5), folder / "other.h5")
    assert "transitions, other mass: 2" in text.out
    assert "learner array step: differs" in text.out
    assert "learner array w: differs" in text.out
    assert "epoch: 0 | 1" in text.out


def test_prune(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = Outcome(capsys, "prune", folder, "--keep", 1, "--dry-run")
    assert [line.split()[-1] for line in told.out.splitlines()] == [
        file(folder, n).name for n in (3, 2, 1)
    ]
    assert len(list(folder.glob("replay-*"))) == 5
    lock = checkpoint.FolderLock(folder)
    assert "being written to" in Outcome(capsys, "prune", folder, "--keep", 1).complaint()
    lock.close()
    damage(file(folder, 5))
    assert "altered" in Outcome(capsys, "prune", folder, "--keep", 1).complaint()
    file(folder, 5).unlink()
    assert Outcome(capsys, "prune", folder, "--keep", 1, "--json").json == [
        file(folder, n).name for n in (3, 2, 1)
    ]
    assert [path.name for path in folder.glob("replay-*")] == [file(folder, 4).name]
    assert "at least 1" in Outcome(capsys, "prune", folder, "--keep", 0).complaint()


def of_shards(folder: Path, serial: int) -> Path:
    files = []
    for shard in range(2):
        place = checkpoint.shard_folder(folder, shard)
        place.mkdir(parents=True, exist_ok=True)
        buffer = PrioritizedReplayBuffer(50, RECORD, seed=shard)
        add(buffer, serial)
        files.append(file(place, serial))
        buffer.save(files[-1])
    return checkpoint.write_manifest(checkpoint.manifest_of(folder, serial), files).path


def test_a_folder_of_shards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifests = [of_shards(tmp_path, serial) for serial in (1, 2, 3)]
    lines = Outcome(capsys, "list", tmp_path).out.splitlines()
    assert [line.split("  ")[-1] for line in lines] == [
        "manifest of 2 shards, all there; 2 files in all"
    ] * 3
    damage(file(tmp_path / "shard-0001", 3))
    file(tmp_path / "shard-0001", 2).unlink()
    listed = Outcome(capsys, "list", tmp_path, "--json").json
    assert [entry["shards"] for entry in listed] == [2, 2, 2]
    assert [entry["problem"] is None for entry in listed] == [True, False, True]
    told = Outcome(capsys, "verify", *manifests)
    assert "2 of 3 checkpoints cannot be used" in told.complaint()
    assert told.out.splitlines()[0] == f"{manifests[0]}: whole"
    assert "shard-0001/replay-000000000003.h5: its " in told.out
    newest = Outcome(capsys, "verify", "--newest", tmp_path)
    assert newest.out.strip() == str(manifests[0])
    message = f"is a manifest of 2 shards: give the file of one, such as {tmp_path}/shard-0000"
    assert message in Outcome(capsys, "show", tmp_path).complaint()
    assert message in Outcome(capsys, "diff", manifests[0], manifests[0]).complaint()
    of_shards(tmp_path, 4)
    of_shards(tmp_path, 5)
    gone = Outcome(capsys, "prune", tmp_path, "--keep", 2, "--json").json
    assert gone[0] == manifests[2].name
    assert {*manifests, *tmp_path.glob("shard-*/*")} & {tmp_path / name for name in gone} == set(
        manifests
    )
    assert [path.name for path in sorted(tmp_path.glob("shard-0000/*.h5"))] == [
        file(tmp_path, serial).name for serial in (4, 5)
    ]


@pytest.mark.parametrize("place", ["none/out.npz", "taken", "files.h5/out.npz", "pipe"])
def test_an_export_that_fails_names_what_was_asked_for(
    place: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "files.h5").touch()
    os.mkfifo(tmp_path / "pipe")
    output = tmp_path / place
    told = Outcome(capsys, "export", folder, output)
    assert f"cannot write {output}: " in told.complaint()
    assert ".tmp" not in told.err
    assert (tmp_path / "pipe").is_fifo()


def test_a_cleared_buffer_is_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    buffer = PrioritizedReplayBuffer(3, RECORD)
    add(buffer, 2)
    buffer.clear()
    buffer.save(tmp_path / "b.h5")
    told = Outcome(capsys, "show", tmp_path / "b.h5", "--json")
    shown = json.loads(told.out, parse_constant=lambda text: pytest.fail(text))
    assert (shown["min"], shown["max"], shown["size"]) == (None, 0.0, 0)
    other = tmp_path / "c.h5"
    add(buffer, 1)
    buffer.save(other)
    told = Outcome(capsys, "diff", tmp_path / "b.h5", other, "--json")
    found = json.loads(told.out, parse_constant=lambda text: pytest.fail(text))
    assert found["attributes"]["min"] == [None, 1.0]


def test_export(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out.npz"
    told = Outcome(capsys, "export", folder, output)
    assert (told.status, told.out) == (0, f"50 transitions written to {output}\n")
    buffer = PrioritizedReplayBuffer.load(file(folder, 5))
    with np.load(output, allow_pickle=False) as found:
        assert found["ids"].tolist() == list(range(26, 76))
        assert found["transitions"].tobytes() == buffer[found["ids"]].tobytes()
        assert found["masses"].tolist() == buffer.tree[found["ids"] % 50].tolist()
        assert found["attributes/alpha"] == 0.5
        assert found["learner/w"].shape == (2, 3)
    size = output.stat().st_size
    assert Outcome(capsys, "export", folder, output, "--compress").status == 0
    assert output.stat().st_size < size


def foreign(path: Path) -> str:
    with h5py.File(path, "w") as other:
        other["x"] = np.zeros(3)
    return "is not a libsumtree checkpoint"


def no_buffer(path: Path) -> str:
    checkpoint.write(path, {}, {"x": [np.zeros(3)]})
    return "does not hold a buffer"


def is_missing(path: Path) -> str:
    return "does not exist"


def is_text(path: Path) -> str:
    path.write_text("hello")
    return "is not a libsumtree checkpoint"


def is_empty(path: Path) -> str:
    path.touch()
    return "is not a libsumtree checkpoint"


@pytest.mark.parametrize("make", [foreign, no_buffer, is_missing, is_text, is_empty])
@pytest.mark.parametrize("action", ["show", "export", "diff"])
def test_what_is_no_checkpoint_is_one_line(
    make: Any, action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.h5"
    message = make(path)
    words = {"show": [path], "export": [path, tmp_path / "out.npz"], "diff": [path, path]}
    assert message in Outcome(capsys, action, *words[action]).complaint()
    assert not (tmp_path / "out.npz").exists()


def without_privilege(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder; root gives up what passes over permissions."""
    given_up = "-dac_override,-dac_read_search"
    plain = ["setpriv", f"--inh-caps={given_up}", f"--bounding-set={given_up}"]
    command = [*(plain if os.geteuid() == 0 else []), sys.executable, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_permission_denied_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "b.h5"
    PrioritizedReplayBuffer(3, RECORD).save(path)
    path.chmod(0)
    done = without_privilege(tmp_path, "-m", "libsumtree", "checkpoint", "show", "b.h5")
    message = "libsumtree: error: cannot open checkpoint b.h5: Permission denied\n"
    assert (done.returncode, done.stderr) == (2, message)


NEWEST = """
from pathlib import Path
from libsumtree.errors import CheckpointCorruptError, CheckpointError
from libsumtree.replay.checkpoints import CheckpointFolder
try:
    print(CheckpointFolder(Path("."), keep=9).newest("cpu").path)
except CheckpointError as error:
    print(type(error).__name__, error)
"""


def test_a_parent_that_may_not_be_read_is_no_damage(folder: Path) -> None:
    """The state before it would be an old one, and nobody would know."""
    file(folder, 4).chmod(0)
    told = without_privilege(folder, "-c", NEWEST).stdout
    assert told.startswith("CheckpointError checkpoint replay-000000000005.h5 goes on from")
    assert told.endswith(
        "may be replay-000000000004.h5: that cannot be opened: Permission denied\n"
    )
    file(folder, 4).unlink()
    assert without_privilege(folder, "-c", NEWEST).stdout == "replay-000000000003.h5\n"


def test_help_names_all_actions() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "libsumtree", "checkpoint", "--help"],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert done.returncode == 0
    for action in ("list", "show", "verify", "diff", "prune", "export"):
        assert f"    {action} " in done.stdout


# ---- how many transitions have which priority ----


def with_priorities(path: Path, *priorities: float) -> Path:
    buffer = PrioritizedReplayBuffer(64, RECORD, alpha=0.5, seed=1)
    buffer.add(np.zeros(len(priorities), RECORD), priorities)
    buffer.save(path)
    return path


def test_histogram_in_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = with_priorities(tmp_path / "x.h5", *[1e-3] * 7, *[10.0] * 20, 0.0, 0.0)
    assert "to below" not in Outcome(capsys, "show", path).out
    lines = Outcome(capsys, "show", path, "--histogram").out.splitlines()
    table = lines[lines.index(next(line for line in lines if "to below" in line)) + 1 :]
    zero, *bins = table
    assert zero.split() == ["0", "2"]
    assert len(bins) == 20
    assert bins[0].split()[::2] == ["0.001", "7"]
    assert bins[0].split()[3] == "#" * 14
    assert bins[-1].split()[1:3] == ["10", "20"]
    assert bins[-1].split()[3] == "#" * 40
    assert [row.split()[2] for row in bins[1:-1]] == ["0"] * 18
    low, high = (float(word) for word in bins[5].split()[:2])
    assert high / low == pytest.approx(10 ** (4 / 20), rel=1e-3)


def test_histogram_of_one_priority_and_of_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = Outcome(capsys, "show", with_priorities(tmp_path / "x.h5", 2.0, 2.0), "--histogram").out
    assert sum(int(line.split()[2]) for line in one.splitlines()[-20:]) == 2
    none = Outcome(capsys, "show", with_priorities(tmp_path / "y.h5", 0.0), "--histogram").out
    assert none.splitlines()[-1].split() == ["0", "1"]


def test_picture_of_a_histogram_has_no_colour(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from matplotlib import image

    path = tmp_path / "histogram.png"
    assert Outcome(capsys, "show", file(folder, 5), "--output", path).status == 0
    picture = image.imread(path)[..., :3]
    assert np.ptp(picture, axis=2).max() == 0.0
    assert (picture < 0.8).mean() > 0.05
    before = file(folder, 5).read_bytes()
    assert (
        "is a checkpoint"
        in Outcome(capsys, "show", file(folder, 4), "--output", file(folder, 5)).complaint()
    )
    assert file(folder, 5).read_bytes() == before
