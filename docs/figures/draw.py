"""Draws the figures of the pages: python docs/figures/draw.py [FOLDER].

Black on white, so that a printer does; what differs, differs in shape, hatching or width. Needs
matplotlib (the extra ``docs``).
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot
from matplotlib.patches import Circle, FancyBboxPatch, Rectangle

MASSES = [0.5, 1.0, 1.0, 3.0, 0.0, 2.0, 0.5]
RADIUS = 0.33
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "libsumtree",
    "font.family": "sans-serif",
    "font.size": 10,
    "hatch.linewidth": 0.8,
}


def sums_of(masses: list[float], padded: int) -> list[float]:
    """Give all nodes of the sum tree over some masses; node 0 is none."""
    nodes = [0.0] * padded + masses + [0.0] * (padded - len(masses))
    for i in range(padded - 1, 0, -1):
        nodes[i] = nodes[2 * i] + nodes[2 * i + 1]
    return nodes


def place_of(node: int, padded: int) -> tuple[float, float]:
    """Tell where a node stands: leaves at distance 1, parents in the middle above."""
    level = node.bit_length() - 1
    width = padded >> level
    return (node - (1 << level) + 0.5) * width - 0.5, float(padded.bit_length() - 1 - level) * 1.25


def edge(axes: Any, child: int, padded: int, **style: Any) -> None:
    """Draw the line from a node to its parent."""
    (x, y), (to_x, to_y) = place_of(child, padded), place_of(child // 2, padded)
    axes.plot([x, to_x], [y, to_y], **{"color": "black", "linewidth": 0.8, "zorder": 1, **style})


def circle(axes: Any, node: int, padded: int, text: str, **style: Any) -> None:
    """Draw a node."""
    at = place_of(node, padded)
    axes.add_patch(Circle(at, RADIUS, **{"fc": "white", "ec": "black", "zorder": 2, **style}))
    axes.text(*at, text, ha="center", va="center", zorder=3, size=9)


def canvas(width: float, height: float, x: tuple[float, float], y: tuple[float, float]) -> Any:
    """Make an empty figure."""
    figure, axes = pyplot.subplots(figsize=(width, height), layout="constrained")
    axes.set(xlim=x, ylim=y, aspect="equal")
    axes.axis("off")
    return figure, axes


def draw_tree() -> Any:
    """Seven leaves, padded to eight, and the sums above them."""
    padded, nodes = 8, sums_of(MASSES, 8)
    figure, axes = canvas(7.2, 4.3, (-2.3, 8.2), (-1.3, 4.2))
    for node in range(1, 2 * padded):
        is_padding = node >= padded + len(MASSES)
        if node > 1:
            edge(axes, node, padded, linestyle=":" if is_padding else "-")
        circle(axes, node, padded, f"{nodes[node]:g}", ls=":" if is_padding else "-")
        x, y = place_of(node, padded)
        side, align = (-0.36, "right") if node % 2 == 0 else (0.36, "left")
        axes.text(x + side, y + 0.28, str(node), size=7, ha=align)
    for leaf in range(len(MASSES)):
        axes.text(leaf, -0.75, str(leaf), ha="center", size=9)
    axes.text(7, -0.75, "padding", ha="center", size=8)
    for text, y in (("index", -0.75), ("masses", 0.0), ("sums of two", 1.25), ("of four", 2.5)):
        axes.text(-2.2, y, text, va="center", size=9)
    axes.text(-2.2, 3.75, "total", va="center", size=9)
    return figure


def draw_update() -> Any:
    """Sixteen leaves: climbs from the written ones, then sweeps of whole levels."""
    padded, written, climbed = 16, (1, 2, 9, 12), 2
    figure, axes = canvas(8.4, 4.4, (-0.8, 22.5), (-1.0, 5.8))
    touched = {padded + leaf for leaf in written}
    for level in range(1, climbed + 1):
        touched |= {(padded + leaf) >> level for leaf in written}
    for node in range(2, 2 * padded):
        heavy = node in touched and node // 2 in touched
        edge(axes, node, padded, linewidth=2.4 if heavy else 0.6)
    for node in range(1, 2 * padded):
        swept = node < padded >> climbed
        style: dict[str, Any] = {"hatch": "////"} if swept else {}
        if node in touched:
            style = {"fc": "0.25" if node >= padded else "0.7"}
        circle(axes, node, padded, "", **style)
    sides = {
        0: "leaves: 4 are written",
        1: "climb: 4 parents",
        2: "climb: 3 of 4 nodes, one of them twice",
        3: "sweep: both nodes, in order",
        4: "sweep: the root",
    }
    for level, text in sides.items():
        axes.text(16.1, level * 1.25, text, va="center", size=9)
    return figure


def draw_descent() -> Any:
    """Follow one target from the root to a leaf."""
    padded, nodes, rest, node = 8, sums_of(MASSES, 8), 4.25, 1
    figure, axes = canvas(8.6, 4.3, (-0.8, 13.5), (-1.3, 4.2))
    path, said = [1], []
    while node < padded:
        left = nodes[2 * node]
        go_left = left > rest or nodes[2 * node + 1] == 0
        sign, turn = (">", "left") if go_left else ("<=", "right")
        after = "" if go_left else f", m = {rest:g} - {left:g} = {rest - left:g}"
        said.append(f"l = {left:g} {sign} m = {rest:g}: {turn}{after}")
        rest -= 0.0 if go_left else left
        node = 2 * node + (0 if go_left else 1)
        path.append(node)
    for child in range(2, 2 * padded):
        edge(axes, child, padded, linewidth=3.0 if child in path else 0.6)
    for i in range(1, 2 * padded):
        circle(axes, i, padded, f"{nodes[i]:g}", lw=2.6 if i in path else 0.8)
    for level, text in enumerate(said):
        axes.text(8.3, 3.75 - 1.25 * level, text, va="center", size=9)
    axes.text(8.3, 0, f"index {node - padded}", va="center", size=9, weight="bold")
    for leaf in range(padded):
        axes.text(leaf, -0.75, str(leaf), ha="center", size=9)
    return figure


def draw_vectors() -> Any:
    """Descents in the lanes of vectors, each of which takes a level before any takes the next."""
    figure, axes = canvas(8.4, 4.2, (-3.6, 18.2), (-6.4, 2.6))
    lanes, vectors, pitch = 4, 4, 1.9
    for vector, level in itertools.product(range(vectors), range(4)):
        x, y = vector * (lanes + 0.6), -pitch * level
        for lane in range(lanes):
            axes.add_patch(Rectangle((x + lane, y), 1, 1, fc="white", ec="black", lw=0.9))
            text = "i = 1" if level == 0 else "2i + b"
            axes.text(x + lane + 0.5, y + 0.5, text, ha="center", va="center", size=6)
        axes.text(x, y + 1.15, f"step {level * vectors + vector + 1}", size=7)
    for vector in range(vectors):
        x = vector * (lanes + 0.6) + lanes / 2
        axes.text(x, 1.9, f"vector {vector}", ha="center", size=9)
    for level, text in enumerate(("root", "level 1", "level 2", "level 3")):
        axes.text(-3.5, -pitch * level + 0.5, text, va="center", size=9)
    return figure


def draw_race() -> Any:
    """Two threads at one level boundary, without a barrier and with one."""
    figure, axes = canvas(8.2, 4.0, (-1.5, 15.6), (-0.6, 7.4))
    for base, title, barrier in ((4.0, "without a barrier", False), (0.0, "with one", True)):
        axes.text(-1.4, base + 2.75, title, size=10, weight="bold")
        for row, thread in ((1.6, "thread 0"), (0.4, "thread 1")):
            axes.text(-1.4, base + row, thread, va="center", size=9)
        if not barrier:
            steps = [(1.6, 1.0, "4 = 8 + 9", ""), (1.6, 4.7, "2 = 4 + 5", "////"),
                     (0.4, 8.4, "5 = 10 + 11", "")]  # fmt: skip
        else:
            steps = [(1.6, 1.0, "4 = 8 + 9", ""), (0.4, 4.7, "5 = 10 + 11", ""),
                     (1.6, 10.0, "2 = 4 + 5", "")]  # fmt: skip
            axes.plot([8.9, 8.9], [base - 0.2, base + 2.2], color="black", lw=2.5)
            axes.text(8.9, base + 2.35, "barrier", ha="center", size=8)
        for row, x, text, hatch in steps:
            box = FancyBboxPatch((x, base + row - 0.4), 3.2, 0.8, boxstyle="round,pad=0.05")
            box.set(fc="white", ec="black", hatch=hatch, lw=1.0)
            axes.add_patch(box)
            under = {"fc": "white", "ec": "none", "pad": 1}
            axes.text(x + 1.6, base + row, text, ha="center", va="center", size=9, bbox=under)
        if not barrier:
            axes.text(8.2, base + 1.6, "reads node 5 of before: node 2 is wrong, for good",
                      va="center", size=9)  # fmt: skip
    axes.annotate("time", (15.3, -0.4), (0.8, -0.4), va="center", size=9,
                  arrowprops={"arrowstyle": "-|>", "color": "black"})  # fmt: skip
    return figure


def part(axes: Any, x: float, y: float, width: float, text: tuple[str, str], **style: Any) -> None:
    """Draw one part of the product: a box, its name and what it is."""
    axes.add_patch(Rectangle((x, y), width, 0.95, **{"fc": "white", "ec": "black", **style}))
    axes.text(x + 0.15, y + 0.66, text[0], va="center", size=8.5, weight="bold")
    axes.text(x + 0.15, y + 0.28, text[1], va="center", size=7.5)


def draw_architecture() -> Any:
    """Put each part on those that it imports, and beside them what else is there."""
    figure, axes = canvas(8.4, 4.9, (-0.9, 16.1), (-0.1, 8.8))
    pitch = 1.3
    parts = [
        ("src/", "the C library: cpu, multicore, gpu behind one interface"),
        ("bindings.cpp, backends.py", "opens one of the three at run time, by absolute path"),
        ("tree.py", "SumTree, MinTree, PriorityTree: arguments, errors, draws"),
        ("buffer.py", "PrioritizedReplayBuffer: ring, ids, frames, weights"),
        ("replay/", "replay rank and clients over MPI: credits, pacing, shards"),
        ("apex/", "actors, learner, networks: Ape-X DQN"),
        ("cli/", "the commands"),
    ]
    for row, text in enumerate(parts):
        part(axes, 0, row * pitch, 8.2, text, lw=1.6 if row == 0 else 0.9)
        if row:
            axes.annotate("", (4.1, row * pitch - 0.35), (4.1, row * pitch),
                          arrowprops={"arrowstyle": "-|>", "color": "black", "shrinkA": 0,
                                      "shrinkB": 0})  # fmt: skip
    axes.text(
        -0.5, 3 * pitch + 0.5, "imports go down", rotation=90, va="center", ha="center", size=8
    )
    beside = [
        (2, 8.7, 3.5, "reference.py", "the same, plain Python"),
        (3, 8.7, 3.5, "checkpoint/", "files; knows no buffers"),
        (3, 12.4, 3.6, "compat/, adapters/", "others' names over these"),
        (4, 8.7, 3.5, "metrics/", "lines of JSON"),
        (5, 8.7, 3.5, "jobs/", "templates, sites, checks"),
        (6, 8.7, 3.5, "bench/", "races, tables, pictures"),
    ]
    for row, x, width, *text in beside:
        part(axes, x, row * pitch, width, (text[0], text[1]), lw=0.9, ls="--")
    return figure


FIGURES: dict[str, Callable[[], Any]] = {
    "tree": draw_tree,
    "update": draw_update,
    "descent": draw_descent,
    "vectors": draw_vectors,
    "race": draw_race,
    "architecture": draw_architecture,
}


def main() -> None:
    """Write all figures into a folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parent)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        with pyplot.rc_context(STYLE):
            draw().savefig(
                folder / f"{name}.svg",
                metadata={"Date": None, "Creator": None},
                bbox_inches="tight",
            )
        pyplot.close("all")


if __name__ == "__main__":
    main()
