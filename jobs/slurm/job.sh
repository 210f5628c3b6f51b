#!/bin/bash
#SBATCH --job-name=libsumtree
#SBATCH --ntasks=6
#SBATCH --time=01:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
#
#   module load libsumtree
#   LIBSUMTREE_SITE=srun-pmix sbatch "$LIBSUMTREE_JOBS/slurm/job.sh" apex --seed 0
#   LIBSUMTREE_SITE=srun-pmix sbatch "$LIBSUMTREE_JOBS/slurm/job.sh" replay --capacity 1000000 -- \
#       python -m mpi4py my_agent.py
#
# Options of sbatch before the template's path override the lines above, as SBATCH_ACCOUNT, SBATCH_PARTITION
# and SBATCH_TIMELIMIT do.

job_scheduler=Slurm
job_id=${SLURM_JOB_ID:?this is a job script: hand it to sbatch}
job_ranks=${SLURM_NTASKS:-1}
job_folder=${SLURM_SUBMIT_DIR:-$PWD}
job_restarts=${SLURM_RESTART_COUNT:-0}
job_minutes=60
job_timer=no

job_requeue() {
    scontrol requeue "$SLURM_JOB_ID"
}

# In the grace of a preemption the job is still running; without an answer, TERM means cancelled.
job_cancelled() {
    case $(scontrol -o show job "$SLURM_JOB_ID" 2>/dev/null) in
    *' JobState=CANCELLED '*) return 0 ;;
    *' JobState='*) return 1 ;;
    *) [ -n "$job_term" ] ;;
    esac
}

# shellcheck source=jobs/body.sh
. "${LIBSUMTREE_JOBS:?is not set: load the module libsumtree, or use libsumtree jobs render}/body.sh" || exit 78
job_main "$@"
