"""The command line's parser for Sphinx: columns of a terminal stay columns."""

from __future__ import annotations

import argparse
import re

from libsumtree.cli import make_parser as make_terminal_parser
from libsumtree.cli.help import commands_of


def make_parser() -> argparse.ArgumentParser:
    """Make the parser, with the indented parts of its texts marked as literal."""
    parser = make_terminal_parser()
    for _, command in commands_of(parser):
        command.description = literal(command.description or "")
        command.epilog = literal(command.epilog or "")
    return parser


def literal(text: str) -> str:
    """Mark lines that are indented by two as a literal block of reStructuredText."""
    text = text.replace("libsumtree --help has", "``libsumtree --help`` has")
    text = re.sub(r":\n(?=  \S)", "::\n\n", text)
    return re.sub(r"(?<!::)\n\n(?=  \S)", "\n\n::\n\n", text)
