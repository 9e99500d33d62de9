#!/usr/bin/env bash
# eval kv: a verdict with its table, a record of it, and a warning where q8_0 is used without one.
. "$(dirname "$0")/../support/e2e.sh"

need_golden gguf/llama.gguf
golden=$(realpath "$(dirname "$model")")
model=$golden/llama.gguf
cd "$folder" || exit 1
export XDG_CACHE_HOME=$folder/cache

says() { grep -qE -- "$2" "$1"; }
run() { "$kvick" run "$model" --raw -p "a b" -n 1 "$@" >answer 2>why; }
serve_check() { "$kvick" serve "$model" --check "$@" >answer 2>why; }
eval_kv() { "$kvick" eval kv "$model" "${@:2}" >"$1"; }
unwarned() { ! says why "warning"; }
warned() { [ "$(grep -c warning why)" -eq 1 ] && says why "$1.*kvick eval kv .*llama.gguf --kv-cache-dtype q8_0"; }
refuses() {
    "$kvick" "${@:3}" >answer 2>why
    [ $? -eq "$1" ] && [ ! -s answer ] && [ "$(wc -l <why)" -eq 1 ] && grep -qF -- "$2" why
}

run --kv-cache-dtype q8_0
ok "run warns" warned "nobody evaluated it"
serve_check --kv-cache-dtype q8_0
ok "serve warns" warned "nobody evaluated it"
run
ok "int8 does not" unwarned

ok "it passes" eval_kv table --kv-cache-dtype q8_0
for word in "^KV q8_0 against f16" "^perplexity .* ok$" "^mean KL .* ok$" \
    "^fact in 200 words +6 .*not counted: f16 solves less" "^fact in 1200 words +0 .*not counted: longer" "no task counts" "^PASS$" "^kept in $XDG_CACHE_HOME/kvick/eval/"; do
    ok "the table has $word" says table "$word"
done
record=$(ls "$XDG_CACHE_HOME"/kvick/eval/*-q8_0.json)
run --kv-cache-dtype q8_0
ok "run with a record" unwarned
serve_check --kv-cache-dtype q8_0
ok "serve with a record" unwarned

# A record that is of other weights, of another version, failed, or broken.
cp "$record" good
for change in 's/"weights": "../"weights": "zz/' 's/"kv_eval_version": 1/"kv_eval_version": 0/' 's/[{]//'; do
    sed "$change" good >"$record"
    run --kv-cache-dtype q8_0
    ok "after $change" warned "nobody evaluated it"
done
sed 's/"passed": true/"passed": false/' good >"$record"
run --kv-cache-dtype q8_0
ok "after a failure" warned "failed their evaluation"

ok "json" eval_kv result --json
ok "its numbers" python3 -c '
import json
r = json.load(open("result"))
assert r["kv"] == "int8" and r["passed"] is True and 0 < r["mean_kl"] < r["bounds"]["mean_kl"], r
assert 0.9 < r["ppl_ratio"] < 1.1 and abs(r["ppl"] / r["ppl_float"] - r["ppl_ratio"]) < 1e-9, r
assert len(r["tasks"]) == 7 and not any(t["counted"] for t in r["tasks"]), r'
ok "once more" eval_kv again --json
ok "it is the same again" cmp result again
ok "its record" test -s "${record/q8_0/int8}"

ok "f16 is what others are compared with" refuses 2 "f16" eval kv "$model" --kv-cache-dtype f16
ok "fp8" refuses 2 "q8_0 (or int8)" eval kv "$model" --kv-cache-dtype fp8
ok "no model" refuses 2 "MODEL" eval kv
ok "heads that do not fit" refuses 1 "attention.key_length 48" eval kv "$golden/qwen3.gguf" --kv-cache-dtype q8_0

unwritable() {
    touch file
    XDG_CACHE_HOME=$folder/file "$kvick" eval kv "$model" >answer 2>why
    [ $? -eq 1 ] && says why "file/kvick/eval" && says answer "^PASS"
}
ok "no folder for the record" unwritable

end
