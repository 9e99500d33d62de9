#!/usr/bin/env bash
# bench speed: its keys and their meaning, its streams, and its refusals. The figures themselves depend on the machine.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
kvick=${KVICK:-build/release/kvick}
golden=${KVICK_GOLDEN:-../shared/golden}
model=$golden/gguf/llama.gguf
[ -f "$model" ] || { echo "no golden data in $golden"; exit 77; }

n_passed=0 n_failed=0
out=$(mktemp) err=$(mktemp)
trap 'rm -f "$out" "$err"' EXIT

# ok NAME COMMAND...: the command succeeds.
ok() {
    local name=$1
    shift
    if "$@" >/dev/null 2>&1; then
        n_passed=$((n_passed + 1))
    else
        echo "FAIL $name"
        sed 's/^/    /' "$out" "$err"
        n_failed=$((n_failed + 1))
    fi
}

# measure WORDS...: a short run; its answer is in $out.
measure() {
    "$kvick" bench speed "$@" --rounds 2 >"$out" 2>"$err"
}

# holds EXPRESSION: of the JSON in $out, as r.
holds() {
    python3 -c "import json, sys; r = json.load(open(sys.argv[1])); sys.exit(not ($1))" "$out"
}

# refuses EXIT WORD ARGUMENTS...: that exit status, nothing on stdout, one line (and the usage's) that holds the word.
refuses() {
    local exit_code=$1 word=$2
    shift 2
    "$kvick" bench "$@" >"$out" 2>"$err"
    [ $? -eq "$exit_code" ] && [ ! -s "$out" ] && grep -q -- "$word" "$err"
}

ok "runs" measure "$model" --prefill 32 --decode 8 --json
ok "has every key" holds '{"prefill_tok_s", "decode_tok_s", "int8_peak_gops", "read_gb_s", "prefill_peak_share",
    "decode_bandwidth_share"} <= set(r)'
ok "rates are positive" holds 'r["prefill_tok_s"] > 0 and r["decode_tok_s"] > 0 and r["read_gb_s"] > 0'
ok "shares exist exactly on a quiet machine" holds \
    'all((r[k] is None) == r["is_disturbed"] for k in ("prefill_peak_share", "decode_bandwidth_share"))'
ok "a prefill share is one" holds 'r["prefill_peak_share"] is None or 0 < r["prefill_peak_share"] <= 1'

ok "streams run" measure "$model" --prefill 16 --decode 8 --streams 5 --json
ok "streams are counted together" holds 'r["decode_tok_s"] > 0'
ok "streams run in small chunks" measure "$model" --prefill 16 --decode 8 --streams 3 --chunk 5 --json
ok "no decode, no figure" measure "$model" --prefill 16 --decode 0 --json
ok "and null in its place" holds 'r["decode_tok_s"] is None and r["prefill_tok_s"] > 0'
ok "lower tiers run" measure "$model" --prefill 8 --decode 2 --isa scalar --threads 1 --json
ok "one thread is one thread" holds 'r["threads"] == 1'

ok "prints a table" measure "$model" --prefill 16 --decode 4
for word in "^prefill, 16 tokens .* tok/s" "^decode, 1 stream .* tok/s" "^int8 peak .* GOPS" "^memory read .* GB/s"; do
    ok "table: $word" grep -qE "$word" "$out"
done

"$kvick" bench start "$model" --rounds 3 --json >"$out" 2>"$err"
ok "a start has its parts in order" holds '0 <= r["file_ms"] <= r["tokenizer_ms"] <= r["prompt_ms"] < r["first_token_ms"]
    and r["model_ms"] < r["first_token_ms"] < r["start_ms"]'
"$kvick" bench start "$model" --rounds 1 --target-ms 600000 >"$out" 2>"$err"
ok "a target that is reached" grep -q 'target 600000: PASS' "$out"
"$kvick" bench start "$model" --rounds 1 --target-ms 0.001 >"$out" 2>"$err"
ok "a target that is not" grep -q 'target 0: short' "$out"

ok "no measurement" refuses 2 "known: speed, start"
ok "unknown measurement" refuses 2 "'fast'" fast "$model"
ok "no model" refuses 2 "one MODEL" speed
ok "prefill 0" refuses 2 "--prefill: 0" speed "$model" --prefill 0
ok "streams 0" refuses 2 "--streams: 0" speed "$model" --streams 0
ok "rounds 0" refuses 2 "--rounds: 0" speed "$model" --rounds 0
ok "a tier nobody has" refuses 1 "'warp'" speed "$model" --isa warp
ok "more than the context" refuses 1 "--context" speed "$model" --prefill 9000000
ok "rounds 0 of a start" refuses 2 "--rounds: 0" start "$model" --rounds 0
ok "a start of no file" refuses 1 "No such file" start nowhere/x.gguf
ok "no such file" refuses 1 "No such file" speed nowhere/x.gguf

echo "$n_passed passed, $n_failed failed, 0 skipped"
[ $n_failed -eq 0 ]
