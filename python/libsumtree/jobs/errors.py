"""What can be wrong with a job before it runs."""

from __future__ import annotations

from ..errors import SumTreeError


class JobError(SumTreeError, ValueError):
    """A job cannot be rendered, or a value of it cannot be what it is."""


class SiteError(JobError):
    """There is no such site, it is not safe to source, or sourcing it failed."""


class CheckError(SumTreeError, RuntimeError):
    """A site does not do what a job needs."""
