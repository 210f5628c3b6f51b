# Open MPI's mpirun, inside an allocation of Slurm, PBS or LSF
# shellcheck shell=bash disable=SC2034 # read by jobs/body.sh
#
# Open MPI 4's mpirun kills its ranks 2 seconds after a TERM, which is too short for a checkpoint: the
# first variable gives them a minute. The second lets ranks that wait for messages leave the core to others.
# For MPICH or Intel MPI: site_launcher="mpiexec.hydra -n $job_ranks".

site_launcher="mpirun -n ${job_ranks:-1}"

site_setup() {
    export OMPI_MCA_odls_base_sigkill_timeout=60 OMPI_MCA_mpi_yield_when_idle=1
    site_load libsumtree
}
