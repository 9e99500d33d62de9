#!/usr/bin/env bash
# deploy/: the units are sound, the image's packages are all that the program needs, its configuration is one, and the
# program runs as any user where nothing can be written.
. "$(dirname "$0")/../support/e2e.sh"

# The program of the units is where it will be installed; here it is where it was built.
verify_units() {
    mkdir "$folder/units" && cp deploy/*.service deploy/*.socket "$folder/units" || return 1
    sed -i "s#/usr/local/bin/kvick#$kvick#" "$folder/units/kvick.service"
    systemd-analyze verify "$folder"/units/*.service "$folder"/units/*.socket
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
    env $pairs "$kvick" serve x --print-config >"$out" || return 1
    for pair in $pairs; do grep -q "# ${pair%%=*}\$" "$out" || { echo "${pair%%=*} is no option"; return 1; }; done
}

check_config() {
    "$kvick" serve --config deploy/kvick.toml --print-config >"$out" &&
        grep -q '^model = "/var/lib/kvick/model.gguf"  # deploy/kvick.toml:' "$out" || return 1
    # What is commented out there is good too.
    sed 's/^# \([a-z-]* = \)/\1/' deploy/kvick.toml >"$folder/all.toml"
    "$kvick" serve --config "$folder/all.toml" --print-config >"$out" && grep -q '^over-cap = "batch"' "$out"
}

# As in the image: a user without a name, a root and /tmp that cannot be written, no home.
run_read_only() {
    local pid port status
    # shellcheck disable=SC2016
    unshare -m bash -c 'mount --make-rprivate / && mount -o remount,ro,bind / && ! : 2>/dev/null >/kvick-test &&
        exec setpriv --reuid 54321 --regid 54321 --clear-groups env -i "$@"' x "$kvick" serve "$model" --port 0 \
        >"$out" 2>"$err" &
    pid=$!
    for _ in $(seq 200); do
        port=$(sed -n 's/^listening on .*:\([0-9]*\) as .*/\1/p' "$out")
        [ -n "$port" ] && break
        sleep 0.1
    done
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
if [ "$(basename "${KVICK_BUILD_DIR:-build/release}")" != release ]; then
    skip packages "a sanitizer's build needs more"
elif grep -q 'VERSION_CODENAME=bookworm' /etc/os-release 2>/dev/null && command -v dpkg >/dev/null; then
    ok packages check_packages
else
    skip packages "not the image's Debian"
fi
ok variables check_variables
ok configuration check_config
if ! (need_golden gguf/llama.gguf); then
    skip read-only "no golden data"
elif unshare -m bash -c 'mount --make-rprivate / && mount -o remount,ro,bind /' 2>/dev/null; then
    need_golden gguf/llama.gguf
    ok read-only run_read_only
else
    skip read-only "no right to mount"
fi
end
