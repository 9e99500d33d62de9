#!/usr/bin/env bash
# bench_phases: the report of a small run on a server of its own, its files, and what is refused; the controls with
# KVICK_LONG.
. "$(dirname "$0")/../support/e2e.sh"
need_model smollm2
if [ "$(basename "${KVICK_BUILD_DIR:-build/release}")" != release ] && [ -z "${KVICK_LONG:-}" ]; then
    echo "a sanitizer's build takes minutes: only with KVICK_LONG"
    exit 77
fi
python3 - <<'PY'
import csv
import json
import os
import re
import subprocess
import xml.etree.ElementTree

from kvick_server import FOLDER, KVICK, KvickServer, Tally

PREFIX = os.path.join(FOLDER, "small")
tally = Tally()
check = tally.check


def run(*words):
    return subprocess.run([KVICK, "bench", *words], capture_output=True, text=True, timeout=170, check=False)


done = run("phases", "smollm2", "--budget", "8", "--context", "1600", "--report", PREFIX)
check("the run: " + done.stderr, done.returncode == 0)
check("the table", "first token" in done.stdout and "answer tokens on" in done.stdout)
html = open(PREFIX + ".html", encoding="utf-8").read()
check("less than 300 kB", len(html) < 300000)
check("nothing from elsewhere", not re.search(r"<script|<link|<img|@import|url\(", html) and
      set(re.findall(r"https?://[^\"'< ]+", html)) <= {"http://www.w3.org/2000/svg"})
check("three figures", html.count("<svg") == 3 and html.count("<figcaption") == 3)
check("both schemes", "prefers-color-scheme:dark" in html and "max-width" in html)
for name in ("ttft", "decode", "cases"):
    root = xml.etree.ElementTree.parse(f"{PREFIX}-{name}.svg").getroot()
    check(f"{name}.svg says what it shows", len(root.find("{*}desc").text) > 40)
report = json.load(open(PREFIX + ".json", encoding="utf-8"))
rows = list(csv.DictReader(open(PREFIX + ".csv", encoding="utf-8")))
check("lengths ascend", len(report["cold"]) >= 3 and
      report["cold"] == sorted(report["cold"], key=lambda point: point["prompt_tokens"]))
check("the time grows", report["cold"][-1]["ttft_ms"] > 2 * report["cold"][0]["ttft_ms"])
check("a fit", report["ttft_fit"]["b_ms_per_token"] + report["ttft_fit"]["c_ms_per_token2"] > 0 and report["ttft_fit"]["residual_rms_share"] < 1)
check("every prompt is new", all(int(row["cached_tokens"]) <= 32 for row in rows if row["series"] == "cold"))
shared = [int(row["cached_tokens"]) for row in rows if row["series"] == "shared"]
check("the system prompt is found", shared and min(shared) > 0.8 * report["shared_tokens"])
check("it saves time", report["shared"][0]["saved_ms"] > 0)
check("decode fills long answers", [one["dominated_by"] for one in report["cases"]
                                    if one["prompt"] == "short" and one["answer"] == "long"] == ["decode"])

for words, code, text in [(["phases"], 2, "--url"), (["phases", "smollm2", "--url", "http://127.0.0.1:1"], 2, "both"),
                          (["phases", "--url", "127.0.0.1:1"], 1, "http://"), (["phases", "absent.gguf"], 1, "absent"),
                          (["phases", "--url", "http://127.0.0.1:1"], 1, "127.0.0.1:1"),
                          (["phases", "smollm2", "--budget", "0"], 2, "--budget"),
                          (["phases", "--controls", "--url", "http://127.0.0.1:1"], 2, "MODEL"),
                          (["phases", "smollm2", "--endpoint", "chat"], 2, "--url"),
                          (["phases", "smollm2", "--context", "100"], 1, "too short")]:
    done = run(*words)
    check(f"{words}: {done.returncode} {done.stderr}", done.returncode == code and text in done.stderr)

done = run("serve", "smollm2", "--budget", "1", "--context", "1024", "--json", "--summary", "--report", PREFIX)
check("serve: " + done.stderr, done.returncode == 0)
one = json.loads(done.stdout)["1 client"]["summary"]
check("two requests, one at a time", one["finished"] == 2 and one["new_tokens"] == 96 and one["refused"] == 0)
check("no mean, but the ends", {"p50", "p95", "p99", "max"} <= set(one["ttft_ms"]) and "mean" not in done.stdout)
trace = os.path.join(FOLDER, "t.jsonl")
with open(trace, "w", encoding="utf-8") as file:
    file.write('{"kvick_trace": 1, "name": "talk"}\n'
               '{"arrival_ms": 0, "prompt_tokens": 40, "output_tokens": 8, "label": "first"}\n'
               '{"arrival_ms": 5, "after": 0, "prompt_tokens": 20, "output_tokens": 8, "label": "second"}\n')
done = run("serve", "smollm2", "--trace", trace, "--context", "1024", "--json", "--report", PREFIX)
check("a trace: " + done.stderr, done.returncode == 0)
labels = json.loads(done.stdout)["talk"]["labels"]
check("its second turn finds the first", labels["second"]["cached_tokens"] >= 48 and labels["second"]["new_tokens"] == 8)
with open(PREFIX + ".html", encoding="utf-8") as file:
    page = file.read()
check("a page in one file", "Time to the first token" in page and "talk, second" in page and "<script" not in page)
with open(trace, "w", encoding="utf-8") as file:
    file.write('{"kvick_trace": 1, "name": "ids"}\n' +
               "".join('{"arrival_ms": %d, "prompt_ids": [%d, 5, 6, 7], "output_tokens": 4}\n' % (n * 100000, n + 9) for n in range(6)))
with KvickServer("--max-model-len", "512") as server:
    url = f"http://127.0.0.1:{server.port}"
    done = run("serve", "--url", url, "--endpoint", "completions", "--trace", trace, "--clients", "3", "--json", "--report", PREFIX)
    check("clients do not wait for arrivals: " + done.stderr, done.returncode == 0)
    ids = json.loads(done.stdout)["ids"]
    check("ids are sent as they are", ids["summary"]["finished"] == 6 and {one["prompt_tokens"] for one in ids["requests"]} == {4})
    done = run("serve", "--url", url, "--trace", trace, "--endpoint", "chat", "--report", PREFIX)
    check("ids are no chat: " + done.stderr, done.returncode == 1 and "line 2: prompt_ids: they need --endpoint completions" in done.stderr)
for words, text in ((["--clients", "3"], "--trace"), (["--clients", "-1", "--trace", trace], "--clients: -1"),
                    (["--clients", "300", "--trace", trace], "--clients: 300 is not within")):
    done = run("serve", "smollm2", *words)
    check(f"{words}: {done.stderr}", done.returncode == 2 and text in done.stderr)

if os.environ.get("KVICK_LONG"):
    done = run("phases", "smollm2", "--controls", "--json")
    check("controls: " + done.stderr, done.returncode == 0)
    controls = json.loads(done.stdout)
    check("six of them, all with equal ids", len(controls) == 6 and all(one["ids_equal"] for one in controls))
    check("token by token is slower", controls[0]["ratio"] > 1.5)

tally.end()
PY
