#!/bin/bash
#BSUB -J libsumtree
#BSUB -n 6
#BSUB -W 01:00
#BSUB -wa USR1
#BSUB -wt 2
#BSUB -r
#BSUB -o libsumtree-%J.log
#
#   module load libsumtree
#   LIBSUMTREE_SITE=mpirun bsub <"$LIBSUMTREE_JOBS/lsf/job.sh"
#
# bsub reads the script as its input and hands it no arguments: for others than plain `apex`, libsumtree jobs render
# writes them into one. -o appends.

job_scheduler=LSF
job_id=${LSB_JOBID:?this is a job script: hand it to bsub}
job_ranks=${LSB_DJOB_NUMPROC:-1}
job_folder=${LS_SUBCWD:-$PWD}
job_restarts=''
job_minutes=60
job_timer=no
job_log=''
job_script=''

job_requeue() {
    brequeue "$LSB_JOBID"
}

# bkill sends INT and TERM; USR1 came first if the walltime is over.
job_cancelled() {
    [ -n "$job_term" ] && [ -z "$job_usr1" ]
}

# shellcheck source=jobs/body.sh
. "${LIBSUMTREE_JOBS:?is not set: load the module libsumtree, or use libsumtree jobs render}/body.sh" || exit 78
job_main "$@"
