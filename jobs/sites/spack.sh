# py-libsumtree of Spack (or $LIBSUMTREE_SPACK, any spec), on an Open MPI with PMIx; srun
# shellcheck shell=bash disable=SC2034 # read by jobs/body.sh

site_launcher='srun --mpi=pmix --export=ALL --kill-on-bad-exit=1'

site_setup() {
    job_why="spack cannot load ${LIBSUMTREE_SPACK:-py-libsumtree}"
    eval "$(spack load --sh "${LIBSUMTREE_SPACK:-py-libsumtree}")" && command -v libsumtree >/dev/null
}
