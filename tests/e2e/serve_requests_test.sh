#!/usr/bin/env bash
# serve: what may be known of a request while it runs and afterwards, progress in streams, prefixes kept warm, answers
# that come again as text, and the odd values that clients send.
. "$(dirname "$0")/../support/e2e.sh"
need_model smollm2
python3 - <<'PY'
import json
import threading
import time

from kvick_server import CHAT, SLOW, TEXT, KvickServer, Tally, chat, streamed_text, text_of, wait_until


def events_of(s, path, body):
    """(name, data) of a stream's events, whatever their form."""
    status, _, data = s.ask("POST", path, dict(body, stream=True))
    assert status == 200, data
    events = []
    for block in data.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        events.append((fields.get("event"), fields["data"] if fields["data"] == "[DONE]" else json.loads(fields["data"])))
    return events


# ---- a request's state ----

def state_of(s, request_id, code=200, headers=None):
    status, _, data = s.ask("GET", "/v1/requests/" + request_id, None, headers)
    assert status == code, (status, data)
    return json.loads(data)


def a_request_that_ended_is_remembered(s):
    headers = {"x-request-id": "mine"}
    usage = s.post(TEXT, {"prompt": list(range(100, 200)), "max_tokens": 7, "ignore_eos": True, "return_phases": True},
                   headers=headers)["usage"]
    state = state_of(s, "cmpl-mine")
    assert (state["state"], state["status"], state["finish_reason"]) == ("finished", 200, "length"), state
    assert state["object"] == "request" and state["path"] == TEXT, state
    (prompt,) = state["prompts"]
    assert (prompt["prompt_tokens"], prompt["done_tokens"], prompt["output_tokens"]) == (100, 100, 7), prompt
    assert prompt["phases"] == usage["kvick"], (prompt, usage)
    s.post(TEXT, {"prompt": [[1] * 20, [2] * 30], "max_tokens": 2, "ignore_eos": True}, headers={"x-request-id": "two"})
    assert [one["prompt_tokens"] for one in state_of(s, "cmpl-two")["prompts"]] == [20, 30]
    state_of(s, "cmpl-nobody", 404)
    status, headers, _ = s.ask("POST", "/v1/requests/cmpl-mine", {})
    assert status == 405 and headers["allow"] == "GET", headers


def a_request_that_runs_tells_how_far_it_is(s):
    body = {"prompt": [(7 * i) % 20000 for i in range(600)], "max_tokens": 50, "ignore_eos": True, "cache_salt": "runs"}
    result = {}
    thread = threading.Thread(target=lambda: result.update(s.post(TEXT, body, headers={"x-request-id": "runs"})))
    thread.start()
    seen, done, out = set(), [], []
    while thread.is_alive():
        status, _, data = s.ask("GET", "/v1/requests/cmpl-runs")
        if status == 404:
            continue
        state = json.loads(data)
        prompt = state["prompts"][0]
        seen.add(prompt["state"])
        if state["state"] != "running":
            break
        assert state["status"] is None and state["finish_reason"] is None, state
        if prompt["state"] in ("prefill", "decode"):
            phases = prompt["phases"]
            done.append(prompt["done_tokens"])
            out.append(prompt["output_tokens"])
            parts = [value for key, value in phases.items() if key.endswith("_ms") and key not in (
                "total_ms", "ttft_ms", "unaccounted_ms", "predicted_ttft_ms")]
            assert abs(sum(parts) + phases["unaccounted_ms"] - phases["total_ms"]) < 0.01, phases
            assert prompt["prompt_tokens"] == 600 and 0 <= prompt["done_tokens"] <= 600, prompt
    thread.join()
    assert {"prefill", "decode"} <= seen, seen
    assert done == sorted(done) and 0 < len(set(done)) and done[-1] == 600 and out == sorted(out), (done, out)
    assert out[-1] > 0 and result["usage"]["completion_tokens"] == 50, out


def old_requests_are_forgotten(s):
    if SLOW > 1:
        return  # 10,000 requests take minutes there
    def ask(name):
        s.post(TEXT, {"prompt": [[7, 8]] * 64, "max_tokens": 1}, headers={"x-request-id": name})
    s.post(TEXT, {"prompt": "x", "max_tokens": 1}, headers={"x-request-id": "old"})
    for i in range(156):
        ask(f"many-{i}")
    assert len(state_of(s, "cmpl-many-0")["prompts"]) == 64 and state_of(s, "cmpl-old")["state"] == "finished"
    s.post(TEXT, {"prompt": [[7, 8]] * 15, "max_tokens": 1})
    state_of(s, "cmpl-old")  # the oldest of 10,000
    s.post(TEXT, {"prompt": ["a", "b"], "max_tokens": 1})
    state_of(s, "cmpl-old", 404)
    assert len(state_of(s, "cmpl-many-0")["prompts"]) == 63  # the first of them went too
    ask("many-0")  # of two with one id the last counts
    assert len(state_of(s, "cmpl-many-0")["prompts"]) == 64


def others_requests_are_not_told():
    with KvickServer("--api-key", "first", "--api-key", "second") as s:
        keys = [{"Authorization": "Bearer " + key} for key in ("first", "second")]
        s.post(TEXT, {"prompt": "x", "max_tokens": 1}, headers=dict(keys[0], **{"x-request-id": "a"}))
        assert state_of(s, "cmpl-a", headers=keys[0])["status"] == 200
        assert state_of(s, "cmpl-a", 404, keys[1])["error"]["code"] == "request_not_found"
        state_of(s, "cmpl-a", 401)


def a_client_that_left_is_remembered(s):
    client = s.begin(TEXT, {"prompt": "x", "max_tokens": 900, "ignore_eos": True}, b"x-request-id: left\r\n")
    wait_until(s.load, 20)
    time.sleep(0.1)
    client.close()
    wait_until(lambda: not s.load(), 20)
    state = state_of(s, "cmpl-left")
    assert state["status"] is None and state["finish_reason"] == "abort" and state["state"] == "finished", state


# ---- progress, phases ----

def progress_is_told_on_request(s):
    prompt = [(11 * i) % 20000 for i in range(500)]
    for path, body in ((TEXT, {"prompt": prompt}),
                       (CHAT, {"messages": [{"role": "user", "content": " ".join(str(i) for i in range(100))}]})):
        body = dict(body, max_tokens=4, ignore_eos=True, temperature=0, cache_salt="progress")
        events = s.stream(path, dict(body, return_progress=True))
        told = [event["prompt_progress"] for event in events if "prompt_progress" in event]
        n_prompt = s.post(path, body)["usage"]["prompt_tokens"]
        assert len(told) >= 2, told
        assert all(one["total"] == n_prompt and one["cache"] == 0 for one in told), (told, n_prompt)
        done = [one["processed"] for one in told]
        assert done == sorted(set(done)) and 0 < done[0] < done[-1] == n_prompt, done
        times = [one["time_ms"] for one in told]
        assert times == sorted(times) and times[0] > 0, times
        first_text = next(i for i, event in enumerate(events) if streamed_text([event]))
        last_told = max(i for i, event in enumerate(events) if "prompt_progress" in event)
        assert last_told < first_text and all(len(event["choices"]) == 1 for event in events), events
        assert streamed_text(events) == text_of(s.post(path, body))
        again = [event["prompt_progress"] for event in s.stream(path, dict(body, return_progress=True))
                 if "prompt_progress" in event]
        assert again[-1]["cache"] >= n_prompt - 32 and again[-1]["processed"] == n_prompt, again
        assert all("prompt_progress" not in event for event in s.stream(path, body))
        s.post(path, dict(body, return_progress=True), 400)
        s.post(path, dict(body, return_progress=1, stream=True), 400)
    pings = [data for name, data in events_of(s, "/v1/messages", {
        "model": "smollm2", "max_tokens": 3, "return_progress": True, "cache_salt": "ping",
        "messages": [{"role": "user", "content": " ".join(str(i) for i in range(100))}]}) if name == "ping"]
    assert len(pings) >= 2 and pings[-1]["type"] == "ping", pings
    assert pings[-1]["prompt_progress"]["processed"] == pings[-1]["prompt_progress"]["total"], pings


def phases_come_with_the_usage(s):
    def check(usage):
        phases = usage["kvick"]
        assert phases["total_ms"] >= phases["ttft_ms"] > 0 and phases["prefill_own_ms"] >= 0, phases
        assert 0 <= phases["unaccounted_ms"] <= 1, phases
    body = chat("Phases?", return_phases=True, max_tokens=4)
    check(s.post(CHAT, body)["usage"])
    events = s.stream(CHAT, body)  # the wish brings the chunk that has them
    assert events[-1]["choices"] == [] and all(event["usage"] is None for event in events[:-1]), events
    check(events[-1]["usage"])
    text = {"prompt": ["a", "b"], "max_tokens": 2, "return_phases": True}
    for usage in (s.post(TEXT, text)["usage"], s.stream(TEXT, text)[-1]["usage"]):
        assert len(usage["kvick"]) == 2, usage
    check(s.post("/v1/messages", chat("Phases?", return_phases=True))["usage"])
    (delta,) = [data for name, data in events_of(s, "/v1/messages", chat("Phases?", return_phases=True))
                if name == "message_delta"]
    check(delta["usage"])
    assert s.post("/v1/embeddings", {"input": "x", "return_phases": True})["usage"]["kvick"]["total_ms"] > 0
    assert "kvick" not in s.post(CHAT, chat("Phases?"))["usage"]


# ---- prefixes kept warm ----

def cache_of(s):
    return s.get("/v1/cache")["groups"][0]


def cached(s, prompt, **more):
    return s.post(TEXT, dict({"prompt": prompt, "max_tokens": 1}, **more))["usage"]["prompt_tokens_details"]["cached_tokens"]


def crowd(s, n=8):
    """More prompts than the pool holds, none like another."""
    for i in range(n):
        crowd.seed += 1
        s.post(TEXT, {"prompt": [(crowd.seed * 1009 + 31 * k) % 40000 + 3 for k in range(200)], "max_tokens": 1})


crowd.seed = 0


def a_warmed_prefix_stays():
    with KvickServer("--block-tokens", "16", "--max-num-seqs", "4") as s:
        pinned, loose = [list(range(first, first + 130)) for first in (1000, 2000)]
        fresh = cache_of(s)
        assert fresh["pinned"] == 0 and fresh["max_pinned"] * 4 == fresh["blocks"], fresh
        warm = s.post("/v1/cache/warm", {"prompt": pinned, "ttl_s": 600})
        one = warm["data"][0]
        assert warm["object"] == "cache.warm" and warm["usage"]["completion_tokens"] == 0, warm
        assert (one["prompt_tokens"], one["cached_tokens"], one["computed_tokens"]) == (130, 0, 130), one
        assert (one["pinned"], one["pinned_tokens"], one["pinned_blocks"], one["ttl_s"]) == (True, 128, 8, 600), one
        assert (warm["pinned_blocks"], warm["max_pinned_blocks"]) == (8, fresh["max_pinned"]), warm
        cold = s.post(TEXT, {"prompt": pinned + [5], "max_tokens": 8, "temperature": 0, "cache_prompt": False})
        one = s.post("/v1/cache/warm", {"prompt": loose, "pin": False})["data"][0]
        assert (one["pinned"], one["pinned_tokens"], one["ttl_s"], one["reason"]) == (False, 0, None, None), one
        assert cached(s, loose + [5]) >= 128
        crowd(s)
        assert cached(s, loose + [5]) == 0, "the crowd did not fill the pool"
        hit = s.post(TEXT, {"prompt": pinned + [5], "max_tokens": 8, "temperature": 0})
        assert hit["usage"]["prompt_tokens_details"]["cached_tokens"] >= 128, hit
        assert text_of(hit) == text_of(cold)
        again = s.post("/v1/cache/warm", {"prompt": pinned, "ttl_s": 1})["data"][0]
        assert again["cached_tokens"] >= 112 and again["pinned_blocks"] == 8, again
        assert cache_of(s)["pinned"] == 8, "the same prefix is pinned twice"
        wait_until(lambda: not cache_of(s)["pinned"], 5)  # nobody asks for anything, and it ends all the same
        crowd(s)
        assert cached(s, pinned + [5]) == 0
        wait_until(lambda: not cache_of(s)["held"], 10)  # counted a little after the answer
        idle = cache_of(s)
        assert idle["free"] + idle["reusable"] == idle["blocks"], idle


def warming_is_bounded_and_checked():
    with KvickServer("--block-tokens", "16", "--max-num-seqs", "4", "--api-key", "a", "--api-key", "b") as s:
        keys = [{"Authorization": "Bearer " + key} for key in "ab"]
        limit = s.get("/v1/cache", keys[0])["groups"][0]["max_pinned"]

        def warm(body, code=200, key=0):
            return s.post("/v1/cache/warm", body, code, keys[key])
        n_each = limit // 2
        for first, n in ((100, n_each), (5000, limit - n_each)):
            assert warm({"prompt": list(range(first, first + 16 * n))})["data"][0]["pinned_blocks"] == n
        more = warm({"prompt": list(range(9000, 9040))})
        assert more["data"][0]["pinned"] is False and more["data"][0]["reason"] == "pin_limit", more
        assert more["pinned_blocks"] == more["max_pinned_blocks"] == limit, more
        # A request of the longest kind still runs.
        assert s.post(TEXT, {"prompt": list(range(20000, 20255)), "max_tokens": 1}, headers=keys[0])["usage"][
            "completion_tokens"] == 1
        assert warm({"prompt": [1, 2, 3]})["data"][0]["reason"] == "no_full_block"
        # Keys do not meet, salts neither.
        prompt = list(range(100, 100 + 16 * n_each)) + [7]
        hits = [s.post(TEXT, dict({"prompt": prompt, "max_tokens": 1}, **more), headers=keys[key])["usage"][
            "prompt_tokens_details"]["cached_tokens"] for key, more in ((0, {}), (1, {}), (0, {"cache_salt": "x"}))]
        assert hits[0] >= 16 * n_each and hits[1:] == [0, 0], hits
        messages = [{"role": "system", "content": "You are a careful assistant. " * 8}]
        one = warm({"messages": messages, "pin": False, "service_tier": "batch"})["data"][0]
        asked = s.post(CHAT, {"messages": messages + [{"role": "user", "content": "Hi"}], "max_tokens": 1},
                       headers=keys[0])["usage"]
        assert one["prompt_tokens"] > 40 and asked["prompt_tokens_details"]["cached_tokens"] >= 32, (one, asked)
        tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
            "prompt": {"type": "string"}}}}}]  # no prompt of the request's own
        assert warm({"tools": tools, "messages": messages, "pin": False})["data"][0]["prompt_tokens"] > 40
        assert s.post("/v1/estimate", {"tools": tools, "messages": messages}, headers=keys[0])["data"][0]["prompt_tokens"]
        for wrong in ({"stream": True}, {"n": 2}, {"max_tokens": 5}, {"logprobs": 1}, {"ttl_s": 0}, {"ttl_s": 1.5},
                      {"ttl_s": 86401}, {"pin": 1}, {"pin": False, "ttl_s": 5}, {"structured_outputs": {"regex": "a"}},
                      {"prompt": []}, {"model": "x"}, {"cache_prompt": False}):
            warm(dict({"prompt": "x"}, **wrong), 404 if "model" in wrong else 400)
    with KvickServer("--no-prefix-cache") as s:
        assert s.post("/v1/cache/warm", {"prompt": "x"}, 400)["error"]["code"] == "no_prefix_cache"


tally = Tally()
server = KvickServer("--chunk", "128", max_len=1024)
for test in (a_request_that_ended_is_remembered, a_request_that_runs_tells_how_far_it_is,
             a_client_that_left_is_remembered, old_requests_are_forgotten, progress_is_told_on_request, phases_come_with_the_usage):
    tally.attempt(test, server)
tally.attempt(server.ends_well)
for test in (others_requests_are_not_told, a_warmed_prefix_stays, warming_is_bounded_and_checked):
    tally.attempt(test)
tally.end()
PY
