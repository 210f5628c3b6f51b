"""What Sphinx finds in docs/extensions, the tests do as well."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs" / "extensions"))
