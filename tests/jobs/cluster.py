"""Jobs on the private Slurm, handed in as a user of a site does: module load, then sbatch."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slurm import PrivateSlurm

LMOD = ". /usr/share/lmod/lmod/init/bash"
#: Ape-X that would run for hours, in small steps that leave the cores to others.
ENDLESS = ("apex", "--steps", "100000000", "--batch-size", "64", "--hidden", "32,32")
RANKS = 4


@dataclass
class Job:
    """One job of the private Slurm."""

    cluster: Cluster
    number: str
    name: str = "libsumtree"

    @property
    def log(self) -> str:
        """What the job has written so far."""
        path = self.cluster.folder / f"{self.name}-{self.number}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def run_dir(self) -> Path:
        """Where the job works unless told otherwise."""
        return self.cluster.folder / f"libsumtree-{self.number}"

    def facts(self) -> dict[str, str]:
        """What Slurm says about the job."""
        text = self.cluster.slurm.ask("scontrol", "-o", "show", "job", self.number)
        return dict(part.split("=", 1) for part in text.split() if "=" in part)

    def until_log(self, pattern: str, seconds: float = 60.0) -> re.Match[str]:
        """Wait until the log has a match, and return it."""
        end = time.monotonic() + seconds
        while (match := re.search(pattern, self.log, re.MULTILINE)) is None:
            assert time.monotonic() < end, f"no {pattern!r} within {seconds:g} s in:\n{self.log}"
            time.sleep(0.1)
        return match

    def until_training(self, restart: int = 0) -> None:
        """Wait until the ranks of a start have trained for a while."""
        self.until_log(rf"(?s)job {self.number}\.{restart}: starts.*^ +[0-9.]+ s  steps ")

    def until_state(self, *states: str, seconds: float = 60.0) -> dict[str, str]:
        """Wait until the job is in one of these states; return the facts."""
        end = time.monotonic() + seconds
        while (facts := self.facts())["JobState"] not in states:
            assert time.monotonic() < end, f"{facts['JobState']}, not {states}:\n{self.log}"
            time.sleep(0.1)
        return facts

    def ended(self, seconds: float = 90.0) -> tuple[str, int]:
        """Wait for the end; return Slurm's state and the exit status of the script."""
        facts = self.until_state("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", seconds=seconds)
        return facts["JobState"], int(facts["ExitCode"].partition(":")[0])

    def own_lines(self) -> list[str]:
        """The lines of the log that the template itself wrote, without their beginning."""
        return re.findall(rf"^libsumtree: job {self.number}\.(\d+: .*)$", self.log, re.MULTILINE)

    def rank(self, number: int) -> int:
        """Return the process id of a rank."""
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                command = (folder / "cmdline").read_bytes()
                entries = (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            mine = f"SLURM_JOB_ID={self.number}".encode() in entries
            if mine and b"mpi4py" in command and f"PMIX_RANK={number}".encode() in entries:
                return int(folder.name)
        raise AssertionError(f"no rank {number} of job {self.number} is running")


@dataclass
class Cluster:
    """The private Slurm, an installation, and a folder to hand jobs in from."""

    slurm: PrivateSlurm
    prefix: Path
    folder: Path
    modules: str = LMOD  #: what makes the command `module`
    jobs: list[Job] = field(default_factory=list)

    def login(self, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run commands as a login shell of the site, with the module libsumtree loaded."""
        modulefiles = self.prefix / "share" / "modulefiles"
        opening = f"{self.modules}\nmodule use {modulefiles}\nmodule load libsumtree || exit 1\n"
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-c", opening + script],
            cwd=self.folder,
            env={**self.slurm.environment, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
        )

    def submit(
        self,
        program: Sequence[str],
        options: Sequence[str] = (),
        site: str = "srun-pmix",
        **environment: str,
    ) -> Job:
        """Hand the installed template in, and return the job."""
        given = shlex.join([f"--ntasks={RANKS}", *options])
        done = self.login(
            f'sbatch --parsable {given} "$LIBSUMTREE_JOBS/slurm/job.sh" {shlex.join(program)}',
            LIBSUMTREE_SITE=site,
            **environment,
        )
        assert done.returncode == 0, done.stderr
        return self.known(done.stdout)

    def known(self, number: str, name: str = "libsumtree") -> Job:
        """Return a job by its number; it is cancelled at the end."""
        job = Job(self, number.strip(), name)
        self.jobs.append(job)
        return job

    def cancel(self, job: Job, *options: str) -> None:
        """Call scancel for the job."""
        self.slurm.ask("scancel", *options, job.number)

    def site(self, name: str, text: str) -> str:
        """Write a site's file and return its path."""
        path = self.folder / f"{name}.sh"
        path.write_text(text)
        path.chmod(0o644)
        return str(path)

    def sweep(self) -> None:
        """Cancel what is left of the jobs, and end their processes."""
        left = [job for job in self.jobs if job.facts()["JobState"] in ("PENDING", "RUNNING")]
        for job in left:
            self.cancel(job)
        for job in left:
            job.until_state("CANCELLED", "COMPLETED", "FAILED", seconds=60)


def kill(process: int) -> None:
    """Kill one process, as the kernel does when memory runs out."""
    os.kill(process, signal.SIGKILL)
