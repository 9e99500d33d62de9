# shellcheck shell=bash
# e2e: how the shell tests begin, count and end; they source it first.
#
# Afterwards the project's root is the working folder, $kvick (and $KVICK, for children) the program, $folder (and $FOLDER)
# an empty folder that goes when the test does, $out and $err two files in it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
KVICK=$(realpath "${KVICK:-build/release/kvick}")
kvick=$KVICK
n_passed=0 n_failed=0 n_skipped=0
folder=$(mktemp -d)
export KVICK FOLDER=$folder PYTHONPATH=tests/support PYTHONDONTWRITEBYTECODE=1
out=$folder/out err=$folder/err
trap 'rm -rf "$folder"' EXIT
touch "$out" "$err"

# only_e2e: ends the test as skipped outside of `make e2e`: it takes long, or packages that are fetched.
only_e2e() {
    [ -n "${KVICK_E2E:-}${KVICK_SOAK:-}" ] && return
    echo "only make e2e runs this (KVICK_E2E=1)"
    exit 77
}

# only_e2e_web PROGRAM...: ends the test as skipped outside of `make e2e-web`, which installs the programs.
only_e2e_web() {
    local program
    [ -n "${KVICK_E2E_WEB:-}" ] || { echo "only make e2e-web runs this (KVICK_E2E_WEB=1)"; exit 77; }
    for program in "$@"; do
        command -v "$program" >/dev/null || { echo "$program is not installed (scripts/setup web)"; exit 1; }
    done
}

# need_model NAME: ends the test as skipped unless the model is downloaded.
need_model() {
    [ -e "${XDG_CACHE_HOME:-$HOME/.cache}/kvick/models/$1.gguf" ] && return
    echo "$1 is not downloaded (scripts/fetch-model $1): not tested"
    exit 77
}

# need_golden FILE: $model is that file of the golden data; ends the test as skipped without them.
need_golden() {
    local golden=${KVICK_GOLDEN:-../shared/golden}
    export MODEL=$golden/$1
    # shellcheck disable=SC2034
    model=$MODEL
    [ -f "$MODEL" ] && return
    echo "no golden data in $golden"
    exit 77
}

# need_venv NAME: $python is the one of that environment (scripts/venv); ends the test as skipped unless it is made.
need_venv() {
    python=$(scripts/venv --find "$1") && return
    echo "the environment $1 is not made (scripts/venv $1): not tested"
    exit 77
}

# ok NAME COMMAND...: the command succeeds; one that does not shows what it and $out and $err said.
ok() {
    local name=$1
    shift
    if "$@" >"$folder/.ok" 2>&1; then
        n_passed=$((n_passed + 1))
    else
        echo "FAIL $name"
        sed 's/^/    /' "$folder/.ok" "$out" "$err" | tail -n 20
        n_failed=$((n_failed + 1))
    fi
}

# skip NAME WHY: a test that cannot be made here.
skip() {
    echo "skip $1: $2"
    n_skipped=$((n_skipped + 1))
}

# exits STATUS COMMAND...: with that exit status.
exits() {
    local exit_code=$1
    shift
    "$@"
    [ $? -eq "$exit_code" ]
}

# json_holds FILE EXPRESSION: true of the JSON in the file, as r.
json_holds() {
    python3 -c "import json, sys; r = json.load(open(sys.argv[1])); sys.exit(not ($2))" "$1"
}

# refuses EXIT WORD ARGUMENTS...: kvick ends with that status, nothing on stdout, one line that holds the word.
refuses() {
    local exit_code=$1 word=$2
    shift 2
    "$kvick" "$@" >"$out" 2>"$err"
    [ $? -eq "$exit_code" ] && [ ! -s "$out" ] && [ "$(wc -l <"$err")" -eq 1 ] && grep -qF -- "$word" "$err"
}

# end: the closing line, and the exit status.
end() {
    echo "$n_passed passed, $n_failed failed, $n_skipped skipped"
    [ $n_failed -eq 0 ]
    exit
}
