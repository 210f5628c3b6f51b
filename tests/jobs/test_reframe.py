"""The ReFrame tests that sites can run, run as a site would on the private Slurm."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from cluster import LMOD, Cluster

CONFIGURATION = """\
site_configuration = {{
    "systems": [{{
        "name": "here",
        "hostnames": [".*"],
        "modules_system": "nomod",
        "prefix": {folder!r},
        "partitions": [{{
            "name": "nodes",
            "scheduler": "squeue",
            "launcher": "srun",
            "environs": ["builtin"],
            # Both nodes are this host: shared memory would take one's ranks for the other's.
            "env_vars": [["SLURM_MPI_TYPE", "pmix"], ["OMPI_MCA_btl", "tcp,self"]],
            "prepare_cmds": [{init!r}, "module use {modules}", "module load libsumtree"],
        }}],
    }}],
    "environments": [{{"name": "builtin"}}],
    "general": [{{"remote_detect": False, "topology_prefix": {folder!r}}}],
}}
"""


@pytest.mark.long
def test_a_site_can_run_them(cluster: Cluster) -> None:
    configuration = cluster.folder / "site.py"
    modules = cluster.prefix / "share" / "modulefiles"
    configuration.write_text(
        CONFIGURATION.format(folder=str(cluster.folder), init=LMOD, modules=modules)
    )
    reframe = Path(sys.executable).with_name("reframe")
    done = cluster.login(
        f'{reframe} -C {configuration} -c "$LIBSUMTREE_JOBS/reframe" -r --performance-report '
        "--max-retries 0 --nocolor"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"PASSED.*Ran 3/3 test case\(s\)", done.stdout), done.stdout
    assert "transitions/s" in done.stdout
