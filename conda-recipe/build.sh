#!/bin/sh
# Builds the wheel of one conda package and installs it. The GPU package needs what conda-forge's GCC is not: a compiler
# that makes code for NVIDIA GPUs.
#
#   NVHPC_ROOT   an NVIDIA HPC SDK, as in /opt/nvidia/hpc_sdk/Linux_x86_64/25.5: its nvc compiles the C library
#   OFFLOAD_CC   else, a GCC that has nvptx offload
#   GPU_ARCH     optional: the least compute capability to compile for, without the dot (SUMTREE_GPU_ARCH)
set -eu

case $BACKENDS in
*gpu*)
    if [ -n "${NVHPC_ROOT:-}" ]; then
        CC=$NVHPC_ROOT/compilers/bin/nvc
        unset CFLAGS CPPFLAGS LDFLAGS # conda's are GCC's
    elif [ -n "${OFFLOAD_CC:-}" ]; then
        CC=$OFFLOAD_CC
        bundle=ON # conda's libgomp lacks the part that talks to GPUs
    else
        echo "The GPU package cannot be built: set NVHPC_ROOT (an NVIDIA HPC SDK) or OFFLOAD_CC (a GCC with nvptx offload)." >&2
        exit 1
    fi
    command -v "$CC" >/dev/null || {
        echo "The GPU package cannot be built: there is no compiler '$CC'." >&2
        exit 1
    }
    export CC
    ;;
esac

set -- --config-settings=cmake.define.SUMTREE_BACKENDS="$BACKENDS"
if [ -n "${bundle:-}" ]; then
    set -- "$@" --config-settings=cmake.define.SUMTREE_BUNDLE_OPENACC="$bundle"
fi
if [ -n "${GPU_ARCH:-}" ]; then
    set -- "$@" --config-settings=cmake.define.SUMTREE_GPU_ARCH="$GPU_ARCH"
fi
"$PYTHON" -m pip install . -vv --no-deps --no-build-isolation "$@"
