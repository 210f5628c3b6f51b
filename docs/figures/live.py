"""Draws the live view of a metrics file as a terminal of 80 columns shows it, in black on white.

    python docs/figures/live.py METRICS.jsonl docs/figures/live.svg

Needs the extra ``cli``.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from xml.sax.saxutils import escape

from rich.console import Console

from libsumtree.cli.live import view
from libsumtree.metrics import read_metrics

COLUMNS, CELL, LINE = 80, 8.0, 17.0
STYLE = "font-family: monospace; font-size: 13px"


def main() -> None:
    """Draw the view as of the last line with actors, while the service ran."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("metrics", type=Path)
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    lines, _ = read_metrics(options.metrics)
    console = Console(file=io.StringIO(), width=COLUMNS, record=True)
    while not lines[-1]["credits"]["actors"]:
        lines.pop()
    console.print(view(options.metrics.name, lines))
    shown = console.export_text().rstrip("\n").split("\n")
    options.picture.write_text(drawn(shown))


def drawn(shown: list[str]) -> str:
    """Draw lines of text in a frame; each is as wide as its columns, whatever the font."""
    width, height = COLUMNS * CELL + 20, len(shown) * LINE + 20
    texts = [
        f'<text x="10" y="{24 + i * LINE:g}" textLength="{len(text) * CELL:g}" '
        f'lengthAdjust="spacingAndGlyphs">{escape(text.replace(" ", chr(160)))}</text>'
        for i, text in enumerate(line.rstrip() for line in shown)
        if text
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
            f'width="{width:g}" height="{height:g}" style="{STYLE}">',
            f'<rect x="1" y="1" width="{width - 2:g}" height="{height - 2:g}" rx="6" '
            'fill="white" stroke="black"/>',
            *texts,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    main()
