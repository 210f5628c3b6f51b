"""What a site can run to see that its libsumtree works: ReFrame tests (reframe-hpc, 4.7 or newer).

::

    module load libsumtree
    reframe -C your_site.py -c "$LIBSUMTREE_JOBS/reframe" -r --performance-report

Your ReFrame configuration names partitions and environments; the environment must bring Python with
libsumtree[apex]: by ``-S '*.modules=libsumtree'``, or by the partition's ``prepare_cmds``. With
srun, ``SLURM_MPI_TYPE`` among the partition's ``env_vars`` says ``pmix`` or ``pmi2``. The last test
hands jobs in by itself, so it needs Slurm, and the name of your site's file:
``-S RequeueCycle.site=NAME``.
"""

from __future__ import annotations

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import performance_function, run_after, sanity_function, variable


class _Anywhere(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    maintainers = ["the libsumtree developers"]


@rfm.simple_test
class VerifyOnComputeNode(_Anywhere):
    """Every backend of the installation gives the bits of the plain-Python reference."""

    descr = "libsumtree verify on a compute node"
    executable = "libsumtree"
    executable_opts = ["verify"]
    time_limit = "10m"

    @sanity_function
    def verified(self) -> object:
        """Look for the last line of a good verification."""
        return sn.assert_found(r"^verified: \w+", self.stdout)


@rfm.simple_test
class TwoNodeIntake(_Anywhere):
    """Actors on two nodes add transitions to one replay rank."""

    descr = "transitions per second into a replay rank, from two nodes"
    executable = "python"
    executable_opts = ["-m", "mpi4py", "intake.py", "--seconds", "5"]
    sourcesdir = "src"
    num_tasks = 6
    num_tasks_per_node = 3
    time_limit = "10m"

    @sanity_function
    def both_nodes_worked(self) -> object:
        """Look for as many nodes as were asked for, and for every transition that was sent."""
        nodes = sn.extractsingle(r"^nodes +(\d+)$", self.stdout, 1, int)
        sent = sn.extractsingle(r"^sent +(\d+)$", self.stdout, 1, int)
        held = sn.extractsingle(r"^added +(\d+)$", self.stdout, 1, int)
        return sn.all([sn.assert_eq(nodes, 2), sn.assert_gt(sent, 0), sn.assert_eq(sent, held)])

    @performance_function("transitions/s")
    def intake(self) -> object:
        """Return the rate."""
        return sn.extractsingle(r"^rate +(\S+) transitions/s$", self.stdout, 1, float)


@rfm.simple_test
class RequeueCycle(_Anywhere):
    """A job that is signalled makes a checkpoint, is requeued, goes on and finishes."""

    descr = "checkpoint, requeue, resume, on this site's Slurm"
    site = variable(str, value="srun-pmix")
    executable = "python"
    sourcesdir = "src"
    local = True
    time_limit = "30m"

    @run_after("init")
    def name_the_site(self) -> None:
        """Hand the site's name to the program."""
        self.executable_opts = ["cycle.py", "--site", self.site]

    @sanity_function
    def went_on(self) -> object:
        """Look for the word of the program that all was so."""
        return sn.assert_found(r"^cycle: good$", self.stdout)
