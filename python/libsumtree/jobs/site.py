"""What a site's file says, as bash reads it."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .errors import SiteError
from .request import Request, words

_NUMBERS = ("ranks", "nodes", "minutes", "lead", "memory", "gpus")
_NUMBER = re.compile(r"[0-9]{1,18}")
_PROGRAM = """
job_ranks=$2
. "$1" >&2 || exit 1
printf '%s\\0' "$site_launcher" "$site_directives" {numbers}
""".format(numbers=" ".join(f'"$site_{name}"' for name in _NUMBERS))


@dataclass(frozen=True)
class Site:
    """A site: its file, its launcher, and the defaults that it gives to requests."""

    path: Path
    launcher: str
    directives: tuple[str, ...]
    numbers: dict[str, int]

    def fill(self, request: Request, given: set[str]) -> Request:
        """Return a request with the site's defaults in those fields that were not `given`."""
        values: dict[str, Any] = {k: v for k, v in self.numbers.items() if k not in given}
        return replace(request, **values, directives=self.directives + request.directives)


def read_site(path: Path, ranks: int = 1) -> Site:
    """Source a site's file in a bash of its own and return what it sets; its set-up is not run.

    The file must have been found safe: see `places.find_site`. A site's ``site_directives`` has one
    directive on each line.

    Raises
    ------
    SiteError
        If bash fails, there is no ``site_launcher``, or a number is none.
    """
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", _PROGRAM, "site", str(path), str(ranks)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    values = _decoded(path, done.stdout).split("\0")
    if done.returncode != 0 or len(values) != len(_NUMBERS) + 3:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or [
            f"bash ended with status {done.returncode}"
        ]
        raise SiteError(f"the site {path} cannot be sourced: {last[0]}")
    launcher, lines, *texts, _ = values
    if not launcher.strip():
        raise SiteError(f"the site {path} sets no site_launcher")
    given = tuple(line.strip() for line in lines.split("\n") if line.strip())
    for line in given:
        words(line)
    return Site(path, launcher, given, _numbers(path, texts))


def _decoded(path: Path, output: bytes) -> str:
    try:
        return output.decode("utf-8")
    except UnicodeDecodeError:
        raise SiteError(f"the site {path} sets something that is not UTF-8") from None


def _numbers(path: Path, texts: list[str]) -> dict[str, int]:
    found = {}
    for name, text in zip(_NUMBERS, texts, strict=True):
        if text and not _NUMBER.fullmatch(text):
            raise SiteError(
                f"the site {path} sets site_{name} to {text!r:.80}, which is no whole number of at "
                "most 18 digits"
            )
        if text:
            found[name] = int(text)
    return found
