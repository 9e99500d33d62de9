#!/usr/bin/env bash
# replay and verify: what they say about a tiny model, and their refusals.
. "$(dirname "$0")/../support/e2e.sh"
need_golden gguf/llama.gguf
trace=$folder/trace.jsonl

run() {
    "$kvick" "$@" >"$out" 2>"$err"
}

# holds EXPRESSION: of the JSON in $out, as r, with its requests as q.
holds() {
    json_holds "$out" "[q := r.get('requests')] and ($1)"
}

cat >"$trace" <<'END'
{"kvick_trace": 1, "name": "tiny"}
{"arrival_ms": 0, "prompt_tokens": 80, "output_tokens": 8, "label": "first", "shared_id": 1, "shared_tokens": 70}
{"arrival_ms": 300, "prompt_tokens": 80, "output_tokens": 8, "label": "same", "shared_id": 1, "shared_tokens": 70}
{"arrival_ms": 20, "prompt_tokens": 8, "output_tokens": 4, "after": 0, "label": "turn"}
{"arrival_ms": 400, "prompt_ids": [1, 2, 3], "output_tokens": 0}
END
ok "a trace runs" run replay "$trace" "$model"
ok "every request is finished" holds 'r["summary"]["finished"] == 4 and [x["new_tokens"] for x in q] == [8, 8, 4, 0]'
ok "a shared prefix is cached" holds 'q[0]["cached_tokens"] == 0 and q[1]["cached_tokens"] == 70'
ok "a turn finds the earlier turn's blocks, its answer's too" holds \
    'q[2]["prompt_tokens"] == 96 and q[2]["cached_tokens"] == 87'
ok "a turn comes after what it continues" holds \
    'q[2]["arrival_ms"] >= q[0]["arrival_ms"] + q[0]["total_ms"] + 20 - 0.01'
ok "labels are told apart" holds 'set(r["labels"]) == {"first", "same", "turn"}'
ok "every first token has a time" holds 'all(x["ttft_ms"] > 0 for x in q) and r["summary"]["ttft_ms"]["n"] == 4'
ok "gaps are counted" holds 'r["summary"]["gap_ms"]["n"] == 7 + 7 + 3'

ok "without a cache" run replay "$trace" "$model" --no-prefix-cache --chunk 7 --threads 1 --summary
ok "nothing is cached, nothing told of each" holds 'r["summary"]["cached_tokens"] == 0 and q is None'

printf '%s\n' '{"kvick_trace": 1}' '{"arrival_ms": 0, "prompt_tokens": 8, "output_tokens": 400, "cancel_ms": 1}' \
    '{"arrival_ms": 5, "prompt_tokens": 4, "output_tokens": 4, "after": 0}' >"$trace"
ok "cancel runs" run replay "$trace" "$model"
ok "and what continues it is skipped" holds \
    '[x["outcome"] for x in q] == ["cancelled", "skipped"] and q[0]["new_tokens"] < 400'

printf '%s\n' '{"kvick_trace": 1}' '{"arrival_ms": 0, "prompt_ids": [1, 99999999], "output_tokens": 1}' >"$trace"
ok "an id out of range" refuses 1 "line 2: prompt_ids: 99999999" replay "$trace" "$model"
printf '%s\n' '{"kvick_trace": 1}' '{"arrival_ms": 0, "prompt_tokens": 9000000, "output_tokens": 1}' >"$trace"
ok "longer than the context" refuses 1 "context" replay "$trace" "$model"
ok "no trace" refuses 1 "No such file" replay nowhere.jsonl "$model"
ok "no words" refuses 2 "TRACE.jsonl" replay
ok "no sequences" refuses 2 "--max-num-seqs: 0" replay "$trace" "$model" --max-num-seqs 0

printf '%s\n' '{"kvick_trace": 1, "name": "load", "load": 2}' >"$trace"
for i in $(seq 0 19); do
    echo "{\"arrival_ms\": $((100 * i)), \"prompt_tokens\": 100, \"output_tokens\": 5, \"deadline_ms\": 1, \"deadline_solo_x\": 3}" >>"$trace"
done
ok "sim runs" run sim "$trace" "$model" --max-num-seqs 32
ok "sim ends every request" holds 'r["summary"]["finished"] + r["summary"]["refused"] == 20 and r["totals"]["steps"] > 0'
ok "the load is reached" holds \
    'abs((q[19]["arrival_ms"] - q[0]["arrival_ms"]) * 2 / r["cost"]["busy_ms"] - 1) < 0.01'
ok "a bound is told" holds '1 <= r["cost"]["bound_in_time"] <= 20'
ok "nothing is too late to be known" holds 'all(x["ttft_ms"] > 0 for x in q if x["outcome"] == "finished")'
ok "fcfs runs" run sim "$trace" "$model" --policy fcfs --chunk 0
ok "an unknown policy" refuses 2 "'luck'" sim "$trace" "$model" --policy luck
ok "too small a cache" refuses 1 "--kv-cache-memory-bytes: 1000" replay "$trace" "$model" --kv-cache-memory-bytes 1000
ok "pools are told" grep -q "kv pool" <("$kvick" sim "$trace" "$model" -v 2>&1 >/dev/null)

ok "verify agrees" run verify "$model"
ok "and says so" test "$(sed -n 2p "$out")" = "1 distinct answer in 48"
first=$(head -1 "$out")
ok "with one digest" grep -qE '^[0-9a-f]{64}$' <<<"$first"
ok "verify with another KV type" run verify "$model" --kv-cache-dtype f32
ok "another digest" test "$(head -1 "$out")" != "$first"
ok "no model" refuses 2 "one MODEL" verify
ok "no such model" refuses 1 "No such file" verify nowhere/x.gguf

end
