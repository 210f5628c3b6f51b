"""Faults of other packages' names."""

from __future__ import annotations

from mutant import Mutant, noticed_by

MUTANTS = [
    Mutant(
        "Tianshou's targets by the other side",
        "python/libsumtree/compat/tianshou.py",
        'self._tree.find(value, side="left")',
        "self._tree.find(value)",
        noticed_by("tests/python/test_compat_golden.py", "same_answers_as_the_real_one"),
    ),
    Mutant(
        "TorchRL's targets by the other side",
        "python/libsumtree/compat/torchrl.py",
        'return self._tree.find(within, side="left")',
        "return self._tree.find(within)",
        noticed_by("tests/python/test_compat_golden.py", "same_answers_as_the_real_one"),
    ),
    Mutant(
        "a range that includes its end",
        "python/libsumtree/compat/conventions.py",
        "stop = last + capacity if last < 0 else last\n",
        "stop = last + capacity + 1 if last < 0 else last\n",
        noticed_by("tests/python/test_compat_golden.py", "same_answers_as_the_real_one"),
    ),
    Mutant(
        "float32 that is not rounded",
        "python/libsumtree/compat/torchrl.py",
        "return exact.astype(self._DTYPE).astype(np.float64)",
        "return exact.astype(np.float64)",
        noticed_by(
            "tests/python/test_compat_trees.py",
            "torchrl_fp32_rounds_what_goes_in_and_out_and_adds_exactly",
        ),
    ),
    Mutant(
        "eps left out of updates",
        "python/libsumtree/compat/cpprb.py",
        "return priorities + self._eps\n",
        "return priorities + 0.0\n",
        noticed_by("tests/python/test_compat_golden.py", "same_answers_as_the_real_one"),
    ),
    Mutant(
        "overwritten transitions updated",
        "python/libsumtree/compat/cpprb.py",
        "known = ids < self._known\n",
        "known = ids <= ids\n",
        noticed_by(
            "tests/python/test_compat_cpprb.py",
            "what_was_overwritten_is_skipped_where_that_was_asked_for",
        ),
    ),
]
