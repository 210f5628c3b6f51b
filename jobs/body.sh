# What every job does, whatever the scheduler: sourced, or written into a rendered script, after the
# scheduler's header, which sets
#
#   job_scheduler job_id job_ranks job_folder   its name, the job's id, the ranks given, where it was submitted
#   job_restarts                                how often this job was restarted; empty: count in the run directory
#   job_minutes                                 the walltime asked for
#   job_timer                                   yes: the scheduler sends no signal before the walltime is over
#   job_log                                     a file in the run directory to append the output to; empty: none
#   job_script                                  this script, to be kept in the run directory; empty: no need
#   job_requeue                                 a command: puts this job back into its queue
#   job_cancelled                               a command: true if the job was cancelled, and not preempted
#
# `job_main apex OPTION...` runs Ape-X in all ranks; `job_main replay OPTION... -- COMMAND...` runs our
# replay rank as rank 0 and COMMAND in the others. The exit status is
#
#   0        finished                               75   to be gone on with, but not requeued
#   78       the site, a module or the run          143  cancelled
#            directory is not right                 70   the launcher says 0, the replay rank nothing
#   others   what the launcher ended with
#
# Settings, in the environment or a rendered script: LIBSUMTREE_SITE, LIBSUMTREE_RUN_DIR,
# LIBSUMTREE_MAX_RESTARTS (20), LIBSUMTREE_LEAD (seconds before the end that a checkpoint has; 120).
# shellcheck shell=bash disable=SC2154 # what the header sets

job_say() {
    printf 'libsumtree: job %s.%s: %s\n' "${job_id:-?}" "${job_restarts:-0}" "$*"
}

job_fail() {
    job_say "$2"
    exit "$1"
}

# Prints the folders in which a site's name is looked up, the first one first.
# A home that is no absolute path is none.
site_folders() {
    local config=/nonexistent/.config
    case ${HOME-} in /*) config=$HOME/.config ;; esac
    case ${XDG_CONFIG_HOME-} in /*) config=$XDG_CONFIG_HOME ;; esac
    printf '%s\n' "$config/libsumtree/sites" /etc/libsumtree/sites "${LIBSUMTREE_JOBS:-/nonexistent}/sites"
}

# Prints the file of the site $1: a name, or a path with a slash in it, from where the job was submitted.
site_find() {
    local folder
    case $1 in
    /*) printf '%s\n' "$1" && return ;;
    */*) printf '%s\n' "$job_folder/$1" && return ;;
    '' | *[!A-Za-z0-9._-]*) return 1 ;;
    esac
    while IFS= read -r folder; do
        if [ -f "$folder/$1.sh" ]; then
            printf '%s\n' "$folder/$1.sh"
            return
        fi
    done < <(site_folders)
    return 1
}

# True if the file is root's or this user's, and theirs alone to write, in a folder of theirs to which not
# everybody may write, unless it is sticky. What a group puts there does not belong to this user.
site_is_safe() {
    local real folder user
    user=$(id -u) && real=$(readlink -f -- "$1") || return 1
    [ -n "$(find -L "$1" -maxdepth 0 -type f \( -user 0 -o -user "$user" \) ! -perm /022 2>/dev/null)" ] || return 1
    for folder in "$(dirname -- "$1")" "$(dirname -- "$real")"; do
        [ -n "$(find "$folder/" -maxdepth 0 \( -user 0 -o -user "$user" \) \( ! -perm /002 -o -perm -1000 \) \
            2>/dev/null)" ] || return 1
    done
}

# For sites: makes the `module` command where a batch shell has none.
# shellcheck disable=SC2329 # called by sites
site_modules_init() {
    local init
    type module >/dev/null 2>&1 && return
    for init in ${LMOD_PKG:+"$LMOD_PKG/init/bash"} ${MODULESHOME:+"$MODULESHOME/init/bash"} \
        /usr/share/lmod/lmod/init/bash /usr/share/modules/init/bash /etc/profile.d/modules.sh \
        /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh; do
        if [ -r "$init" ]; then
            # shellcheck source=/dev/null
            . "$init" && type module >/dev/null 2>&1 && return
        fi
    done
    job_why='this node has no module command: neither Lmod nor Environment Modules is set up'
    return 1
}

# For sites: loads modules, and notices where `module` does not say that it failed; `job_why` says which.
# shellcheck disable=SC2329 # called by sites
site_load() {
    local name
    site_modules_init || return 1
    for name; do
        job_why="the module $name cannot be loaded: see module avail"
        module load "$name" || return 1
        case ":${LOADEDMODULES-}:" in
        *":$name:"* | *":$name/"*) ;;
        *) return 1 ;;
        esac
    done
}

# Sources the site and runs its set-up; sets `site`, `job_launch` and `job_python`.
job_site() {
    local asked=${LIBSUMTREE_SITE-}
    [ -n "$asked" ] || job_fail 78 'LIBSUMTREE_SITE names no site: see libsumtree jobs list'
    site=$(site_find "$asked") || job_fail 78 "there is no site '$asked' in: $(site_folders | paste -sd ' ')"
    [ -f "$site" ] || job_fail 78 "the site $site is no file"
    site_is_safe "$site" || job_fail 78 "the site $site is refused: it must belong to root or to you, and be \
writable by its owner alone (chmod go-w); so must its folder, $(dirname -- "$(readlink -f -- "$site")"), belong, \
to which not everybody may write (chmod o-w)"
    site_launcher='' site_python=python
    site_setup() { :; }
    # shellcheck source=/dev/null
    . "$site" || job_fail 78 "the site $site cannot be read"
    job_why='see above'
    site_setup || job_fail 78 "the set-up of the site $site failed: $job_why"
    read -ra job_launch <<<"$site_launcher"
    [ "${#job_launch[@]}" -gt 0 ] || job_fail 78 "the site $site sets no site_launcher"
    job_python=$(command -v "$site_python") || job_fail 78 "the site $site gives no command '$site_python'"
    command -v "${job_launch[0]}" >/dev/null || job_fail 78 "the site $site gives no command '${job_launch[0]}'"
}

# Makes the run directory, for its owner alone, and goes there; sets `run`.
job_run_directory() {
    run=${LIBSUMTREE_RUN_DIR:-$job_folder/libsumtree-$job_id}
    case $run in
    /*) ;;
    *) run=$job_folder/$run ;;
    esac
    export LIBSUMTREE_RUN_DIR=$run
    (umask 077 && mkdir -p "$(dirname "$run")" && { [ -d "$run" ] || mkdir "$run"; }) 2>/dev/null ||
        job_fail 78 "the run directory $run cannot be made"
    [ -n "$(find "$run/" -maxdepth 0 -user "$(id -u)" ! -perm /077 2>/dev/null)" ] ||
        job_fail 78 "the run directory $run must be yours and closed to others (chmod 700)"
    (: >"$run/.trial.$job_id" && rm "$run/.trial.$job_id") 2>/dev/null ||
        job_fail 78 "the run directory $run cannot be written"
    cd "$run" || job_fail 78 "cannot enter the run directory $run"
    [ -z "$job_log" ] || exec >>"$job_log" 2>&1
    [ -z "$job_script" ] || [ "$job_script" -ef job.sh ] || cp "$job_script" job.sh ||
        job_fail 78 "the script $job_script cannot be kept in $run"
}

# Ends the job unless $2, what $1 holds, is a whole number or nothing: bash would evaluate it.
job_need_number() {
    case $2 in
    *[!0-9]* | 0?* | ??????????*) job_fail 78 "$1 is '$2': it must be a whole number of at most 9 digits" ;;
    esac
}

# Where the scheduler does not count restarts: once for each start of this job.
job_count() {
    local counter=$run/restarts.$job_id
    [ -z "$job_restarts" ] || return 0
    job_restarts=${LIBSUMTREE_RESTARTS:-0}
    if [ -f "$counter" ]; then
        job_restarts=$(cat "$counter")
        job_need_number "$counter" "$job_restarts"
        job_restarts=$((job_restarts + 1))
    fi
    printf '%s\n' "$job_restarts" >"$counter" || job_fail 78 "$counter cannot be written"
}

# Prints the value of --shards among the arguments: that many ranks hold the buffer; 1 unless given.
job_shards() {
    local shards=1
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        case $1 in
        --shards) shards=${2-} ;;
        --shards=*) shards=${1#--shards=} ;;
        esac
        shift
    done
    case $shards in
    '' | 0* | *[!0-9]* | ???????*) return 1 ;;
    esac
    printf '%s\n' "$shards"
}

# Sets `job_command` from the arguments of the script.
job_program() {
    local program=$1 shards service=("$job_python" -m mpi4py -m libsumtree jobs rank --ranks "$job_ranks" --mark "$job_mark" --)
    shift
    shards=$(job_shards "$@") || job_fail 78 '--shards must be a number above 0'
    [ "$job_ranks" -ge "$((shards + 2))" ] ||
        job_fail 78 "$program needs $((shards + 2)) ranks or more; the job has $job_ranks"
    case $program in
    apex)
        job_command=("${service[@]}" apex --actors "$((job_ranks - shards - 1))" --output-dir "$run"
            --checkpoint-dir "$run/checkpoints" "$@")
        ;;
    replay) job_beside "$shards" "$@" ;;
    *) job_fail 78 "the program is '$program': apex OPTION..., or replay OPTION... -- COMMAND..." ;;
    esac
}

# The replay rank, or several, and beside them, in the other ranks, a command of the user's.
job_beside() {
    local shards=$1
    shift
    service+=(replay --ranks "$job_ranks" --checkpoint-dir "$run/checkpoints")
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        service+=("$1")
        shift
    done
    [ $# -ge 2 ] || job_fail 78 'replay needs a command for the other ranks: replay OPTION... -- COMMAND...'
    shift
    # shellcheck disable=SC2016 # for the shell of each rank
    job_command=(bash -c 'rank=${PMIX_RANK:-${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-${SLURM_PROCID:-}}}}
shards=$1 words=$2
shift 2
case $rank in
"" | *[!0-9]*) echo "libsumtree: error: the launcher gives its processes no rank" >&2; exit 2 ;;
esac
if [ "$rank" -lt "$shards" ]; then exec "${@:1:words}"; fi
exec "${@:words+1}"' rank "$shards" "${#service[@]}" "${service[@]}" "$@")
}

# shellcheck disable=SC2329 # called by traps
job_forward() {
    [ -z "${job_pid-}" ] || kill -USR1 "$job_pid" 2>/dev/null
}

# TERM itself is never forwarded: mpirun would kill the ranks instead of passing it on.
job_traps() {
    trap 'job_usr1=yes; job_say "signalled (USR1): asking the ranks for a checkpoint"; job_forward' USR1 USR2
    trap 'job_term=yes; job_say "signalled (TERM): asking the ranks for a checkpoint"; job_forward' TERM INT
}

# Signals this shell before the walltime is over.
job_alarm() {
    local seconds=$((job_minutes * 60 - ${LIBSUMTREE_LEAD:-120})) shell=$$
    [ "$job_timer" = yes ] && [ "$seconds" -gt 0 ] || return 0
    (
        trap 'kill "$!" 2>/dev/null; exit 0' TERM
        sleep "$seconds" &
        wait "$!" && kill -USR1 "$shell"
    ) &
    job_alarm_pid=$!
}

# Starts the ranks and waits for them, whatever signals come; sets `job_status`. It looks again and
# again, soon at first and then once a second, for a signal that comes just before `wait` does not end it.
job_wait() {
    local looks=0
    job_status=138
    [ -z "$job_usr1$job_term" ] || return 0
    "${job_launch[@]}" "${job_command[@]}" &
    job_pid=$!
    # A signal may have come when the launcher ran and its id was not noted yet; twice does no harm.
    [ -z "$job_usr1$job_term" ] || job_forward
    while kill -0 "$job_pid" 2>/dev/null; do
        if [ -n "$job_term" ] && [ -s "$job_mark" ]; then
            # Told to end, mpirun can sleep longer than the job is left to live; what counts has been done.
            job_status=0
            return
        fi
        sleep "$((looks < 20 ? 0 : 1)).1" &
        wait "$!"
        looks=$((looks + 1))
    done
    wait "$job_pid"
    job_status=$?
    job_pid=''
}

# Puts the job back into the queue, unless that was done too often.
job_again() {
    local most=${LIBSUMTREE_MAX_RESTARTS:-20}
    if [ "$job_restarts" -ge "$most" ]; then
        job_fail 75 "stopped, and not requeued: it was restarted $job_restarts times, and $most is the limit; \
with LIBSUMTREE_RUN_DIR=$run a new job goes on"
    fi
    job_say "stopped${1:+ ($1)}: requeueing, to go on from the checkpoint"
    trap 'exit 75' TERM INT
    job_requeue || job_fail 75 "$job_scheduler would not requeue the job; with LIBSUMTREE_RUN_DIR=$run a new one goes on"
    # The scheduler ends this shell; one that has not within the minute wants no status of it.
    sleep 60 &
    wait "$!"
    exit 75
}

# Ends the script as its ranks have ended. What the replay rank says in its mark counts, not signals
# alone: they can come after the last step, and reach the ranks without this shell.
job_end() {
    local word
    word=$(cat "$job_mark" 2>/dev/null)
    if [ "$job_status" -eq 0 ] && [ "$word" = finished ]; then
        job_say 'finished'
        exit 0
    fi
    if job_cancelled; then
        job_fail 143 "cancelled, and not requeued; $(job_what_is_left "$word")"
    fi
    case $job_status,$word,$job_usr1 in
    0,stopped*,*) job_again "${word#stopped }" ;;
    138,,yes) job_again 'the signal came before the ranks were ready' ;;
    0,*) job_fail 70 'the launcher ended with status 0, but the replay rank has left no word: did it start?' ;;
    *) job_fail "$job_status" "failed: the launcher ended with status $job_status (see above)" ;;
    esac
}

job_what_is_left() {
    case $1 in
    stopped*) printf 'a checkpoint was written: LIBSUMTREE_RUN_DIR=%s goes on from it' "$run" ;;
    *) printf 'what stands in %s is the last checkpoint' "$run/checkpoints" ;;
    esac
}

job_main() {
    set +eu # the init scripts of module systems break under both
    job_usr1='' job_term='' job_pid=''
    job_need_number LIBSUMTREE_LEAD "${LIBSUMTREE_LEAD-}"
    job_need_number LIBSUMTREE_MAX_RESTARTS "${LIBSUMTREE_MAX_RESTARTS-}"
    job_need_number LIBSUMTREE_RESTARTS "${LIBSUMTREE_RESTARTS-}"
    job_traps
    job_run_directory
    job_count
    job_site
    job_mark=$run/mark.$job_id.$job_restarts
    rm -f "$job_mark"
    job_program "${@:-apex}"
    job_say "starts on $(hostname -s): $job_ranks ranks, $site, run directory $run"
    job_alarm
    job_wait
    [ -z "${job_alarm_pid-}" ] || kill "$job_alarm_pid" 2>/dev/null
    job_end
}
