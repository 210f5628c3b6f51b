"""What scripts and checks do in odd surroundings: no temporary folder, a relative PATH, Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
SECONDS = 60.0


def shell(command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command after jobs/environment.sh was sourced, in a folder."""
    text = f'checkout=$1; . "$checkout/jobs/environment.sh"; {command}'
    return subprocess.run(
        ["sh", "-euc", text, "sh", str(CHECKOUT)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **variables},
    )


def program(path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("before", [".", "", "bin", "./bin", "../here/bin"])
def test_a_launcher_in_the_folder_at_hand_is_not_the_machines(tmp_path: Path, before: str) -> None:
    """The choice is kept, and would be another program, or none, wherever it is taken up."""
    folder = tmp_path / "here"
    folder.mkdir()
    program(folder / "mpiexec")
    program(folder / "bin" / "mpiexec")
    own = program(tmp_path / "machine" / "mpiexec")
    path = f"{before}:{own.parent}:{os.environ['PATH']}"
    done = shell("launcher_of_the_machine", folder, PATH=path)
    assert (done.stdout, done.stderr) == (f"{own}\n", "")


def test_no_temporary_folder_is_said_in_one_line(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    done = shell("quietly true; echo went on", tmp_path, TMPDIR=missing)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1] == (
        f"libsumtree: no temporary file can be made in {missing}: set TMPDIR to a folder of yours"
    )


def is_running(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def test_an_interrupted_check_leaves_no_launcher_behind(tmp_path: Path) -> None:
    noted, launcher = tmp_path / "pid", tmp_path / "launcher"
    launcher.write_text(
        f"#!/bin/bash\necho $$ >{noted}.new; mv {noted}.new {noted}; exec sleep 600\n"
    )
    launcher.chmod(0o755)
    site = tmp_path / "site.sh"
    site.write_text(f"site_launcher={launcher}\nsite_python={sys.executable}\n")
    site.chmod(0o644)
    begin = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    run = "from libsumtree.cli import main; sys.exit(main(sys.argv[1:]))"
    process = subprocess.Popen(
        [sys.executable, "-c", begin + run, "jobs", "check", "--site", str(site), "--ranks", "2"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + SECONDS
    while not noted.exists():
        assert time.monotonic() < deadline, process.communicate()
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (130, "")
    assert not is_running(int(noted.read_text()))
