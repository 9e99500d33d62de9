"""alert_cases: made-up series for `promtool test rules`: a server that is well, and what differs where it is not, with the
alerts that must fire then and no others."""

import json
import subprocess

N, N_SHORT = 370, 44  # minutes: more than the longest range, of burns; more than all others

HEALTHY = {
    'up{job="kvick",instance="i"}': "1+0",
    'kvick_slo_requests_total{met="true",class="interactive",slo="ttft"}': "0+100",
    'kvick_slo_requests_total{met="false",class="interactive",slo="ttft"}': "0+0",
    'kvick_goodput_requests_total{good="true",class="interactive"}': "0+100",
    'kvick_goodput_requests_total{good="false",class="interactive"}': "0+0",
    'kvick_request_phase_seconds_sum{phase="queue"}': "0+1",
    'kvick_request_phase_seconds_sum{phase="prefill_own"}': "0+10",
    'kvick_request_phase_seconds_sum{phase="decode"}': "0+60",
    'kvick_busy_seconds_total{phase="prefill"}': "0+20",
    'kvick_busy_seconds_total{phase="decode"}': "0+20",
    'kvick_key_prefill_tokens_total{key="alice"}': "0+100",
    'kvick_key_prefill_tokens_total{key="bob"}': "0+100",
    'kvick_key_prefill_tokens_total{key="carol"}': "0+100",
    'kvick_interference_seconds_total{phase="decode"}': "0+2",
    'kvick_inter_token_seconds_sum{class="interactive"}': "0+40",
    'kvick_prefix_hit_tokens_total': "0+50",
    'kvick_prefix_queried_tokens_total': "0+100",
    'kvick_kv_blocks{group="0",state="free"}': "500+0",
    'kvick_kv_blocks{group="0",state="reusable"}': "300+0",
    'kvick_kv_blocks{group="0",state="held"}': "200+0",
    'kvick_kv_blocks{group="0",state="pinned"}': "0+0",
    'kvick_kv_waste_ratio{group="0"}': "0.1+0",
    'kvick_requests_waiting{class="interactive"}': "2+0",
    'kvick_requests_waiting{class="batch"}': "0+0",
    'kvick_requests_refused_total{reason="queue"}': "0+0",
    'kvick_requests_refused_total{reason="context"}': "0+50",
    'kvick_requests_admitted_total': "0+100",
    'kvick_ttft_predictions_total{class="interactive",kept="true"}': "0+100",
    'kvick_ttft_predictions_total{class="interactive",kept="false"}': "0+1",
    'kvick_preemptions_total': "0+0",
    'kvick_request_unaccounted_seconds_count': "0+100",
    'kvick_request_unaccounted_seconds_bucket{le="0.001"}': "0+100",
}
MET, MISSED = (f'kvick_slo_requests_total{{met="{met}",class="interactive",slo="ttft"}}' for met in ("true", "false"))
QUEUE = 'kvick_request_phase_seconds_sum{phase="queue"}'
ALICE = 'kvick_key_prefill_tokens_total{key="alice"}'
PREFILL = 'kvick_busy_seconds_total{phase="prefill"}'
WAITING = 'kvick_requests_waiting{class="interactive"}'
HELD, FREE, REUSABLE = (f'kvick_kv_blocks{{group="0",state="{state}"}}' for state in ("held", "free", "reusable"))
BURN = {"KvickSloBurnFast", "KvickSloBurnSlow"}

# What it is: (series in place of the healthy ones, the alerts that fire at the end)
CASES = {
    "all is well": ({}, set()),
    "half is missed": ({MISSED: "0+50", MET: "0+50"}, BURN),
    "one in twelve is missed": ({MISSED: "0+8", MET: "0+92"}, {"KvickSloBurnSlow"}),
    "one in fifty is missed": ({MISSED: "0+2", MET: "0+98"}, set()),
    "half was missed for some minutes": ({MISSED: f"0+0x{N - 8} 0+50x8", MET: "0+100"}, set()),
    "it was missed hours ago": ({MISSED: f"0+50x60 3000+0x{N - 60}", MET: "0+100"}, set()),
    "nobody asks": ({series: "0+0" for series in HEALTHY if "_total" in series or "_seconds_" in series}, set()),
    "the queue grows": ({WAITING: "0+1"}, {"KvickQueueGrowing"}),
    "the queue is long and stays so": ({WAITING: "10+0"}, set()),
    "one key storms": ({QUEUE: "0+200", ALICE: "0+1000", PREFILL: "0+50"}, {"KvickPrefillStorm"}),
    "one key sends most, and nobody waits": ({ALICE: "0+1000", PREFILL: "0+50"}, set()),
    "all wait, and nobody sends most": ({QUEUE: "0+200", PREFILL: "0+50"}, set()),
    "the KV cache is full": ({HELD: "990+0", FREE: "10+0", REUSABLE: "0+0"}, {"KvickKvFull"}),
    "the KV cache is full of what may go": ({HELD: "200+0", FREE: "0+0", REUSABLE: "800+0"}, set()),
    "blocks are taken away": ({"kvick_preemptions_total": "0+60"}, {"KvickKvFull"}),
    "requests are refused": ({'kvick_requests_refused_total{reason="queue"}': "0+20"}, {"KvickRefusals"}),
    "answers wait for prompts": ({'kvick_interference_seconds_total{phase="decode"}': "0+30"}, {"KvickInterference"}),
    "promises are late": ({'kvick_ttft_predictions_total{class="interactive",kept="false"}': "0+50"},
                          {"KvickPredictionLate"}),
    "held KV is empty": ({'kvick_kv_waste_ratio{group="0"}': "0.7+0", HELD: "1000+0"}, {"KvickKvWaste"}),
    "a little held KV is empty": ({'kvick_kv_waste_ratio{group="0"}': "0.7+0"}, set()),
    "time is unaccounted": ({'kvick_request_unaccounted_seconds_bucket{le="0.001"}': "0+90"}, {"KvickUnaccounted"}),
    "it is down": ({'up{job="kvick",instance="i"}': "0+0"}, {"KvickDown"}),
}


def with_model(series):
    name, _, labels = series.partition("{")
    return series if name == "up" else f'{name}{{model_name="m",engine="0"' + (f",{labels}" if labels else "}")


def document(rules):
    """What promtool reads: JSON is YAML."""
    tests = []
    for name, (differences, alerts) in CASES.items():
        assert set(differences) <= set(HEALTHY), (name, set(differences) - set(HEALTHY))
        n = N if MISSED in differences else N_SHORT
        series = [{"series": with_model(series), "values": values if "x" in values else f"{values}x{n}"}
                  for series, values in dict(HEALTHY, **differences).items()]
        tests.append({"name": name, "interval": "1m", "input_series": series, "promql_expr_test": [
            {"expr": 'group by (alertname) (ALERTS{alertstate="firing"})', "eval_time": f"{n}m",
             "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(alerts)]}]})
    return {"rule_files": [rules], "evaluation_interval": "2m", "tests": tests}


def run(rules, path):
    """(whether all alerts fire where they must and nowhere else, what promtool said)"""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document(rules), file)
    done = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True, check=False, timeout=300)
    return done.returncode == 0, done.stdout + done.stderr


def fired():
    """Every alert that some case expects."""
    return set().union(*(alerts for _, alerts in CASES.values()))
