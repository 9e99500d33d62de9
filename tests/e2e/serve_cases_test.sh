#!/usr/bin/env bash
# serve: faults that users of other servers met, each with its right value: stop strings in any alphabet, queued clients
# that leave, answers that come again as text, odd sampling beside ordinary requests, deep JSON in odd places.
. "$(dirname "$0")/../support/e2e.sh"
need_model smollm2
python3 - <<'PY'
import http.client
import json
import math
import socket
import threading
import time

from kvick_server import CHAT, SLOW, TEXT, KvickServer, Tally, chat, in_threads, streamed_text, text_of, wait_until

ALPHABETS = "AéB🦙D株式会社ß"


# ---- text ----

def stops_in_any_alphabet(s):
    body = chat("Say it.", structured_outputs={"choice": [ALPHABETS]}, max_tokens=80)
    assert text_of(s.post(CHAT, body)) == ALPHABETS == streamed_text(s.stream(CHAT, body))
    for stop in ("é", "Aé", "🦙D", "株", "B🦙", "会社"):
        expected = ALPHABETS[:ALPHABETS.find(stop)]
        answer = s.post(CHAT, dict(body, stop=[stop]))
        assert text_of(answer) == expected and answer["choices"][0]["finish_reason"] == "stop", (stop, answer)
        assert answer["choices"][0]["stop_reason"] == stop, answer
        assert streamed_text(s.stream(CHAT, dict(body, stop=stop))) == expected, stop
    # What only begins like a stop is text, whole characters at a time.
    for stop in ("株式会社X", "🦙d"):
        assert text_of(s.post(CHAT, dict(body, stop=[stop]))) == ALPHABETS, stop
        assert streamed_text(s.stream(CHAT, dict(body, stop=[stop]))) == ALPHABETS, stop
    letters = chat("The alphabet?", structured_outputs={"choice": ["DEFGHIJKLMN"]}, max_tokens=40, stop="DEFGHIJ")
    events = s.stream(CHAT, letters)
    assert streamed_text(events) == "" == text_of(s.post(CHAT, letters)), events


def stops_have_limits(s):
    body = chat("Say it.", structured_outputs={"choice": ["yes"]})
    assert text_of(s.post(CHAT, dict(body, stop=["x" * 4096, "株" * 1365]))) == "yes"
    for stop in ("x" * 10240, "x" * 4097, ["ok", "株" * 1366]):
        error = s.post(CHAT, dict(body, stop=stop), 400)["error"]
        assert error["param"] == "stop" and "4096" in error["message"], error
    assert text_of(s.post(CHAT, dict(body, stop=[f"#{i}" for i in range(64)]))) == "yes"
    assert "64" in s.post(CHAT, dict(body, stop=[f"#{i}" for i in range(65)]), 400)["error"]["message"]


def characters_cut_by_the_limit(s):
    for limit in range(1, 14):
        body = chat("Say it.", structured_outputs={"choice": ["🦙é株🦙"]}, max_tokens=limit)
        answer = s.post(CHAT, body)
        text, reason = text_of(answer), answer["choices"][0]["finish_reason"]
        assert streamed_text(s.stream(CHAT, body)) == text, (limit, text)
        assert (text == "🦙é株🦙") if reason == "stop" else "🦙é株🦙".startswith(text.rstrip("\ufffd")), (limit, answer)
        assert answer["usage"]["completion_tokens"] <= limit and text.count("\ufffd") <= 1, answer


# ---- answers that come again ----

def five_turns_as_text(s):
    block, messages, known = 16, [], []
    for turn in range(5):
        messages.append({"role": "user", "content": f"Turn {turn}: name a town\n\n and say why, briefly."})
        body = {"messages": messages, "max_tokens": 24, "temperature": 0, "cache_salt": "turns", "return_token_ids": True}
        answer = s.post(CHAT, body)
        ids = answer["prompt_token_ids"]
        common = 0
        while common < min(len(ids) - 1, len(known)) and ids[common] == known[common]:
            common += 1
        cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert common // block * block <= cached <= common, (turn, common, cached)
        assert turn == 0 or cached > 0, "later turns find nothing"
        cold = s.post(CHAT, dict(body, cache_prompt=False))
        assert cold["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, cold
        assert cold["choices"][0]["token_ids"] == answer["choices"][0]["token_ids"], (turn, cold, answer)
        made = answer["choices"][0]["token_ids"]
        has_end = answer["choices"][0]["finish_reason"] == "stop"
        known = ids + (made if has_end else made[:-1])  # the last one sampled, told or not, was never run
        messages.append({"role": "assistant", "content": text_of(answer)})


# ---- company ----

def odd_sampling_beside_others(s):
    prompt = {"prompt": "The capital of France is", "max_tokens": 6, "logprobs": 2}
    greedy = s.post(TEXT, dict(prompt, temperature=0))["choices"][0]
    odd = [{"temperature": 0}, {"temperature": 1e-4}, {"temperature": 1e-10}, {"temperature": 1e-45},
           {"temperature": 5e-324}, {"temperature": 1, "top_p": 1e-10}, {"temperature": 1, "top_k": 1},
           {"temperature": 1, "min_p": 1}]
    plain = [{"temperature": 1, "seed": 5}, {"temperature": 1, "seed": 5, "top_k": 0}, {"temperature": 1, "seed": 5, "top_k": -1},
             {"temperature": 1, "seed": 5, "top_p": 1}, {"temperature": 1, "seed": 5, "top_k": 49157},
             {"temperature": 1, "seed": 5, "min_p": 0}]
    only = {"temperature": 1, "logit_bias": {str(i): -100 for i in range(1000)}}
    alone = s.post(TEXT, dict(prompt, **plain[0]))["choices"][0]
    together = in_threads(*(lambda more=more: s.post(TEXT, dict(prompt, **more))["choices"][0]
                            for more in odd + plain + [only]))
    for more, choice in zip(odd + plain, together):
        expected = greedy if more in odd else alone
        assert choice["text"] == expected["text"], (more, choice, expected)
    for choice in together:
        values = choice["logprobs"]["token_logprobs"]
        assert values and all(math.isfinite(value) and value <= 0 for value in values), choice


def a_queued_client_that_leaves_harms_nobody():
    # Blocks for one such request: the second waits for the first.
    with KvickServer("--max-num-seqs", "2", "--kv-cache-memory-bytes", "6700000", max_len=512) as s:
        first = {"prompt": [(5 * i) % 9000 for i in range(350)], "max_tokens": 100, "ignore_eos": True, "temperature": 0}
        solo = text_of(s.post(TEXT, dict(first, cache_prompt=False)))
        result = {}
        thread = threading.Thread(target=lambda: result.update(s.post(TEXT, dict(first, cache_prompt=False))))
        thread.start()
        wait_until(s.load, 20)
        second = dict(first, prompt=[(7 * i) % 9000 for i in range(400)])
        client = s.begin(TEXT, second, b"x-request-id: queued\r\n")
        wait_until(lambda: s.load() == 2, 20)
        wait_until(lambda: s.get("/v1/requests/cmpl-queued")["prompts"][0]["state"] == "queued", 20)
        time.sleep(0.2)
        state = s.get("/v1/requests/cmpl-queued")
        assert state["prompts"][0]["state"] == "queued" and state["prompts"][0]["done_tokens"] == 0, state
        client.close()
        wait_until(lambda: s.load() < 2, 1)
        assert thread.is_alive(), "the first one was over before the second left"
        thread.join()
        assert text_of(result) == solo and result["usage"]["completion_tokens"] == 100, result
        state = s.get("/v1/requests/cmpl-queued")
        prompt = state["prompts"][0]
        assert state["finish_reason"] == "abort" and prompt["done_tokens"] == 0 == prompt["output_tokens"], state
        assert prompt["phases"]["prefill_own_ms"] == 0 and prompt["phases"]["queue_ms"] > 0, state
        again = s.post(TEXT, dict(second, max_tokens=3))
        assert again["usage"]["completion_tokens"] == 3, again
        wait_until(lambda: not s.get("/v1/cache")["groups"][0]["held"], 5)  # counted a little after the answer


def a_whale_stops_no_stream():
    n_prompt, chunk = (4096, 256) if SLOW == 1 else (1024, 64)
    begun, swallowed, is_over = (threading.Event() for _ in range(3))

    def times(s, body, at=0, event=None):
        """[(when, what)] of a stream's events, until the whale is over; tells of the one whose number is at."""
        connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=120 * SLOW)
        connection.request("POST", TEXT, json.dumps(dict(body, stream=True, ignore_eos=True)))
        told = []
        for line in connection.getresponse():
            if line.startswith(b"data: {"):
                told.append((time.monotonic(), json.loads(line[6:])))
            if len(told) == at and event:
                event.set()
            if is_over.is_set():
                break
        connection.close()
        return told

    def swallow(s):
        whale = {"prompt": [(37 * i) % 40000 + 3 for i in range(n_prompt)], "max_tokens": 2, "return_progress": True}
        try:
            return begun.wait(60 * SLOW) and times(s, whale, 2, swallowed)
        finally:
            is_over.set()
    with KvickServer("--chunk", str(chunk), max_len=4500) as s:
        stream, whale, late = in_threads(
            lambda: times(s, {"prompt": "x", "max_tokens": 4000}, 5, begun), lambda: swallow(s),
            lambda: swallowed.wait(60 * SLOW) and times(s, {"prompt": list(range(8)), "max_tokens": 2}))
    steps = [when for when, event in whale if "prompt_progress" in event]
    tokens = [when for when, _ in stream if steps[0] < when < steps[-1]]
    # One a step; what a busy machine reads late is not counted.
    assert len(steps) >= 16 and len(tokens) >= 0.9 * len(steps), (len(steps), len(tokens))
    assert late[0][0] < steps[-1], "a short prompt waited for the whole of a long one"


# ---- deep JSON ----

def deep_json_in_odd_places(s):
    deep = "[" * 3000 + "]" * 3000
    call = {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": None}}]}

    def with_arguments(text):
        call["tool_calls"][0]["function"]["arguments"] = text
        return {"messages": [{"role": "user", "content": "x"}, call,
                             {"role": "tool", "content": "1", "tool_call_id": "c1"}], "max_tokens": 1}
    for text in (deep, '{"a":' * 3000 + "1" + "}" * 3000, "[" * 3000, '{"a":' + deep + "}"):
        started = time.monotonic()
        status, _, data = s.ask("POST", CHAT, with_arguments(text))
        assert status in (200, 400) and json.loads(data), (status, data[:200])
        assert time.monotonic() - started < 1 * SLOW, "slow"
        if status == 400:
            assert json.loads(data)["error"]["message"], data
    s.post(CHAT, with_arguments('{"a": {"b": [1]}}'))
    raw = json.dumps(chat("x", max_tokens=1))[:-1]
    for field in (f'"response_format":{deep}', f'"metadata":{deep}', f'"stream_options":{deep}', f'"unknown":{deep}',
                  f'"messages":[{{"role":"user","content":{deep}}}]', f'"number":{"1" * 1000000}'):
        started = time.monotonic()
        status, _, data = s.ask("POST", CHAT, (raw + "," + field + "}").encode())
        assert status == 400 and json.loads(data)["error"]["message"], (status, data[:200])
        assert time.monotonic() - started < 0.5 * SLOW, field[:30]
    many = "{" + ",".join(f'"k{i}":{i}' for i in range(100000)) + "}"
    s.post(CHAT, (raw + ',"metadata":' + many + "}").encode(), 400)
    s.post(CHAT, chat("x", max_tokens=1))


# ---- clients that come again ----

def who_comes_again_at_once_is_answered(s):
    body = {"prompt": [(3 * i) % 9000 for i in range(500)], "max_tokens": 8, "temperature": 0, "cache_salt": "again"}
    expected = text_of(s.post(TEXT, dict(body, cache_prompt=False)))
    for how in ("close", "half"):  # a half-close counts as gone
        for wait in (0, 0.05):
            client = s.begin(TEXT, body)
            time.sleep(wait)
            if how == "close":
                client.close()
            else:
                client.shutdown(socket.SHUT_WR)
            assert text_of(s.post(TEXT, body)) == expected, (how, wait)
            client.close()
    wait_until(lambda: not s.load(), 1)


# ---- forms at their edges ----

def forms_at_their_edges(s):
    def ask(schema, **more):
        started = time.monotonic()
        status, _, data = s.ask("POST", CHAT, chat("Say.", response_format={
            "type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}, **more))
        assert time.monotonic() - started < (1 if status == 400 else 5) * SLOW, schema
        answer = json.loads(data)
        assert status in (200, 400), answer
        return status, answer["error"]["message"] if status == 400 else answer["choices"][0]

    def text(schema, **more):
        status, choice = ask(schema, **more)
        assert status == 200 and choice["finish_reason"] == "stop", choice
        return json.loads(choice["message"]["content"])
    assert text({"type": "string", "pattern": r"^hello\\!$"}) == "hello\\!"
    assert text({"const": "株🦙"}) == "株🦙"
    assert isinstance(text({"type": "array", "items": {"$ref": "#/$defs/n"}, "maxItems": 2, "$defs": {"n": {"type": "integer",
                      "minimum": 0, "maximum": 9}}}, max_tokens=40), list)
    assert text({"type": "object", "properties": {"a": {"enum": [None, 1.5, "x", True]}}, "required": ["a"],
                 "additionalProperties": False}, max_tokens=40)["a"] in (None, 1.5, "x", True)
    assert ask({"type": "string", "maxLength": 2000}, max_tokens=20)[0] == 200
    # What cannot be, and what nobody can write.
    for schema in ({"type": "string", "minLength": 5, "maxLength": 2}, {"enum": []}, {"type": "banana"},
                   {"type": "object", "properties": {}, "required": ["x"], "additionalProperties": False}):
        status, message = ask(schema)
        assert status == 400 and message, (schema, message)
    # Large ones are honoured or refused, in time either way.
    for schema in ({"type": "string", "pattern": "^(a{1000}){1000}$"}, {"type": "string", "maxLength": 10**9}):
        status, choice = ask(schema, max_tokens=10)
        if status == 200:
            assert choice["finish_reason"] == "length" and choice["message"]["content"].startswith('"'), choice
    raw = '{"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema","json_schema":{"schema":'
    raw += '{"type":"object","properties":{"a":' * 5000 + "{}" + "}}" * 5000 + "}}}"
    s.post(CHAT, raw.encode(), 400)
    # A form that ends ends the answer.
    end = s.post(CHAT, chat("Say.", structured_outputs={"regex": "ab"}, max_tokens=30))["choices"][0]
    assert end["message"]["content"] == "ab" and end["finish_reason"] == "stop", end


# ---- fields that evaluations and routers send ----

def an_echo_brings_its_log_probabilities(s):
    first = list(range(500, 520))
    made = s.post(TEXT, {"prompt": first, "max_tokens": 8, "temperature": 0, "logprobs": 3, "return_token_ids": True,
                         "ignore_eos": True})["choices"][0]
    ids = first + made["token_ids"]
    for body in ({"max_tokens": 0}, {"max_tokens": 1}, {"max_tokens": 1, "stream": True}):
        asked = dict({"prompt": ids, "echo": True, "logprobs": 3, "temperature": 0, "ignore_eos": True}, **body)
        if body.get("stream"):
            events = s.stream(TEXT, asked)
            told = [event["choices"][0]["logprobs"] for event in events if event["choices"][0]["logprobs"]]
            logprobs = {key: sum((one[key] for one in told), []) for key in told[0]}
            text = streamed_text(events)
        else:
            choice = s.post(TEXT, asked)["choices"][0]
            logprobs, text = choice["logprobs"], choice["text"]
        assert all(len(values) == len(ids) + body["max_tokens"] for values in logprobs.values()), (body, logprobs)
        assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None, logprobs
        # What the answer's tokens were worth when they were sampled, bit for bit.
        assert logprobs["token_logprobs"][20:28] == made["logprobs"]["token_logprobs"], (body, logprobs, made)
        assert logprobs["top_logprobs"][20:28] == made["logprobs"]["top_logprobs"], body
        assert logprobs["tokens"][20:28] == made["logprobs"]["tokens"], body
        assert logprobs["text_offset"] == sorted(logprobs["text_offset"]) and text.startswith("".join(logprobs["tokens"])[:9])
    plain = s.post(TEXT, {"prompt": ids, "echo": True, "max_tokens": 0})["choices"][0]
    assert plain["logprobs"] is None and plain["text"], plain


def fields_of_routers_are_taken(s):
    assert s.post(TEXT, {"prompt": "x", "logprobs": False, "max_tokens": 1})["choices"][0]["logprobs"] is None
    s.post(TEXT, {"prompt": "x", "logprobs": True, "max_tokens": 1}, 400)
    assert s.post(TEXT, {"prompt": "x", "request_id": "own", "max_tokens": 1})["id"] == "cmpl-own"
    for field in ("prompt_logprobs", "return_tokens_as_token_ids", "bad_words", "allowed_token_ids", "suffix",
                  "truncate_prompt_tokens", "continue_final_message", "use_beam_search"):
        value = True if field in ("return_tokens_as_token_ids", "continue_final_message", "use_beam_search") else [5]
        error = s.post(TEXT, {"prompt": "x", field: value, "max_tokens": 1}, 400)["error"]
        assert error["code"] == "unsupported_parameter" and error["param"] == field, error
        s.post(TEXT, {"prompt": "x", field: None, "max_tokens": 1})
    tokens = s.post("/tokenize", {"prompt": "Añ", "return_token_strs": True})
    assert "".join(tokens["token_strs"]).startswith("A") and len(tokens["token_strs"]) == tokens["count"], tokens
    s.post("/tokenize", {"prompt": ["a", "b"]}, 400)
    s.post("/tokenize", {"prompt": "a", "add_special_tokens": 1}, 400)
    s.post("/detokenize", {"tokens": [[1], [2]]}, 400)
    for tier in ("flex", "batch", "auto", "default"):
        s.post(CHAT, chat("x", max_tokens=1, service_tier=tier, priority=-3))
    s.post(CHAT, chat("x", max_tokens=1, priority="high"), 400)
    s.post(CHAT, chat("x", max_tokens=1, parallel_tool_calls=False))
    s.post(CHAT, chat("x", max_tokens=1, parallel_tool_calls=1), 400)


tally = Tally()
server = KvickServer("--block-tokens", "16", max_len=1024)
for test in (stops_in_any_alphabet, stops_have_limits, characters_cut_by_the_limit, five_turns_as_text,
             odd_sampling_beside_others, deep_json_in_odd_places, an_echo_brings_its_log_probabilities,
             fields_of_routers_are_taken, who_comes_again_at_once_is_answered, forms_at_their_edges):
    tally.attempt(test, server)
tally.attempt(server.ends_well)
for test in (a_queued_client_that_leaves_harms_nobody, a_whale_stops_no_stream):
    tally.attempt(test)
tally.end()
PY
