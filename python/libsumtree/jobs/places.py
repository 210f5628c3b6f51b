"""Where templates and sites are, and which of them may be trusted."""

from __future__ import annotations

import os
import re
import stat
from importlib.resources import files
from pathlib import Path

from .errors import JobError, SiteError

JOBS_VARIABLE = "LIBSUMTREE_JOBS"
SITE_VARIABLE = "LIBSUMTREE_SITE"
SITE_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
_SUFFIX = ".sh"
_TEMPLATE = "job.sh"
_BODY = "body.sh"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def templates() -> Path:
    """Return the folder of the templates: ``$LIBSUMTREE_JOBS``, else the package's own.

    Raises
    ------
    JobError
        If there are none.
    """
    named = os.environ.get(JOBS_VARIABLE)
    folder = Path(named) if named else Path(str(files("libsumtree"))) / "jobs" / "templates"
    if not (folder / _BODY).is_file():
        cause = f"{JOBS_VARIABLE} is {named}" if named else "they were not installed"
        raise JobError(f"there are no job templates in {folder}: {cause}")
    return folder


def schedulers() -> list[str]:
    """Return the names of the schedulers that there are templates for."""
    return sorted(path.parent.name for path in templates().glob(f"*/{_TEMPLATE}"))


def template(scheduler: str) -> tuple[str, str]:
    """Return the text of a scheduler's template, and that of the body all of them share."""
    folder = templates()
    return (folder / scheduler / _TEMPLATE).read_text(), (folder / _BODY).read_text()


def body() -> Path:
    """Return the file of the body."""
    return templates() / _BODY


def site_folders() -> list[Path]:
    """Return the folders that a site's name is looked up in, the first one first.

    ``jobs/body.sh`` has the same list for scripts that are not rendered.
    """
    return [
        _configuration() / "libsumtree" / "sites",
        Path("/etc/libsumtree/sites"),
        templates().absolute() / "sites",
    ]


def _configuration() -> Path:
    """Return the user's folder of settings; a relative one would be whoever's is at hand."""
    for name, part in (("XDG_CONFIG_HOME", ""), ("HOME", ".config")):
        if (named := os.environ.get(name, "")).startswith("/"):
            return Path(named, part)
    return Path("/nonexistent/.config")


def sites() -> dict[str, Path]:
    """Return the files of all sites by name: those that `find_site` would take."""
    found: dict[str, Path] = {}
    for folder in site_folders():
        for path in sorted(folder.glob(f"*{_SUFFIX}")):
            name = path.name.removesuffix(_SUFFIX)
            if SITE_NAME.fullmatch(name):
                found.setdefault(name, path)
    return dict(sorted(found.items()))


def find_site(text: str) -> Path:
    """Return the file of a site, given by name or, with a slash in it, by path.

    Raises
    ------
    SiteError
        If there is none, or somebody else than root or this user may have written it.
    """
    if "/" in text and "\0" not in text:
        path = Path(text).absolute()
    elif SITE_NAME.fullmatch(text):
        folders = site_folders()
        here = (folder / (text + _SUFFIX) for folder in folders)
        known = next((path for path in here if path.is_file()), None)
        if known is None:
            where = ", ".join(map(str, folders))
            raise SiteError(f"there is no site {text!r} in {where}; see libsumtree jobs list")
        path = known
    else:
        raise SiteError(
            f"{text!r:.80} is no site: a name is letters, digits, '.', '_', '-'; a path has a '/'"
        )
    refuse_unsafe(path)
    return path


def refuse_unsafe(path: Path) -> None:
    """Raise unless a file belongs to root or this user, and its owner alone may write it.

    Its folder, and that which a link leads to, must belong to one of them, too, and may not be
    everybody's to write unless it is sticky, as /tmp is: another file could be put in its place. A
    group may write to a folder, as under umask 002: what it puts there does not belong to this
    user, and is refused for that.

    Raises
    ------
    SiteError
        Saying which of it is not so.
    """
    try:
        facts = path.stat()
        folders = [(place.parent, place.parent.stat()) for place in {path, path.resolve()}]
    except OSError as error:
        raise SiteError(f"the site {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise SiteError(f"the site {str(path)!r} cannot be a file's name: {error}") from None
    if not stat.S_ISREG(facts.st_mode):
        raise SiteError(f"the site {path} is no file")
    if facts.st_mode & _OTHERS_WRITE:
        raise SiteError(f"the site {path} is refused: others may write it; chmod go-w {path}")
    for place, known in [(path, facts), *folders]:
        it = "it" if place == path else f"its folder {place}"
        if known.st_uid not in (0, os.geteuid()):
            raise SiteError(
                f"the site {path} is refused: {it} belongs to user {known.st_uid}, not to root or "
                "to you"
            )
    for folder, known in folders:
        if known.st_mode & stat.S_IWOTH and not known.st_mode & stat.S_ISVTX:
            raise SiteError(
                f"the site {path} is refused: anybody may put a file in its place; chmod o-w "
                f"{folder}"
            )


def describe(path: Path) -> str:
    """Return the first line of a site's file, which says what it is for."""
    with path.open(encoding="utf-8", errors="replace") as file:
        first = file.readline().strip()
    return first.removeprefix("#").strip() if first.startswith("#") else ""
