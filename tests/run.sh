#!/bin/sh
# The tests:  sh tests/run.sh [part]
#
#   (no part)     the C library's tests, the Python tests, and real MPI runs: under 6 minutes
#   sanitize      the C tests and the Python tests of the trees under AddressSanitizer and
#                 UndefinedBehaviorSanitizer
#   gpu           the C tests and the Python tests of trees with the gpu backend, the host standing in
#                 for a GPU; tests/device/run.sh runs on real ones
#   instructions  instructions of updates and samples as ratios to the classic loops (valgrind)
#   threads       the C tests of multicore under ThreadSanitizer (Clang)
#   aarch64       the C tests for 64-bit ARM, cross-compiled, under qemu-user
#   lint          formatters, linters and type checker; whether the mutants fit the code
#   jobs          the job templates on a private Slurm; needs root and apt; at most 5 minutes
#   packaging     the C installation, sdist and wheel, the conda and Spack recipes; at most 3 minutes
#   docs          builds the documentation into build/docs, every warning an error; runs the code on its
#                 pages and checks their links; at most 2 minutes
#   mutants       named faults, each of which must turn the suite red
#   fuzz          fuzzing of what comes from outside: FUZZ_SECONDS (600) of each target in tests/fuzz, in
#                 FUZZ_JOBS processes (one for each core), with the inputs in the folder FUZZ_CORPUS
#   soak          two minutes of a flood with a slow learner: memory, sums and credits
#   adapters      what stands in for Tianshou and TorchRL beside them, the adapters for TorchRL and
#                 Stable-Baselines3, the examples with PyTorch; downloads gigabytes the first time
#   long          soaks, hundreds of kills, large trees, many seeds
#
# Installs what is needed into .venv in the checkout; prints the seconds of each step.
set -eu

checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
# shellcheck source=jobs/environment.sh
. "$checkout/jobs/environment.sh"

# Runs a command and prints how long it took; the script ends if the command fails.
step() {
    name=$1
    shift
    printf '\n== %s\n' "$name"
    began=$(date +%s)
    "$@" || fail "$name failed"
    printf '== %s: %s s\n' "$name" "$(($(date +%s) - began))"
}

# The same MPI everywhere, whatever the machine has.
prepare_with_mpi() {
    environment_prepare test
    launcher_prepare own
}

# Configures and builds a CMake preset. A cache of another folder is made anew.
c_build() {
    cmake=$environment/bin/cmake
    "$cmake" --preset "$1" >/dev/null 2>&1 || quietly "$cmake" --fresh --preset "$1" || return 1
    quietly "$cmake" --build --preset "$1" --parallel
}

c_tests() {
    c_build "$1" && "$environment/bin/ctest" --preset "$1"
}

# The trees again, on more threads than one even where the machine has one core.
multicore_tests() {
    OMP_NUM_THREADS=3 "$python" -m pytest -q --backend multicore \
        tests/python/test_tree*.py tests/python/test_threads.py tests/python/test_errors.py
}

default_part() {
    step 'set-up' prepare_with_mpi
    step 'set-up for two hosts' hosts_prepare
    step 'C tests' c_tests multicore
    step 'Python tests' "$python" -m pytest -q tests/python tests/docs/test_first_pages.py
    step 'Python tests, multicore' multicore_tests
    step 'MPI tests' "$python" -m pytest -q tests/mpi
}

# Installs the package, built otherwise than the one in .venv, into a folder for PYTHONPATH to put first.
package_beside() {
    site=$checkout/build/$1/site
    shift
    current=$(python=$environment/bin/python sources_digest)
    [ "$(cat "$site/.sources" 2>/dev/null)" = "$current" ] && return
    rm -rf "$site"
    pip_install --no-deps --target "$site" "$@" "$checkout" || return 1
    printf '%s\n' "$current" >"$site/.sources"
}

# Leaks are looked for in the C tests: an interpreter keeps memory until it ends.
sanitized_python_tests() {
    package_beside asan --config-settings=cmake.build-type=RelWithDebInfo \
        --config-settings=cmake.define.SUMTREE_SANITIZE=address,undefined || return 1
    env LD_PRELOAD="$(cc -print-file-name=libasan.so):$(cc -print-file-name=libubsan.so)" \
        ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1 \
        PYTHONPATH="$site" \
        "$python" -m pytest -q -p no:cacheprovider tests/python/test_tree*.py
}

sanitize_part() {
    step 'set-up' environment_prepare test
    step 'sanitized C tests' c_tests asan
    step 'sanitized Python tests' sanitized_python_tests
}

gpu_set_up() {
    packages_prepare gcc-12-offload-nvptx
    environment_prepare test
}

# Here the host stands in for a GPU. tests/device/run.sh runs on real ones.
gpu_python_tests() {
    package_beside gpu '--config-settings=cmake.define.SUMTREE_BACKENDS=cpu;multicore;gpu' || return 1
    LIBSUMTREE_GPU_ON_HOST=for-tests PYTHONPATH="$site" "$python" -m pytest -q -p no:cacheprovider \
        --backend gpu tests/python/test_tree*.py tests/python/test_device*.py tests/python/test_errors.py \
        tests/python/test_buffer_sample.py
}

gpu_part() {
    step 'set-up' gpu_set_up
    step 'C tests, gpu' c_tests gpu
    step 'Python tests, gpu' gpu_python_tests
}

# SKBUILD makes CMake describe the extension too; nothing is built. Clang has no omp.h and no openacc.h of GCC's: what is
# multicore's or gpu's alone is left to the compiler's warnings.
c_linters() {
    nanobind=$("$python" -m nanobind --cmake_dir) || return 1
    quietly "$environment/bin/cmake" --fresh -S . -B build/lint -DSKBUILD=2 -DSUMTREE_BACKENDS=cpu \
        -Dnanobind_DIR="$nanobind" -DPython_EXECUTABLE="$python" || return 1
    # shellcheck disable=SC2046 # one argument for each file
    "$environment/bin/clang-tidy" --quiet -p build/lint \
        $(find src -name '*.c' ! -name '*device*' ! -name driver.c) python/*.c python/*.cpp || return 1
    # GCC's openacc.h; Clang skips the directives.
    "$environment/bin/clang-tidy" --quiet src/*device*.c src/driver.c -- -std=c11 -DSUMTREE_BACKEND_GPU \
        -DSUMTREE_FLAGS='""' -Isrc -idirafter "$(gcc -print-file-name=include)"
}

lint_part() {
    step 'set-up' environment_prepare test,lint
    step 'clang-format' "$environment/bin/clang-format" --dry-run -Werror \
        src/*.[ch] python/*.c python/*.cpp python/bindings/*.h tests/c/*.[ch] tests/instructions/*.c \
        tests/packaging/*.c tests/fuzz/*.c tests/device/*.[ch] tests/device/*.cu* examples/c/*.c
    step 'clang-tidy' c_linters
    step 'ruff check' "$environment/bin/ruff" check --extend-exclude build .
    step 'ruff format' "$environment/bin/ruff" format --check --extend-exclude build .
    step 'mypy' "$environment/bin/mypy" --strict
    step 'mutants' "$python" tests/mutants/run.py --check
    step 'rendered scripts' rendered_scripts
    step 'shellcheck' "$environment/bin/shellcheck" -x jobs/*.sh jobs/*/*.sh conda-recipe/build.sh tests/run.sh tests/device/run.sh .ci/run
}

packaging_set_up() {
    packages_prepare git pkg-config
    environment_prepare test
}

packaging_part() {
    step 'set-up' packaging_set_up
    step 'packaging tools' pip_install -r tests/packaging/requirements.txt
    step 'packaging tests' "$python" -m pytest -q --durations=10 tests/packaging
}

# Installs the requirements of an extra, without installing the package itself again.
extra_install() {
    requirements=$environment/libsumtree-extra-$1.txt
    "$python" -c '
import sys, tomllib
with open("pyproject.toml", "rb") as file:
    extras = tomllib.load(file)["project"]["optional-dependencies"]
print(*(wanted for wanted in extras[sys.argv[1]] if not wanted.startswith("libsumtree")), sep="\n")
' "$1" >"$requirements" || return 1
    pip_install -r "$requirements"
}

docs_set_up() {
    packages_prepare hdf5-tools
    prepare_with_mpi
    extra_install docs
}

docs_part() {
    step 'set-up' docs_set_up
    step 'documentation' "$python" -m sphinx -W --keep-going -q -E -b html docs build/docs
    step 'tests of the documentation' "$python" -m pytest -q --durations=5 tests/docs
}

# What `libsumtree jobs render` writes is shell, too.
rendered_scripts() {
    for scheduler in slurm pbs lsf; do
        rendered=build/lint/$scheduler.sh
        env -u LIBSUMTREE_JOBS "$python" -m libsumtree jobs render --scheduler "$scheduler" --site mpirun \
            --output "$rendered" --run-dir "it's here" --directive='-x "a b"' apex --env "it's" >/dev/null ||
            return 1
        "$environment/bin/shellcheck" "$rendered" || return 1
    done
}

mutants_part() {
    step 'set-up' prepare_with_mpi
    step 'mutants' "$python" tests/mutants/run.py
}

# Has Debian's packages: installs those that are missing as root, or says what to install.
packages_prepare() {
    missing_packages=''
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q ' installed$' ||
            missing_packages="$missing_packages $package"
    done
    [ -n "$missing_packages" ] || return 0
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
        fail "this part needs Debian's packages$missing_packages: sudo apt-get install$missing_packages"
    fi
    say "installing$missing_packages with apt-get"
    export DEBIAN_FRONTEND=noninteractive
    quietly apt-get update -qq || fail "apt-get update failed (see above)"
    # shellcheck disable=SC2086 # one argument for each package
    quietly apt-get install -y -qq --no-install-recommends --no-remove $missing_packages ||
        fail "apt-get install$missing_packages failed (see above)"
}

instructions_set_up() {
    packages_prepare valgrind
    environment_prepare test
}

instructions_counted() {
    c_build cpu && "$python" tests/instructions/run.py build/cpu/tests/c/count_instructions
}

instructions_part() {
    step 'set-up' instructions_set_up
    step 'instructions' instructions_counted
}

threads_set_up() {
    packages_prepare clang-16 libomp-16-dev libclang-rt-16-dev
    environment_prepare test
    # What Clang's OpenMP runtime does is seen through Archer alone.
    OMP_TOOL_LIBRARIES=$(find /usr/lib/llvm-16/lib -name libarcher.so)
    [ -n "$OMP_TOOL_LIBRARIES" ] || fail "libomp-16-dev brought no libarcher.so"
    TSAN_OPTIONS='ignore_noninstrumented_modules=1 halt_on_error=1 exitcode=66'
    export OMP_TOOL_LIBRARIES TSAN_OPTIONS
}

# A copy in which the members of a team do each other's work: ThreadSanitizer must see that.
planted_race() {
    raced=$checkout/build/tsan/raced
    rm -rf "$raced"
    cp -R src "$raced" || return 1
    sed -i 's/end = first_subtree(&parts, count, member + 1, width);/end = parts.subtrees;/' "$raced/updates_host.c"
    if cmp -s src/updates_host.c "$raced/updates_host.c"; then
        say 'no race was planted: updates_host.c no longer has the line that this function changes'
        return 1
    fi
    rm -f "$raced"/*device*.c "$raced/driver.c"
    quietly clang-16 -std=gnu11 -O1 -g -fopenmp -fsanitize=thread -ffp-contract=off -DSUMTREE_BACKEND_MULTICORE \
        -I"$raced" "$raced"/*.c tests/c/test_updates.c -o "$raced/test_updates" -lm || return 1
    status=0
    OMP_NUM_THREADS=3 "$raced/test_updates" >"$raced/output" 2>&1 || status=$?
    [ "$status" -eq 66 ] && grep -q 'data race' "$raced/output" && return
    say "the planted race was not reported: test_updates ended with $status"
    return 1
}

threads_part() {
    step 'set-up' threads_set_up
    step 'C tests under ThreadSanitizer' c_tests tsan
    step 'a planted race' planted_race
}

aarch64_set_up() {
    packages_prepare gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
    environment_prepare test
}

aarch64_part() {
    step 'set-up' aarch64_set_up
    step 'C tests for aarch64' c_tests aarch64
}

# What the private Slurm is made of, modules, an MPI that speaks PMIx and one that does not.
jobs_system() {
    [ "$(id -u)" -eq 0 ] ||
        fail "this part starts a private Slurm, whose slurmd starts jobs as their users: it needs root"
    getent hosts "$(uname -n)" >/dev/null ||
        fail "this machine's name, $(uname -n), does not resolve, as Slurm needs: add '127.0.0.1 $(uname -n)' to /etc/hosts"
    # Slurm's PMIx plugin opens libpmix.so, which is libpmix-dev's.
    packages_prepare slurmctld slurmd slurm-client munge lmod openmpi-bin libmpich12 libpmix-dev
}

# Installs the product as a site does: Python, library, modulefiles and templates in one prefix.
jobs_prefix() {
    SUMTREE_JOBS_PREFIX=$checkout/build/jobs/prefix
    export SUMTREE_JOBS_PREFIX
    installed=$(sources_digest) || return 1
    [ "$(cat "$SUMTREE_JOBS_PREFIX/.sources" 2>/dev/null)" = "$installed" ] && return
    rm -rf "$SUMTREE_JOBS_PREFIX"
    quietly "$python" -m venv --without-pip "$SUMTREE_JOBS_PREFIX" || return 1
    quietly "$python" -m pip --python "$SUMTREE_JOBS_PREFIX/bin/python" --disable-pip-version-check \
        --no-input install "${checkout}[apex]" || return 1
    cmake=$environment/bin/cmake
    quietly "$cmake" -S . -B build/jobs/cmake || return 1
    quietly "$cmake" --build build/jobs/cmake --parallel || return 1
    quietly "$cmake" --install build/jobs/cmake --prefix "$SUMTREE_JOBS_PREFIX" || return 1
    printf '%s\n' "$installed" >"$SUMTREE_JOBS_PREFIX/.sources"
}

jobs_set_up() {
    jobs_system
    environment_prepare test
    jobs_prefix
}

jobs_part() {
    step 'set-up' jobs_set_up
    step 'job tests' "$python" -m pytest -q --durations=10 tests/jobs
}

# An environment of its own: PyTorch is large.
adapters_set_up() {
    mkdir -p build
    environment=$checkout/build/adapters
    environment_prepare test,bench,sb3
    launcher_prepare own
}

adapters_part() {
    step 'set-up' adapters_set_up
    step 'adapters' env SUMTREE_MPIEXEC="$launcher" "$python" -m pytest -q --durations=5 tests/adapters
}

jobs_long_set_up() {
    jobs_set_up
    "$python" -c 'import reframe' 2>/dev/null || pip_install 'reframe-hpc>=4.7'
}

# Two hosts are two network namespaces where this is root.
hosts_prepare() {
    [ "$(id -u)" -ne 0 ] || command -v ip >/dev/null 2>&1 || packages_prepare iproute2
}

fuzz_set_up() {
    packages_prepare clang-16 libclang-rt-16-dev
    prepare_with_mpi
    # Without Atheris, which is not there for every Python, inputs are mutated blindly.
    "$python" -c 'import atheris' 2>/dev/null ||
        "$python" -m pip install -q -r tests/fuzz/requirements.txt || say 'no Atheris for this Python'
}

fuzz_part() {
    step 'set-up' fuzz_set_up
    step 'fuzzing' "$python" tests/fuzz/run.py all --seconds "${FUZZ_SECONDS:-600}" \
        --jobs "${FUZZ_JOBS:-$(nproc)}" ${FUZZ_CORPUS:+--corpus "$FUZZ_CORPUS"}
}

soak_part() {
    step 'set-up' prepare_with_mpi
    step 'a flood with a slow learner' "$python" -m pytest -q -s -m soak tests/mpi/test_replay_soak.py
}

long_part() {
    step 'set-up' prepare_with_mpi
    step 'long tests' "$python" -m pytest -q -m long tests/python tests/mpi
    step 'set-up for jobs' jobs_long_set_up
    step 'long tests of jobs' "$python" -m pytest -q -m long tests/jobs
}

part=${1-default}
case $part in
default | sanitize | gpu | instructions | threads | aarch64 | lint | jobs | packaging | docs | mutants | adapters | fuzz | soak | long) ;;
*)
    say "tests/run.sh has no part '$part'; parts are: sanitize gpu instructions threads aarch64 lint jobs packaging docs mutants adapters fuzz soak long, or none"
    exit 2
    ;;
esac
if [ $# -gt 1 ]; then
    say "tests/run.sh takes one part, not '$*'"
    exit 2
fi
cd "$checkout"
"${part}_part"
printf '\n== %s: passed\n' "tests/run.sh${1:+ $1}"
