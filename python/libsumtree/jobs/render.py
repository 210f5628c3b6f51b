"""Templates filled: one script that needs nothing but its site when it runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import places
from .errors import JobError
from .request import SUBMIT, Request, directives, quote

_DIRECTIVE = re.compile(r"#(SBATCH|PBS|BSUB) ")
_SOURCED = re.compile(r"^# shellcheck source=jobs/body\.sh\n\. .*\n", re.MULTILINE)
_MAIN = re.compile(r'^job_main "\$@"$', re.MULTILINE)
_MINUTES = re.compile(r"^job_minutes=.*$", re.MULTILINE)
PROGRAMS = ("apex", "replay")


def render(
    scheduler: str,
    site: Path,
    request: Request,
    program: Sequence[str],
    settings: Mapping[str, str] | None = None,
) -> str:
    """Return a script for `scheduler`, for a site and a program.

    Parameters
    ----------
    scheduler : str
        ``"slurm"``, ``"pbs"`` or ``"lsf"``.
    site : Path
        The site's file; the script sources it when it runs.
    request : Request
        What is asked of the scheduler.
    program : sequence of str
        ``apex`` or ``replay``, and its arguments.
    settings : mapping of str to str, optional
        Values of the variables that ``jobs/body.sh`` reads, by name.

    Raises
    ------
    JobError
        If a value cannot be, or has a newline in it.
    """
    if scheduler not in SUBMIT:
        raise JobError(f"there is no scheduler {scheduler!r}: there are {', '.join(SUBMIT)}")
    if not program or program[0] not in PROGRAMS:
        given = program[0] if program else "nothing"
        raise JobError(
            f"the program is {given!r}: apex OPTION..., or replay OPTION... -- COMMAND..."
        )
    if program[0] == "replay" and "--" not in program[1:-1]:
        raise JobError("replay needs a command for the other ranks: replay OPTION... -- COMMAND...")
    text, body = places.template(scheduler)
    lines = text.splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if _DIRECTIVE.match(line))
    last = next(i for i in range(first, len(lines)) if not _DIRECTIVE.match(lines[i]))
    rest = "".join(lines[_after_comment(lines, last) :])
    assignments = {
        places.SITE_VARIABLE: str(site),
        "LIBSUMTREE_LEAD": str(request.lead),
        **(settings or {}),
    }
    head = [
        *lines[:first],
        *(line + "\n" for line in directives(scheduler, request)),
        "\n",
        *(f"{name}={quote(value)}\n" for name, value in assignments.items()),
    ]
    return "".join(head) + _fill(rest, body, request, program)


def _after_comment(lines: Sequence[str], start: int) -> int:
    """Return the first line after the comment that says how the bare template is used."""
    return next(i for i in range(start, len(lines)) if not lines[i].startswith("#"))


def _fill(rest: str, body: str, request: Request, program: Sequence[str]) -> str:
    arguments = " ".join(map(quote, program))
    for pattern, text in (
        (_SOURCED, body),
        (_MAIN, f"job_main {arguments}"),
        (_MINUTES, f"job_minutes={request.minutes}"),
    ):
        before, *after = pattern.split(rest)
        rest = text.join([before, *after])
        if (count := len(after)) != 1:
            raise JobError(
                f"the template has {count} lines like {pattern.pattern!r} instead of one"
            )
    return rest
