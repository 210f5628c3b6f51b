"""What a job asks of a scheduler, and how each scheduler spells it."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from .errors import JobError
from .places import SITE_NAME

#: The command that hands a script in, by scheduler; LSF's reads it as its input.
SUBMIT = {"slurm": "sbatch", "pbs": "qsub", "lsf": "bsub"}


@dataclass(frozen=True)
class Request:
    """What a job asks for. The defaults are those that the templates show."""

    name: str = "libsumtree"
    ranks: int = 6
    nodes: int = 0  #: 0: as the scheduler likes; PBS then takes one
    minutes: int = 60
    lead: int = 120  #: seconds before the end at which a checkpoint is asked for
    memory: int = 0  #: MiB on each node; 0: the site's default
    gpus: int = 0  #: on each node
    directives: tuple[str, ...] = ()  #: further options of the scheduler, as in ``--qos=long``

    def check(self, scheduler: str) -> None:
        """Raise unless every value can be.

        Raises
        ------
        JobError
            Naming the value and what would be right.
        """
        if not SITE_NAME.fullmatch(self.name) or self.name.startswith("-"):
            raise JobError(
                f"the job's name is {self.name!r}: letters, digits, '.', '_' and '-' are fine"
            )
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, int) and value < (
                1 if entry.name in ("ranks", "minutes", "lead") else 0
            ):
                raise JobError(f"{entry.name} is {value}: it is too small")
        if self.lead >= 60 * self.minutes:
            raise JobError(
                f"lead is {self.lead} seconds, and the walltime {self.minutes} minutes: "
                "the job would be asked for its checkpoint before it started"
            )
        if self.nodes and self.ranks < self.nodes:
            raise JobError(f"{self.ranks} ranks are fewer than {self.nodes} nodes")
        if scheduler == "pbs" and self.ranks % max(self.nodes, 1):
            raise JobError(
                f"{self.ranks} ranks do not divide evenly among {self.nodes} nodes, as PBS needs"
            )


def directives(scheduler: str, request: Request) -> list[str]:
    """Return the lines that a scheduler reads at the top of a script.

    Raises
    ------
    JobError
        If a directive given by the user is not one line of words.
    """
    request.check(scheduler)
    prefix, spell = _SPELLINGS[scheduler]
    given = (" ".join(map(quote, words(text))) for text in request.directives)
    return [f"#{prefix} {line}" for line in (*spell(request), *given)]


def _slurm(request: Request) -> Iterator[str]:
    yield f"--job-name={request.name}"
    if request.nodes:
        yield f"--nodes={request.nodes}"
    yield f"--ntasks={request.ranks}"
    yield f"--time={_hours(request.minutes)}:00"
    if request.memory:
        yield f"--mem={request.memory}M"
    if request.gpus:
        yield f"--gpus-per-node={request.gpus}"
    yield f"--signal=B:USR1@{request.lead}"
    yield "--requeue"
    yield "--open-mode=append"
    yield "--output=%x-%j.log"


def _pbs(request: Request) -> Iterator[str]:
    nodes = max(request.nodes, 1)
    ranks = request.ranks // nodes
    select = f"select={nodes}:ncpus={ranks}:mpiprocs={ranks}"
    if request.memory:
        select += f":mem={request.memory}mb"
    if request.gpus:
        select += f":ngpus={request.gpus}"
    yield f"-N {request.name}"
    yield f"-l {select}"
    yield f"-l walltime={_hours(request.minutes)}:00"
    yield "-j oe"
    yield "-r y"


def _lsf(request: Request) -> Iterator[str]:
    yield f"-J {request.name}"
    yield f"-n {request.ranks}"
    if request.nodes:
        yield f"-R 'span[ptile={-(-request.ranks // request.nodes)}]'"
    yield f"-W {_hours(request.minutes)}"
    if request.memory:
        yield f"-R 'rusage[mem={request.memory}MB/host]'"
    if request.gpus:
        yield f"-gpu 'num={request.gpus}/host'"
    yield "-wa USR1"
    yield f"-wt {-(-request.lead // 60)}"
    yield "-r"
    yield f"-o {request.name}-%J.log"


_SPELLINGS: dict[str, tuple[str, Callable[[Request], Iterator[str]]]] = {
    "slurm": ("SBATCH", _slurm),
    "pbs": ("PBS", _pbs),
    "lsf": ("BSUB", _lsf),
}


def _hours(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def quote(text: str) -> str:
    """Return a text as one word of a shell, on one line.

    Raises
    ------
    JobError
        If there is a newline in it, or another control character, or what is not UTF-8.
    """
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        raise JobError(f"{text!r:.80} has a newline or another control character in it")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise JobError(f"{text!r:.80} is not UTF-8")
    return shlex.quote(text)


def words(text: str) -> list[str]:
    """Split a directive into words, as a shell does.

    Raises
    ------
    JobError
        If a quote is not closed, or nothing is there.
    """
    quote(text)
    try:
        found = shlex.split(text)
    except ValueError as error:
        raise JobError(f"the directive {text!r} cannot be read: {error}") from None
    if not found or not found[0].startswith("-"):
        raise JobError(f"the directive {text!r} is no option of a scheduler: it begins with '-'")
    return found


def scheduler_here() -> str:
    """Return the scheduler whose command is on the path.

    Raises
    ------
    JobError
        If none or several are.
    """
    here = [name for name, command in SUBMIT.items() if shutil.which(command)]
    if len(here) != 1:
        found = " and ".join(here) or "none of " + ", ".join(SUBMIT.values())
        raise JobError(f"name the --scheduler: {found} can be found here")
    return here[0]


def submission(scheduler: str, script: Path) -> tuple[Sequence[str], Path | None]:
    """Return the command that hands a script in, and the file that it reads as its input."""
    command = SUBMIT[scheduler]
    return ([command], script) if scheduler == "lsf" else ([command, str(script)], None)
