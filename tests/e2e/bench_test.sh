#!/usr/bin/env bash
# bench speed and bench kernels: their keys and their meaning, its streams, and its refusals. The figures themselves depend on the machine.
. "$(dirname "$0")/../support/e2e.sh"
need_golden gguf/llama.gguf

# measure WORDS...: a short run; its answer is in $out.
measure() {
    "$kvick" bench speed "$@" --rounds 2 >"$out" 2>"$err"
}

# holds EXPRESSION: of the JSON in $out, as r.
holds() {
    json_holds "$out" "$1"
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

# kernels WORDS...: a short run; its answer is in $out.
kernels() {
    "$kvick" bench kernels --rounds 1 --matrix 40x256 "$@" >"$out" 2>"$err"
}

ok "kernels run" kernels --type q4_0,Q6_K --json
ok "kernels have every key" holds '{"tier", "threads", "int8_peak_gops", "read_gb_s", "is_disturbed", "gemm",
    "attention", "row_ops"} == set(r) - {"undisturbed_gops"}'
ok "each type has all rows" holds '[(g["type"], g["rows"]) for g in r["gemm"]] ==
    [(t, m) for t in ("Q4_0", "Q6_K") for m in (1, 2, 4, 8, 16, 32, 64, 128, 512)]'
ok "products carry their shape" holds 'all((g["n"], g["k"], g["activations"]) == (40, 256, "int8") for g in r["gemm"])'
ok "rates follow from times" holds 'all(abs(g["gops"] * g["ms"] / (2e-6 * g["rows"] * 40 * 256) - 1) < 1e-3
    for g in r["gemm"])'
ok "bytes are those of whole tiles" holds 'all(abs(g["gb_s"] * g["ms"] / (48e-6 * 144) - 1) < 1e-3
    for g in r["gemm"] if g["type"] == "Q4_0")'
ok "more rows take longer" holds 'r["gemm"][8]["ms"] > r["gemm"][0]["ms"]'
ok "targets stand where they are asked" holds '[g["rows"] for g in r["gemm"][:9] if "target" in g] ==
    [1, 8, 16, 32, 128, 512]'
ok "passes says what the shares say" holds 'all(g["passes"] is (None if r["is_disturbed"] else
    g[g["target_of"] + "_share"] >= g["target"]) for g in r["gemm"] if "target" in g)'
ok "attention has its shapes" holds '{(a["head_dim"], a["keys"]) for a in r["attention"]} ==
    {(d, n) for d in (64, 256) for n in (1024, 4096, 16384)}'
ok "row operations are there" holds '{"quantize_q8", "rms_norm", "add"} <= {o["op"] for o in r["row_ops"]}'
ok "int16 kernels run on two threads" kernels --type q8_0 --activations int16 --threads 2 --isa scalar --json
ok "and say so" holds 'r["threads"] == 2 and r["tier"] == "scalar" and
    {g["activations"] for g in r["gemm"]} == {"int16"} and not any("target" in g for g in r["gemm"])'
ok "kernels print a table" kernels --type f16,q4_k
for word in "^gemm F16, f32 +1 .* ms" "^gemm Q4_K, int8 +512 .* target .* (PASS|short|unknown)" \
    "^attention I8, 16 x 64 +16384 .* target" "^add +16 .* GB/s"; do
    ok "kernels table: $word" grep -qE "$word" "$out"
done
ok "kernels of no model" refuses 2 "no MODEL" kernels "$model"
ok "a type without a product" refuses 2 "'q8_1'" kernels --type q4_0,q8_1
ok "an empty type" refuses 2 "''" kernels --type q4_0,
ok "a matrix without K" refuses 2 "'2048' is not NxK" kernels --matrix 2048
ok "a matrix with a tail" refuses 2 "'16x256x1' is not NxK" kernels --matrix 16x256x1
ok "a K that is no whole block" refuses 2 "multiple of 32" kernels --matrix 64x100
ok "a K that a type cannot have" refuses 2 "Q6_K's block of 256" kernels --matrix 64x96 --type q8_0,q6_k
ok "kernels of a small K run" kernels --matrix 17x32 --type q8_0 --json
ok "and are all there" holds 'len(r["gemm"]) == 9 and len(r["row_ops"]) == 8'
ok "a matrix of nothing" refuses 2 "within 1.." kernels --matrix 0x256
ok "float activations" refuses 2 "--activations: 'f32'" kernels --activations f32
ok "kernel rounds 0" refuses 2 "--rounds: 0" kernels --rounds 0

ok "no measurement" refuses 2 "known: phases, serve, speed, start, kernels"
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

end
