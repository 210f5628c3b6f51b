# A conda environment named libsumtree (or $LIBSUMTREE_CONDA), with its own MPI; srun and PMI-2
# shellcheck shell=bash disable=SC2034 # read by jobs/body.sh
#
# An environment with conda-forge's openmpi: site_launcher="mpirun -n $job_ranks", as in the site mpirun.

site_launcher='srun --mpi=pmi2 --export=ALL --kill-on-bad-exit=1'

site_setup() {
    local base
    base=$(conda info --base) || return 1
    # shellcheck source=/dev/null
    . "$base/etc/profile.d/conda.sh" && conda activate "${LIBSUMTREE_CONDA:-libsumtree}"
}
