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
job_log=''
job_script=''

job_requeue() {
    scontrol requeue "$SLURM_JOB_ID"
}

# A job that Slurm is ending by itself is COMPLETING, whatever the cause, until this script has ended: without the
# word TimeLimit and without a new restart, somebody has cancelled it. In the grace of a preemption it is RUNNING.
job_cancelled() {
    local facts
    facts=" $(scontrol -o show job "$SLURM_JOB_ID" 2>/dev/null)" || facts=''
    case $facts in
    *' Reason=TimeLimit '*) return 1 ;;
    *' JobState=CANCELLED '* | *' JobState=COMPLETING '*) [[ $facts == *" Restarts=$job_restarts "* ]] ;;
    *' JobState='*) return 1 ;;
    *) [ -n "$job_term" ] ;;
    esac
}

# shellcheck source=jobs/body.sh
. "${LIBSUMTREE_JOBS:?is not set: load the module libsumtree, or use libsumtree jobs render}/body.sh" || exit 78
job_main "$@"
