"""``libsumtree replay``: a replay rank for actors and learners that are programs of one's own."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, SumTreeError, WorldError
from .complaints import abort_job, complain, explain, text_of
from .statuses import REFUSED

if TYPE_CHECKING:
    from ..replay import ReplayConfig, ReplaySummary

    Subparsers = argparse._SubParsersAction[Any]

_DESCRIPTION = """\
Serve a prioritized replay buffer to the other ranks of one MPI job.

  mpiexec -n 1 python -m mpi4py -m libsumtree replay --capacity 1000000 --ranks 6 \\
      : -n 5 python -m mpi4py my_agent.py

The other ranks use libsumtree.replay.LearnerClient and ActorClient; with --shards, several of which
hold the buffer together, ShardedLearner and ShardedActor. The service ends when a learner asks for
it, when all clients have left, or with SIGTERM, SIGUSR1 or Ctrl-C, and leaves a checkpoint if it
has a folder for them.

  mpiexec -n 2 python -m mpi4py -m libsumtree replay --shards 2 --capacity 1000000 --ranks 6 \\
      : -n 4 python -m mpi4py my_agent.py
"""

_NEED_FOLDER = ("checkpoint_interval", "keep", "full_every", "compression")


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the subcommand ``replay`` and return its parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "replay",
        help="serve a prioritized replay buffer to the other ranks of an MPI job",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        # Only what was given stands in the namespace: defaults are those of ReplayConfig.
        argument_default=argparse.SUPPRESS,
    )
    _add_buffer(parser)
    _add_checkpoints(parser)
    _add_pacing(parser)
    _add_metrics(parser)
    return parser


def _add_buffer(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--capacity", type=int, metavar="N", required=True, help="transitions held")
    add("--ranks", type=int, metavar="R", required=True, help="ranks of the whole job")
    add(
        "--shards",
        type=int,
        metavar="S",
        help="replay ranks, the first ones of the job, which share the buffer out (default: 1)",
    )
    add(
        "--dtype",
        metavar="JSON",
        help='record dtype, as in [["observation", "<f4", [4]], ["action", "<i8"]]'
        " (default: the first client's)",
    )
    add("--alpha", type=float, metavar="X", help="mass = priority ** alpha (default: 0.6)")
    add(
        "--beta",
        metavar="X",
        help="exponent of the weights, or START:STOP:SAMPLES to move it (default: 0.4)",
    )
    add("--seed", type=int, metavar="S", help="of the draws (default: new each time)")
    add("--backend", metavar="NAME", help="cpu, multicore, gpu or auto (default: auto)")


def _add_checkpoints(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--checkpoint-dir", type=Path, metavar="DIR", help="folder for replay-<serial>.h5")
    add(
        "--checkpoint-interval",
        type=float,
        metavar="S",
        help="seconds between two checkpoints (default: 300)",
    )
    add("--keep", type=int, metavar="K", help="states to keep (default: 3)")
    add(
        "--full-every",
        type=int,
        metavar="N",
        help="of N checkpoints in a row, at most 128, one is full, the others hold what changed; "
        "1: every file stands alone (default: 8)",
    )
    add("--compression", metavar="NAME", help="lzf, gzip or zstd (default: none)")
    add(
        "--resume",
        metavar="auto|never|FILE",
        help="go on from the newest valid checkpoint of the folder, start empty, or go on from "
        "this file; the last two leave alone what is in the folder (default: auto)",
    )


def _add_pacing(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--min-size-to-sample",
        type=int,
        metavar="N",
        help="transitions to hold before the first draw (default: 1)",
    )
    add(
        "--samples-per-insert",
        type=float,
        metavar="X",
        help="draws for each transition added; learner and actors wait for each other "
        "(default: nobody waits)",
    )
    add(
        "--error-buffer",
        type=float,
        metavar="X",
        help="how far samples and inserts may be apart (default: as far as batches need)",
    )
    add(
        "--learner-share",
        type=float,
        metavar="X",
        help="how much of its time learners may take while actors flood it (default: 0.15)",
    )
    add(
        "--idle-sleep",
        type=float,
        metavar="S",
        help="longest sleep between two looks for messages (default: 0.002)",
    )
    add(
        "--grace",
        type=float,
        metavar="S",
        help="seconds that clients have to leave once the service is ending (default: 5)",
    )


def _add_metrics(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--metrics",
        type=Path,
        metavar="FILE",
        help="append lines of JSON to this file, for `libsumtree stats`",
    )
    add(
        "--metrics-interval",
        type=float,
        metavar="S",
        help="seconds between two lines (default: 10)",
    )
    add(
        "--status-interval",
        type=float,
        metavar="S",
        help="seconds between two status lines on standard error; 0: none (default: 0)",
    )


def main(args: argparse.Namespace) -> int:
    """Serve until stopped; return the exit status.

    Raises
    ------
    SumTreeError, OSError
        If what is asked for is not possible and no other rank is there. Otherwise the message is
        printed and the whole job ends with exit status 2, for its clients would wait in vain.
    """
    from ..replay import ReplayRank, check_world
    from ..replay.channel import MPI

    comm = MPI.COMM_WORLD
    try:
        config = _config(args)
        check_world(comm, args.ranks)
        _check_rank(comm.Get_rank(), config.shards, args.ranks)
        summary = ReplayRank(comm, config).run()
    except (SumTreeError, OSError) as error:
        if comm.Get_size() == 1:
            raise
        if getattr(args, "debug", False):
            explain(error)
        complain(text_of(error))
        abort_job()
    print(_report(summary), flush=True)
    if not summary.saved:
        complain("the last checkpoint was not written: what came after the one before is lost")
    return 0 if summary.saved else REFUSED


def _check_rank(rank: int, shards: int, ranks: int) -> None:
    if rank < shards:
        return
    where = "rank 0" if shards == 1 else f"one of ranks 0 .. {shards - 1}"
    often = "once" if shards == 1 else f"{shards} times"
    raise WorldError(
        f"libsumtree replay is rank {rank} where it must be {where}: start it {often} and first, "
        f"as in `mpiexec -n {shards} ... replay : -n {ranks - shards} ...`"
    )


def _config(args: argparse.Namespace) -> ReplayConfig:
    """Make the settings; contradictions among the options are refused here."""
    from ..records import dtype_from_text
    from ..replay import ReplayConfig

    given = {k: v for k, v in vars(args).items() if k not in ("command", "ranks", "debug")}
    if "checkpoint_dir" not in given:
        idle = [name for name in _NEED_FOLDER if name in given]
        if given.get("resume") == "auto":
            idle.append("resume")
        if idle:
            flags = ", ".join("--" + name.replace("_", "-") for name in idle)
            raise ArgumentError(f"{flags} has no meaning without --checkpoint-dir")
    if "metrics_interval" in given and "metrics" not in given:
        raise ArgumentError("--metrics-interval has no meaning without --metrics")
    shards = given.get("shards", 1)
    if args.ranks < 2 or args.ranks <= shards:
        raise ArgumentError(
            f"--ranks is {args.ranks}: a replay rank and its clients are >= 2"
            if shards == 1
            else f"--ranks is {args.ranks}: {shards} replay ranks and their clients are more"
        )
    if "dtype" in given:
        given["dtype"] = dtype_from_text(given["dtype"])
    if "beta" in given:
        given["beta"] = _beta(given["beta"])
    return ReplayConfig(**given)


def _beta(text: str) -> Any:
    from ..annealing import BetaSchedule

    try:
        parts = text.split(":")
        if len(parts) == 3:
            return BetaSchedule(float(parts[0]), float(parts[1]), int(parts[2]))
        return float(text)
    except ValueError as error:
        raise ArgumentError(f"--beta {text}: X or START:STOP:SAMPLES is needed: {error}") from None


def _report(summary: ReplaySummary) -> str:
    name = "replay rank" if summary.shards == 1 else f"shard {summary.shard} of {summary.shards}"
    lines = [
        f"{name} ended after {summary.seconds:.1f} s, for {summary.reason}",
        f"transitions: {summary.inserted} added, {summary.size} held, {summary.sampled} drawn; "
        f"{summary.stale} updates were stale",
    ]
    if summary.rejected:
        ranks = ", ".join(f"{n} from rank {rank}" for rank, n in sorted(summary.rejected.items()))
        lines.append(f"messages refused: {ranks}")
    if len(summary.stale_of) > 1:
        ranks = ", ".join(f"{n} of rank {rank}" for rank, n in sorted(summary.stale_of.items()))
        lines.append(f"stale updates: {ranks}")
    if summary.silent:
        lines.append(f"left without a word: ranks {', '.join(map(str, summary.silent))}")
    if summary.last_checkpoint is not None:
        lines.append(f"last checkpoint: {summary.last_checkpoint}")
    return "\n".join(lines)
