#!/usr/bin/env bash
# soak: 64 streams at a time for 30 s (KVICK_SOAK seconds: `make e2e-soak` takes 600): no error, as much memory at the end as
# at the beginning, probes answered in time, first tokens seen when the server says. What needs a machine of its own is
# judged in the long run alone: the loop's CPU for a token, and the time beside that of `kvick replay`. The client is
# kvick's own.
. "$(dirname "$0")/../support/e2e.sh"
only_e2e
need_model smollm2
python3 - <<'PY'
import json
import os
import random
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time

from kvick_server import KVICK, SLOW, TEXT, KvickServer, Tally, raw_request

SECONDS = int(os.environ.get("KVICK_SOAK", 0)) or 30
IS_LONG = SECONDS > 60
N_STREAMS = 64
BOUNDS = json.load(open("tests/bounds.json", encoding="utf-8"))["entries"]
TICKS = os.sysconf("SC_CLK_TCK")


def at_most(name, value):
    print(f"     {name}: {value:.3f} (at most {BOUNDS[name]['value']})", flush=True)
    assert value <= BOUNDS[name]["value"], (name, value)


def make_requests(n, seed=1):
    """What is asked, the same every time: short prompts of made-up ids, answers of 32 to 96 tokens."""
    generator = random.Random(seed)
    return [{"prompt": [generator.randrange(1000, 40000) for _ in range(generator.randrange(16, 96))],
             "max_tokens": generator.randrange(32, 97)} for _ in range(n)]


def write_trace(file, requests):
    print(json.dumps({"kvick_trace": 1, "name": "soak"}), file=file)
    for request in requests:
        print(json.dumps({"arrival_ms": 0, "prompt_ids": request["prompt"], "output_tokens": request["max_tokens"]}), file=file)
    file.flush()


def run_trace(requests, *command):
    """(seconds, tokens) of a kvick command that is given these requests as a trace, and answers them all."""
    n_tokens = sum(request["max_tokens"] for request in requests)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        write_trace(file, requests)
        command = [word.replace("TRACE", file.name) for word in command]
        done = subprocess.run([KVICK, *command, "--summary"], capture_output=True, text=True, timeout=(SECONDS * 3 + 120) * SLOW, check=False)
    assert done.returncode == 0, done.stderr[-600:]
    report = json.loads(done.stdout)
    report = report.get("soak", report)
    assert (report["summary"]["finished"], report["summary"]["new_tokens"]) == (len(requests), n_tokens), report["summary"]
    return report["totals"]["wall_ms"] / 1000, n_tokens


def over_http(requests):
    return run_trace(requests, "bench", "serve", "--url", f"http://127.0.0.1:{server.port}", "--endpoint", "completions", "--trace", "TRACE",
                     "--clients", str(N_STREAMS), "--json", "--report", os.path.join(folder, "soak"))


def replayed(requests):
    return run_trace(requests, "replay", "TRACE", "smollm2", "--max-num-seqs", str(N_STREAMS))


class Watch(threading.Thread):
    """Memory, and how long probes take, twice a second."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.is_over, self.rss, self.probes = server, False, [], []

    def run(self):
        while not self.is_over:
            with open(f"/proc/{self.server.process.pid}/status", encoding="ascii") as file:
                self.rss.append(next(int(line.split()[1]) for line in file if line.startswith("VmRSS")))
            for path in ("/health", "/metrics"):
                started = time.monotonic()
                status = self.server.ask("GET", path)[0]
                self.probes.append(time.monotonic() - started)
                assert status == 200, path
            time.sleep(0.5)

    def end(self):
        self.is_over = True
        self.join()


def loop_seconds(server):
    """CPU of the event loop, which is the first thread."""
    pid = server.process.pid
    with open(f"/proc/{pid}/task/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def requests_for_all():
    """As many as take SECONDS, by what a first part takes."""
    seconds, _ = over_http(make_requests(N_STREAMS * 2, seed=2))
    return make_requests(max(N_STREAMS * 4, int(N_STREAMS * 2 * SECONDS / seconds)))


def streams_go_on():
    global found
    watch, cpu = Watch(server), loop_seconds(server)
    watch.start()
    seconds, n_tokens = over_http(requests)
    watch.end()
    cpu = loop_seconds(server) - cpu
    found = {"tokens_per_s": n_tokens / seconds, "rss": watch.rss, "probes": sorted(watch.probes)}
    print(f"     {len(requests)} requests, {n_tokens} tokens in {seconds:.1f} s: {n_tokens / seconds:.0f} tokens/s", flush=True)
    print(f"     {cpu / n_tokens * 1e6:.1f} us of the loop's CPU for a token", flush=True)
    if IS_LONG:  # what it costs beside other programs says little
        at_most("soak_loop_us_per_token", cpu / n_tokens * 1e6)
    assert server.load() == 0


def memory_is_flat():
    rss = found["rss"]
    quarter = len(rss) // 4
    assert quarter >= 5, rss
    at_most("soak_memory_growth", statistics.mean(rss[-quarter:]) / statistics.mean(rss[quarter:2 * quarter]) - 1)


def probes_are_answered():
    probes = found["probes"]
    at_most("soak_probe_p99_ms", probes[len(probes) * 99 // 100 - 1] * 1000)


def first_tokens_are_seen_when_they_are_told():
    """Nothing else runs: the client has a core to itself."""
    differences = []
    for request in make_requests(40, seed=3):
        asked = raw_request(TEXT, dict(request, max_tokens=4, stream=True, return_phases=True))
        connection = socket.create_connection(("127.0.0.1", server.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data, seen = b"", None
        started = time.monotonic()
        connection.sendall(asked)
        while not data.endswith(b"0\r\n\r\n"):
            data += connection.recv(1 << 16)
            if seen is None and b"data: " in data:
                seen = time.monotonic()
        connection.close()
        usage = next(json.loads(line[6:]) for line in data.split(b"\n") if line.startswith(b"data: ") and b'"kvick"' in line)
        differences.append((seen - started) * 1000 - usage["usage"]["kvick"]["ttft_ms"])
    at_most("ttft_client_server_ms", statistics.median(abs(one) for one in differences))


def http_takes_little_beside_replay():
    """64 at once, through HTTP and without, in turns: the middle one of five ratios."""
    waves = [make_requests(N_STREAMS, seed) for seed in (4, 5, 6, 7, 8)]
    seconds = [(over_http(wave)[0], replayed(wave)[0]) for wave in waves]
    ratio = statistics.median(http / alone for http, alone in seconds)
    print("     over HTTP and replayed: " + ", ".join(f"{http:.2f} and {alone:.2f} s" for http, alone in seconds), flush=True)
    if IS_LONG:
        at_most("soak_slower_than_replay", ratio - 1)


tally = Tally()
server, found = KvickServer("--no-access-log"), {}
folder = tempfile.mkdtemp()
requests = requests_for_all()
for test in (first_tokens_are_seen_when_they_are_told, streams_go_on, memory_is_flat, probes_are_answered,
             http_takes_little_beside_replay, server.ends_well):
    tally.attempt(test)
shutil.rmtree(folder)
tally.end()
PY
