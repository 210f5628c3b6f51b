# Slurm, srun and PMI-2: for MPICH, its descendants, and the mpich of PyPI
# shellcheck shell=bash disable=SC2034 # read by jobs/body.sh
#
# With --mpi=pmix, MPICH without PMIx starts every rank as a world of its own: libsumtree jobs check tells.

site_launcher='srun --mpi=pmi2 --export=ALL --kill-on-bad-exit=1'

site_setup() {
    site_load libsumtree
}
