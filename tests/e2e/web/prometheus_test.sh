#!/usr/bin/env bash
# prometheus: a real Prometheus scrapes a loaded server: the families and their document, the rules, and every expression of the
# Grafana dashboard, which must have something to draw.
. "$(dirname "$0")/../../support/e2e.sh"
only_e2e_web prometheus promtool redis-server
need_model smollm2
export PYTHONPATH=tests/support:tests/e2e/web
python3 - <<'PY'
import hashlib
import json
import math
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request

import alert_cases
from kvick_server import CHAT, FOLDER, SLOW, TEXT, KvickServer, Tally, chat, in_threads, wait_until

LOAD_S = 20 * SLOW
MAX_SCRAPE_US = json.load(open("tests/bounds.json", encoding="utf-8"))["entries"]["metrics_scrape_us"]["value"]
RULES, BOARD = os.path.abspath("deploy/kvick-alerts.yml"), "deploy/grafana-dashboard.json"
SYSTEM = "You are a helpful assistant who answers in one short sentence and never speaks of the weather. " * 3
# What need not be above zero on a server that is well.
MAY_BE_ZERO = ("kvick_preemptions_total", "kvick_requests_preparing", "kvick_requests_waiting", 'kvick_requests_running')


def text(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Prometheus:
    """The deployed configuration, faster, with data of its own."""

    def __init__(self, target):
        self.port = free_port()
        config = text("deploy/prometheus.yml").replace("127.0.0.1:9100", f"127.0.0.1:{target}").replace(
            "- kvick-alerts.yml", f"- {RULES}").replace("interval: 5s", "interval: 1s").replace("interval: 15s", "interval: 1s")
        with open(f"{FOLDER}/prometheus.yml", "w", encoding="utf-8") as file:
            file.write(config)
        with open(f"{FOLDER}/prometheus.log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={FOLDER}/prometheus.yml", f"--storage.tsdb.path={FOLDER}/tsdb",
                 f"--web.listen-address=127.0.0.1:{self.port}", "--storage.tsdb.retention.size=100MB", "--log.level=warn"],
                stdout=log, stderr=log, env=dict(os.environ, GOMAXPROCS="1"))
        self.started_s = time.time()
        wait_until(self.is_ready, 30, "Prometheus does not start")

    def is_ready(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=2) as reply:
                return reply.status == 200
        except OSError:
            return False

    def get(self, path, **parameters):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as reply:
                return json.loads(reply.read())["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None

    def values(self, expression):
        """The numbers that a panel would draw."""
        series = self.get("query_range", query=expression, start=self.started_s, end=time.time(), step=1)["result"]
        numbers = [float(value) for one in series for _, value in one["values"]]
        return [number for number in numbers if math.isfinite(number)]

    def end(self):
        self.process.kill()
        self.process.wait()


class Beside:
    """A Redis and a guardrail for the server."""

    def __init__(self):
        self.redis = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", f"{FOLDER}/redis", "--save", "", "--dir",
                                       FOLDER], stdout=subprocess.DEVNULL)
        self.hook = subprocess.Popen([sys.executable, "tests/e2e/hook_service.py", f"unix:{FOLDER}/hook", f"{FOLDER}/asked"],
                                     stdout=subprocess.DEVNULL)
        wait_until(lambda: os.path.exists(f"{FOLDER}/redis") and os.path.exists(f"{FOLDER}/hook"), 10)

    def end(self):
        for process in (self.redis, self.hook):
            process.kill()
            process.wait()


def write_keys():
    path = f"{FOLDER}/keys.toml"
    with open(path, "w", encoding="utf-8") as file:
        for name in ("alice", "bob"):
            file.write(f'[[key]]\nname = "{name}"\nsha256 = "{hashlib.sha256(name.encode()).hexdigest()}"\n')
    return path


def scrape(s):
    status, headers, data = s.ask("GET", "/metrics", port=s.admin_port)
    assert status == 200 and headers["content-type"].startswith("text/plain; version=0.0.4"), headers
    return data.decode()


def ask(s, key, body, path=CHAT, **headers):
    return s.ask("POST", path, body, dict({"Authorization": f"Bearer {key}"}, **headers))[0]


def until(seconds, one):
    """Calls one with ascending numbers."""
    deadline, n = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        one(n)
        n += 1


def load(s):
    """Answers with a prefix in common, prompts of one key beside them, the same again, clients that leave, requests that
    are too long, prompts that change at their beginning."""
    def answers(n):
        assert ask(s, "alice", chat(SYSTEM + f"Tell me about the number {n}, please.", max_tokens=30)) == 200

    def prompts(n):
        assert ask(s, "bob", {"prompt": f"{n} " + "word " * 500, "max_tokens": 1, "temperature": 0}, TEXT) == 200
        assert ask(s, "bob", chat(f"{n % 3}" + SYSTEM, max_tokens=2, service_tier="batch")) == 200

    def others(n):
        assert ask(s, "alice", chat("The same again.", max_tokens=4)) == 200  # the app cache's, after the first
        assert ask(s, "alice", {"prompt": f"{n} " + "word " * 800, "max_tokens": 1}, TEXT) == 400  # longer than it may be
        client = s.begin(CHAT, chat(f"A long story, number {n}.", max_tokens=400, stream=True, ignore_eos=True),
                         b"Authorization: Bearer alice\r\n")
        client.recv(1000)
        client.close()
        time.sleep(0.5)
    in_threads(*(lambda one=one: until(LOAD_S, one) for one in (answers, prompts, others)))


# ---- what is checked ----

def promtool_finds_nothing(s):
    lines = scrape(s).splitlines(keepends=True)
    for prefix, words in (("kvick_", None), ("vllm:", "metric names should not contain ':'")):
        part = "".join(line for line in lines if re.match(rf"(# \w+ )?{prefix}", line))
        done = subprocess.run(["promtool", "check", "metrics"], input=part, capture_output=True, text=True, check=False, timeout=60)
        findings = (done.stdout + done.stderr).splitlines()
        if words is None:
            assert done.returncode == 0 and not findings, findings
        else:
            assert part and findings and all(words in finding for finding in findings), findings


def families_are_those_of_the_document(s):
    exported = re.findall(r"^# TYPE (\S+) (\w+)$", scrape(s), re.MULTILINE)
    documented = re.findall(r"^\| `([^`]+)` \| (\w+) \|", text("docs/METRICS.md"), re.MULTILINE)
    assert len(exported) == len(set(exported)) and set(exported) == set(documented), set(exported) ^ set(documented)


def nothing_is_reset_by_a_scrape(s):
    """Idle, two scrapes are equal."""
    wait_until(lambda: scrape(s) == scrape(s) and s.metrics_of()["kvick_requests_running{class=\"interactive\"}"] == 0, 10)
    assert scrape(s) == scrape(s)


def numbers_agree(s):
    """Those that are counted in two places."""
    m = s.metrics_of()
    n_requests = sum(value for name, value in m.items() if name.startswith("vllm:request_success_total"))
    assert m['kvick_request_phase_seconds_count{phase="queue"}'] == m["kvick_request_unaccounted_seconds_count{}"] == n_requests
    assert sum(value for name, value in m.items() if name.startswith("kvick_key_requests_total")) == n_requests
    computed, cached = (m[f'kvick_prompt_tokens_total{{source="{source}"}}'] for source in ("computed", "cached"))
    assert cached == m["kvick_prefix_hit_tokens_total{}"] > 0
    assert m['vllm:prompt_tokens_by_source_total{source="local_cache_hit"}'] >= cached  # of prompts that did not end, too
    assert m['kvick_rows_total{phase="prefill"}'] >= computed > 0
    ttft = sum(value for name, value in m.items() if name.startswith("kvick_time_to_first_token_seconds_count"))
    assert ttft == m["vllm:time_to_first_token_seconds_count{}"] > 0
    states = sum(value for name, value in m.items() if name.startswith("kvick_kv_blocks{"))
    assert states == sum(int(n) for n in re.findall(r'num_gpu_blocks="(\d+)"', scrape(s)))
    late = m["kvick_request_unaccounted_seconds_count{}"] - m['kvick_request_unaccounted_seconds_bucket{le="0.001"}']
    assert late == 0, late
    assert m['kvick_requests_cancelled_total{reason="left"}'] > 0 and m['kvick_requests_refused_total{reason="input_cap"}'] > 0


def rules_are_sound():
    for command in (["check", "config", f"{FOLDER}/prometheus.yml"], ["check", "rules", RULES]):
        done = subprocess.run(["promtool", *command], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
    is_good, said = alert_cases.run(RULES, f"{FOLDER}/cases.yml")
    assert is_good, said
    alerts = set(re.findall(r"- alert: (\S+)", text(RULES)))
    assert alert_cases.fired() == alerts, alert_cases.fired() ^ alerts


def rules_are_evaluated(prometheus):
    groups = prometheus.get("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == len(re.findall(r"- (?:alert|record): ", text(RULES)))
    assert all(rule["health"] == "ok" for rule in rules), [rule for rule in rules if rule["health"] != "ok"]
    for rule in rules:
        if rule["type"] == "recording":
            assert prometheus.values(rule["name"]), rule["name"]
    assert prometheus.get("targets")["activeTargets"][0]["health"] == "up"


def every_panel_has_something_to_draw(prometheus):
    board = json.loads(text(BOARD))
    expressions = [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel.get("targets", [])]
    assert len(expressions) >= 30
    empty, flat = [], []
    for title, expression in expressions:
        values = prometheus.values(expression.replace("$__rate_interval", "5s").replace("$model", ".*"))
        if not values:
            empty.append((title, expression))
        elif not any(values) and not any(name in expression for name in MAY_BE_ZERO):
            flat.append((title, expression))
    assert not empty and not flat, (empty, flat)
    print(f"     {len(expressions)} expressions of {len(board['panels'])} panels")


def a_scrape_costs_little(s):
    """CPU of the loop's thread for one, when nothing else is done."""
    def cpu_ns():
        with open(f"/proc/{s.process.pid}/task/{s.process.pid}/schedstat", encoding="ascii") as stat:
            return int(stat.read().split()[0])
    n = 100
    before = cpu_ns()
    for _ in range(n):
        n_bytes = len(scrape(s))
    us = (cpu_ns() - before) / 1e3 / n
    print(f"     {us:.0f} us of CPU for a scrape of {n_bytes} bytes")
    assert us <= MAX_SCRAPE_US * SLOW, us


class Server(KvickServer):
    def __init__(self):
        super().__init__("--keys", write_keys(), "--admin-listen", "0", "--slo", "interactive:ttft=10s,itl=2ms",
                         "--target-itl-ms", "30", "--max-prompt-tokens", "interactive=700", "--app-cache", f"unix:{FOLDER}/redis", "--pre-hook", f"unix:{FOLDER}/hook",
                         "--pre-hook-fail", "open", "--no-access-log", max_len=1024)
        self.admin_port = int(re.search(r"administration on port (\d+)", "".join(self.printed))[1])

    def metrics_of(self):
        values = {}
        for line in scrape(self).splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                values[re.sub(r'model_name="[^"]*",engine="0",?', "", name)] = float(value)
        return values


tally = Tally()
beside = Beside()
try:
    with Server() as server:
        tally.attempt(promtool_finds_nothing, server, name="promtool_finds_nothing_on_a_fresh_server")
        scraper = Prometheus(server.admin_port)
        try:
            tally.attempt(load, server)
            time.sleep(3)  # the last scrapes and rules
            tally.attempt(promtool_finds_nothing, server)
            tally.attempt(families_are_those_of_the_document, server)
            tally.attempt(nothing_is_reset_by_a_scrape, server)
            tally.attempt(numbers_agree, server)
            tally.attempt(rules_are_sound)
            tally.attempt(rules_are_evaluated, scraper)
            tally.attempt(every_panel_has_something_to_draw, scraper)
        finally:
            scraper.end()
        tally.attempt(a_scrape_costs_little, server)
finally:
    beside.end()
tally.end()
PY
