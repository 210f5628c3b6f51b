"""A private Slurm: one machine, the loopback interface, two nodes; stopped by process ids.

Needs root and Debian's slurmctld, slurmd, slurm-client and munge. Nothing of a Slurm that the
machine may have is read or touched: configuration, keys, sockets, ports and state are its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

#: Programs and Debian's packages that have them.
PACKAGES = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "srun": "slurm-client",
    "munged": "munge",
}
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
NODES = 2
CPUS = 8
GRACE = 20
KILL_WAIT = 10

_CONFIGURATION = """\
ClusterName=libsumtree-test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmctldPort={port}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
TmpFS={folder}/tmp.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1
SchedulerType=sched/backfill
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
ReturnToService=2
SlurmdParameters=config_overrides
MinJobAge=3600
KillWait={kill_wait}
InactiveLimit=0
SlurmctldTimeout=30
SlurmdTimeout=60
MailProg=/bin/true
{nodes}
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=5 PreemptMode=OFF
PartitionName=scavenge Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE \
GraceTime={grace}
"""


class SlurmError(RuntimeError):
    """The private Slurm cannot be started, or a job did not come to what was waited for."""


def obstacle() -> str | None:
    """Say why a private Slurm cannot be started here; None if it can."""
    if os.geteuid() != 0:
        return "a private Slurm needs root: slurmd starts jobs as their users"
    missing = sorted({p for name, p in PACKAGES.items() if not shutil.which(name, path=_PATH)})
    return f"not installed: apt-get install {' '.join(missing)}" if missing else None


@dataclass
class PrivateSlurm:
    """A Slurm in a folder of its own; a context manager that starts and stops it."""

    folder: Path
    _started: list[tuple[str, int]] = field(default_factory=list)

    def __enter__(self) -> PrivateSlurm:
        why = obstacle()
        if why is not None:
            raise SlurmError(why)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def environment(self) -> dict[str, str]:
        """What a login shell of this cluster has: nothing of the test's own."""
        return {
            "PATH": _PATH,
            "HOME": os.environ.get("HOME", "/root"),
            "LANG": "C.UTF-8",
            "SLURM_CONF": str(self.folder / "slurm.conf"),
        }

    def _start(self) -> None:
        self.folder.chmod(0o755)
        (self.folder / "state").mkdir()
        for node in self.nodes():
            (self.folder / f"spool.{node}").mkdir()
            (self.folder / f"tmp.{node}").mkdir()
            (self.folder / f"tmp.{node}").chmod(0o1777)
        self._configure()
        key, sock = self.folder / "munge.key", self.folder / "munge.socket"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        pid_file, seed = self.folder / "munged.pid", self.folder / "munged.seed"
        log = self.folder / "munged.log"
        files = {"key-file": key, "socket": sock, "pid-file": pid_file, "log-file": log}
        options = [f"--{name}={path}" for name, path in (files | {"seed-file": seed}).items()]
        self._daemon("munged", "munged", ["munged", "--force", "--num-threads=2", *options])
        self._daemon("slurmctld", "slurmctld", ["slurmctld", "-i"])
        self._until("slurmctld answers", lambda: "UP" in self.ask("scontrol", "ping"))
        for node in self.nodes():
            self._daemon(f"slurmd.{node}", "slurmd", ["slurmd", "-N", node])
        self._until("both nodes are idle", self._idle)

    def nodes(self) -> list[str]:
        """Return the names of the nodes; the first is the machine's own, as mpirun needs it."""
        host = socket.gethostname().partition(".")[0]
        return [host, *(f"{host}-{number}" for number in range(1, NODES))]

    def _configure(self) -> None:
        ports = free_ports(NODES + 1)
        host = self.nodes()[0]
        lines = [
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} "
            "RealMemory=4000 State=UNKNOWN"
            for name, port in zip(self.nodes(), ports[1:], strict=True)
        ]
        text = _CONFIGURATION.format(
            host=host,
            folder=self.folder,
            port=ports[0],
            nodes="\n".join(lines),
            kill_wait=KILL_WAIT,
            grace=GRACE,
        )
        (self.folder / "slurm.conf").write_text(text)

    def _daemon(self, name: str, program: str, command: list[str]) -> None:
        """Start a daemon, which puts itself into the background, and note its process id."""
        with (self.folder / f"{name}.err").open("ab") as errors:
            done = subprocess.run(
                command, env=self.environment, stderr=errors, stdin=subprocess.DEVNULL
            )
        pid_file = self.folder / f"{name}.pid"
        if done.returncode != 0:
            raise SlurmError(f"{program} did not start: {self.errors(name)}")
        self._until(
            f"{pid_file} is there", lambda: pid_file.exists() and pid_file.read_text().strip() != ""
        )
        self._started.append((program, int(pid_file.read_text())))

    def errors(self, name: str) -> str:
        """Return the last words of a daemon."""
        texts = [
            p.read_text()
            for p in (self.folder / f"{name}.{e}" for e in ("err", "log"))
            if p.exists()
        ]
        return " | ".join("".join(texts).splitlines()[-5:])

    def _idle(self) -> bool:
        states = self.ask("sinfo", "-h", "-N", "-p", "main", "-o", "%T").split()
        if any(state.startswith(("down", "drain")) for state in states):
            self.ask("scontrol", "update", "NodeName=ALL", "State=RESUME")
        return states == ["idle"] * NODES

    def _until(self, what: str, holds: object, seconds: float = 20.0) -> None:
        end = time.monotonic() + seconds
        while not holds():  # type: ignore[operator]
            if time.monotonic() > end:
                raise SlurmError(
                    f"after {seconds:g} s it is not so that {what}: {self.errors('slurmctld')}"
                )
            time.sleep(0.05)

    def stop(self) -> None:
        """Cancel every job and end the daemons, by process id, the last started first."""
        if any(program == "slurmctld" for program, _ in self._started):
            self.ask("scancel", "--full", "--signal=KILL", "-u", "root")
            self.ask("scancel", "-u", "root")
        while self._started:
            program, pid = self._started.pop()
            end_process(program, pid)

    def ask(self, *command: str) -> str:
        """Run a client command and return what it printed."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=60
        )
        return done.stdout


def free_ports(count: int) -> list[int]:
    """Return numbers of ports that nothing listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [entry.getsockname()[1] for entry in sockets]
    for entry in sockets:
        entry.close()
    return ports


def end_process(program: str, pid: int) -> None:
    """End a process that is still the program; by KILL if it is there after 10 seconds."""
    for number, patience in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)):
        end = time.monotonic() + patience
        if running(pid) != program:
            return
        os.kill(pid, number)
        while running(pid) == program and time.monotonic() < end:
            time.sleep(0.02)


def running(pid: int) -> str:
    """Return the name of the program that a process runs; "" if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    name = text[text.index("(") + 1 : text.rindex(")")]
    return "" if text[text.rindex(")") + 2] == "Z" else name
