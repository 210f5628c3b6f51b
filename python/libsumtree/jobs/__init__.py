"""Jobs for batch schedulers: where templates and sites are, filling them, trying a site out.

The templates themselves are shell scripts: see ``jobs/body.sh`` of the sources, installed beside
this module and by ``cmake --install``.
"""

from __future__ import annotations
