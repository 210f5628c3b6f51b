# One machine and no scheduler: Open MPI or MPICH; what jobs/local.sh uses
# shellcheck shell=sh disable=SC2034 # read by jobs/body.sh and, in a POSIX shell, by jobs/local.sh

site_launcher="mpiexec -n ${job_ranks:-1}"

# Open MPI refuses root, and more ranks than cores, unless told, and binds ranks to cores that other
# jobs use as well. The OMPI_ names are those of version 4, the PRTE_ ones of 5; nothing else reads them.
site_setup() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
    export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
    export PRTE_MCA_hwloc_default_binding_policy=none
}
