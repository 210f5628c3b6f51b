"""Settings of the documentation: `sh tests/run.sh docs` builds it into build/docs."""

from __future__ import annotations

import sys
from importlib.metadata import version as version_of
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "libsumtree"
author = "the libsumtree developers"
project_copyright = author
release = version = version_of("libsumtree")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "numpydoc",
    "c_header",
    "short_names",
    "sphinxarg.ext",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["extensions"]
templates_path: list[str] = []

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"libsumtree {release}"
html_static_path: list[str] = []
html_show_sourcelink = False

autodoc_member_order = "bysource"
# What libsumtree.adapters imports: gigabytes that no page needs.
autodoc_mock_imports = ["stable_baselines3", "torch", "torchrl"]
autodoc_typehints = "none"
autodoc_class_signature = "mixed"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
default_role = "py:obj"

# Every reference must resolve. Names in one case and without a dot are parameters, attributes and
# constants that a docstring talks of; other packages' names are not looked up, for a build needs
# no network.
nitpicky = True
nitpick_ignore_regex = [
    ("py:obj", r"[a-z_][a-z0-9_]*|[A-Z_]+"),
    (r"py:.*", r"(numpy|np|mpi4py|MPI|h5py|collections|typing|pathlib|argparse)(\..*)?"),
    (r"py:.*", r"(stable_baselines3|torch|torchrl)(\..*)?"),
    ("c:identifier", r"u?int\d+_t"),
]
