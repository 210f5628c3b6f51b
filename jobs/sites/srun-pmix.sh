# Slurm, srun and PMIx: for Open MPI 4 and 5
# shellcheck shell=bash disable=SC2034 # read by jobs/body.sh
#
# --export=ALL: the ranks get this shell's environment even if sbatch was told --export=NONE.
# --kill-on-bad-exit: one dead rank ends the job at once, instead of leaving the others to wait for it.

site_launcher='srun --mpi=pmix --export=ALL --kill-on-bad-exit=1'

# Add the modules of your MPI and Python before libsumtree, as in: site_load openmpi/5.0 python/3.12 libsumtree
site_setup() {
    site_load libsumtree
}
