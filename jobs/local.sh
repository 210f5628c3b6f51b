#!/bin/sh
# Ape-X on this machine: one replay rank (--shards S: several), one learner, N actors (--actors N, 4 unless given).
#
#   sh jobs/local.sh [--find-links DIR] [options of `libsumtree apex`]
#
# --find-links, which comes first, takes every package from a folder of wheels instead of from PyPI.
#
# Installs what is needed into .venv in the checkout, then starts the ranks with mpiexec. With
# --evaluate no MPI is needed and none is started; with --help nothing is installed either.
set -eu

checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
started_in=$PWD
# shellcheck source=jobs/environment.sh
. "$checkout/jobs/environment.sh"

# Sets `actors`, `shards`, and `alone` where one process is enough: it can also say what is wrong with N.
read_options() {
    actors=4 shards=1 alone=''
    while [ $# -gt 0 ]; do
        case $1 in
        --actors) actors=${2-} ;;
        --actors=*) actors=${1#--actors=} ;;
        --shards) shards=${2-} ;;
        --shards=*) shards=${1#--shards=} ;;
        --evaluate | --evaluate=*) alone=yes ;;
        --help | -h) show_help ;;
        esac
        shift
    done
    for number in "$actors" "$shards"; do
        case $number in
        '' | *[!0-9]* | 0*) alone=yes ;;
        esac
    done
}

# Shows what stands above and, once .venv is there, the options of `libsumtree apex`.
show_help() {
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$checkout/jobs/local.sh"
    if [ -f "$environment/libsumtree-installed" ]; then
        echo
        exec "$environment/bin/python" -m libsumtree apex --help
    fi
    printf '\nIts options are in README.md; this lists all of them once the first run has installed libsumtree.\n'
    exit 0
}

# Makes pip take packages from the folder $1 alone.
packages_from() {
    folder=$(cd -- "$1" 2>/dev/null && pwd -P) || fail "--find-links $1: there is no such folder"
    export PIP_NO_INDEX=1 PIP_FIND_LINKS="$folder"
}

case ${1-} in
--find-links)
    [ $# -ge 2 ] || fail '--find-links needs a folder'
    packages_from "$2"
    shift 2
    ;;
--find-links=*)
    packages_from "${1#--find-links=}"
    shift
    ;;
esac
read_options "$@"
environment_prepare apex
[ -n "$alone" ] || launcher_prepare
cd "$started_in"
if [ -n "$alone" ]; then
    exec "$python" -m libsumtree apex "$@"
fi
# shellcheck disable=SC2034 # read by sites/workstation.sh
job_ranks=$((actors + shards + 1))
launcher_allow
PATH=${launcher%/*}:$PATH
# shellcheck disable=SC2086 # words
exec $site_launcher "$python" -m mpi4py -m libsumtree apex "$@" </dev/null
