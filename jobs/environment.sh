# The set-up that jobs/local.sh and tests/run.sh share: sourced, POSIX sh, after `checkout` is set.
#
#   environment_prepare EXTRAS   makes .venv in the checkout hold this package with these extras
#                                (`apex`, `test` or `test,lint`); in seconds when nothing changed
#   launcher_prepare             sets `launcher` to an mpiexec that fits the environment's mpi4py
#
# Both say on standard error what they do, and end the script with one clear line when they cannot.
# In .venv, libsumtree-made-for says for which Python and folder it was made; libsumtree-installed says
# from which sources and with which extras. Two scripts that start together take turns.
# shellcheck shell=sh

environment=${checkout:?}/.venv
system_packages="python3-venv python3-dev g++ make"

say() {
    printf 'libsumtree: %s\n' "$*" >&2
}

fail() {
    say "$*"
    exit 1
}

# Runs a command, and shows what it printed only if it fails.
quietly() {
    quiet_log=$(mktemp) || fail "no temporary file can be made in ${TMPDIR:-/tmp}: set TMPDIR to a folder of yours"
    if "$@" >"$quiet_log" 2>&1; then
        rm -f "$quiet_log"
    else
        cat "$quiet_log" >&2
        rm -f "$quiet_log"
        return 1
    fi
}

# Prints what the Python $1 lacks for building and running, as Debian's packages; nothing if it is whole.
python_lacks() {
    "$1" -c 'import venv, ensurepip' 2>/dev/null || printf 'python3-venv '
    "$1" -c '
import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))
' 2>/dev/null || printf 'python3-dev '
}

# Sets `python` to the best Python >= 3.11 here and `missing` to Debian's packages that are still needed.
look_around() {
    python='' missing='python3-venv python3-dev '
    for candidate in python3 /usr/bin/python3 python3.14 python3.13 python3.12 python3.11; do
        candidate=$(command -v "$candidate") || continue
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
        lacks=$(python_lacks "$candidate")
        if [ -z "$python" ] || [ -z "$lacks" ]; then
            python=$candidate missing=$lacks
        fi
        [ -n "$lacks" ] || break
    done
    command -v c++ >/dev/null 2>&1 && command -v cc >/dev/null 2>&1 || missing="${missing}g++ "
    command -v make >/dev/null 2>&1 || missing="${missing}make "
}

system_prepare() {
    look_around
    [ -z "$missing" ] && return
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "missing: ${missing% }; installing $system_packages with apt-get"
        export DEBIAN_FRONTEND=noninteractive
        quietly apt-get update -qq || fail "apt-get update failed (see above)"
        # shellcheck disable=SC2086 # one argument for each package
        quietly apt-get install -y -qq --no-install-recommends $system_packages ||
            fail "apt-get install $system_packages failed (see above)"
        look_around
    fi
    [ -z "$missing" ] && return
    if [ -z "$python" ] && command -v python3 >/dev/null 2>&1; then
        fail "Python 3.11 or newer is needed; this is $(python3 --version 2>&1)"
    fi
    say "missing: ${missing% }. On a Debian-like system, this installs what is needed:"
    printf 'sudo apt-get install %s\n' "$system_packages" >&2
    exit 1
}

# Holds the lock of the environment on file descriptor 9 until it is closed.
environment_lock() {
    # A redirection of exec that fails ends the shell before anything is said: a shell of its own tries it.
    (exec 9>"$checkout/.venv.lock") 2>/dev/null || fail "$checkout cannot be written: clone into a folder of yours"
    exec 9>"$checkout/.venv.lock"
    "$python" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)' 2>/dev/null && return
    say "another script is setting up $environment; waiting for it"
    "$python" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)' || fail "cannot lock .venv.lock"
}

environment_unlock() {
    exec 9>&-
}

# Prints a digest over the content of everything that the package is made of.
sources_digest() {
    "$python" - "$checkout" <<'PROGRAM'
import hashlib, sys
from pathlib import Path

root = Path(sys.argv[1])
files = [root / name for name in ("CMakeLists.txt", "pyproject.toml", "VERSION")]
for folder in ("src", "python", "jobs"):
    files += (path for path in (root / folder).rglob("*") if "__pycache__" not in path.parts)
digest = hashlib.sha256()
for path in sorted(path for path in files if path.is_file()):
    digest.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode())
    digest.update(path.read_bytes())
print(digest.hexdigest())
PROGRAM
}

environment_create() {
    made_for=$("$python" -c 'import sys; print(sys.version, sys.base_prefix)' && pwd -P)
    if [ -e "$environment" ]; then
        [ -f "$environment/libsumtree-made-for" ] ||
            fail "$environment was not made by this script: move it away"
        if [ "$(cat "$environment/libsumtree-made-for")" = "$made_for" ] &&
            "$environment/bin/python" -m pip --version >/dev/null 2>&1; then
            return
        fi
        say "making $environment anew: Python or the folder changed, or it was left unfinished"
        rm -rf "$environment"
    fi
    mkdir "$environment" || fail "$environment cannot be made"
    printf '%s\n' "$made_for" >"$environment/libsumtree-made-for"
    quietly "$python" -m venv "$environment" || fail "$python -m venv $environment failed (see above)"
}

pip_install() {
    quietly "$environment/bin/python" -m pip --disable-pip-version-check --no-input install "$@" ||
        fail "pip could not install $* (see above)"
}

# What was installed stays: `test` holds `apex`.
environment_install() {
    extras=$1
    stamp=$environment/libsumtree-installed
    case "$(sed -n 2p "$stamp" 2>/dev/null) $extras" in
    'test,lint '*) extras=test,lint ;;
    'test apex') extras='test' ;;
    esac
    content=$(sources_digest) || fail "the sources in $checkout cannot be read"
    [ "$(cat "$stamp" 2>/dev/null)" = "$(printf '%s\n%s' "$content" "$extras")" ] && return
    say "installing libsumtree[$extras] into $environment; the first time takes a minute or two"
    rm -f "$stamp"
    pip_install "${checkout}[$extras]"
    printf '%s\n%s\n' "$content" "$extras" >"$stamp"
}

environment_prepare() {
    cd "$checkout" || fail "cannot enter $checkout"
    system_prepare
    environment_lock
    environment_create
    environment_install "$1"
    environment_unlock
    python=$environment/bin/python
    export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
}

# Sets `site_launcher` for `job_ranks` ranks, and the environment that launchers need.
launcher_allow() {
    # shellcheck source=jobs/sites/workstation.sh
    . "$checkout/jobs/sites/workstation.sh"
    site_setup
}

# Tells whether two ranks that `launcher` starts see each other through the environment's mpi4py.
launcher_works() {
    sizes=$(timeout 60 "$launcher" -n 2 "$python" -c \
        'from mpi4py import MPI; print(MPI.COMM_WORLD.size, flush=True)' </dev/null 2>/dev/null) &&
        [ "$(printf '%s' "$sizes" | tr -d ' \n')" = 22 ]
}

# Prints the mpiexec of this machine, that of the environment left out. What PATH names from the folder at
# hand is not the machine's.
launcher_of_the_machine() (
    rest=$PATH:
    while [ -n "$rest" ]; do
        folder=${rest%%:*} rest=${rest#*:}
        case $folder in
        "$environment/bin") ;;
        /*)
            if [ -x "$folder/mpiexec" ]; then
                printf '%s\n' "$folder/mpiexec"
                return
            fi
            ;;
        esac
    done
)

# The machine's mpiexec where it works with mpi4py, else, or when given 'own', one from PyPI; the choice is kept in
# .venv.
launcher_prepare() {
    launcher_allow
    environment_lock
    choice=$environment/libsumtree-launcher
    machine=''
    [ "${1-}" = own ] || machine=$(launcher_of_the_machine)
    asked="${machine:-none} $(sed -n 1p "$environment/libsumtree-installed")"
    launcher=$(sed -n 2p "$choice" 2>/dev/null) || launcher=''
    if [ "$(sed -n 1p "$choice" 2>/dev/null)" != "$asked" ] || [ ! -x "$launcher" ]; then
        rm -f "$choice"
        launcher_choose
        printf '%s\n%s\n' "$asked" "$launcher" >"$choice"
    fi
    environment_unlock
}

launcher_choose() {
    if [ -n "$machine" ]; then
        # An MPI library in the environment would be loaded before the machine's.
        "$python" -m pip uninstall -y -qq mpich >/dev/null 2>&1 || true
        launcher=$machine
        launcher_works && return
        say "$machine and mpi4py do not fit each other; taking an MPI from PyPI instead"
    fi
    pip_install mpich
    launcher=$environment/bin/mpiexec
    launcher_works || fail "$launcher cannot start two ranks: try '$launcher -n 2 hostname'"
}
