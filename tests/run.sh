#!/bin/sh
# The tests:  sh tests/run.sh [part]
#
#   (no part)   the C library's tests, the Python tests, and real MPI runs: under 6 minutes
#   sanitize    the C tests and the Python tests of the trees under AddressSanitizer and
#               UndefinedBehaviorSanitizer
#   lint        formatters, linters and type checker
#   mutants     named faults, each of which must turn the suite red
#   long        soaks, hundreds of kills, large trees, many seeds
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

prepare_with_mpi() {
    environment_prepare test
    launcher_prepare
}

# Configures, builds and runs the C tests of a CMake preset. A cache of another folder is made anew.
c_tests() {
    cmake=$environment/bin/cmake
    "$cmake" --preset "$1" >/dev/null 2>&1 || quietly "$cmake" --fresh --preset "$1" || return 1
    quietly "$cmake" --build --preset "$1" --parallel || return 1
    "$environment/bin/ctest" --preset "$1"
}

# The trees again, on more threads than one even where the machine has one core.
multicore_tests() {
    OMP_NUM_THREADS=3 "$python" -m pytest -q --backend multicore \
        tests/python/test_tree*.py tests/python/test_threads.py tests/python/test_errors.py
}

default_part() {
    step 'set-up' prepare_with_mpi
    step 'C tests' c_tests multicore
    step 'Python tests' "$python" -m pytest -q tests/python
    step 'Python tests, multicore' multicore_tests
    step 'MPI tests' "$python" -m pytest -q tests/mpi
}

# Installs the package with a sanitised backend beside the build, for PYTHONPATH to put first.
sanitized_package() {
    site=$checkout/build/asan/site
    sanitized=$(python=$environment/bin/python sources_digest)
    [ "$(cat "$site/.sources" 2>/dev/null)" = "$sanitized" ] && return
    rm -rf "$site"
    pip_install --no-deps --target "$site" --config-settings=cmake.build-type=RelWithDebInfo \
        --config-settings=cmake.define.SUMTREE_SANITIZE=address,undefined "$checkout"
    printf '%s\n' "$sanitized" >"$site/.sources"
}

# Leaks are looked for in the C tests: an interpreter keeps memory until it ends.
sanitized_python_tests() {
    sanitized_package
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

# SKBUILD makes CMake describe the extension too; nothing is built. Clang has no omp.h of GCC's: what is multicore's
# alone is left to the compiler's warnings.
c_linters() {
    nanobind=$("$python" -m nanobind --cmake_dir) || return 1
    quietly "$environment/bin/cmake" --fresh -S . -B build/lint -DSKBUILD=2 -DSUMTREE_BACKENDS=cpu \
        -Dnanobind_DIR="$nanobind" -DPython_EXECUTABLE="$python" || return 1
    "$environment/bin/clang-tidy" --quiet -p build/lint src/*.c python/*.c python/*.cpp
}

lint_part() {
    step 'set-up' environment_prepare test,lint
    step 'clang-format' "$environment/bin/clang-format" --dry-run -Werror \
        src/*.[ch] python/*.c python/*.cpp python/bindings/*.h tests/c/*.[ch]
    step 'clang-tidy' c_linters
    step 'ruff check' "$environment/bin/ruff" check --extend-exclude build .
    step 'ruff format' "$environment/bin/ruff" format --check --extend-exclude build .
    step 'mypy' "$environment/bin/mypy" --strict
    step 'shellcheck' "$environment/bin/shellcheck" -x jobs/*.sh tests/run.sh .ci/run
}

mutants_part() {
    step 'set-up' prepare_with_mpi
    step 'mutants' "$python" tests/mutants/run.py
}

long_part() {
    step 'set-up' prepare_with_mpi
    step 'long tests' "$python" -m pytest -q -m long tests/python tests/mpi
}

part=${1-default}
case $part in
default | sanitize | lint | mutants | long) ;;
*)
    say "tests/run.sh has no part '$part'; parts are: sanitize lint mutants long, or none"
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
