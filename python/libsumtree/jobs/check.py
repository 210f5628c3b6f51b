"""Whether a site does what a job needs: set-up, launcher, folder and memory are really tried."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from . import places
from .probe import TAG, Sight, Task
from .request import Request

#: A job that is asked for a checkpoint must also stop, and the launcher end.
_STOPPING_SECONDS = 30.0
_SCRIPT = """
. "$1" || exit 70
job_id=check job_restarts=0 job_ranks=$2 job_scheduler=check job_minutes=0 job_timer=no
job_site
echo "$LIBSUMTREE_CHECK_WORD launcher ${job_launch[*]}"
echo "$LIBSUMTREE_CHECK_WORD python $job_python"
exec "${job_launch[@]}" "$job_python" -m libsumtree jobs probe "$3"
"""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    good: bool
    text: str


@dataclass(frozen=True)
class Outcome:
    """What came of starting the probes."""

    status: int | None  #: of the site's set-up and launcher; None if they took too long
    output: str
    sights: Sequence[Sight]
    facts: dict[str, str]


def check(site: Path, request: Request, task: Task, timeout: float) -> Iterator[Finding]:
    """Try a site out, and give what was found, one thing after the other.

    Parameters
    ----------
    site : Path
        The site's file, found safe before.
    request : Request
        The job that is meant: its ranks, walltime and lead.
    task : Task
        Where the job would run, and the size of its buffer.
    timeout : float
        Seconds that set-up and launcher have.
    """
    yield Finding("site", True, f"{site}, which others cannot write")
    outcome = start(site, request.ranks, task, timeout)
    launched = "launcher" in outcome.facts
    yield _set_up(outcome)
    if not launched:
        return
    yield ranks(outcome, request.ranks, timeout)
    if not outcome.sights:
        return
    yield _library(outcome.sights)
    yield _package(outcome.sights)
    yield _run_directory(outcome.sights, task)
    first = next((sight for sight in outcome.sights if sight.write_rate >= 0 or sight.memory), None)
    if first is not None:
        yield _memory(first, task)
        if first.write_rate >= 0:
            yield _walltime(first, task, request)
    if task.gpus:
        yield _gpus(outcome.sights, task.gpus)


def start(site: Path, ranks: int, task: Task, timeout: float) -> Outcome:
    """Run the site's set-up and start the probes with its launcher."""
    environment = {
        **os.environ,
        places.SITE_VARIABLE: str(site),
        "LIBSUMTREE_CHECK_WORD": task.word,
    }
    arguments = [str(places.body()), str(ranks), json.dumps(asdict(task))]
    process = subprocess.Popen(
        ["bash", "--noprofile", "--norc", "-c", _SCRIPT, "check", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
        start_new_session=True,
    )
    status: int | None = None
    try:
        output, _ = process.communicate(timeout=timeout)
        status = process.returncode
    except subprocess.TimeoutExpired:
        output = _end(process)
    except BaseException:  # Ctrl-C, which a session of its own does not hear
        _end(process)
        raise
    return Outcome(status, output, _sights(output, task.word), _facts(output, task.word))


def _end(process: subprocess.Popen[str]) -> str:
    """End the launcher and its ranks; return what they had printed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=10)[0]
    return ""


def _sights(output: str, word: str) -> list[Sight]:
    lines = re.findall(rf"{TAG} {re.escape(word)} (\{{.*?\}})", output)
    return sorted((Sight(**json.loads(line)) for line in lines), key=lambda sight: sight.rank)


def _facts(output: str, word: str) -> dict[str, str]:
    return dict(re.findall(rf"^{re.escape(word)} (\w+) (.*)$", output, re.MULTILINE))


def _last_words(outcome: Outcome) -> str:
    lines = [line.strip() for line in outcome.output.splitlines() if line.strip()]
    own = [line for line in lines if not line.startswith((TAG, *outcome.facts))]
    named = [line.partition("0: ")[2] for line in own if line.startswith("libsumtree: job check.")]
    return (named or own or ["nothing was printed"])[-1]


def _set_up(outcome: Outcome) -> Finding:
    if "launcher" not in outcome.facts:
        cause = "it took too long" if outcome.status is None else _last_words(outcome)
        return Finding("set-up", False, cause)
    return Finding("set-up", True, f"{outcome.facts['launcher']}; {outcome.facts.get('python')}")


def ranks(outcome: Outcome, asked: int, timeout: float) -> Finding:
    """Tell whether the launcher started one world of as many ranks as asked."""
    sights = outcome.sights
    sizes = {sight.size for sight in sights}
    if not sights:
        cause = f"in {timeout:g} s" if outcome.status is None else f"status {outcome.status}"
        return Finding("ranks", False, f"no rank came up ({cause}): {_last_words(outcome)}")
    if len(sights) > 1 and sizes == {1}:
        return Finding("ranks", False, _singletons(sights))
    if len(sights) != asked or sizes != {asked} or {s.rank for s in sights} != set(range(asked)):
        shown = ", ".join(map(str, sorted(sizes)))
        return Finding(
            "ranks", False, f"{asked} were asked for, {len(sights)} came up, in a world of {shown}"
        )
    if outcome.status != 0:
        return Finding(
            "ranks", False, f"the launcher ended with {outcome.status}: {_last_words(outcome)}"
        )
    hosts = {sight.host for sight in sights}
    return Finding(
        "ranks", True, f"{asked} in one world, on {len(hosts)} node{'s'[: len(hosts) != 1]}"
    )


def _singletons(sights: Sequence[Sight]) -> str:
    library, pmi = sights[0].library, sights[0].pmi
    if pmi == "PMIX_RANK" and "Open MPI" not in library:
        remedy = "this MPI does not speak PMIx: use srun --mpi=pmi2, or its own mpiexec"
    elif pmi == "PMI_RANK" and "Open MPI" in library:
        remedy = "Open MPI does not speak this launcher's PMI: use srun --mpi=pmix, or mpirun"
    else:
        remedy = "use the launcher of the MPI that mpi4py loads"
    return (
        f"{len(sights)} silent singletons: each process is a world of its own. "
        f"mpi4py loads {library}; {remedy}"
    )


def _library(sights: Sequence[Sight]) -> Finding:
    found = {f"{sight.library}, mpi4py {sight.mpi4py}" for sight in sights}
    text = " and ".join(sorted(found))
    return Finding("MPI", len(found) == 1, text if len(found) == 1 else f"ranks differ: {text}")


def _package(sights: Sequence[Sight]) -> Finding:
    from importlib.metadata import version

    here = version("libsumtree")
    others = {sight.package for sight in sights} - {here}
    if others:
        return Finding(
            "package", False, f"ranks have {', '.join(sorted(others))}; this command is {here}"
        )
    return Finding("package", True, f"libsumtree {here} in every rank")


def _run_directory(sights: Sequence[Sight], task: Task) -> Finding:
    for sight in sights:
        if sight.run_dir:
            return Finding(
                "directory",
                False,
                f"{task.run_dir} cannot be written on {sight.host}: {sight.run_dir}",
            )
    return Finding("directory", True, f"{task.run_dir} can be written by every rank")


def _memory(sight: Sight, task: Task) -> Finding:
    buffer = f"a buffer of {task.capacity:,d} records of {task.record_bytes:,d} bytes"
    if sight.memory:
        return Finding("memory", False, f"{buffer}: {sight.memory}")
    return Finding("memory", True, f"{buffer} fits on {sight.host}")


def _walltime(sight: Sight, task: Task, request: Request) -> Finding:
    size, rate = task.checkpoint_bytes, sight.write_rate
    seconds = size / rate
    text = f"{size / 1e6:,.0f} MB at {rate / 1e6:,.0f} MB/s: {seconds:.0f} s"
    needed = seconds + _STOPPING_SECONDS
    if needed > request.lead:
        return Finding(
            "checkpoint",
            False,
            f"{text}, too long: of the lead of {request.lead} s, "
            f"{_STOPPING_SECONDS:g} s are for stopping; use --lead {int(2 * needed)}",
        )
    return Finding("checkpoint", True, f"{text}, within the lead of {request.lead} s")


def _gpus(sights: Sequence[Sight], wanted: int) -> Finding:
    seen = max(sight.gpus for sight in sights)
    return Finding("GPU", seen >= wanted, f"{max(seen, 0)} of {wanted} can be seen by rank 0")


def new_task(run_dir: Path, capacity: int, record_bytes: int, gpus: int) -> Task:
    """Return a task with a word of its own."""
    return Task(secrets.token_hex(8), str(run_dir), capacity, record_bytes, gpus)
