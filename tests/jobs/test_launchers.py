"""The life of a job under other launchers, module systems and schedulers, with real ranks."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cluster import RANKS, Cluster
from libsumtree.jobs.render import render
from libsumtree.jobs.request import Request

STEPS = 24_000
FINITE = ("apex", "--steps", str(STEPS), "--samples-per-insert", "16", "--batch-size", "128")
AS_ROOT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
}
REQUEUE = '#!/bin/bash\necho "${0##*/} $*" >>"$NOTES"\n(sleep 0.1; kill -TERM "$PPID") &\n'


@pytest.fixture(scope="session")
def pypi_mpich(ground: Path, prefix: Path) -> Path:
    """Give a virtual environment with the MPICH of PyPI, over the installation's packages."""
    folder = ground / "mpich-venv"
    subprocess.run([prefix / "bin" / "python", "-m", "venv", "--without-pip", folder], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    subprocess.run([*pip, "install", "-q", "mpich"], check=True)
    (packages,) = (prefix / "lib").glob("python*/site-packages")
    (ours,) = (folder / "lib").glob("python*/site-packages")
    (ours / "installation.pth").write_text(f"{packages}\n")
    return folder


def signalled_and_finished(cluster: Cluster, site: str, **environment: str) -> None:
    job = cluster.submit(FINITE, site=site, **environment)
    job.until_training()
    cluster.cancel(job, "--batch", "--signal=USR1")
    held = job.until_log(r"going on from \S+\.h5: (\d+) transitions")
    told = job.until_log(r"going on from a checkpoint at ([\d,]+) of")
    assert held[1] == told[1].replace(",", "")
    assert job.ended() == ("COMPLETED", 0), job.log
    assert re.findall(r"^environment steps +([\d,]+)", job.log, re.MULTILINE)[-1] == f"{STEPS:,d}"


def cancelled_with_a_checkpoint(cluster: Cluster, site: str, **environment: str) -> None:
    job = cluster.submit([*FINITE, "--steps", "100000000"], site=site, **environment)
    job.until_training()
    cluster.cancel(job)
    assert job.ended()[0] == "CANCELLED"
    assert job.own_lines()[-1].startswith("0: cancelled, and not requeued"), job.log
    assert list((job.run_dir / "checkpoints").glob("replay-*.h5")), job.log


@pytest.mark.long
def test_mpirun(cluster: Cluster) -> None:
    signalled_and_finished(cluster, "mpirun", **AS_ROOT)
    cancelled_with_a_checkpoint(cluster, "mpirun", **AS_ROOT)


@pytest.mark.long
@pytest.mark.parametrize(
    "launcher", ["srun --mpi=pmi2 --export=ALL", "mpiexec.hydra -n $job_ranks"]
)
def test_mpich_of_pypi(cluster: Cluster, pypi_mpich: Path, launcher: str) -> None:
    site = cluster.site(
        "pypi",
        f'site_launcher="{launcher}"\n'
        f"site_setup() {{ site_load libsumtree && PATH={pypi_mpich}/bin:$PATH; }}\n",
    )
    signalled_and_finished(cluster, site)
    cancelled_with_a_checkpoint(cluster, site)


@pytest.mark.long
def test_environment_modules(cluster: Cluster, environment_modules: str) -> None:
    cluster.modules = environment_modules
    signalled_and_finished(cluster, "srun-pmix")


def run_as(scheduler: str, cluster: Cluster, script: Path, notes: Path) -> subprocess.Popen[bytes]:
    """Start a rendered script as PBS or LSF would, with commands that only note a requeue."""
    nodes = cluster.folder / "nodes"
    nodes.write_text("here\n" * RANKS)
    variables = {
        "pbs": {"PBS_JOBID": "7", "PBS_NODEFILE": str(nodes), "PBS_O_WORKDIR": str(cluster.folder)},
        "lsf": {
            "LSB_JOBID": "7",
            "LSB_DJOB_NUMPROC": str(RANKS),
            "LS_SUBCWD": str(cluster.folder),
        },
    }[scheduler]
    for name in ("qrerun", "brequeue"):
        (cluster.folder / name).write_text(REQUEUE)
        (cluster.folder / name).chmod(0o755)
    path = f"{cluster.folder}:{cluster.slurm.environment['PATH']}"
    with (cluster.folder / "log").open("ab") as log:
        return subprocess.Popen(
            [str(script)],
            env={"PATH": path, **variables, **AS_ROOT, "NOTES": str(notes)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


@pytest.mark.parametrize("scheduler", ["pbs", pytest.param("lsf", marks=pytest.mark.long)])
def test_as_pbs_and_lsf_would(scheduler: str, cluster: Cluster) -> None:
    site = cluster.site(
        "there",
        'site_launcher="mpirun -n $job_ranks"\n'
        f"site_setup() {{ PATH={cluster.prefix}/bin:$PATH; }}\n",
    )
    script, notes = cluster.folder / "job.sh", cluster.folder / "notes"
    script.write_text(render(scheduler, Path(site), Request(ranks=RANKS), FINITE))
    script.chmod(0o755)
    own = cluster.folder / "libsumtree-7" / "job.log"
    log = own if scheduler == "pbs" else cluster.folder / "log"
    job = run_as(scheduler, cluster, script, notes)
    end = time.monotonic() + 60
    while not (log.exists() and re.search(r"  steps ", log.read_text())):
        assert time.monotonic() < end, log.read_text() if log.exists() else "no log"
        time.sleep(0.1)
    job.send_signal(signal.SIGUSR1)
    assert job.wait(60) == 75, log.read_text()
    assert notes.read_text().split() == [{"pbs": "qrerun", "lsf": "brequeue"}[scheduler], "7"]
    assert run_as(scheduler, cluster, script, notes).wait(120) == 0, log.read_text()
    text = log.read_text()
    held = re.search(r"going on from \S+\.h5: (\d+) transitions", text)
    told = re.search(r"going on from a checkpoint at ([\d,]+) of", text)
    assert held
    assert told
    assert held[1] == told[1].replace(",", "")
    assert text.endswith("libsumtree: job 7.1: finished\n")
