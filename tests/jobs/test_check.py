"""`libsumtree jobs` on a real Slurm: good sites pass, bad ones are named, jobs are handed in."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from cluster import RANKS, Cluster


def check(cluster: Cluster, *options: str) -> subprocess.CompletedProcess[str]:
    words = " ".join(options)
    return cluster.login(
        f"salloc -Q -n {RANKS} libsumtree jobs check --ranks {RANKS} --timeout 60 {words}"
    )


def failed(done: subprocess.CompletedProcess[str]) -> set[str]:
    """Return the names of what was found wrong."""
    assert done.returncode == 2, done
    assert len(re.findall("^libsumtree: error: ", done.stderr, re.MULTILINE)) == 1
    return set(re.findall(r"^FAILED +(\S+)", done.stdout, re.MULTILINE))


def test_a_good_site_is_ready(cluster: Cluster) -> None:
    done = check(cluster, "--site", "srun-pmix", "--run-dir", str(cluster.folder))
    assert done.returncode == 0, done
    assert "FAILED" not in done.stdout
    assert f"{RANKS} in one world, on 1 node" in done.stdout
    assert "Open MPI" in done.stdout
    assert done.stdout.endswith(f"is ready for {RANKS} ranks\n")
    assert not list(cluster.folder.iterdir())


def test_silent_singletons_are_found(cluster: Cluster, mpich: Path) -> None:
    setup = f"site_setup() {{ export LD_LIBRARY_PATH={mpich}; site_load libsumtree; }}\n"
    bad = cluster.site("bad", f"site_launcher='srun --mpi=pmix --export=ALL'\n{setup}")
    good = cluster.site("good", f"site_launcher='srun --mpi=pmi2 --export=ALL'\n{setup}")
    done = check(cluster, "--site", bad)
    assert failed(done) == {"ranks"}
    assert f"{RANKS} silent singletons" in done.stderr
    assert "use srun --mpi=pmi2" in done.stderr
    remedied = check(cluster, "--site", good)
    assert remedied.returncode == 0, remedied


def test_what_does_not_suffice_is_named(cluster: Cluster) -> None:
    done = check(
        cluster, "--site=srun-pmix", "--run-dir=/proc", "--gpus=9", "--capacity=1000000000000"
    )
    assert failed(done) == {"directory", "memory", "GPU"}
    few = check(cluster, "--site=srun-pmix", f"--ranks={RANKS + 1}")
    assert failed(few) == {"ranks"}
    slow = check(cluster, "--site=srun-pmix", "--lead=20")
    assert failed(slow) == {"checkpoint"}
    assert "use --lead" in slow.stderr


def test_a_set_up_that_fails_and_a_launcher_that_hangs(cluster: Cluster) -> None:
    unknown = cluster.site(
        "unknown", "site_launcher=srun\nsite_setup() { site_load libsumtree no-such-module; }\n"
    )
    done = check(cluster, "--site", unknown)
    assert failed(done) == {"set-up"}
    assert "the module no-such-module cannot be loaded" in done.stderr
    hanging = cluster.site("hanging", "site_launcher='sleep 600'\n")
    done = check(cluster, "--site", hanging, "--timeout", "1")
    assert failed(done) == {"ranks"}


def test_submit_is_a_dry_run_unless_told(cluster: Cluster) -> None:
    program = "apex --steps 3000 --samples-per-insert 16 --batch-size 128"
    line = f"libsumtree jobs submit --site srun-pmix --ranks {RANKS} --name quick {{}} {program}"
    dry = cluster.login(line.format(""))
    assert dry.returncode == 0, dry
    assert "# not handed in" in dry.stdout
    assert cluster.slurm.ask("squeue", "-h") == ""
    done = cluster.login(line.format("--really"))
    number = re.fullmatch(r"Submitted batch job (\d+)\n", done.stdout)
    assert number, done
    job = cluster.known(number[1], "quick")
    assert job.ended() == ("COMPLETED", 0), job.log
    assert job.log.endswith(f"libsumtree: job {job.number}.0: finished\n")


AGENT = """\
import contextlib
import numpy as np
from mpi4py import MPI
from libsumtree.errors import ReplayStopped
from libsumtree.replay import ActorClient, LearnerClient

comm = MPI.COMM_WORLD
record = np.dtype([("value", "<f8")])
if comm.rank == 1:
    with LearnerClient(comm, record) as learner:
        for _ in range(20):
            drawn = learner.sample(8)
            learner.update_priorities(drawn.ids, drawn.transitions["value"])
        learner.stop()
    print("learner drew 20 batches", flush=True)
else:
    with ActorClient(comm, record) as actor, contextlib.suppress(ReplayStopped):
        while not actor.stopping:
            actor.add(np.ones(10, record), np.ones(10))
"""


def test_own_learners_and_actors_run_beside_the_replay_rank(cluster: Cluster) -> None:
    agent = cluster.folder / "agent.py"
    agent.write_text(AGENT)
    program = ["replay", "--capacity", "1000", "--", "python", "-m", "mpi4py", str(agent)]
    job = cluster.submit(program)
    assert job.ended() == ("COMPLETED", 0), job.log
    assert "learner drew 20 batches" in job.log
    assert job.own_lines()[-1] == "0: finished"
    assert list((job.run_dir / "checkpoints").glob("replay-*.h5"))
