#!/usr/bin/env bash
# deploy/: the units are sound, the image's packages are all that the program needs, its configuration is one, and the
# program runs as any user where nothing can be written.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

model=${KVICK_GOLDEN:-../shared/golden}/gguf/llama.gguf
kvick=$PWD/${KVICK:-build/release/kvick}
n_passed=0 n_failed=0 n_skipped=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

ok() { # ok NAME COMMAND...
    if "${@:2}" >"$work/out" 2>&1; then
        echo "ok   $1"
        n_passed=$((n_passed + 1))
    else
        echo "FAIL $1"
        cat "$work/out"
        n_failed=$((n_failed + 1))
    fi
}

skip() { echo "skip $1: $2"; n_skipped=$((n_skipped + 1)); }

# The program of the units is where it will be installed; here it is where it was built.
verify_units() {
    mkdir "$work/units" && cp deploy/*.service deploy/*.socket "$work/units" || return 1
    sed -i "s#/usr/local/bin/kvick#$kvick#" "$work/units/kvick.service"
    systemd-analyze verify "$work"/units/*.service "$work"/units/*.socket
}

# Every library that the loader finds belongs to a package that the image installs, or to libc's, which all have.
check_packages() {
    local library package missing=0
    for library in $(ldd "$kvick" | sed -n 's/.* => \([^ ]*\) .*/\1/p'); do
        package=$(dpkg -S "$(readlink -f "$library")" 2>/dev/null || dpkg -S "$library" 2>/dev/null || dpkg -S "${library#/usr}") || continue
        package=${package%%:*}
        case $package in libc6 | libtinfo6 | libbsd0 | libmd0) continue ;; esac # of the base system or of libedit2
        sed -n '/^FROM debian:bookworm-slim$/,$p' deploy/Dockerfile | grep -qw -- "$package" || {
            echo "deploy/Dockerfile does not install $package, which has $library"
            missing=1
        }
    done
    return $missing
}

# Each name in ENV is an option's.
check_variables() {
    local pairs
    pairs=$(sed -n 's/^ENV //p' deploy/Dockerfile)
    [ -n "$pairs" ] || return 1
    # shellcheck disable=SC2086
    env $pairs "$kvick" serve x --print-config >"$work/config" || return 1
    for pair in $pairs; do grep -q "# ${pair%%=*}\$" "$work/config" || { echo "${pair%%=*} is no option"; return 1; }; done
}

check_config() {
    "$kvick" serve --config deploy/kvick.toml --print-config >"$work/config" &&
        grep -q '^model = "/var/lib/kvick/model.gguf"  # deploy/kvick.toml:' "$work/config" || return 1
    # What is commented out there is good too.
    sed 's/^# \([a-z-]* = \)/\1/' deploy/kvick.toml >"$work/all.toml"
    "$kvick" serve --config "$work/all.toml" --print-config >"$work/config" && grep -q '^over-cap = "batch"' "$work/config"
}

# As in the image: a user without a name, a root and /tmp that cannot be written, no home.
run_read_only() {
    local pid port status
    # shellcheck disable=SC2016
    unshare -m bash -c 'mount --make-rprivate / && mount -o remount,ro,bind / && ! : 2>/dev/null >/kvick-test &&
        exec setpriv --reuid 54321 --regid 54321 --clear-groups env -i "$@"' x "$kvick" serve "$model" --port 0 \
        >"$work/printed" 2>"$work/errors" &
    pid=$!
    for _ in $(seq 200); do
        port=$(sed -n 's/^listening on .*:\([0-9]*\) as .*/\1/p' "$work/printed")
        [ -n "$port" ] && break
        sleep 0.1
    done
    cat "$work/printed" "$work/errors"
    python3 - "$port" <<'PY'
import sys
import urllib.request
url = f"http://127.0.0.1:{sys.argv[1]}"
body = b'{"prompt": [30, 40, 50], "max_tokens": 2, "ignore_eos": true}'
assert b'"length"' in urllib.request.urlopen(urllib.request.Request(url + "/v1/completions", body), timeout=60).read()
PY
    status=$?
    kill -TERM "$pid" && wait "$pid" && [ $status -eq 0 ]
}

if command -v systemd-analyze >/dev/null; then ok units verify_units; else skip units "no systemd-analyze"; fi
if grep -q 'VERSION_CODENAME=bookworm' /etc/os-release 2>/dev/null && command -v dpkg >/dev/null; then
    ok packages check_packages
else
    skip packages "not the image's Debian"
fi
ok variables check_variables
ok configuration check_config
if [ ! -f "$model" ]; then
    skip read-only "no golden data"
elif unshare -m bash -c 'mount --make-rprivate / && mount -o remount,ro,bind /' 2>/dev/null; then
    ok read-only run_read_only
else
    skip read-only "no right to mount"
fi
echo "$n_passed passed, $n_failed failed, $n_skipped skipped"
[ "$n_failed" -eq 0 ]
