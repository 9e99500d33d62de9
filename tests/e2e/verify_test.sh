#!/usr/bin/env bash
# verify on the real models: one answer, however it is computed, and an end in bounded time. Minutes, so KVICK_LONG.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
kvick=${KVICK:-build/release/kvick}
limit_s=300 # two minutes alone on two cores, other tests beside it

if [ -z "${KVICK_LONG:-}" ]; then
    echo "verify on the real models runs only with KVICK_LONG: not tested"
    exit 77
fi
n_passed=0 n_failed=0 n_skipped=0
for model in smollm2 gemma3-270m; do
    if [ ! -r "${XDG_CACHE_HOME:-$HOME/.cache}/kvick/models/$model.gguf" ]; then
        echo "$model is not downloaded: not tested"
        n_skipped=$((n_skipped + 1))
        continue
    fi
    started=$SECONDS
    said=$(timeout "$limit_s" "$kvick" verify "$model" 2>&1)
    status=$?
    echo "$model: $((SECONDS - started)) s, exit $status: $(tail -n 1 <<<"$said")"
    if [ $status -eq 0 ] && grep -qx '1 distinct answer in 48' <<<"$said"; then
        n_passed=$((n_passed + 1))
    else
        echo "$said"
        n_failed=$((n_failed + 1))
    fi
done
echo "$n_passed passed, $n_failed failed, $n_skipped skipped"
[ $n_failed -eq 0 ]
