"""Links of docstrings that name an object without its module, or an attribute of a class.

A docstring says `ReplayConfig.grace` as people do. Where Sphinx finds nothing under the full name,
the object of ours that ends so is meant, the one with the shortest name; an attribute that has no
entry of its own leads to its class, if the class really has it.
"""

from __future__ import annotations

import importlib
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.domains.python import PythonDomain
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode


def _ending_in(domain: PythonDomain, name: str) -> str | None:
    found = [full for full in domain.objects if full == name or full.endswith(f".{name}")]
    return min(found, key=lambda full: (len(full), full), default=None)


def has_attribute(full: str, attribute: str) -> bool:
    """Tell whether a documented class has an attribute, be it declared or given a value."""
    module, _, name = full.rpartition(".")
    owner = getattr(importlib.import_module(module), name, None)
    declared = getattr(owner, "__annotations__", {})
    said = getattr(owner, "__doc__", None) or ""
    return attribute in declared or hasattr(owner, attribute) or f"\n    {attribute} :" in said


def _meant(domain: PythonDomain, name: str) -> str | None:
    full = _ending_in(domain, name)
    if full is not None or "." not in name:
        return full
    owner, _, attribute = name.rpartition(".")
    full = _ending_in(domain, owner)
    return full if full is not None and has_attribute(full, attribute) else None


def resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> Any:
    """Give the link for a reference that nothing else resolved; None if there is none."""
    if node.get("refdomain") != "py":
        return None
    domain = env.domains.python_domain
    full = _meant(domain, node["reftarget"])
    if full is None:
        return None
    entry = domain.objects[full]
    return make_refnode(
        app.builder, node["refdoc"], entry.docname, entry.node_id, [content.deepcopy()], full
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Resolve what is missing."""
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
