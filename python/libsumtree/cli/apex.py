"""``libsumtree apex``: train an Ape-X DQN agent, or play a policy that one has saved."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..apex.agreement import AgreedError
from ..apex.errors import OptionError
from ..apex.options import ApexOptions, flag, option_fields, read_options
from ..apex.policy import evaluate_policy
from ..apex.report import last_line
from ..apex.run import refuse, run
from .complaints import complain, explain
from .statuses import REFUSED

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[Any]

_DESCRIPTION = """\
Train an Ape-X DQN agent (Horgan et al., 2018): one replay rank, one learner, N actors.

  mpiexec -n 6 python -m mpi4py -m libsumtree apex --actors 4 --seed 0
  python -m libsumtree apex --evaluate apex-output/policy.npz

The first line trains, in N + 2 ranks, and saves the best policy and a picture of the learning
curve. The second plays a saved policy, in one process without MPI. The last line printed is
"greedy mean return X over 20 evaluation seeds"; those seeds are never trained on.
"""


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the subcommand ``apex`` and return its parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "apex",
        help="train or play an Ape-X DQN agent",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        # Only what was given stands in the namespace: defaults are those of ApexOptions.
        argument_default=argparse.SUPPRESS,
    )
    # Values stay text here: main() reads them, so that under mpiexec one rank speaks for all.
    for name, metavar, text, default in option_fields():
        shown = f"{text} (default: {default})" if default else text
        parser.add_argument(flag(name), metavar=metavar, help=shown)
    parser.add_argument(
        "--evaluate",
        type=Path,
        metavar="POLICY",
        help="play this saved policy on the evaluation seeds; goes with --network and --env only",
    )
    return parser


def main(args: argparse.Namespace) -> int:
    """Do what the arguments ask for; return the exit status.

    Raises
    ------
    SumTreeError, OSError
        If something goes wrong in this rank alone, once the job runs.
    """
    given: dict[str, Any] = _texts_of(args)
    try:
        if "evaluate" in given:
            _evaluate(**given)
        else:
            _train(given)
    except AgreedError as error:
        if getattr(args, "debug", False) and error.__cause__ is not None:
            explain(error.__cause__)
        _fail_together(error)
        return REFUSED
    return 0


def options_of(args: argparse.Namespace) -> ApexOptions:
    """Return the options that were given, with defaults for the others; not checked yet.

    Raises
    ------
    OptionError
        If one has no value of its kind.
    """
    texts = _texts_of(args)
    texts.pop("evaluate", None)
    return read_options(texts)


def _texts_of(args: argparse.Namespace) -> dict[str, str]:
    names = {name for name, *_ in option_fields()} | {"evaluate"}
    return {name: value for name, value in vars(args).items() if name in names}


def _train(texts: dict[str, str]) -> None:
    try:
        options = read_options(texts)
    except OptionError as error:
        refuse(error)
    run(options)


def _evaluate(
    evaluate: Path, network: str | None = None, env: str | None = None, **others: Any
) -> None:
    if others:
        flags = ", ".join(flag(name) for name in sorted(others))
        raise OptionError(f"--evaluate plays a saved policy and cannot go with {flags}")
    print(last_line(evaluate_policy(evaluate, network, env)), flush=True)


def _fail_together(error: AgreedError) -> None:
    """Let one rank speak, then end MPI in every rank, so that none aborts the others' exit."""
    from mpi4py import MPI

    if error.comm.Get_rank() == 0:
        complain(str(error))
    if error.comm.Get_size() > 1:
        error.comm.Barrier()
        MPI.Finalize()
