#!/usr/bin/env bash
# hook: a guardrail process in front of the engine: it passes, replaces, refuses, sleeps, hangs, dies in mid-answer.
. "$(dirname "$0")/../support/e2e.sh"
need_golden gguf/llama.gguf
python3 - <<'PY'
import json
import os
import subprocess
import sys
import time

from gguf_change import with_template
from kvick_server import CHAT, FOLDER, KVICK, SLOW, TEXT, KvickServer, Tally, text_of, wait_until

MODEL, LOG, SOCKET = f"{FOLDER}/tiny.gguf", f"{FOLDER}/asked", f"unix:{FOLDER}/hook"
TIMEOUT_MS = 500 * SLOW
with_template(os.environ["MODEL"], MODEL)


class Hook:
    def __init__(self, address=SOCKET):
        self.process = subprocess.Popen([sys.executable, "tests/e2e/hook_service.py", address, LOG],
                                        stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline().strip()
        self.address = address if address.startswith("unix:") else f"http://127.0.0.1:{line}/check"

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def serve(address, fail):
    return KvickServer("--pre-hook", address, "--pre-hook-fail", fail, "--pre-hook-timeout", str(TIMEOUT_MS),
                       "--no-access-log", model=MODEL)


def chat(text, **more):
    return dict({"messages": [{"role": "user", "content": text}], "max_tokens": 4, "temperature": 0,
                 "ignore_eos": True}, **more)


def text(prompt, **more):
    return dict({"prompt": prompt, "max_tokens": 4, "temperature": 0, "ignore_eos": True}, **more)


def asked():
    with open(LOG, encoding="utf-8") as log:
        return [json.loads(line) for line in log]


def plain_answers(bodies):
    """What a server without a guardrail says."""
    with KvickServer("--no-access-log", model=MODEL) as server:
        return [server.post(CHAT if "messages" in body else TEXT, body) for body in bodies]


def what_fails_must_be_chosen():
    for arguments, words in ((["--pre-hook", SOCKET], "--pre-hook-fail"), (["--pre-hook-fail", "open"], "--pre-hook"),
                             (["--pre-hook", SOCKET, "--pre-hook-fail", "maybe"], "neither open nor closed"),
                             (["--pre-hook", "ftp://x", "--pre-hook-fail", "open"], "neither unix:PATH"),
                             (["--pre-hook", SOCKET, "--pre-hook-fail", "open", "--pre-hook-timeout", "0"], "1..")):
        done = subprocess.run([KVICK, "serve", MODEL, "--port", "0", *arguments], capture_output=True, text=True,
                              check=False, timeout=60)
        assert done.returncode in (1, 2) and words in done.stderr, (arguments, done)


def it_sees_what_the_model_reads_and_lets_it_pass(s):
    answers = [s.post(CHAT, chat("hi there"), headers={"x-request-id": "r7"}), s.post(TEXT, text(["a", "b c"])),
               s.post(TEXT, text([[1, 2, 3]]))]
    first, second, third = asked()[-3:]
    assert set(first) == {"id", "route", "model", "key", "stream", "texts", "messages"}, first
    assert first["id"] == "chatcmpl-r7" and first["route"] == CHAT and first["key"] is None and not first["stream"]
    assert len(first["texts"]) == 1 and "<|user|>hi there\n<|assistant|>" in first["texts"][0], first
    assert first["messages"] == [{"role": "user", "content": "hi there"}]
    assert second["prompt"] == ["a", "b c"] and [t[-len(p):] for t, p in zip(second["texts"], ["a", "b c"])] == ["a", "b c"]
    assert len(third["texts"]) == 1 and third["texts"][0], third
    for answer, plain in zip(answers, plain_answers([chat("hi there"), text(["a", "b c"]), text([[1, 2, 3]])])):
        assert [text_of({"choices": [c]}) for c in answer["choices"]] == [text_of({"choices": [c]})
                                                                          for c in plain["choices"]]


def forms_of_replies(s):
    for word in ("CHUNKS", "CLOSE"):
        assert s.post(TEXT, text(word))["choices"][0]["text"]


def what_it_replaces_is_what_is_answered(s):
    plain = plain_answers([chat("my [gone] word"), text("a [gone]"), text(["b", "[gone]"])])
    for path, body, wanted in ((CHAT, chat("my SECRET word"), plain[0]), (TEXT, text("a SECRET"), plain[1]),
                               (TEXT, text(["b", "SECRET"]), plain[2])):
        n_asked = len(asked())
        answer = s.post(path, dict(body, return_phases=True))
        assert [c.get("text") or c["message"]["content"] for c in answer["choices"]] == \
            [c.get("text") or c["message"]["content"] for c in wanted["choices"]], (answer, wanted)
        assert answer["usage"]["prompt_tokens"] == wanted["usage"]["prompt_tokens"]
        assert len(asked()) == n_asked + 1  # once, not about its own words


def what_it_refuses_is_an_error_with_its_reason(s):
    for body in (chat("REFUSE this"), chat("REFUSE this", stream=True)):
        error = s.post(CHAT, body, 400)["error"]
        assert error["code"] == "content_filter" and "not about that" in error["message"], error
    status, _, data = s.ask("POST", "/v1/messages", dict(chat("REFUSE"), model="tiny"), {"x-api-key": "x"})
    assert status == 400 and json.loads(data)["error"]["type"] == "invalid_request_error", data


def its_time_is_told_and_stops_nobody(s):
    phases = s.post(CHAT, chat("SLEEP", return_phases=True))["usage"]["kvick"]
    assert phases["preprocess_ms"] >= 190 and abs(phases["unaccounted_ms"]) <= 1 * SLOW, phases
    begun = time.monotonic()
    answers, worst = s.probe_beside(*(lambda i=i: s.post(CHAT, chat(f"SLEEP {i}")) for i in range(16)))
    assert all(answers)
    assert time.monotonic() - begun < 1.5 * SLOW, "sixteen questions one after the other"
    assert worst < 0.15 * SLOW, worst


def its_time_is_a_part_of_what_is_promised(s):
    for i in range(4):
        s.post(CHAT, chat(f"SLEEP {i}"))
    estimate = s.post("/v1/estimate", chat("x"))["data"][0]["ttft_ms"]
    assert estimate >= 195, estimate
    n_asked = len(asked())
    error = s.post(CHAT, chat("x"), 429, {"x-kvick-deadline-ms": "100"})["error"]
    assert error["code"] == "deadline" and len(asked()) == n_asked, error
    status, headers, _ = s.ask("POST", CHAT, chat("SLEEP"), {"x-kvick-deadline-ms": "60000"})
    assert status == 200 and float(headers["x-kvick-ttft-estimate-ms"]) >= 195, headers
    assert s.metrics()['kvick_pre_hook_answers_total{verdict="pass"}'] > 0


def what_fails_is_refused_when_closed(s):
    for word in ("HANG", "GARBAGE", "FAULT", "NONSENSE"):
        begun = time.monotonic()
        error = s.post(CHAT, chat(word), 503)["error"]
        assert error["code"] == "guardrail_unavailable", error
        assert time.monotonic() - begun < TIMEOUT_MS / 1000 + 0.5 * SLOW, word
    assert s.post(TEXT, text("fine"))["choices"]


def who_leaves_while_it_hangs_is_gone(s):
    client = s.begin(CHAT, chat("HANG"))
    time.sleep(0.1)
    assert s.load() == 1
    client.close()
    wait_until(lambda: s.load() == 0, 0.3)


def a_guardrail_that_dies_and_one_that_comes_back(s, hook):
    assert s.post(CHAT, chat("DIE"), 503)["error"]["code"] == "guardrail_unavailable"
    hook.process.wait(timeout=10)
    assert s.post(CHAT, chat("nobody there"), 503)["error"]["code"] == "guardrail_unavailable"
    again = Hook()
    assert s.post(CHAT, chat("there again"))["choices"]
    again.end()


def what_fails_passes_when_open(s):
    for word in ("HANG", "GARBAGE", "FAULT", "NONSENSE", "DIE", "gone"):
        assert s.post(CHAT, chat(word))["choices"], word
    assert s.metrics()['kvick_pre_hook_answers_total{verdict="failed"}'] == 6


tally = Tally()
tally.attempt(what_fails_must_be_chosen)
hook = Hook()
server = serve(hook.address, "closed")
for test in (it_sees_what_the_model_reads_and_lets_it_pass, forms_of_replies, what_it_replaces_is_what_is_answered,
             what_it_refuses_is_an_error_with_its_reason, its_time_is_told_and_stops_nobody,
             its_time_is_a_part_of_what_is_promised, what_fails_is_refused_when_closed,
             who_leaves_while_it_hangs_is_gone):
    tally.attempt(test, server)
tally.attempt(a_guardrail_that_dies_and_one_that_comes_back, server, hook)
tally.attempt(server.ends_well)
hook.end()
hook = Hook("port")
server = serve(hook.address, "open")
tally.attempt(what_fails_passes_when_open, server)
server.stop()
hook.end()
tally.end()
PY
