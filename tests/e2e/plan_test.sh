#!/usr/bin/env bash
# plan: what a header alone tells, held against what the engine counts.
. "$(dirname "$0")/../support/e2e.sh"

plan_json() { "$kvick" plan "$@" --json >"$out" 2>"$err"; }

# says EXPRESSION ARGUMENTS...: of kvick plan's JSON as r, the first model as m.
says() {
    local expression=$1
    shift
    plan_json "$@" && python3 -c "
import json, sys
r = json.load(open(sys.argv[1])); m = r['models'][0]
sys.exit(not ($expression))" "$out"
}

ok "the sketch's bytes" says 'm["kv_bytes"] == 17179869184' \
    --shape layers=32,kv_heads=8,head_dim=128 --ctx 8192 --sessions 16 --kv f16
ok "query heads are shown as wrong" says 'm["kv_bytes_per_token_by_query_heads"] == 4 * m["kv_bytes_per_token"]' \
    --shape llama-3.1-8b --kv f16
ok "kv binds" says 'm["binds"] == "kv" and m["max_sessions"] == 11' \
    --shape llama-3.1-8b --kv f16 --memory 16G --sessions 16
ok "weights bind" says 'm["binds"] == "weights"' --shape llama-3.1-8b --memory 2G
ok "time binds" says 'm["binds"] == "time"' --shape llama-3.1-8b --hw ryzen-7950x --sessions 16
ok "nothing binds" says 'm["binds"] == "none"' --shape llama-3.1-8b --hw h100-sxm --kv f16 --sessions 16

printf '%s' '{"num_hidden_layers":60,"hidden_size":5120,"num_attention_heads":128,"kv_lora_rank":512,
"qk_rope_head_dim":64,"qk_nope_head_dim":128,"v_head_dim":128,"vocab_size":102400}' >"$folder/config.json"
ok "a latent row" says 'm["kv_bytes_per_token"] == 60 * 576 * 2' "$folder/config.json" --kv f16
ok "a folder with a config" says 'm["kv_bytes_per_token"] == 60 * 576 * 2' "$folder" --kv f16
ok "two side by side" says 'len(r["models"]) == 2 and r["machine"].startswith("l4")' "$folder" --shape qwen3-0.6b \
    --hw l4
printf 'gops=100 # products\ngb_s = 10\nmemory_gb=8\n' >"$folder/small.hw"
ok "a machine's file" says 'r["gops"] == 100 and abs(r["memory_bytes"] - 7.2e9) < 2' --shape qwen3-0.6b \
    --hw "$folder/small.hw"
"$kvick" plan --shape smollm2-135m --hw l4 >"$out" 2>"$err"
ok "the verdict comes first" test "$(head -n 1 "$out" | cut -d: -f1)" = smollm2-135m
ok "the sheet has N*" grep -q 'N\*' "$out"

ok "no model" refuses 2 "which MODEL" plan
ok "a bad field" refuses 1 "kv_heads is 'x'" plan --shape layers=2,kv_heads=x
ok "an unknown field" refuses 1 "known: layers" plan --shape layers=2,kvheads=3
ok "an unknown shape" refuses 1 "llama-3.2-1b" plan --shape nope
ok "an unknown machine" refuses 1 "h100-sxm" plan --shape qwen3-0.6b --hw nope
echo 'gops=fast' >"$folder/bad.hw"
ok "a bad machine" refuses 1 "gops is 'fast'" plan --shape qwen3-0.6b --hw "$folder/bad.hw"
ok "a bad size" refuses 1 "24Q" plan --shape qwen3-0.6b --memory 24Q
ok "a bad type" refuses 2 "fp8" plan --shape qwen3-0.6b --kv fp8
ok "too long a context" refuses 1 "40961" plan --shape qwen3-0.6b --ctx 40961
ok "verify needs a file" refuses 2 "--verify" plan --shape qwen3-0.6b --verify

model=${XDG_CACHE_HOME:-$HOME/.cache}/kvick/models/smollm2.gguf
if [ -e "$model" ]; then
    ok "a model file" says 'm["kv_bytes_per_token"] == 30 * 3 * 2 * 68 and not m.get("in_doubt")' smollm2
    # The engine's own count of a prompt's work, plain text of as many tokens.
    "$kvick" run "$model" --raw -p "$(printf 'one two three four five six %.0s' {1..40})" -n 1 --json >"$folder/run" 2>"$err"
    n=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["usage"]["prompt_tokens"])' "$folder/run")
    ok "the terms are those that the engine counts" says \
        "abs(sum(m[k] for k in ('flops_linear', 'flops_attention', 'flops_logits')) / $(python3 -c '
import json, sys
print(json.load(open(sys.argv[1]))["work"]["prefill"]["flops"])' "$folder/run") - 1) < 1e-6" "$model" --ctx "$n"
fi
end
