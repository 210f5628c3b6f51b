"""Faults of jobs, and of what is rendered for schedulers."""

from __future__ import annotations

from mutant import Mutant

MUTANTS = [
    Mutant(
        "a site that the group may write",
        "python/libsumtree/jobs/places.py",
        "    if facts.st_mode & _OTHERS_WRITE:\n",
        "    if facts.st_mode & stat.S_IWOTH:\n",
        ["tests/python/test_jobs_render.py::test_a_site_that_others_may_write_is_refused"],
    ),
    Mutant(
        "newlines in rendered values",
        "python/libsumtree/jobs/request.py",
        "    if any(ord(letter) < 32 or ord(letter) == 127 for letter in text):\n",
        '    if "\\0" in text:\n',
        ["tests/python/test_jobs_render.py::test_a_newline_in_a_value_is_an_error"],
    ),
    Mutant(
        "singletons unseen",
        "python/libsumtree/jobs/check.py",
        "    if len(sights) > 1 and sizes == {1}:\n",
        "    if len(sights) > asked and sizes == {1}:\n",
        ["tests/python/test_jobs_render.py::test_what_ranks_see"],
    ),
    Mutant(
        "a status of 0 taken for an end",
        "python/libsumtree/jobs/templates/body.sh",
        '    if [ "$job_status" -eq 0 ] && [ "$word" = finished ]; then\n',
        '    if [ "$job_status" -eq 0 ]; then\n',
        ["tests/python/test_jobs_body.py::test_a_launcher_that_starts_nothing_is_no_success"],
    ),
    Mutant(
        "marks without the restart",
        "python/libsumtree/jobs/templates/body.sh",
        "    job_mark=$run/mark.$job_id.$job_restarts\n",
        "    job_mark=$run/mark.$job_id\n",
        ["tests/python/test_jobs_body.py::test_signalled_before_the_end_of_the_walltime"],
    ),
    Mutant(
        "a cancelled job requeued",
        "python/libsumtree/jobs/templates/body.sh",
        "    if job_cancelled; then\n",
        "    if false; then\n",
        ["tests/python/test_jobs_body.py::test_cancelled"],
    ),
]
