# Several replay shards on several nodes: the buffer is larger or busier than one node can serve
# shellcheck shell=bash disable=SC2034 # read by jobs/body.sh and libsumtree jobs
#
# Ranks are dealt to the nodes in turn, so that ranks 0, 1, ..., which hold the shards, are on nodes of their
# own. Use as many nodes as shards or more, and say --shards to the program:
#
#   LIBSUMTREE_SITE=shards sbatch --nodes=4 --ntasks=64 "$LIBSUMTREE_JOBS/slurm/job.sh" apex --shards 4

site_launcher='srun --mpi=pmix --export=ALL --kill-on-bad-exit=1 --distribution=cyclic'
site_nodes=4
site_ranks=64

site_setup() {
    site_load libsumtree
}
