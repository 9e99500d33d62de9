#!/usr/bin/env bash
# `kvick run` as a person or a script uses it, on SmolLM2. Prints 'N passed, N failed, N skipped'.
set -u
cd "$(dirname "$0")/../.." || exit 1
kvick=${KVICK:-build/release/kvick}
model=${XDG_CACHE_HOME:-$HOME/.cache}/kvick/models/smollm2.gguf
if [ ! -r "$model" ]; then
    echo "smollm2 is not downloaded (scripts/fetch-model smollm2): not tested"
    exit 77
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
out=$scratch/out err=$scratch/err
n_passed=0 n_failed=0

# check NAME COMMAND...: the command tells.
check() {
    local name=$1
    shift
    if "$@"; then
        n_passed=$((n_passed + 1))
    else
        n_failed=$((n_failed + 1))
        echo "FAILED: $name"
        head -c 2000 "$out" "$err"
    fi
}

# ask WORDS...: exit status into $exit_code, output into $out and $err.
ask() {
    timeout 60 "$kvick" run "$model" "$@" >"$out" 2>"$err" </dev/null
    exit_code=$?
}

is_exit() { [ "$exit_code" -eq "$1" ]; }
says() { grep -qE -- "$1" "$out"; }
is_quiet() { [ ! -s "$err" ]; }
is_one_line() { [ "$(wc -l <"$err")" -eq 1 ]; }
json_holds() { python3 -c "import json,sys; d=json.load(open(sys.argv[1])); sys.exit(not ($1))" "$out"; }

question="What is the capital of France?"

ask --activations int16 -p "$question" -n 20
check "answers" is_exit 0
check "names Paris" says 'Paris'
check "prefill line" says '^prefill +37 prompt tokens, 0 cached, 37 computed in [0-9.]+ ms'
check "decode line" says '^decode +[0-9]+ tokens, [0-9.]+ ms/token'
check "nothing on stderr" is_quiet

ask --activations int16 -p "$question" -p "And of Italy?" -n 20
check "two turns" is_exit 0
check "the second reuses the first" says '^prefill .* [1-9][0-9]* cached'
check "as much as full blocks hold" python3 - "$out" <<'PY'
import re, sys
turns = [tuple(map(int, m)) for m in re.findall(r"prefill +(\d+) prompt tokens, (\d+) cached, (\d+) computed", open(sys.argv[1]).read())]
ok = len(turns) == 2 and turns[0][1] == 0 and turns[1][1] >= 32 and all(p == c + k for p, c, k in turns)
sys.exit(not ok)
PY

ask --no-prefix-cache -p "$question" -p "And of Italy?" -n 8
check "no reuse if not wanted" says '^prefill .* 0 cached'
check "in no turn" bash -c "! grep -qE '[1-9][0-9]* cached' '$out'"

ask --activations int16 -p "$question" -n 20 --json
check "json" json_holds 'd["finish_reason"] in ("stop", "length") and "Paris" in d["text"]'
check "json counts" json_holds 'd["usage"]["prompt_tokens"] == 37 and d["usage"]["new_tokens"] == len(d["ids"])'
check "json phases" json_holds 'd["phases"]["prefill_ms"] > 0 and d["phases"]["first_token_ms"] > 0'
cp "$out" "$scratch/first"
ask --activations int16 -p "$question" -n 20 --json --chunk 7 --threads 1 --block-tokens 64
check "equal ids another way" python3 - "$scratch/first" "$out" <<'PY'
import json, sys
a, b = (json.load(open(p)) for p in sys.argv[1:])
sys.exit(a["ids"] != b["ids"] or a["text"] != b["text"])
PY

ask -p "$question" -n 1 --json
check "one token" json_holds 'd["usage"]["new_tokens"] == 1 and d["finish_reason"] == "length"'

ask --raw -p "The capital of France is" -n 8 --json
check "raw" json_holds 'd["usage"]["prompt_tokens"] == 5 and "Paris" in d["text"]'

ask --temperature 1 --seed 5 -p "Tell me a story." -n 16 --json && cp "$out" "$scratch/seed5"
ask --temperature 1 --seed 5 -p "Tell me a story." -n 16 --json
check "equal seeds, equal answers" bash -c "diff <(grep -o '\"ids\":[^]]*' '$scratch/seed5') <(grep -o '\"ids\":[^]]*' '$out') >/dev/null"
ask --temperature 1 --seed 6 -p "Tell me a story." -n 16 --json
check "other seeds, other answers" bash -c "! diff <(grep -o '\"ids\":[^]]*' '$scratch/seed5') <(grep -o '\"ids\":[^]]*' '$out') >/dev/null"

printf '%s\n' "$question" | timeout 60 "$kvick" run "$model" --activations int16 -n 20 >"$out" 2>"$err"
exit_code=$?
check "the question on stdin" is_exit 0
check "is answered" says 'Paris'

ask -n 4
check "empty stdin" is_exit 1
check "one line about it" is_one_line

# Ctrl-C while the answer comes: it stops, and the phases are told.
timeout 60 "$kvick" run "$model" --raw -p "Once upon a time" -n 4000 --temperature 1 >"$out" 2>"$err" </dev/null &
guard=$!
for _ in $(seq 100); do
    [ -s "$out" ] && break
    sleep 0.1
done
child=$(cat "/proc/$guard/task/$guard/children")
kill -INT $child
wait "$guard"
exit_code=$?
check "interrupted" is_exit 1
check "says so" says '^decode .*interrupted'

timeout 60 "$kvick" run "$model" -p "$question" -n 20 2>"$err" </dev/null | head -c 1 >/dev/null
exit_code=${PIPESTATUS[0]}
check "a reader that leaves" bash -c "[ $exit_code -lt 124 ]"
timeout 60 "$kvick" run "$model" -p "$question" -n 4 >/dev/full 2>"$err" </dev/null
exit_code=$?
check "a full disk" is_exit 1
timeout 60 "$kvick" run "$model" -p "$question" -n 4 >&- 2>"$err" </dev/null
exit_code=$?
check "closed stdout" bash -c "[ $exit_code -lt 124 ]"

echo "$n_passed passed, $n_failed failed, 0 skipped"
[ "$n_failed" -eq 0 ]
