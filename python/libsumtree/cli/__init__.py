"""The command line: ``libsumtree`` and its commands."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType

from ..errors import SumTreeError
from . import (
    apex,
    bench,
    checkpoint,
    completion,
    info,
    jobs,
    replay,
    stats,
    tune,
    verify,
)
from .complaints import (
    Parser,
    UsageError,
    abort_job,
    complain,
    explain,
    launched_rank,
    text_of,
    text_of_fault,
)
from .help import complete_helps
from .printing import any_text
from .statuses import FAULT, INTERRUPTED, REFUSED, UNREAD

COMMANDS: Mapping[str, ModuleType] = {
    "info": info,
    "verify": verify,
    "tune": tune,
    "bench": bench,
    "checkpoint": checkpoint,
    "replay": replay,
    "apex": apex,
    "stats": stats,
    "jobs": jobs,
    "completion": completion,
}


class _Version(argparse.Action):
    """Print the version, which is looked up when it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        # No option of a command is called version.
        nowhere = argparse.SUPPRESS
        super().__init__(option_strings, dest=nowhere, default=nowhere, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print it and exit."""
        from .. import __version__

        print(f"libsumtree {__version__}")
        parser.exit()


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of all commands."""
    parser = Parser(prog="libsumtree", description="Prioritized replay: exact, fast, deployable.")
    parser.add_argument("--version", action=_Version, help="show program's version number and exit")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS.values():
        command.add_parser(commands)
    complete_helps(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    arguments : sequence of str, optional
        Instead of the process's own.

    Returns
    -------
    int
        The exit status, see `libsumtree.cli.statuses`.
    """
    with any_text():
        return _run(sys.argv[1:] if arguments is None else list(arguments))


def _run(given: list[str]) -> int:
    try:
        options = make_parser().parse_args(given)
    except UsageError as error:
        return _refuse(error, given)
    try:
        status: int = COMMANDS[options.command].main(options)
        sys.stdout.flush()
    except BrokenPipeError:
        return _unread()
    except KeyboardInterrupt:
        return INTERRUPTED
    except (SumTreeError, OSError, ImportError) as error:
        return _fail(error, text_of(error), REFUSED, options)
    except Exception as error:
        return _fail(error, text_of_fault(error), FAULT, options)
    return status


def _fail(error: Exception, text: str, status: int, options: argparse.Namespace) -> int:
    """Say what is wrong; as a rank among others that would wait for this one, end them all."""
    if getattr(options, "debug", False):
        explain(error)
    complain(text)
    if _among_others():
        abort_job(status)
    return status


def _among_others() -> bool:
    """Whether this process is a rank of a job whose MPI it has started and not ended."""
    loaded = sys.modules.get("mpi4py.MPI")
    if loaded is None or not loaded.Is_initialized() or loaded.Is_finalized():
        return False
    return bool(loaded.COMM_WORLD.Get_size() > 1)


def _unread() -> int:
    """End without a word: whoever read the output, such as ``head``, wants no more of it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
    return UNREAD


def _refuse(error: UsageError, given: Sequence[str]) -> int:
    """Say what is wrong. The ranks of ``apex`` all find it; ``replay`` has others beside it."""
    alone = "replay" in given[:1]
    if alone or not launched_rank():
        complain(str(error))
    if alone and launched_rank() is not None:
        abort_job()
    return REFUSED
