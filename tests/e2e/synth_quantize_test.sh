#!/usr/bin/env bash
# synth and quantize: the files that they write are read, run and converted, and what cannot be is refused on one line.
. "$(dirname "$0")/../support/e2e.sh"

differs() { ! cmp -s "$1" "$2"; }

# holds FILE EXPRESSION: of its inspection as r, its keys as k (name -> value), its tensors as t (name -> type).
holds() {
    "$kvick" inspect --json "$1" | python3 -c '
import json, sys
r = json.load(sys.stdin)
k = {e["key"]: e.get("value", e.get("n_items")) for e in r["keys"]}
t = {e["name"]: e["type"] for e in r["tensors"]}
sys.exit(not eval("(" + sys.argv[1] + ")"))' "$2"
}

# refuses EXIT WORD COMMAND...: that exit status, nothing on stdout, one line that holds the word, no file left behind.
refuses() {
    local exit_code=$1 word=$2
    shift 2
    "$kvick" "$@" >"$folder/said" 2>"$folder/why"
    [ $? -eq "$exit_code" ] && [ ! -s "$folder/said" ] && [ "$(wc -l <"$folder/why")" -eq 1 ] &&
        grep -qF -- "$word" "$folder/why" && ! ls "$folder"/*.part >/dev/null 2>&1
}

runs() { [ -n "$("$kvick" run "$1" --raw -p "the first" -n 3 --json)" ]; }

cd "$folder" || exit 1

# ---- synth ----
synth() { "$kvick" synth --shape smollm2-135m --layers 1 "$@"; }
ok "synth" synth --type Q4_1 a.gguf
ok "its numbers" holds a.gguf 'r["n_parameters"] == 28311552 + 576 + 3540096 and k["llama.block_count"] == 1'
ok "its types" holds a.gguf 't["token_embd.weight"] == "Q8_0" and t["blk.0.ffn_down.weight"] == "Q4_1" and
    t["blk.0.attn_norm.weight"] == "F32" and k["general.file_type"] == 3'
ok "its vocabulary" holds a.gguf 'k["tokenizer.ggml.tokens"] == 49152 and k["tokenizer.ggml.pre"] == "smollm"'
ok "it runs" runs a.gguf
ok "synth again" synth --type Q4_1 --seed 0 b.gguf
ok "equal seeds" cmp a.gguf b.gguf
ok "synth another" synth --type Q4_1 --seed 1 b.gguf
ok "other seeds" differs a.gguf b.gguf
ok "context" synth --type Q4_1 --context 777 b.gguf
ok "its context" holds b.gguf 'k["llama.context_length"] == 777'
for type in F32 F16 BF16 Q4_0 Q5_0 Q5_1 Q8_0 Q4_K Q4_K_M Q5_K Q6_K; do
    ok "synth $type" synth --type $type b.gguf
    ok "$type runs" runs b.gguf
done

# ---- quantize ----
ok "synth F16" synth --type F16 f16.gguf
for type in F32 F16 BF16 Q4_0 Q4_1 Q8_0 Q6_K; do
    ok "quantize $type" "$kvick" quantize f16.gguf q.gguf --type $type
    ok "$type: every tensor has its type" holds q.gguf \
        "all(v == ('F32' if 'norm' in n else 'F16' if v == 'F16' else 'Q8_0' if n == 'token_embd.weight' and
        '$type'.startswith('Q') else 'Q8_0' if '$type' == 'Q6_K' and n.split('.')[2] != 'ffn_down' else '$type')
        for n, v in t.items()) and ('$type' == 'F16' or 'F16' not in t.values())"
    ok "$type: runs" runs q.gguf
done
ok "the number of the type" holds q.gguf 'k["general.file_type"] == 18 and k["general.quantization_version"] == 2'
ok "every other key stays" python3 -c '
import json, subprocess, sys
def keys(path):
    answer = json.loads(subprocess.check_output([sys.argv[1], "inspect", "--json", path]))
    return sorted(json.dumps(e) for e in answer["keys"] if e["key"] != "general.file_type")
sys.exit(keys("f16.gguf") != keys("q.gguf"))' "$kvick"
ok "F32 holds what F16 held" "$kvick" quantize f16.gguf f32.gguf --type F32
ok "and back" "$kvick" quantize f32.gguf back.gguf --type F16
ok "with the same logits" python3 -c '
import json, subprocess, sys
def answer(path):
    words = [sys.argv[1], "run", path, "--raw", "-p", "the first", "-n", "24", "--json"]
    return json.loads(subprocess.check_output(words))["text"]
sys.exit(answer("f16.gguf") != answer("back.gguf"))' "$kvick"
ok "one thread writes the same" "$kvick" quantize f16.gguf one.gguf --type Q4_0 --threads 1
ok "as two" "$kvick" quantize f16.gguf two.gguf --type Q4_0 --threads 2
ok "bytes" cmp one.gguf two.gguf
ok "an old file is replaced" "$kvick" quantize f16.gguf one.gguf --type Q8_0
ok "by the new" differs one.gguf two.gguf

# ---- refusals ----
ok "no shape" refuses 2 "--shape" synth --type Q8_0 x.gguf
ok "no type" refuses 2 "--type" synth --shape smollm2-135m x.gguf
ok "no file" refuses 2 "OUT" synth --shape smollm2-135m --type Q8_0
ok "unknown shape" refuses 2 "llama-3.2-1b" synth --shape gpt-5 --type Q8_0 x.gguf
ok "unknown type" refuses 2 "Q4_K_M" synth --shape smollm2-135m --type Q9 x.gguf
ok "layers below 0" refuses 2 "--layers: -1" synth --shape smollm2-135m --type Q8_0 --layers -1 x.gguf
ok "too many layers" refuses 2 "--layers: 999" synth --shape smollm2-135m --type Q8_0 --layers 999 x.gguf
ok "no such folder" refuses 1 "nowhere/x.gguf" synth --shape smollm2-135m --layers 1 --type Q8_0 nowhere/x.gguf
ok "no type to quantize to" refuses 2 "--type" quantize f16.gguf x.gguf
ok "a type that cannot be made" refuses 2 "'Q4_K'" quantize f16.gguf x.gguf --type Q4_K
ok "one file" refuses 2 "OUT" quantize f16.gguf --type Q8_0
ok "no such file" refuses 1 "No such file" quantize nowhere/x.gguf x.gguf --type Q8_0
ok "no model" refuses 1 "out" quantize out x.gguf --type Q8_0
ln f16.gguf same.gguf
ok "the same file" refuses 1 "same file" quantize f16.gguf same.gguf --type Q8_0
ok "a folder" refuses 1 "nowhere" quantize f16.gguf nowhere/y.gguf --type Q8_0

# Stopped in the middle: no half file stays.
stopped() {
    "$kvick" synth --shape llama-3.2-1b --type F32 big.gguf 2>why &
    local child=$!
    for _ in $(seq 100); do
        [ -s big.gguf.part ] && break
        sleep 0.05
    done
    kill -TERM $child
    wait $child
    [ $? -eq 1 ] && grep -q "stopped by a signal" why && [ ! -e big.gguf ] && [ ! -e big.gguf.part ]
}
ok "a signal" stopped

# A full disk, played by a limit on the size of files: the old file stays, the new one is gone.
cp two.gguf before.gguf
ok "disk full" bash -c 'trap "" XFSZ; ulimit -f 8192; ! "$1" quantize f16.gguf two.gguf --type Q8_0 2>full' - "$kvick"
ok "it is said" grep -q "two.gguf.*File too large" full
ok "the old file stays" cmp two.gguf before.gguf
ok "nothing is left" bash -c '! ls *.part'

end
