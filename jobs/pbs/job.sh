#!/bin/bash
#PBS -N libsumtree
#PBS -l select=1:ncpus=6:mpiprocs=6
#PBS -l walltime=01:00:00
#PBS -j oe
#PBS -r y
#
#   module load libsumtree
#   LIBSUMTREE_SITE=mpirun qsub -V "$LIBSUMTREE_JOBS/pbs/job.sh"
#
# qsub hands no arguments to a script: for others than plain `apex`, libsumtree jobs render writes them into one.
# The output of the ranks is appended to job.log in the run directory, for PBS begins its own file anew.

job_scheduler=PBS
job_id=${PBS_JOBID:?this is a job script: hand it to qsub}
job_ranks=$(wc -l <"${PBS_NODEFILE:-/dev/null}")
job_folder=${PBS_O_WORKDIR:-$PWD}
job_restarts=''
job_minutes=60
job_timer=yes
job_log=job.log
job_script=$0

# What qsub was told counts, where PBS can be asked.
job_walltime=$(qstat -f "$PBS_JOBID" 2>/dev/null | sed -n 's/^ *Resource_List.walltime = //p')
case $job_walltime in
*[!0-9:]* | '') ;;
*:*:*) IFS=: read -r job_hours job_rest _ <<<"$job_walltime" && job_minutes=$((10#$job_hours * 60 + 10#$job_rest)) ;;
esac

# At some sites only operators may rerun a job: a successor with the same script is handed in there.
job_requeue() {
    local successor
    qrerun "$PBS_JOBID" 2>/dev/null && return
    export LIBSUMTREE_RESTARTS=$((job_restarts + 1))
    successor=$(qsub -V -W "depend=afterany:$PBS_JOBID" "$LIBSUMTREE_RUN_DIR/job.sh") || return 1
    job_fail 75 "goes on as $successor"
}

# PBS sends TERM in both cases; USR1 came first if the walltime is over.
job_cancelled() {
    [ -n "$job_term" ] && [ -z "$job_usr1" ]
}

# shellcheck source=jobs/body.sh
. "${LIBSUMTREE_JOBS:?is not set: load the module libsumtree and use qsub -V, or libsumtree jobs render}/body.sh" || exit 78
job_main "$@"
