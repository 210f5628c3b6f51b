"""What every help has: examples, and what the exit status means."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from . import statuses

EXAMPLES: dict[tuple[str, ...], tuple[str, ...]] = {
    (): (
        "libsumtree info",
        "libsumtree checkpoint list checkpoints",
        "libsumtree stats metrics.jsonl --follow",
    ),
    ("info",): ("libsumtree info", "libsumtree info --json"),
    ("verify",): ("libsumtree verify", "libsumtree verify --backend cpu --json"),
    ("tune",): (
        "libsumtree tune",
        "libsumtree tune --batch 256 --capacities 65536 1048576",
        "libsumtree tune --show",
    ),
    ("bench",): (
        "libsumtree bench",
        "libsumtree bench tree --table descents --rounds 20",
        "libsumtree bench peers --output results",
        "libsumtree bench intake --actors 1 2 --records cartpole --rounds 3",
    ),
    ("bench", "tree"): (
        "libsumtree bench tree --table descents --rounds 20",
        "libsumtree bench tree --leaves 65536 --output results",
    ),
    ("bench", "peers"): ("libsumtree bench peers --output results",),
    ("bench", "intake"): ("libsumtree bench intake --actors 1 2 --records cartpole --rounds 3",),
    ("checkpoint",): (
        "libsumtree checkpoint list checkpoints",
        "libsumtree checkpoint show checkpoints --histogram",
    ),
    ("checkpoint", "list"): ("libsumtree checkpoint list checkpoints --json",),
    ("checkpoint", "show"): (
        "libsumtree checkpoint show checkpoints",
        "libsumtree checkpoint show replay.h5 --histogram",
        "libsumtree checkpoint show replay.h5 --output priorities.png",
    ),
    ("checkpoint", "verify"): (
        "libsumtree checkpoint verify checkpoints",
        "libsumtree checkpoint verify --newest checkpoints",
    ),
    ("checkpoint", "diff"): ("libsumtree checkpoint diff before.h5 after.h5",),
    ("checkpoint", "prune"): ("libsumtree checkpoint prune checkpoints --keep 2 --dry-run",),
    ("checkpoint", "export"): ("libsumtree checkpoint export replay.h5 replay.npz",),
    ("replay",): (
        "mpiexec -n 1 python -m mpi4py -m libsumtree replay --capacity 1000000 --ranks 6 "
        "--metrics metrics.jsonl : -n 5 python -m mpi4py my_agent.py",
    ),
    ("apex",): (
        "mpiexec -n 6 python -m mpi4py -m libsumtree apex --actors 4 --seed 0",
        "libsumtree apex --evaluate apex-output/policy.npz",
    ),
    ("stats",): (
        "libsumtree stats metrics.jsonl",
        "libsumtree stats metrics.jsonl --follow",
        "libsumtree stats metrics.jsonl --output metrics.png",
    ),
    ("jobs",): ("libsumtree jobs list", "libsumtree jobs check --site mpirun --ranks 6"),
    ("jobs", "list"): ("libsumtree jobs list --json",),
    ("jobs", "check"): ("libsumtree jobs check --site srun-pmix --ranks 6",),
    ("jobs", "render"): (
        "libsumtree jobs render --scheduler slurm --site srun-pmix --ranks 6 apex --seed 0",
    ),
    ("jobs", "submit"): (
        "libsumtree jobs submit --site srun-pmix --ranks 6 apex --seed 0",
        "libsumtree jobs submit --really --site srun-pmix replay --capacity 1000000 "
        "-- python -m mpi4py my_agent.py",
    ),
    ("completion",): (
        "mkdir -p ~/.local/share/bash-completion/completions",
        "libsumtree completion bash >~/.local/share/bash-completion/completions/libsumtree",
        "mkdir -p ~/.zfunc",
        "libsumtree completion zsh >~/.zfunc/_libsumtree",
        "mkdir -p ~/.config/fish/completions",
        "libsumtree completion fish >~/.config/fish/completions/libsumtree.fish",
    ),
}


class Formatter(argparse.HelpFormatter):
    """Fills paragraphs as ever, but leaves those alone that have lines of their own."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text.strip():
            return "".join(indent + line for line in text.splitlines(keepends=True))
        return super()._fill_text(text, width, indent)


def commands_of(
    parser: argparse.ArgumentParser, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Give a parser and all those below it, with the words that lead to each."""
    yield path, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                yield from commands_of(child, (*path, name))


def complete_helps(parser: argparse.ArgumentParser) -> None:
    """Give every command ``--debug``, its examples, and the meaning of its status."""
    for path, command in commands_of(parser):
        command.add_argument(
            "--debug",
            action="store_true",
            default=argparse.SUPPRESS,
            help="show where an error comes from",
        )
        command.epilog = "\n\n".join(filter(None, (command.epilog, _epilog(path))))


def _epilog(path: tuple[str, ...]) -> str:
    known = EXAMPLES.get(path) or EXAMPLES.get(path[:1], ())
    examples = "\n".join(("examples:", *(f"  {line}" for line in known)))
    if path:
        return f"{examples}\n\nexit status: 0 if all is well; libsumtree --help has the table"
    return f"{examples}\n\nexit status:\n{statuses.lines()}"
