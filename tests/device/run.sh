#!/bin/sh
# The gpu backend on a GPU:  sh tests/device/run.sh [HOST | pack FOLDER]
#
#   (nothing)     builds, and runs everything on this machine's GPUs
#   HOST          builds here, carries what is needed to HOST by ssh, runs it there
#   pack FOLDER   builds here and puts what is needed into FOLDER: sh FOLDER/run.sh runs it, wherever it was carried
#
# With DEVICE_PYTHON, an interpreter here of the version that GPU machine's python3 has, the Python package is packed, too.
#
# The GPU machine needs a driver; with nvcc, Python with torch, and compute-sanitizer, more is run. Everything runs, also
# after a failure; the exit status is 1 if anything failed. Results go to $OUT, or to results/ beside the libraries.
set -u

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)

has() { command -v "$1" >/dev/null 2>&1; }

pack() {
    checkout=$(CDPATH='' cd -- "$here/../.." && pwd -P)
    folder=$1
    (cd "$checkout" && cmake --preset gpu && cmake --build --preset gpu --parallel) || exit 1
    mkdir -p "$folder/lib" "$folder/bin" "$folder/source" || exit 1
    folder=$(CDPATH='' cd -- "$folder" && pwd -P)
    compiler=${CC:-cc}
    for library in libgomp.so.1 libgomp-plugin-nvptx.so.1; do
        cp -L "$("$compiler" -print-file-name=$library)" "$folder/lib/$library" || exit 1
    done
    for backend in cpu gpu; do
        cp -L "$checkout/build/gpu/src/libsumtree_$backend.so" "$folder/lib/" || exit 1
    done
    for suite in test_tree test_updates test_draws test_philox test_memory test_device test_device_trees; do
        cp "$checkout/build/gpu/tests/c/${suite}_gpu" "$folder/bin/" || exit 1
    done
    "$compiler" -O2 -std=gnu11 -I"$checkout/src" "$here/compare.c" -o "$folder/bin/compare" -ldl -lm || exit 1
    if has patchelf; then
        mkdir -p "$folder/private" && cp "$folder/lib/libsumtree_gpu.so" "$folder/private/" || exit 1
        cmake -DLIBRARY="$folder/private/libsumtree_gpu.so" -DRUNTIME="$folder/lib/libgomp.so.1" \
            -DPLUGIN="$folder/lib/libgomp-plugin-nvptx.so.1" -DPATCHELF=patchelf -DNM=nm \
            -P "$checkout/cmake/BundleOpenACC.cmake" || exit 1
    fi
    cp "$here"/*.cu "$here"/*.cuh "$here"/*.h "$here"/*.c "$here"/*.py "$checkout/src/sumtree.h" "$folder/source/" || exit 1
    cp "$here/run.sh" "$folder/" || exit 1
    if [ -n "${DEVICE_PYTHON-}" ]; then pack_python; fi
}

# A private OpenACC runtime, as PyTorch comes first in some tests.
pack_python() {
    rm -rf "${folder:?}/wheel" "$folder/tests"
    "$DEVICE_PYTHON" -m pip wheel -q --no-deps -w "$folder/wheel" \
        '--config-settings=cmake.define.SUMTREE_BACKENDS=cpu;multicore;gpu' \
        --config-settings=cmake.define.SUMTREE_BUNDLE_OPENACC=ON "$checkout" || exit 1
    mkdir -p "$folder/tests" && cp -R "$checkout/tests/python" "$checkout/tests/data" "$folder/tests/" || exit 1
    mkdir -p "$folder/tests/device" && cp "$here"/*.py "$folder/tests/device/" || exit 1
    cp -R "$checkout/tests/mpi" "$folder/tests/" || exit 1
}

failures=0

# Runs a command, which is to end with a status, by default 0, and says how it went.
step() {
    name=$1
    expected=$2
    shift 2
    printf '\n== %s\n' "$name"
    began=$(date +%s)
    "$@" 2>&1
    status=$?
    seconds=$(($(date +%s) - began))
    if [ "$status" -eq "$expected" ]; then
        printf '== passed: %s (%s s)\n' "$name" "$seconds"
    else
        printf '== FAILED: %s: status %s (%s s)\n' "$name" "$status" "$seconds"
        failures=$((failures + 1))
    fi
}

skipped() { printf '\n== not run: %s: %s is not here\n' "$1" "$2"; }

# The backend names what is missing, and does not run on the host.
nothing_silent() {
    output=$(env "$@" "$here/bin/test_tree_gpu" 2>&1)
    case $output in
    *DEVICE*) return 0 ;;
    esac
    printf '%s\n' "$output" | head -5
    return 1
}

without_plugin() {
    mkdir -p "$results/alone" && cp "$here/lib/libgomp.so.1" "$results/alone/"
    nothing_silent LD_LIBRARY_PATH="$results/alone"
    outcome=$?
    rm -rf "$results/alone"
    return $outcome
}

run_correctness() {
    for suite in test_device test_device_trees test_tree test_updates test_draws test_philox test_memory; do
        step "C suite $suite" 0 timeout 200 "$here/bin/${suite}_gpu"
    done
    step 'bit for bit as the cpu backend' 0 timeout 300 "$here/bin/compare" "$cpu" "$gpu" 0 "${LARGEST:-26}"
    if [ "$(nvidia-smi -L | wc -l)" -gt 1 ]; then
        step 'bit for bit on the second GPU' 0 timeout 200 "$here/bin/compare" "$cpu" "$gpu" 1 20
    fi
    step 'no device: an error' 0 nothing_silent CUDA_VISIBLE_DEVICES=
    step 'no plugin: an error' 0 without_plugin
}

run_benchmarks() {
    if has nvcc; then
        step 'build of the CUDA comparison' 0 nvcc -O3 -std=c++17 -arch=native -I"$here/source" "$here/source/bench.cu" \
            -o "$results/bench" -ldl
        step 'beside hand-written CUDA' 0 timeout 200 "$results/bench" "$gpu"
        rm -f "$results/bench"
    else
        skipped 'CUDA comparison' nvcc
    fi
    if python3 -c 'import torch' 2>/dev/null; then
        step 'beside torch, loaded after us' 0 timeout 200 python3 "$here/source/with_torch.py" "$gpu" first time
        step 'torch loaded before us: a clear error' 3 timeout 200 python3 "$here/source/with_torch.py" "$gpu" second
        if [ -d "$here/private" ]; then
            for order in first second; do
                step "with a private OpenACC runtime, we come $order" 0 env LD_LIBRARY_PATH= timeout 200 \
                    python3 "$here/source/with_torch.py" "$here/private/libsumtree_gpu.so" $order time
            done
        else
            skipped 'a private OpenACC runtime' patchelf
        fi
    else
        skipped 'PyTorch comparison' torch
    fi
}

on_gpu() { timeout "$1" python3 -m pytest -q -ra -p no:cacheprovider "$2" "$3" "$here/tests/$4"; }

run_python() {
    if [ ! -d "$here/wheel" ]; then
        skipped 'the Python package' 'a wheel (DEVICE_PYTHON)'
        return
    fi
    site=$(mktemp -d)
    step 'installation of the wheel' 0 python3 -m pip install -q --no-deps --target "$site" "$here"/wheel/*.whl
    export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}"
    unset LD_LIBRARY_PATH
    step 'libsumtree verify' 0 timeout 200 python3 -m libsumtree verify --backend gpu
    step 'arrays of PyTorch, CuPy and JAX' 0 on_gpu 200 -p no:randomly device/test_arrays.py
    for suite in test_devices test_threads test_arguments test_tree_contract test_tree_golden test_tree_sample; do
        step "Python suite $suite" 0 on_gpu 200 --backend gpu "python/$suite.py"
    done
    step 'a learner step through Python' 0 timeout 200 python3 "$here/tests/device/time_python.py"
    if python3 -c 'import h5py; from mpi4py import MPI' 2>/dev/null; then
        step 'replay ranks of one job, on GPUs by local rank' 0 on_gpu 300 -p no:randomly device/test_shards.py
    else
        skipped 'replay ranks on GPUs' 'mpi4py with h5py'
    fi
    rm -rf "$site"
}

# The runtime asks the driver for symbols that need not be there: those answers are no errors.
sanitized() { timeout 150 compute-sanitizer --report-api-errors no --error-exitcode 9 --tool "$@"; }

run_sanitizers() {
    if ! has compute-sanitizer; then
        skipped 'memory and race checks' compute-sanitizer
        return
    fi
    step 'compute-sanitizer memcheck' 0 sanitized memcheck "$here/bin/compare" "$cpu" "$gpu" 0 13
    step 'compute-sanitizer racecheck' 0 sanitized racecheck "$here/bin/compare" "$cpu" "$gpu" 0 12 12
}

run_here() {
    cpu=$here/lib/libsumtree_cpu.so
    gpu=$here/lib/libsumtree_gpu.so
    results=${OUT:-$here/results}
    export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    mkdir -p "$results"
    nvidia-smi -L
    for part in ${PARTS:-correctness benchmarks python sanitizers}; do "run_$part"; done
    printf '\n== %s failed\n' "$failures"
    [ "$failures" -eq 0 ]
}

if [ -d "$here/lib" ]; then
    run_here
    exit
fi
case ${1-} in
pack)
    pack "${2:?the folder to pack into}"
    ;;
'')
    pack "$here/../../build/device"
    exec sh "$here/../../build/device/run.sh"
    ;;
*)
    pack "$here/../../build/device"
    tar -C "$here/../../build/device" -c . | ssh "$1" 'folder=$(mktemp -d) && tar -C "$folder" -x && sh "$folder/run.sh"'
    ;;
esac
