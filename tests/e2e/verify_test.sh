#!/usr/bin/env bash
# verify on the real models: one answer, however it is computed, and an end in bounded time. Minutes, so KVICK_LONG.
. "$(dirname "$0")/../support/e2e.sh"
limit_s=300 # two minutes alone on two cores, other tests beside it

if [ -z "${KVICK_LONG:-}" ]; then
    echo "verify on the real models runs only with KVICK_LONG: not tested"
    exit 77
fi
gives_one_answer() {
    timeout "$limit_s" "$kvick" verify "$1" >"$out" 2>"$err" && grep -qx '1 distinct answer in 48' "$out"
}

for model in smollm2 gemma3-270m; do
    if (need_model "$model"); then ok "$model" gives_one_answer "$model"; else skip "$model" "not tested"; fi
done
end
