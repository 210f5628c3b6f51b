"""The C reference, from the comments and declarations of ``sumtree.h``: the directive `c-header`.

The header's own habits are the grammar, and what does not follow them is an error of the build:

- a paragraph of comment stands right above the declarations that it is about, one or several;
- ``/* ---- title ---- */`` begins a section;
- the first comment is an introduction with underlined titles;
- the one table of errors is `SUMTREE_STATUS_TABLE`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

_COMMENT = re.compile(r"/\*(.*?)\*/[ \t]*\n?", re.DOTALL)
_SECTION = re.compile(r"\s*-{3,} (.*?) -{3,}\s*(.*)", re.DOTALL)
_ENTRY = re.compile(r'ENTRY\((\d+), (\w+), "([^"]*)"\)')
_TYPEDEF_BODY = re.compile(r"typedef (enum|struct) (\w+) \{(.*?)\} \w+;", re.DOTALL)
_COLUMNS = re.compile(r" {4}|\S+ {2,}\S")
_RULE = re.compile(r"-{3,}")
_NAME = re.compile(r"\bsumtree_\w+")


class HeaderError(ValueError):
    """The header has something that would be missing from the reference."""


@dataclass
class Entry:
    """A comment and the declarations below it, or a section's title.

    Attributes
    ----------
    title : str
        Of the section that begins here; empty for declarations.
    comment : str
        Without the marks of the comment.
    declarations : list of str
        Each in one line, without the semicolon.
    """

    title: str = ""
    comment: str = ""
    declarations: list[str] = field(default_factory=list)


def read_header(text: str) -> tuple[str, list[Entry]]:
    """Split a header into its introduction and what follows.

    Parameters
    ----------
    text : str
        The whole file.

    Returns
    -------
    introduction : str
    entries : list of Entry
        In the order of the file.
    """
    first = _COMMENT.match(text)
    if first is None:
        raise HeaderError("the header does not begin with a comment")
    rest = _without_guards(text[first.end() :])
    entries: list[Entry] = []
    for block in re.split(r"\n\s*\n", rest):
        entries.extend(_entries_of(block.strip()))
    return _unmarked(first[1]), entries


def _without_guards(text: str) -> str:
    """Leave out include guards, includes, and what is for C++ alone."""
    text = re.sub(r"#ifdef __cplusplus\n.*?#endif\n", "", text, flags=re.DOTALL)
    text = re.sub(
        r"^#(ifndef|define) SUMTREE_H\n|^#include .*\n|^#endif\s*\Z", "", text, flags=re.M
    )
    return text.strip() + "\n"


def _entries_of(block: str) -> Iterator[Entry]:
    comment = _COMMENT.match(block)
    said = _unmarked(comment[1]) if comment else ""
    section = _SECTION.fullmatch(said)
    if section:
        yield Entry(title=section[1], comment=section[2].strip())
        said = ""
    code = block[comment.end() :].strip() if comment else block
    if code:
        yield Entry(comment=said, declarations=list(_declarations(code)))
    elif said:
        raise HeaderError(f"a comment without declarations: {said[:60]!r}")


def _declarations(code: str) -> Iterator[str]:
    """Give the statements and macros of a block, each in one line but for those with a body."""
    code = re.sub(r"[ \t]*/\*.*?\*/", "", code)
    while code:
        if code.startswith("#"):
            found = re.match(r"(?:[^\n]*\\\n)*[^\n]*\n?", code)
        elif code.startswith("typedef") and "{" in code.split(";")[0]:
            found = _TYPEDEF_BODY.match(code)
        else:
            found = re.match(r"[^;{}]*;", code)
        if found is None:
            raise HeaderError(f"a declaration that is none of the known kinds: {code[:60]!r}")
        yield found[0].strip()
        code = code[found.end() :].strip()


def _unmarked(comment: str) -> str:
    return "\n".join(re.sub(r"^ ?\* ?", "", line) for line in comment.split("\n")).strip()


def table_of_errors(declaration: str) -> list[tuple[str, str, str]]:
    """Give code, name and text of every status."""
    entries = _ENTRY.findall(declaration)
    if len(entries) != declaration.count("ENTRY("):
        raise HeaderError("an entry of SUMTREE_STATUS_TABLE is not (code, name, text)")
    return entries


def signatures_of(declaration: str, statuses: list[str]) -> list[tuple[str, str, list[Any]]]:
    """Turn one declaration into (directive, signature, members) of Sphinx's C domain."""
    one_line = re.sub(r"\s+", " ", declaration)
    if declaration.startswith("#define SUMTREE_STATUS_TABLE"):
        return []
    if declaration.startswith("#define"):
        return [("c:macro", one_line.split()[1], [])]
    body = _TYPEDEF_BODY.match(declaration)
    if body is None:
        opaque = re.fullmatch(r"typedef struct \w+ (\w+);", one_line)
        return [("c:type", opaque[1], []) if opaque else ("c:function", one_line[:-1], [])]
    kind, name, inside = body.groups()
    if kind == "struct":
        fields = [line.strip() for line in inside.split(";") if line.strip()]
        return [("c:struct", name, [("c:member", f, []) for f in fields])]
    if "STATUS_TABLE" in inside:
        values = [f"SUMTREE_{status}" for status in statuses]
    else:
        values = [value.split("=")[0].strip() for value in inside.split(",")]
    return [("c:enum", name, [("c:enumerator", value, []) for value in values])]


def _prose(text: str, known: set[str]) -> list[str]:
    """Turn a comment into reStructuredText: paragraphs with columns stand as they are."""
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        inside = paragraph.strip("\n").split("\n")
        if len(inside) > 1 and _RULE.fullmatch(inside[1]):
            lines += [*inside[:2], ""]
            inside = inside[2:]
        if any(_COLUMNS.match(line) for line in inside):
            lines += ["::", "", *("    " + line for line in inside)]
        else:
            lines += [_escaped(line, known) for line in inside]
        lines.append("")
    return lines


def _escaped(line: str, known: set[str]) -> str:
    """Escape what is markup to reStructuredText, and link the names that are declared."""
    parts = line.split("`")
    for i, part in enumerate(parts):
        if i % 2:
            parts[i] = f"``{part}``"
            continue
        part = re.sub(r"([*|\\])", r"\\\1", part)
        part = re.sub(r"_(?![A-Za-z0-9])", r"\\_", part)
        parts[i] = _NAME.sub(
            lambda found: f":c:expr:`{found[0]}`\\ " if found[0] in known else found[0], part
        )
    return "".join(parts)


class CHeader(SphinxDirective):
    """Everything that a header declares, with what its comments say."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Read the header, whose path is relative to the documentation's folder."""
        path = Path(self.env.srcdir, self.arguments[0]).resolve()
        self.env.note_dependency(str(path))
        text = page(*read_header(path.read_text()))
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def page(introduction: str, entries: list[Entry]) -> str:
    """Give the reference of a header, in reStructuredText."""
    return "\n".join(_page(introduction, entries)) + "\n"


def _page(introduction: str, entries: list[Entry]) -> Iterator[str]:
    declarations = [text for entry in entries for text in entry.declarations]
    table = next((d for d in declarations if "define SUMTREE_STATUS_TABLE" in d), "")
    statuses = table_of_errors(table) if table else []
    known = {name for text in declarations for name in _NAME.findall(text.split("(")[0])}
    yield from _prose(introduction, known)
    yield ""
    for entry in entries:
        if entry.title:
            yield from ("", entry.title, "-" * len(entry.title), "")
            yield from _prose(entry.comment, known)
            continue
        yield from _described(entry, known, statuses)


def _described(
    entry: Entry, known: set[str], statuses: list[tuple[str, str, str]]
) -> Iterator[str]:
    described = [
        found
        for declaration in entry.declarations
        for found in signatures_of(declaration, [name for _, name, _ in statuses])
    ]
    if not described:
        yield from ("", *_prose(entry.comment, known), "")
        yield from _table(statuses)
        return
    by_kind: dict[str, list[tuple[str, list[Any]]]] = {}
    for kind, signature, members in described:
        by_kind.setdefault(kind if not members else f"{kind}:{signature}", []).append(
            (signature, members)
        )
    for place, (kind, signatures) in enumerate(by_kind.items()):
        directive = ":".join(kind.split(":")[:2])
        head = f".. {directive}:: "
        yield ""
        yield head + ("\n" + " " * len(head)).join(signature for signature, _ in signatures)
        yield ""
        if place == 0:
            yield from ("   " + line for line in _prose(entry.comment, known))
            yield ""
        for _, members in signatures:
            yield from (f"   .. {inner}:: {name}" for inner, name, _ in members)
        yield ""


def _table(statuses: list[tuple[str, str, str]]) -> Iterator[str]:
    yield from (".. list-table::", "   :header-rows: 1", "", "   * - code", "     - name")
    yield "     - meaning"
    for code, name, text in statuses:
        yield from (f"   * - {code}", f"     - :c:enumerator:`SUMTREE_{name}`", f"     - {text}")


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive."""
    app.add_directive("c-header", CHeader)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
