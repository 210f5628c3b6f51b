"""What a mutant is: one fault, and the tests that must notice it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A fault: `old`, which stands once in `file`, becomes `new`; `targets` must notice.

    Attributes
    ----------
    name : str
    file : str
        Below the checkout: of src/, of python/libsumtree/ or of python/bindings/.
    old, new : str
    targets : list of str
        What pytest is given.
    level : str
        The vector level that the mutated code is for: without it, nothing can notice.
    """

    name: str
    file: str
    old: str
    new: str
    targets: list[str]
    level: str = "baseline"


def noticed_by(file: str, *names: str) -> list[str]:
    """Name tests of one file, as pytest does."""
    return [f"{file}::test_{name}" for name in names]
