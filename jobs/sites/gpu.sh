# A partition with GPUs: one for the replay buffer's tree; srun and PMIx
# shellcheck shell=bash disable=SC2034 # read by jobs/body.sh and libsumtree jobs
#
# render and submit ask for the GPU; with sbatch alone, add --gpus-per-node=1.

site_launcher='srun --mpi=pmix --export=ALL --kill-on-bad-exit=1'
site_gpus=1

site_setup() {
    export LIBSUMTREE_BACKEND=gpu
    site_load libsumtree
}
