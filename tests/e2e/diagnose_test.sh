#!/usr/bin/env bash
# diagnose: a recorded log in sentences, a server that says the same while it runs, and what is no log refused on one line.
. "$(dirname "$0")/../support/e2e.sh"

says() {
    "$kvick" diagnose "$1" >"$out" 2>"$err" && grep -qE "$2" "$out"
}

ok "a storm" says tests/diagnosis/prefill_storm-1.jsonl \
    'prefill_storm: TTFT p95 [0-9]+ ms \(x[0-9.]+\).* is queue.* key agent sent [0-9]+ % of the prefill tokens'
ok "and what helps" grep -q '^    what helps: .*prefill-ms-per-minute' "$out"
ok "its size" grep -qE '^[0-9]+ requests and [0-9]+ samples of the engine in [0-9]+ s: [0-9]+ findings$' "$out"
ok "health" says tests/diagnosis/healthy-1.jsonl ': nothing was wrong$'
ok "no word" exits 2 "$kvick" diagnose
ok "no file" refuses 1 "$folder/none" diagnose "$folder/none"
echo '{"time_ms": 5, "status": 200, "queue_ms": "long"}' >"$folder/bad"
ok "no number" refuses 1 "line 1: queue_ms: is not a number" diagnose "$folder/bad"
echo 'something else' >"$folder/other"
ok "no log" refuses 1 "holds no request" diagnose "$folder/other"
end
