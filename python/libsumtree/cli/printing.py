"""What commands print: any text in any encoding, and one line where one line is meant.

Names of files are bytes, and need be no text; they, and what stands in files, are often others'.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import re
import sys
from collections.abc import Iterator

_HANDLER = "libsumtree.as-it-came"
# What ends a line, and what terminals obey, as bytes of a name that is no text, too.
_CONTROLS = re.compile("[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\udc80-\udc9f]")


def printable(text: object) -> str:
    r"""Return a text as one line that moves no cursor: a newline as ``\n``."""
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], str(text))


def print_line(text: object) -> None:
    """Print one line, at once."""
    print(printable(text), flush=True)


def _as_it_came(error: UnicodeError) -> tuple[str | bytes, int]:
    """Encode what an encoding lacks: a byte of a file's name as that byte, the rest escaped."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letter = error.object[error.start]
    if "\udc80" <= letter <= "\udcff":
        return bytes([ord(letter) - 0xDC00]), error.start + 1
    return letter.encode("ascii", "backslashreplace"), error.start + 1


codecs.register_error(_HANDLER, _as_it_came)


@contextlib.contextmanager
def any_text() -> Iterator[None]:
    """Have standard output take every text, as standard error does."""
    out = sys.stdout
    if not isinstance(out, io.TextIOWrapper):
        yield
        return
    before = out.errors
    with _unless_broken():
        out.reconfigure(errors=_HANDLER)
    try:
        yield
    finally:
        with _unless_broken():
            out.reconfigure(errors=before)


def _unless_broken() -> contextlib.AbstractContextManager[None]:
    """To change a stream writes what waits in it: whether that can be is for others to say."""
    return contextlib.suppress(OSError, ValueError)
