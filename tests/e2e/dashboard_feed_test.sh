#!/usr/bin/env bash
# The dashboard's data from outside: who may see them, that they agree with /metrics and a request's own account, that
# nothing of a text is in them, what is new since the last reply and no more, and what a viewer costs.
. "$(dirname "$0")/../support/e2e.sh"
need_golden gguf/llama.gguf
python3 - <<'PY'
import json
import os
import re
import time

from kvick_server import SLOW, TEXT, KvickServer, Tally, in_threads, wait_until

MODEL = os.environ["MODEL"]
FEED = "/debug/dashboard"
BOUNDS = json.load(open("tests/bounds.json", encoding="utf-8"))["entries"]


def ids(n, seed=0):
    return [(seed * 37 + i * 7) % 200 + 20 for i in range(n)]


def ask_for(n_prompt, seed=0, **more):
    return dict({"prompt": ids(n_prompt, seed), "max_tokens": 4, "ignore_eos": True, "temperature": 0}, **more)


def feed(s, query="", **more):
    status, headers, data = s.ask("GET", FEED + query, **more)
    assert status == 200 and headers["content-type"] == "application/json", (status, data[:300])
    return json.loads(data)


def table(reply, name):
    """Rows of a list of lists, as objects."""
    return [dict(zip(reply[name[:-1] + "_fields"], row)) for row in reply[name]]


def metric(s, name):
    text = s.ask("GET", "/metrics")[2].decode()
    return float(re.search(rf"^{re.escape(name)}{{[^}}]*}} (\S+)$", text, re.MULTILINE)[1])


def a_fresh_server_has_nothing_to_tell(s):
    reply = feed(s)
    assert reply["ended"] == reply["running_requests"] == reply["steps"] == reply["diagnosis"] == [], reply
    assert reply["ttft_ms"] == reply["itl_ms"] == {"n": 0, "p50": None, "p95": None, "p99": None}, reply
    assert reply["chunked"] and not reply["demo"] and not reply["needs_key"], reply
    assert reply["free_blocks"] == reply["blocks"] > 0 and reply["running"] == reply["waiting"] == 0, reply


def a_request_can_be_followed(s):
    before = feed(s)["last_step"]
    s.post(TEXT, ask_for(200), headers={"x-request-id": "mine"})
    wait_until(lambda: feed(s)["last_step"] >= before + (200 + 63) // 64 + 3, 10)
    reply = feed(s, f"?step={before}")
    request = reply["ended"][-1]
    assert request["id"] == "cmpl-mine" and request["state"] == "finished" and request["end"] == "length", request
    assert request["prompt_tokens"] == 200 and request["output_tokens"] == 4 and request["key"] is None, request
    own = json.loads(s.ask("GET", "/v1/requests/cmpl-mine")[2])["prompts"][0]["phases"]
    for name, us in zip(reply["phase_names"], request["phases_us"]):
        assert abs(own[name + "_ms"] - us / 1000) < 0.002, (name, us, own)
    assert request["received_us"] <= request["submitted_us"] <= request["prefill_start_us"] < request["prefill_end_us"]
    assert request["prefill_end_us"] <= request["first_token_us"] < request["last_token_us"] <= request["ended_us"]
    steps = table(reply, "steps")
    chunks = [step for step in steps if step["parts"]]
    assert [step["parts"][:1] for step in chunks] == [[request["run"]]] * len(chunks), chunks
    assert sum(step["parts"][1] for step in chunks) == 200 and sum(step["decode_rows"] for step in steps) == 3, steps
    own_us = request["phases_us"][reply["phase_names"].index("prefill_own")]
    # The last of them ends with the sampling, which is a phase of its own.
    assert own_us < sum(step["took_us"] for step in chunks) + 50 <= request["ended_us"] - request["prefill_start_us"] + 100
    assert chunks[0]["start_us"] == request["prefill_start_us"], (chunks, request)


def it_agrees_with_the_metrics(s):
    reply = feed(s)
    assert reply["first_tokens"] == metric(s, "vllm:time_to_first_token_seconds_count") >= 1, reply
    assert reply["prompt_tokens"] == metric(s, "vllm:prompt_tokens_total"), reply
    assert reply["output_tokens"] == metric(s, "vllm:generation_tokens_total"), reply
    assert reply["ttft_ms"]["n"] == reply["first_tokens"], reply
    mean = 1000 * metric(s, "vllm:time_to_first_token_seconds_sum") / reply["first_tokens"]
    assert reply["first_tokens"] > 1 or abs(reply["ttft_ms"]["p50"] - mean) < 0.03 * mean, (reply["ttft_ms"], mean)


def only_what_is_new_comes(s):
    wait_until(lambda: feed(s)["next_sample"] > 0, 3)
    first = feed(s)
    again = feed(s, f"?sample={first['next_sample']}&request={first['next_request']}&step={first['last_step']}")
    assert len(again["samples"]) <= 1 and again["ended"] == [] and again["steps"] == [], again
    for query in ("?sample=x&request=-5&step=99999999999999999999", "?sample=999999&request=999999&step=999999"):
        feed(s, query)
    for _ in range(3):
        s.post(TEXT, {"prompt": [[7, 8]] * 64, "max_tokens": 0})
    assert len(feed(s)["ended"]) == 100 and len(feed(s, "?request=0")["ended"]) <= 500


def nothing_of_a_text_is_told():
    with KvickServer("--api-key", "sesame", model=MODEL) as s:
        key = {"Authorization": "Bearer sesame"}
        s.ask("POST", TEXT, {"prompt": "zebrawood", "max_tokens": 3, "cache_salt": "saltmine"}, headers=key)
        data = s.ask("GET", FEED + "?map=1", headers=key)[2]
        assert b"api-key-1" in data, data
        for word in (b"zebrawood", b"saltmine", b"sesame"):
            assert word not in data, data


def who_may_see_it():
    with KvickServer("--api-key", "k", model=MODEL) as s:
        assert s.ask("GET", FEED)[0] == 401 and s.ask("GET", FEED, headers={"x-api-key": "k"})[0] == 200
        assert s.ask("POST", FEED)[0] == 401 and s.ask("POST", "/debug/chunking?chunked=1", b"")[0] == 401
        # The page holds nothing of anybody.
        status, headers, data = s.ask("GET", "/dashboard", headers={"Accept-Encoding": "gzip"})
        assert status == 200 and "frame-ancestors 'none'" in headers["content-security-policy"], (status, headers)
        assert headers.get("content-encoding") == "gzip" or b"make web" in data, data[:200]
        assert len(data) < 150_000, len(data)


def blocks_are_drawn(s):
    s.post(TEXT, ask_for(100, seed=5))
    wait_until(lambda: "map" in feed(s, "?map=1"), 5)
    wait_until(lambda: sum(feed(s, "?map=1")["map"]["cells"][1::5]) == feed(s)["reusable_blocks"], 5)
    drawn = feed(s, "?map=1")["map"]
    assert sum(drawn["cells"]) == drawn["blocks"] == feed(s)["blocks"], drawn
    assert len(drawn["uses"]) == 5 and "map" not in feed(s), drawn


def chunks_are_left_out_on_demand():
    with KvickServer(model=MODEL) as s:
        status, _, data = s.ask("POST", "/debug/chunking?chunked=0", b"", headers={"Content-Type": "application/json"})
        assert status == 403 and b"--demo" in data, (status, data)
    with KvickServer("--demo", "--chunk", "32", model=MODEL) as s:
        def chunks_of(chunked, seed):
            kind = {"Content-Type": "application/json"}
            before = feed(s)["last_step"]
            assert s.ask("POST", f"/debug/chunking?chunked={chunked:d}", b"", headers=kind)[0] == 200
            answer = s.post(TEXT, ask_for(150, seed, cache_prompt=False))
            wait_until(lambda: feed(s)["last_step"] >= before + (5 if chunked else 1) + 3, 10)
            reply = feed(s, f"?step={before}")
            assert reply["chunked"] == chunked and reply["demo"] and reply["peak_gops"] > 0 and reply["read_gb_s"] > 0
            return [row["prefill_rows"] for row in table(reply, "steps") if row["prefill_rows"]], answer["choices"][0]["text"]
        assert s.ask("POST", "/debug/chunking?chunked=0", b"")[0] == 400  # as a form of another page would send it
        for query in ("", "?chunked=2", "?chunked=no"):
            assert s.ask("POST", "/debug/chunking" + query, b"", headers={"Content-Type": "application/json"})[0] == 400, query
        chunked, text = chunks_of(True, 1)
        whole, same = chunks_of(False, 1)
        assert len(chunked) >= 5 and max(chunked) <= 32 and whole == [150] and text == same, (chunked, whole, text, same)
        again, same = chunks_of(True, 1)  # a busy machine cuts them otherwise
        assert len(again) >= 5 and max(again) <= 32 and text == same, (again, text, same)


def loop_cpu_ns(s):
    with open(f"/proc/{s.process.pid}/task/{s.process.pid}/schedstat", encoding="ascii") as file:
        return int(file.read().split()[0])


def a_viewer_costs_little(s):
    in_threads(*[lambda i=i: s.post(TEXT, ask_for(20, i, max_tokens=120)) for i in range(8)])
    last = feed(s, "?map=1")
    steps = max(0, last["last_step"] - 120)
    query = f"?sample={last['next_sample'] - 1}&request={last['next_request'] - 20}&step={steps}&map=1"
    n_bytes, n = len(s.ask("GET", FEED + query)[2]), 100
    before = loop_cpu_ns(s)
    for _ in range(n):
        s.ask("GET", FEED + query)
    cpu_ms = (loop_cpu_ns(s) - before) / n / 1e6
    print(f"a reply of {n_bytes} bytes costs the event loop {cpu_ms:.2f} ms")
    assert n_bytes > 10_000 and (SLOW > 1 or cpu_ms <= BOUNDS["dashboard_cpu_ms"]["value"]), (n_bytes, cpu_ms)


tally = Tally()
with KvickServer("--chunk", "64", "--target-itl-ms", "1000", "--max-step-ms", "1000", model=MODEL, max_len=None) as server:
    for test in (a_fresh_server_has_nothing_to_tell, a_request_can_be_followed, it_agrees_with_the_metrics,
                 only_what_is_new_comes, blocks_are_drawn, a_viewer_costs_little):
        tally.attempt(test, server)
for test in (nothing_of_a_text_is_told, who_may_see_it, chunks_are_left_out_on_demand):
    tally.attempt(test)
tally.end()
PY
