"""The life of a job under the variables and signals of each scheduler.

No Slurm, PBS or LSF is here: the commands by which they requeue are small scripts, and so is the
program of the ranks. `tests/jobs` runs the real ones on a real Slurm.
"""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from libsumtree.jobs.render import render
from libsumtree.jobs.request import Request

SCHEDULERS = ("slurm", "pbs", "lsf")
RANKS = 3
PROGRAM = ("apex", "--steps", "10 000", "--env", "it's; $(false)")

# What stands for Python in the ranks: notes how it was called, then does what $FATE says.
RANK = """\
#!/bin/bash
printf '%s\\n' "$@" >"$NOTES/arguments"
while [ "$1" != --mark ]; do shift; done
trap 'echo "stopped SIGUSR1" >"$2"; exit 0' USR1
: >"$NOTES/up"
case $FATE in
finish) echo finished >"$2"; exit 0 ;;
wait) for _ in {1..200}; do sleep 0.05; done; exit 9 ;;
silent) exit 0 ;;
deaf) kill -USR1 "$PPID"; trap - USR1; sleep 0.2; kill -USR1 $$ ;;
*) exit "$FATE" ;;
esac
"""
# What requeues: notes that, and ends the job's shell as the scheduler would.
REQUEUE = '#!/bin/bash\necho "${0##*/} $*" >>"$NOTES/requeued"\n(sleep 0.1; kill -TERM "$PPID") &\n'
# A launcher that passes USR1 on and, told to end, sleeps on when its ranks have gone.
SLEEPY = """\
#!/bin/bash
trap 'kill -USR1 $rank' USR1
trap '' TERM
"$@" &
rank=$!
: >"$NOTES/ready"
while kill -0 $rank 2>/dev/null; do wait $rank; done
for _ in {1..300}; do sleep 0.1; done
"""
REFUSE = "#!/bin/sh\nexit 1\n"
HAND_IN = '#!/bin/sh\necho "qsub $*" >>"$NOTES/requeued"\necho 78.server\n'
SCONTROL = '#!/bin/bash\n[ "$1" = requeue ] || exit 1\n' + REQUEUE.partition("\n")[2]


@dataclass
class Stage:
    """One rendered script and all that it can reach."""

    scheduler: str
    folder: Path
    request: Request
    program: tuple[str, ...] = PROGRAM
    settings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("bin", "notes", "submitted"):
            (self.folder / name).mkdir()
        for name, text in {
            "rank": RANK,
            "scontrol": SCONTROL,
            "qrerun": REQUEUE,
            "brequeue": REQUEUE,
            "qsub": HAND_IN,
        }.items():
            self.command(name, text)
        self.site = self.folder / "site.sh"
        self.site.write_text("site_launcher=env site_python=rank\n")
        self.site.chmod(0o644)
        (self.folder / "nodes").write_text("here\n" * RANKS)

    def command(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    @property
    def notes(self) -> Path:
        return self.folder / "notes"

    @property
    def run_dir(self) -> Path:
        return self.folder / "submitted" / "libsumtree-77"

    def start(self, fate: str, **more: str) -> subprocess.Popen[str]:
        script = self.folder / "job.sh"
        script.write_text(
            render(self.scheduler, self.site, self.request, self.program, self.settings)
        )
        script.chmod(0o755)
        (self.notes / "up").unlink(missing_ok=True)
        where = str(self.folder / "submitted")
        variables = {
            "slurm": {"SLURM_JOB_ID": "77", "SLURM_NTASKS": str(RANKS), "SLURM_SUBMIT_DIR": where},
            "pbs": {
                "PBS_JOBID": "77",
                "PBS_NODEFILE": str(self.folder / "nodes"),
                "PBS_O_WORKDIR": where,
            },
            "lsf": {"LSB_JOBID": "77", "LSB_DJOB_NUMPROC": str(RANKS), "LS_SUBCWD": where},
        }[self.scheduler]
        environment = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "NOTES": str(self.notes),
            "FATE": fate,
            **variables,
            **more,
        }
        with (self.folder / "log").open("a") as log:
            return subprocess.Popen(
                [str(script)],
                env=environment,
                cwd=where,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
            )

    def until_up(self, *more: str) -> None:
        for name in ("up", *more):
            self.until((self.notes / name).exists)

    def until(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + 20
        while not holds():
            assert time.monotonic() < end, self.log
            time.sleep(0.02)

    @property
    def log(self) -> str:
        own = self.run_dir / "job.log"
        return (self.folder / "log").read_text() + (own.read_text() if own.exists() else "")

    @property
    def last(self) -> str:
        return re.findall(r"^libsumtree: job 77\.(.*)$", self.log, re.MULTILINE)[-1]

    @property
    def requeued(self) -> list[str]:
        path = self.notes / "requeued"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture(params=SCHEDULERS)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    return Stage(request.param, tmp_path, Request(ranks=RANKS))


def test_finished(stage: Stage) -> None:
    assert stage.start("finish").wait(20) == 0
    assert stage.last == "0: finished"
    assert stage.requeued == []
    assert stat.S_IMODE(stage.run_dir.stat().st_mode) == 0o700
    arguments = (stage.notes / "arguments").read_text().splitlines()
    assert arguments[:7] == ["-m", "mpi4py", "-m", "libsumtree", "jobs", "rank", "--ranks"]
    assert arguments[7:] == [
        str(RANKS),
        "--mark",
        str(stage.run_dir / "mark.77.0"),
        "--",
        "apex",
        "--actors",
        str(RANKS - 2),
        "--output-dir",
        str(stage.run_dir),
        "--checkpoint-dir",
        str(stage.run_dir / "checkpoints"),
        *PROGRAM[1:],
    ]


def test_signalled_before_the_end_of_the_walltime(stage: Stage) -> None:
    first = stage.start("wait")
    stage.until_up()
    first.send_signal(signal.SIGUSR1)
    assert first.wait(20) == 75
    assert stage.last == "0: stopped (SIGUSR1): requeueing, to go on from the checkpoint"
    (line,) = stage.requeued
    assert line.endswith("77")
    assert (stage.run_dir / "mark.77.0").read_text() == "stopped SIGUSR1\n"
    again = {"SLURM_RESTART_COUNT": "1"} if stage.scheduler == "slurm" else {}
    assert stage.start("finish", **again).wait(20) == 0
    assert stage.last == "1: finished"
    assert stage.log.count("starts on") == 2
    assert len(stage.requeued) == 1


def test_cancelled(stage: Stage) -> None:
    job = stage.start("wait")
    stage.until_up()
    job.send_signal(signal.SIGTERM)
    assert job.wait(20) == 143
    assert stage.last.startswith("0: cancelled, and not requeued; a checkpoint was written")
    assert stage.requeued == []


def test_a_launcher_that_outlives_its_ranks_is_not_waited_for(stage: Stage) -> None:
    stage.command("sleepy", SLEEPY)
    stage.site.write_text("site_launcher=sleepy site_python=rank\n")
    job = stage.start("wait")
    stage.until_up("ready")
    begin = time.monotonic()
    job.send_signal(signal.SIGTERM)
    assert job.wait(20) == 143
    assert time.monotonic() - begin < 15
    assert stage.last.startswith("0: cancelled, and not requeued; a checkpoint was written")


@pytest.mark.parametrize("scheduler", ["pbs", "lsf"])
def test_the_end_of_the_walltime_is_not_taken_for_a_cancel(tmp_path: Path, scheduler: str) -> None:
    stage = Stage(scheduler, tmp_path, Request(ranks=RANKS))
    stage.command("sleepy", SLEEPY)
    stage.site.write_text("site_launcher=sleepy site_python=rank\n")
    job = stage.start("wait")
    stage.until_up("ready")
    job.send_signal(signal.SIGUSR1)
    stage.until(lambda: "signalled (USR1)" in stage.log)
    job.send_signal(signal.SIGTERM)
    assert job.wait(20) == 75, stage.log
    assert stage.last == "0: stopped (SIGUSR1): requeueing, to go on from the checkpoint"
    assert len(stage.requeued) == 1


@pytest.mark.parametrize("status", [1, 2, 137])
def test_a_failure_is_the_status_of_the_job(stage: Stage, status: int) -> None:
    assert stage.start(str(status)).wait(20) == status
    assert stage.last == f"0: failed: the launcher ended with status {status} (see above)"
    assert stage.requeued == []


def test_a_launcher_that_starts_nothing_is_no_success(stage: Stage) -> None:
    assert stage.start("silent").wait(20) == 70
    assert stage.requeued == []


def test_a_mark_of_an_earlier_start_does_not_count(stage: Stage) -> None:
    stage.run_dir.mkdir(mode=0o700)
    for name in ("mark.77.0", "mark.76.0", "mark.77.1"):
        (stage.run_dir / name).write_text("finished\n")
    assert stage.start("silent").wait(20) == 70


def test_a_signal_before_the_ranks_are_ready(stage: Stage) -> None:
    assert stage.start("deaf").wait(20) == 75
    assert len(stage.requeued) == 1


def test_restarts_are_limited(stage: Stage) -> None:
    stage.settings["LIBSUMTREE_MAX_RESTARTS"] = "1"
    for restart in range(2):
        job = stage.start("wait", SLURM_RESTART_COUNT=str(restart))
        stage.until_up()
        job.send_signal(signal.SIGUSR1)
        assert job.wait(20) == 75, stage.log
    assert stage.last.startswith("1: stopped, and not requeued: it was restarted 1 times")
    assert len(stage.requeued) == 1


def test_a_scheduler_that_does_not_requeue(stage: Stage) -> None:
    for name in ("scontrol", "qrerun", "brequeue", "qsub"):
        stage.command(name, REFUSE)
    job = stage.start("wait")
    stage.until_up()
    job.send_signal(signal.SIGUSR1)
    assert job.wait(20) == 75, stage.log
    assert "would not requeue the job" in stage.last


def test_own_programs_beside_the_replay_rank(stage: Stage) -> None:
    stage.program = ("replay", "--capacity", "9", "--", "own", "program.py", "a b")
    stage.command("own", '#!/bin/sh\nprintf "%s\\n" "$@" >"$NOTES/own"\n')
    assert stage.start("finish", PMI_RANK="0").wait(20) == 0
    arguments = (stage.notes / "arguments").read_text().splitlines()
    at = arguments.index("--")
    assert arguments[at + 1 :] == [
        "replay",
        "--ranks",
        str(RANKS),
        "--checkpoint-dir",
        str(stage.run_dir / "checkpoints"),
        "--capacity",
        "9",
    ]
    assert stage.start("finish", PMI_RANK="2").wait(20) == 70
    assert (stage.notes / "own").read_text().splitlines() == ["program.py", "a b"]
    assert stage.start("finish").wait(20) == 2
    assert "the launcher gives its processes no rank" in stage.log


def test_more_shards_leave_fewer_actors(stage: Stage) -> None:
    stage.program = ("apex", "--shards", "2")
    assert stage.start("finish").wait(20) == 78
    assert stage.last == "0: apex needs 4 ranks or more; the job has 3"


@pytest.mark.parametrize("name", ["LEAD", "MAX_RESTARTS", "RESTARTS"])
@pytest.mark.parametrize("value", ["a[$(touch evaluated)]", "x", "08", "-1", "9" * 30])
def test_a_number_is_a_number_and_never_evaluated(tmp_path: Path, name: str, value: str) -> None:
    settings = {f"LIBSUMTREE_{name}": value}
    stage = Stage("slurm", tmp_path, Request(ranks=RANKS), settings=settings)
    assert stage.start("finish").wait(20) == 78
    assert f"LIBSUMTREE_{name} is '{value}': it must be a whole number" in stage.last
    assert not list(tmp_path.rglob("evaluated"))


def test_a_counter_is_never_evaluated(tmp_path: Path) -> None:
    stage = Stage("lsf", tmp_path, Request(ranks=RANKS))
    stage.run_dir.mkdir(mode=0o700)
    (stage.run_dir / "restarts.77").write_text("a[$(touch evaluated)]\n")
    assert stage.start("finish").wait(20) == 78
    assert "it must be a whole number" in stage.last
    assert not list(tmp_path.rglob("evaluated"))


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o770])
def test_a_run_directory_that_others_can_enter(stage: Stage, mode: int) -> None:
    stage.run_dir.mkdir()
    stage.run_dir.chmod(mode)
    assert stage.start("finish").wait(20) == 78
    assert "must be yours and closed to others (chmod 700)" in stage.last


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646])
def test_a_site_that_others_may_write(stage: Stage, mode: int) -> None:
    stage.site.chmod(mode)
    assert stage.start("finish").wait(20) == 78
    assert "is refused" in stage.last


@pytest.mark.parametrize(
    ("mode", "status"), [(0o777, 78), (0o757, 78), (0o775, 0), (0o1777, 0), (0o700, 0)]
)
def test_a_site_in_a_folder_that_anybody_may_write(tmp_path: Path, mode: int, status: int) -> None:
    """They could put another file in its place, unless the folder is as /tmp."""
    stage = Stage("slurm", tmp_path, Request(ranks=RANKS))
    stage.site = tmp_path / "sites" / "site.sh"
    stage.site.parent.mkdir()
    (tmp_path / "site.sh").rename(stage.site)
    stage.site.parent.chmod(mode)
    assert stage.start("finish").wait(20) == status
    assert ("is refused" in stage.last) == (status == 78)


def test_a_site_is_named_from_where_the_job_was_submitted(stage: Stage) -> None:
    stage.settings["LIBSUMTREE_SITE"] = "../site.sh"
    assert stage.start("finish").wait(20) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("site_launcher='' site_python=rank", "sets no site_launcher"),
        ("site_launcher=no-such-launcher site_python=rank", "gives no command 'no-such-launcher'"),
        ("site_launcher=env site_python=no-such-python", "gives no command 'no-such-python'"),
        ("site_launcher=env; site_setup() { false; }", "set-up of the site"),
        ("site_launcher=env; false", "cannot be read"),
    ],
)
def test_a_site_that_is_not_right(stage: Stage, text: str, message: str) -> None:
    stage.site.write_text(text + "\n")
    assert stage.start("finish").wait(20) == 78
    assert message in stage.last


def test_pbs_sets_its_own_alarm(tmp_path: Path) -> None:
    stage = Stage("pbs", tmp_path, Request(ranks=RANKS, minutes=1, lead=59))
    assert stage.start("wait").wait(30) == 75
    assert len(stage.requeued) == 1


def test_pbs_asks_for_the_walltime_that_qsub_was_told(tmp_path: Path) -> None:
    stage = Stage("pbs", tmp_path, Request(ranks=RANKS, minutes=600, lead=59))
    stage.command("qstat", '#!/bin/sh\necho "    Resource_List.walltime = 00:01:00"\n')
    assert stage.start("wait").wait(30) == 75
    assert len(stage.requeued) == 1


def test_pbs_hands_in_a_successor_where_users_may_not_rerun(tmp_path: Path) -> None:
    stage = Stage("pbs", tmp_path, Request(ranks=RANKS))
    stage.command("qrerun", REFUSE)
    job = stage.start("wait")
    stage.until_up()
    job.send_signal(signal.SIGUSR1)
    assert job.wait(20) == 75, stage.log
    assert stage.last == "0: goes on as 78.server"
    kept = stage.run_dir / "job.sh"
    assert stage.requeued == [f"qsub -V -W depend=afterany:77 {kept}"]
    assert kept.read_text() == (tmp_path / "job.sh").read_text()
    more = {
        "PBS_JOBID": "78.server",
        "LIBSUMTREE_RUN_DIR": str(stage.run_dir),
        "LIBSUMTREE_RESTARTS": "1",
    }
    assert stage.start("finish", **more).wait(20) == 0
    assert (stage.run_dir / "mark.78.server.1").read_text() == "finished\n"
