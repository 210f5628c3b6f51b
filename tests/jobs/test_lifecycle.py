"""A job's whole life on a real Slurm: signalled, cancelled, preempted, killed, never started."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest

from cluster import ENDLESS, Cluster, kill
from libsumtree import PrioritizedReplayBuffer

# Several times as long as a line of progress takes to come, on a fast machine too.
STEPS = 100_000
FINITE = ("apex", "--steps", str(STEPS), "--samples-per-insert", "16", "--batch-size", "128")


def test_signalled_resumes_at_the_same_step_and_finishes(cluster: Cluster) -> None:
    job = cluster.submit(FINITE)
    job.until_training()
    cluster.cancel(job, "--batch", "--signal=USR1")
    resumed = job.until_log(r"going on from (\S+\.h5): (\d+) transitions")
    told = job.until_log(r"going on from a checkpoint at ([\d,]+) of")
    held = PrioritizedReplayBuffer.load(resumed[1])
    assert int(resumed[2]) == int(told[1].replace(",", "")) == held.inserted < STEPS
    stopped = re.search(r"^environment steps +([\d,]+)", job.log, re.MULTILINE)
    assert stopped
    assert held.inserted >= int(stopped[1].replace(",", ""))
    assert job.ended(seconds=240.0) == ("COMPLETED", 0)
    assert job.facts()["Restarts"] == "1"
    assert re.findall(r"^environment steps +([\d,]+)", job.log, re.MULTILINE)[-1] == f"{STEPS:,d}"
    assert [line.partition(",")[0] for line in job.own_lines() if "starts" not in line] == [
        "0: signalled (USR1): asking the ranks for a checkpoint",
        "0: stopped (SIGUSR1): requeueing",
        "1: finished",
    ]
    marks = {path.name: path.read_text() for path in job.run_dir.glob("mark.*")}
    assert marks == {
        f"mark.{job.number}.0": "stopped SIGUSR1\n",
        f"mark.{job.number}.1": "finished\n",
    }
    assert stat.S_IMODE(job.run_dir.stat().st_mode) == 0o700


def test_a_signal_to_the_ranks_alone_requeues_too_until_restarts_are_used_up(
    cluster: Cluster,
) -> None:
    job = cluster.submit(ENDLESS, LIBSUMTREE_MAX_RESTARTS="1")
    job.until_training()
    cluster.cancel(job, "--signal=USR1")
    job.until_training(restart=1)
    cluster.cancel(job, "--signal=USR1")
    assert job.ended() == ("FAILED", 75)
    assert job.own_lines()[-1].startswith("1: stopped, and not requeued: it was restarted 1 times")


def test_preempted_goes_on_after_the_urgent_job(cluster: Cluster) -> None:
    nodes = cluster.slurm.nodes()
    job = cluster.submit(ENDLESS, ["--partition=scavenge", f"--nodelist={nodes[1]}"])
    job.until_training()
    done = cluster.login(
        f"sbatch --parsable -p urgent --exclusive -w {nodes[1]} -o /dev/null --wrap 'sleep 1'"
    )
    urgent = cluster.known(done.stdout)
    job.until_log(r"stopped \(SIGTERM\): requeueing")
    assert urgent.ended() == ("COMPLETED", 0)
    job.until_log(r"going on from a checkpoint at [\d,]+ of")
    cluster.cancel(job)
    assert job.ended()[0] == "CANCELLED"


@pytest.mark.long
def test_walltime_leads_to_a_requeue(cluster: Cluster) -> None:
    job = cluster.submit(ENDLESS, ["--time=1", "--signal=B:USR1@50"])
    job.until_log(r"job \d+\.0: signalled \(USR1\)", seconds=90)
    job.until_log(r"job \d+\.1: starts")


def test_cancelled_leaves_a_checkpoint_and_is_not_requeued(cluster: Cluster) -> None:
    job = cluster.submit(ENDLESS)
    job.until_training()
    cluster.cancel(job)
    assert job.ended()[0] == "CANCELLED"
    last = job.own_lines()[-1]
    assert last.startswith("0: cancelled, and not requeued; a checkpoint was written")
    newest = max((job.run_dir / "checkpoints").glob("replay-*.h5"))
    assert PrioritizedReplayBuffer.load(newest).inserted > 0
    assert job.facts()["Restarts"] == "0"


def test_a_killed_replay_rank_is_a_failure_and_a_new_job_goes_on(cluster: Cluster) -> None:
    job = cluster.submit([*ENDLESS, "--checkpoint-interval", "1"])
    job.until_training()
    kill(job.rank(0))
    state, status = job.ended()
    assert (state, status) == ("FAILED", 137)
    assert job.own_lines()[-1] == "0: failed: the launcher ended with status 137 (see above)"
    again = cluster.submit(ENDLESS, LIBSUMTREE_RUN_DIR=str(job.run_dir))
    again.until_log(r"going on from a checkpoint at [\d,]+ of")
    cluster.cancel(again)
    assert again.ended()[0] == "CANCELLED"
    names = {path.name for path in job.run_dir.glob("mark.*")}
    assert names <= {f"mark.{again.number}.0"}


def test_singletons_are_refused_with_one_line(cluster: Cluster, mpich: Path) -> None:
    site = cluster.site(
        "singletons",
        "site_launcher='srun --mpi=pmix --export=ALL'\n"
        f"site_setup() {{ export LD_LIBRARY_PATH={mpich}; site_load libsumtree; }}\n",
    )
    job = cluster.submit(ENDLESS, site=site)
    assert job.ended() == ("FAILED", 2)
    errors = [line for line in job.log.splitlines() if line.startswith("libsumtree: error")]
    assert len(errors) == 1
    assert "the launcher started 1 rank where 4 were asked for" in errors[0]
    assert job.own_lines()[-1] == "0: failed: the launcher ended with status 2 (see above)"


def test_an_unknown_module_ends_the_job_before_it_starts(cluster: Cluster) -> None:
    site = cluster.site(
        "unknown",
        "site_launcher='srun --mpi=pmix'\nsite_setup() { site_load libsumtree no-such-module; }\n",
    )
    job = cluster.submit(ENDLESS, site=site)
    assert job.ended() == ("FAILED", 78)
    assert job.own_lines() == [
        f"0: the set-up of the site {site} failed: the module no-such-module cannot be loaded: "
        "see module avail"
    ]


def test_a_run_directory_that_cannot_be_written(cluster: Cluster) -> None:
    """Root can write anywhere but where the kernel lets nobody: into this folder of mode 0500."""
    closed = Path("/proc/tty/driver")
    there = cluster.submit(ENDLESS, LIBSUMTREE_RUN_DIR=str(closed))
    assert there.ended() == ("FAILED", 78)
    assert there.own_lines() == [f"0: the run directory {closed} cannot be written"]
    new = cluster.submit(ENDLESS, LIBSUMTREE_RUN_DIR=str(closed / "new"))
    assert new.ended() == ("FAILED", 78)
    assert new.own_lines() == [f"0: the run directory {closed / 'new'} cannot be made"]
