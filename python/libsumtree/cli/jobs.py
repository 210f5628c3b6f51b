"""``libsumtree jobs``: templates for batch schedulers, filled, tried out and handed in."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import CapacityError
from ..files import write_atomically
from ..jobs import places
from ..jobs.check import check, new_task
from ..jobs.errors import CheckError, JobError
from ..jobs.probe import Task, probe
from ..jobs.ranks import run_rank
from ..jobs.render import render
from ..jobs.request import Request, scheduler_here, submission
from ..jobs.site import Site, read_site
from .complaints import launched_rank
from .printing import print_line
from .statuses import REFUSED

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[Any]

_DESCRIPTION = """\
Job templates for batch schedulers, and the sites that fill them.

  libsumtree jobs list
  libsumtree jobs check --site srun-pmix --ranks 6       (in an allocation: salloc -n 6)
  libsumtree jobs render --scheduler slurm --site srun-pmix --ranks 6 apex --seed 0 >job.sh
  libsumtree jobs submit --site srun-pmix replay --capacity 1000000 -- python -m mpi4py my_agent.py

A site is a file that says how ranks are started: a name, looked up in the folders that `list`
shows, or a path. It is sourced by bash, so it must belong to root or you, and nobody else may
be able to write it, or to put another file in its place.
"""

_PROGRAM = """\
PROGRAM is apex OPTION..., or replay OPTION... -- COMMAND..., which runs the replay rank as rank 0
and COMMAND in the others. The job adds --ranks or --actors, --checkpoint-dir and --output-dir.
"""


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the subcommand ``jobs`` and return its parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "jobs",
        help="job templates for Slurm, PBS and LSF: list, render, check, submit",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listed = actions.add_parser(
        "list",
        help="the schedulers and sites there are, and where",
        description="List the schedulers that there are templates for, and the sites in each "
        "folder that --site is looked up in: of two with one name the first counts.",
    )
    listed.add_argument("--json", action="store_true", help="print JSON, for machines")
    listed.set_defaults(run=_list)
    _add_render(actions)
    _add_check(actions)
    _add_submit(actions)
    _add_for_ranks(actions)
    return parser


def main(args: argparse.Namespace) -> int:
    """Do what the arguments ask for; return the exit status.

    Raises
    ------
    JobError
        If a job cannot be what was asked for.
    CheckError
        If a site does not do what a job needs.
    """
    status: int = args.run(args)
    return status


def _add_render(actions: Subparsers) -> None:
    parser = _job_parser(actions, "render", "fill a template: a script that needs only its site")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write here, not to stdout")
    parser.set_defaults(run=_render)


def _add_submit(actions: Subparsers) -> None:
    parser = _job_parser(actions, "submit", "hand a job in; without --really, show what would be")
    parser.add_argument("--really", action="store_true", help="hand it in")
    parser.set_defaults(run=_submit)


def _add_check(actions: Subparsers) -> None:
    parser = actions.add_parser(
        "check",
        help="try a site out: set-up, launcher, MPI, folder, memory, time for a checkpoint",
        description="Run a site's set-up, start ranks with its launcher, and say what they see. "
        "Run it where jobs run: in an allocation. Ends with status 2 if something is not right.",
    )
    _add_site(parser)
    _add_request(parser)
    add = parser.add_argument
    add(
        "--run-dir",
        type=Path,
        metavar="DIR",
        default=Path(),
        help="where the job would write (default: here)",
    )
    add(
        "--capacity",
        type=int,
        metavar="N",
        default=1 << 20,
        help="transitions that the buffer holds (default: 2**20)",
    )
    add(
        "--record-bytes",
        type=int,
        metavar="N",
        default=64,
        help="bytes of a transition (default: 64)",
    )
    add(
        "--timeout",
        type=float,
        metavar="S",
        default=120.0,
        help="seconds that ranks have to start (default: 120)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for machines")
    parser.set_defaults(run=_check)


def _add_for_ranks(actions: Subparsers) -> None:
    """Add what templates and `check` run in every rank; people need not know it."""
    parser = actions.add_parser(
        "rank", description="Run a command of libsumtree as a rank of a job."
    )
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--mark", type=Path, required=True)
    parser.add_argument("program", nargs=argparse.REMAINDER)
    parser.set_defaults(run=_rank)
    parser = actions.add_parser("probe", description="Say what a rank sees.")
    parser.add_argument("task")
    parser.set_defaults(run=_probe)


def _job_parser(actions: Subparsers, name: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=_PROGRAM,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage=f"libsumtree jobs {name} [options] PROGRAM ...",
    )
    parser.add_argument(
        "--scheduler", metavar="NAME", help="slurm, pbs or lsf (default: the one found here)"
    )
    _add_site(parser)
    _add_request(parser)
    add = parser.add_argument
    add(
        "--run-dir",
        metavar="DIR",
        help="where the job writes (default: libsumtree-JOBID where it is handed in)",
    )
    add("--max-restarts", type=int, metavar="N", help="how often it may be requeued (default: 20)")
    add(
        "--directive",
        action="append",
        default=[],
        metavar="OPTION",
        help="a further option of the scheduler, as in --directive=--qos=long; may be given again",
    )
    add("program", nargs=argparse.REMAINDER, metavar="PROGRAM", help="what the job runs; see below")
    return parser


def _add_site(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--site",
        metavar="NAME|FILE",
        help=f"how ranks are started here (default: ${places.SITE_VARIABLE})",
    )


_REQUEST_HELP = {
    "name": "the job's name",
    "ranks": "MPI ranks",
    "nodes": "nodes they are on",
    "minutes": "walltime",
    "lead": "seconds before the walltime is over at which a checkpoint is made",
    "memory": "MiB on each node",
    "gpus": "GPUs on each node",
}


def _add_request(parser: argparse.ArgumentParser) -> None:
    """Add the fields of `Request`; only what was given stands in the namespace."""
    for entry in fields(Request):
        if entry.name in _REQUEST_HELP:
            number = isinstance(entry.default, int)
            shown = f" (default: {entry.default or 'as the scheduler likes'}, or the site's)"
            parser.add_argument(
                f"--{entry.name}",
                type=int if number else str,
                default=argparse.SUPPRESS,
                metavar="N" if number else "NAME",
                help=_REQUEST_HELP[entry.name]
                + (shown if number else f" (default: {entry.default})"),
            )


def _read_request(args: argparse.Namespace) -> tuple[Site, Request]:
    """Return the site, and what was asked for with the site's defaults."""
    named = args.site or os.environ.get(places.SITE_VARIABLE)
    if not named:
        raise JobError(
            f"no site is named: give --site or set {places.SITE_VARIABLE}; see libsumtree jobs list"
        )
    given = {name: value for name, value in vars(args).items() if name in _REQUEST_HELP}
    request = Request(**given, directives=tuple(getattr(args, "directive", ())))
    site = read_site(places.find_site(named), request.ranks)
    return site, site.fill(request, set(given))


def _list(args: argparse.Namespace) -> int:
    if args.json:
        sites = {name: str(path) for name, path in places.sites().items()}
        known = {"templates": str(places.templates()), "schedulers": list(places.schedulers())}
        folders = [str(folder) for folder in places.site_folders()]
        print(json.dumps({**known, "site folders": folders, "sites": sites}, indent=1))
        return 0
    print_line(f"templates  {places.templates()}")
    print(f"           for {', '.join(places.schedulers())}")
    taken = places.sites()
    for folder in places.site_folders():
        print_line(f"sites      {folder}{'' if folder.is_dir() else ' (not there)'}")
        for name, path in taken.items():
            if path.parent == folder:
                print_line(f"           {name:<12} {_described(path)}")
    return 0


def _described(path: Path) -> str:
    try:
        places.refuse_unsafe(path)
    except JobError as error:
        return str(error)
    return places.describe(path)


def _rendered(args: argparse.Namespace) -> tuple[str, str]:
    """Return the scheduler and the script."""
    scheduler = args.scheduler or scheduler_here()
    site, request = _read_request(args)
    settings = {}
    if args.run_dir is not None:
        settings["LIBSUMTREE_RUN_DIR"] = args.run_dir
    if args.max_restarts is not None:
        if args.max_restarts < 0:
            raise JobError(f"--max-restarts is {args.max_restarts}: it must be 0 or more")
        settings["LIBSUMTREE_MAX_RESTARTS"] = str(args.max_restarts)
    program = args.program[1:] if args.program[:1] == ["--"] else args.program
    script = render(scheduler, site.path, request, program, settings)
    _check_program(program, request.ranks)
    return scheduler, script


def _check_program(program: Sequence[str], ranks: int) -> None:
    """Refuse now what the program would refuse when its turn in the queue has come."""
    from . import apex, make_parser

    name, *options = program
    if name == "replay":
        options = ["--ranks", str(ranks), *options[: options.index("--")]]
    given = make_parser().parse_args([name, *options])
    shards = apex.options_of(given).shards if name == "apex" else given.shards
    if ranks < shards + 2:
        raise JobError(f"{name} needs {shards + 2} ranks or more; the job has {ranks}")


def _render(args: argparse.Namespace) -> int:
    _, script = _rendered(args)
    if args.output is None:
        print(script, end="")
    else:
        _write_script(args.output, script.encode())
        print_line(f"written: {args.output}")
    return 0


def _write_script(path: Path, content: bytes) -> None:
    """Write a script that whoever may read it may run; half of one never stands there."""
    if path.exists() and not path.is_file():
        path.write_bytes(content)  # such as /dev/stdout
        return
    path = Path(os.path.realpath(path))
    before = path.stat().st_mode & 0o777 if path.exists() else None
    if before is None:
        write_atomically(path, content, 0o777)
    else:
        mode = before | (before & 0o444) >> 2
        write_atomically(path, content, mode)
        path.chmod(mode)  # whatever the umask is


def _submit(args: argparse.Namespace) -> int:
    scheduler, script = _rendered(args)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="libsumtree-")))
        path = folder / "job.sh"
        path.write_bytes(script.encode())
        command, source = submission(scheduler, path)
        shown = shlex.join(command) + (f" <{source}" if source else "")
        if not args.really:
            print(script)
            print(f"# not handed in; with --really: {shown}")
            return 0
        given = stack.enter_context(source.open()) if source else subprocess.DEVNULL
        try:
            done = subprocess.run(command, stdin=given)
        except OSError as error:
            raise JobError(f"{command[0]} cannot be run: {error.strerror}") from None
    if done.returncode != 0:
        raise JobError(f"{command[0]} refused the job with status {done.returncode}")
    return 0


def _check(args: argparse.Namespace) -> int:
    site, request = _read_request(args)
    request.check("slurm")
    if args.capacity < 1 or args.record_bytes < 1:
        raise CapacityError(
            f"--capacity {args.capacity} and --record-bytes {args.record_bytes} must be 1 or more"
        )
    task = new_task(args.run_dir.absolute(), args.capacity, args.record_bytes, request.gpus)
    found = []
    for finding in check(site.path, request, task, args.timeout):
        found.append(finding)
        if not args.json:
            word = "ok" if finding.good else "FAILED"
            print_line(f"{word:<8}{finding.name:<12}{finding.text}")
    if args.json:
        print(json.dumps([asdict(finding) for finding in found], indent=1), flush=True)
    bad = [finding for finding in found if not finding.good]
    if bad:
        raise CheckError(f"the site {site.path} is not ready: {bad[0].name}: {bad[0].text}")
    if not args.json:
        print_line(f"the site {site.path} is ready for {request.ranks} ranks")
    return 0


def _rank(args: argparse.Namespace) -> int:
    from . import main as command

    program = args.program[1:] if args.program[:1] == ["--"] else args.program
    speak = launched_rank() in (None, 0)
    status = run_rank(args.ranks, args.mark, lambda: command(program), speak)
    return REFUSED if status is None else status


def _probe(args: argparse.Namespace) -> int:
    probe(Task(**json.loads(args.task)))
    return 0
