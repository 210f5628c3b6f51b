"""``libsumtree checkpoint``: what is in checkpoints, whether they are whole, what differs."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..apex.errors import require
from ..checkpoint import read_header
from ..errors import ArgumentError, CheckpointCorruptError, CheckpointError
from ..metrics.lines import finite
from .complaints import complain
from .histogram import histogram_of, lines_of
from .plots import save_histogram
from .printing import print_line
from .progress import bar
from .statuses import DIFFERENT, REFUSED

if TYPE_CHECKING:
    from ..inspection import Contents, Listed

    Subparsers = argparse._SubParsersAction[Any]


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the subcommand ``checkpoint`` and return its parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "checkpoint",
        help="list, show, verify, compare, prune and export checkpoints",
        description="Look at checkpoints, and tidy folders of them. PATH is a file; where it is a "
        "folder, its newest whole checkpoint is meant.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_list(actions)
    _add_show(actions)
    _add_verify(actions)
    _add_diff(actions)
    _add_prune(actions)
    _add_export(actions)
    return parser


def main(args: argparse.Namespace) -> int:
    """Do what was asked; return the exit status."""
    action: Callable[[argparse.Namespace], int] = args.run
    return action(args)


def _add(actions: Any, name: str, run: Callable[[argparse.Namespace], int], text: str) -> Any:
    parser = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    parser.set_defaults(run=run)
    return parser


def _add_json(parser: Any) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, for machines")


def _print_json(value: Any) -> None:
    print(json.dumps(finite(value), indent=2, default=str, allow_nan=False))


# ---- list ----


def _add_list(actions: Any) -> None:
    parser = _add(
        actions,
        "list",
        _list,
        "list the checkpoints and manifests of a folder by their first bytes; what they hold is "
        "not read",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    _add_json(parser)


def _list(args: argparse.Namespace) -> int:
    from ..inspection import list_folder

    listed = list_folder(args.folder)
    if args.json:
        _print_json([_listed_facts(file) for file in listed])
        return 0
    for file in listed:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(file.modified))
        print_line(f"{file.path.name}  {file.nbytes:>15,d} B  {when}  {_kind(file)}")
    if not listed:
        print_line(f"no checkpoints in {args.folder}")
    return 0


def _kind(file: Listed) -> str:
    if file.problem:
        return f"DAMAGED: {file.problem}"
    if file.shards is not None:
        return f"manifest of {file.shards} shards, all there; {file.files} files in all"
    if file.parent is None:
        return "full"
    return f"incremental, goes on from {file.parent}; {file.files} files in all"


def _listed_facts(file: Listed) -> dict[str, Any]:
    return {
        "name": file.path.name,
        "bytes": file.nbytes,
        "modified": file.modified,
        "parent": file.parent,
        "files": file.files,
        "shards": file.shards,
        "problem": file.problem or None,
    }


# ---- show ----


def _add_show(actions: Any) -> None:
    parser = _add(actions, "show", _show, "say what a checkpoint holds, every byte of it checked")
    parser.add_argument("path", type=Path, metavar="PATH")
    parser.add_argument(
        "--histogram",
        action="store_true",
        help="print how many transitions have which priority, in bins of equal ratio",
    )
    parser.add_argument("--output", type=Path, metavar="PNG", help="plot that histogram")
    _add_json(parser)


def _show(args: argparse.Namespace) -> int:
    if args.output is not None:
        require("matplotlib", "cli")
    with _opened(args.path) as found:
        facts = _facts(found)
        counts, edges = histogram_of(found.priorities())
        if args.output is not None:
            _spare_checkpoint(args.output)
            save_histogram(args.output, counts, edges, Path(facts["file"]).name)
    if args.json:
        _print_json({**facts, "histogram": {"counts": counts.tolist(), "edges": edges.tolist()}})
        return 0
    for name, value in facts.items():
        print_line(f"{name:<14} {value}")
    if args.histogram:
        zero = facts["size"] - facts["positive"]
        print(*lines_of(counts, edges, zero), sep="\n")
    return 0


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Contents]:
    """Open the state that `path` names, a folder's newest whole one."""
    from .. import checkpoint
    from ..inspection import contents_of, newest_whole

    with ExitStack() as stack:
        with bar(_bytes_of([path]), in_bytes=True) as shown:
            shown.say(f"reading {path.name}")
            with checkpoint.bytes_told(shown.advance):
                file = newest_whole(path) if path.is_dir() else path
                _refuse_manifest(file)
                chain = stack.enter_context(checkpoint.read_chain(file))
        yield contents_of(chain)


def _refuse_manifest(path: Path) -> None:
    """Raise if a file is a manifest: its parts are looked at one by one."""
    from ..checkpoint import MANIFEST_SUFFIX, files_of

    if path.suffix == MANIFEST_SUFFIX:
        files = files_of(path)
        raise CheckpointError(
            f"{path} is a manifest of {len(files)} shards: give the file of one, such as {files[0]}"
        )


def _bytes_of(paths: list[Path]) -> int | None:
    """Return how many bytes there are to be checked; None where that cannot be known before."""
    from ..checkpoint import MANIFEST_SUFFIX
    from ..inspection import list_folder

    total = 0
    for path in paths:
        if path.is_dir() or path.suffix == MANIFEST_SUFFIX:
            return None
        with contextlib.suppress(CheckpointError):
            known = {file.path.name: file for file in list_folder(path.parent)}
            at = known.get(path.name)
            for _ in range(len(known)):
                if at is None:
                    break
                total += at.nbytes
                at = known.get(at.parent or "")
    return total or None


def _facts(found: Contents) -> dict[str, Any]:
    from ..inspection import plain

    said = {name: plain(value) for name, value in found.attributes.items()}
    links = found.chain.links
    learner = found.learner()
    hidden = ("rng_key", "rng_counter", "rng_buffer_pos", "created")
    created = said.get("created")
    return {
        "file": str(found.chain.newest.path),
        "created": _utc(created) if isinstance(created, float) else "unknown",
        "kind": "full" if len(links) == 1 else f"incremental, of {len(links)} files",
        "bytes": sum(link.header.length for link in links),
        **{name: value for name, value in said.items() if name not in hidden},
        "positive": int(np.count_nonzero(found.masses > 0)),
        **{f"learner {n}": a.item() for n, a in learner.items() if a.ndim == 0},
        "learner arrays": len(learner),
    }


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


# ---- verify ----


def _add_verify(actions: Any) -> None:
    parser = _add(
        actions,
        "verify",
        _verify,
        "check every byte of checkpoints, of the files that they go on from, and of those that "
        "manifests name; status 2 if one is damaged",
    )
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="PATH", help="a file, or a folder for all of its"
    )
    parser.add_argument(
        "--newest", action="store_true", help="print the newest whole one of a folder, and no more"
    )
    _add_json(parser)


def _verify(args: argparse.Namespace) -> int:
    from .. import checkpoint
    from ..inspection import check_state, newest_whole

    if args.newest:
        if len(args.paths) != 1 or not args.paths[0].is_dir():
            raise ArgumentError("--newest takes one folder")
        with bar(in_bytes=True) as shown, checkpoint.bytes_told(shown.advance):
            shown.say("looking for the newest whole one")
            newest = newest_whole(args.paths[0])
        print(json.dumps(str(newest)) if args.json else newest)
        return 0
    files = _files_of(args.paths)
    problems: dict[str, str | None] = {}
    with bar(_bytes_of(files), in_bytes=True) as shown, checkpoint.bytes_told(shown.advance):
        for number, file in enumerate(files, 1):
            shown.say(f"{file.name} ({number} of {len(files)})")
            try:
                check_state(file)
                problems[str(file)] = None
            except CheckpointError as error:
                problems[str(file)] = str(error)
            if not args.json:
                print_line(f"{file}: {problems[str(file)] or 'whole'}")
    if args.json:
        _print_json(problems)
    bad = sum(problem is not None for problem in problems.values())
    if bad:
        complain(f"{bad} of {len(problems)} checkpoints cannot be used")
    return REFUSED if bad else 0


def _files_of(paths: list[Path]) -> list[Path]:
    """Return the checkpoints that are named, those of folders one by one."""
    from ..inspection import list_folder

    found: list[Path] = []
    for path in paths:
        files = [file.path for file in list_folder(path)] if path.is_dir() else [path]
        if not files:
            raise CheckpointError(f"no checkpoints in {path}")
        found += files
    return found


# ---- diff ----


def _add_diff(actions: Any) -> None:
    parser = _add(
        actions,
        "diff",
        _diff,
        "say what differs between two checkpoints; status 1 if anything does",
    )
    parser.add_argument("first", type=Path, metavar="PATH")
    parser.add_argument("second", type=Path, metavar="PATH")
    _add_json(parser)


def _diff(args: argparse.Namespace) -> int:
    from ..inspection import differences

    with _opened(args.first) as one, _opened(args.second) as other:
        found = differences(one, other)
    if args.json:
        _print_json(found)
        return DIFFERENT if found else 0
    for name, (here, there) in found.get("attributes", {}).items():
        print_line(f"{name}: {here} | {there}")
    for name, count in found.get("transitions", {}).items():
        if count:
            print(f"transitions, {name.replace('_', ' ')}: {count}")
    for name in found.get("learner", []):
        print_line(f"learner array {name}: differs")
    return DIFFERENT if found else 0


# ---- prune ----


def _add_prune(actions: Any) -> None:
    parser = _add(
        actions,
        "prune",
        _prune,
        "remove the files replay-<serial>.h5 and manifests of a folder, and the files of its "
        "shards, that are neither among the newest K states nor needed for them; refused while a "
        "replay rank writes there",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--keep", type=int, required=True, metavar="K", help="states to keep")
    parser.add_argument("--dry-run", action="store_true", help="say what would go; remove nothing")
    _add_json(parser)


def _prune(args: argparse.Namespace) -> int:
    from .. import checkpoint
    from ..inspection import check_state

    if args.keep < 1:
        raise ArgumentError(f"--keep is {args.keep}: at least 1")
    if not args.folder.is_dir():
        raise CheckpointError(f"folder {args.folder} does not exist")
    lock = checkpoint.FolderLock(args.folder)
    try:
        old = checkpoint.removable(args.folder, args.keep)
        if old:
            check_state(checkpoint.numbered_states(args.folder)[0][1])
        for path in old if not args.dry_run else []:
            path.unlink()
    finally:
        lock.close()
    names = [str(path.relative_to(args.folder)) for path in old]
    if args.json:
        _print_json(names)
        return 0
    for name in names:
        print_line(f"{'would remove' if args.dry_run else 'removed'} {name}")
    return 0


# ---- export ----


def _add_export(actions: Any) -> None:
    parser = _add(
        actions,
        "export",
        _export,
        "write what a checkpoint holds to an .npz file, which NumPy reads without pickle",
    )
    parser.add_argument("path", type=Path, metavar="PATH")
    parser.add_argument("output", type=Path, metavar="NPZ")
    parser.add_argument("--compress", action="store_true", help="make it smaller, slowly")
    _add_json(parser)


def _spare_checkpoint(output: Path) -> None:
    """Raise if a file that is to be written over is a checkpoint."""
    with contextlib.suppress(OSError, CheckpointCorruptError):
        read_header(output)
        raise CheckpointError(f"{output} is a checkpoint: the output would be written over it")


def _export(args: argparse.Namespace) -> int:
    from ..files import publish, temporary_beside

    with _opened(args.path) as found:
        size = len(found.ids)
        transitions = np.zeros(size, found.dtype)
        start = 0
        for part in found.transitions():
            transitions[start : start + len(part)] = part
            start += len(part)
        arrays: dict[str, Any] = {
            "transitions": transitions,
            "masses": found.masses,
            "ids": found.ids,
            **{f"attributes/{name}": np.asarray(v) for name, v in found.attributes.items()},
            **{f"learner/{name}": array for name, array in found.learner().items()},
        }
    save = np.savez_compressed if args.compress else np.savez
    output = Path(os.path.abspath(args.output))  # noqa: PTH100 - links are to stay
    _spare_checkpoint(output)
    if output.exists() and not output.is_file():
        raise CheckpointError(f"cannot write {output}: it is neither a file nor free")
    try:
        with temporary_beside(output) as (file, temporary):
            save(file, **arrays)
            publish(file, temporary, output)
    except OSError as error:
        raise CheckpointError(f"cannot write {output}: {error.strerror or error}") from error
    if args.json:
        _print_json({"transitions": size, "output": str(args.output), "arrays": sorted(arrays)})
    else:
        print_line(f"{size} transitions written to {args.output}")
    return 0
