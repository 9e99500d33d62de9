#!/usr/bin/env bash
# bench-peers: what it makes of the answers of the programs. All of them are played by scripts here, so nothing is
# downloaded and nothing measured; verdicts on a disturbed machine are checked apart from the run.
. "$(dirname "$0")/../support/e2e.sh"

# holds EXPRESSION: of the report as r, its rows as rows (key and threads -> row).
holds() {
    python3 -c '
import json, sys
r = json.load(open(sys.argv[1]))
rows = {(row["key"], row["threads"]): row for row in r["rows"]}
sys.exit(not eval("(" + sys.argv[2] + ")"))' "$folder/report.json" "$1"
}

# in_python STATEMENTS: with bench-peers as b, bench_rows and bench_picture.
in_python() {
    PYTHONDONTWRITEBYTECODE=1 python3 -c '
import importlib.machinery, importlib.util, sys
sys.path.insert(0, "scripts")
loader = importlib.machinery.SourceFileLoader("bench_peers", "scripts/bench-peers")
b = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_peers", loader))
loader.exec_module(b)
import bench_picture, bench_rows
exec(sys.argv[1])' "$1"
}

# ---- the programs ----
export XDG_CACHE_HOME=$folder/cache KVICK=$folder/kvick PYTHONDONTWRITEBYTECODE=1
mkdir -p "$folder/cache/kvick/models" "$folder/cache/kvick/peers/llama.cpp"
truncate -s 98362432 "$folder/cache/kvick/models/smollm2.gguf"
cat >"$KVICK" <<'EOF'
#!/usr/bin/env bash
echo "$*" >>"${0%/*}/calls"
case "$1 $*" in
--version*) echo "kvick 0" ;;
synth*) : >"$2" ;;
quantize*) : >"$3" ;;
run*) printf 'x\n' ;;
*"--threads 1"*) echo '{"prefill_tok_s": 500, "decode_tok_s": 200, "int8_peak_gops": 732, "read_gb_s": 20,
    "prefill_peak_share": 0.5, "decode_bandwidth_share": null}' ;;
*) echo '{"prefill_tok_s": 1000, "decode_tok_s": 300, "int8_peak_gops": 732, "read_gb_s": 20,
    "prefill_peak_share": 0.536, "decode_bandwidth_share": 0.9}' ;;
esac
EOF
cat >"$folder/cache/kvick/peers/llama.cpp/llama-bench-native" <<'EOF'
#!/usr/bin/env bash
case "$*" in *"-p 0 "*) echo '[{"samples_ts": [100, 120, 110]}]' ;; *) echo '[{"samples_ts": [50]}]' ;; esac
EOF
cat >"$folder/cache/kvick/peers/llama.cpp/llama-batched-bench-native" <<'EOF'
#!/usr/bin/env bash
echo 'a line of its log'
echo '{"speed_tg": 60.0}'
EOF
chmod +x "$KVICK" "$folder"/cache/kvick/peers/llama.cpp/*

bench() { scripts/bench-peers --peers llama.cpp --out "$folder/report" "$@" >"$out"; }

# ---- a run ----
rows=prefill_smollm2_q4_1,decode_smollm2_q4_1,decode_1b_q8_0,streams_1b_q4_0_8,threads_smollm2,start_smollm2
ok "a target without its peer is not passed" exits 1 bench --rows $rows --rounds 2 --threads 2,1
cp "$out" "$folder/table"
ok "rows at both counts" holds 'list(rows) == [("prefill_smollm2_q4_1", 2), ("prefill_smollm2_q4_1", 1),
    ("decode_smollm2_q4_1", 2), ("decode_smollm2_q4_1", 1), ("decode_1b_q8_0", 2), ("decode_1b_q8_0", 1),
    ("streams_1b_q4_0_8", 2), ("threads_smollm2", 2), ("start_smollm2", 2)]'
ok "only the judged count has targets" holds 'rows["prefill_smollm2_q4_1", 2]["targets"] and
    not rows["prefill_smollm2_q4_1", 1]["targets"]'
ok "ratios" holds 'rows["prefill_smollm2_q4_1", 2]["ratios"]["llama.cpp"] == 20 and
    abs(rows["decode_smollm2_q4_1", 2]["ratios"]["llama.cpp"] - 300 / 110) < 1e-9 and
    rows["streams_1b_q4_0_8", 2]["ratios"]["llama.cpp"] == 5 and
    rows["threads_smollm2", 2]["ratios"]["one thread"] == 2'
ok "shares" holds 'rows["prefill_smollm2_q4_1", 2]["peak_share"] == 0.536 and
    abs(rows["prefill_smollm2_q4_1", 2]["ceiling_share"] - 0.8) < 1e-9 and
    rows["decode_1b_q8_0", 2]["bandwidth_share"] == 0.9'
ok "every round is kept" holds 'all(len(s) == 2 for row in r["rows"] for s in row["samples"].values())'
ok "the absent peer is named" grep -qE "^ +absent +- x OpenVINO" "$folder/table"
ok "streams are asked for" grep -q -- "--prefill 16 --decode 32 --streams 8" "$folder/calls"
ok "the 1B file is made once" bash -c 'grep "1b_q8_0.gguf --shape llama-3.2-1b --type Q8_0" "$1" | grep -c synth |
    grep -qx 1' - "$folder/calls"
ok "the picture is XML" python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' "$folder/report.svg"
ok "quick has no slow rows" bash -c '! scripts/bench-peers --quick --list | grep -q 16,384'
ok "groups" bash -c 'scripts/bench-peers --only start --list | grep -c . | grep -qx 2'

# ---- verdicts ----
ok "verdicts" in_python '
assert b.judge(10.0, 10, False, 0, False) == "PASS" and b.judge(9.9, 10, False, 0, False) == "short"
assert b.judge(0.1, 0.1, True, 0, False) == "PASS" and b.judge(0.11, 0.1, True, 0, False) == "short"
assert b.judge(99, 10, False, 0.06, False) == "disturbed" and b.judge(None, 10, False, 0, False) == "disturbed"
assert b.judge(None, 10, False, 0, True) == "absent"'
ok "a ratio is the median of ratios" in_python '
samples = {"kvick": [{"value": v} for v in (10, 40, 30)], "llama.cpp": [{"value": v} for v in (10, 10, 10)]}
assert b.value_of("x_llama", samples) == 3 and b.value_of("x_openvino", samples) is None'
ok "absolute targets are scaled by the peak" in_python '
assert b.value_of("tok_s", {"kvick": [{"value": 310, "tok_s_at_peak": 620}]}) == 620'
ok "every target has a row" in_python '
targets = bench_rows.read_targets()
assert sum(map(len, targets.values())) == 28 and all(targets[row.key] for row in bench_rows.ROWS)'

# ---- refusals ----
ok "unknown row" exits 2 bench --rows nothing
ok "unknown group" exits 2 bench --only nothing
ok "unknown peer" exits 2 scripts/bench-peers --peers nothing
printf '#!/bin/sh\necho broken >&2\nexit 3\n' >"$KVICK"
ok "a kvick that fails ends the run" bash -c '! scripts/bench-peers --rows start_smollm2 --out "$1" 2>"$1.err"' - \
    "$folder/report"
ok "and is named" grep -q "status 3" "$folder/report.err"

end
