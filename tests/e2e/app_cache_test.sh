#!/usr/bin/env bash
# app_cache: answers kept in a real redis-server: which, for whom, for how long, and what happens without it.
. "$(dirname "$0")/../support/e2e.sh"
need_golden gguf/llama.gguf
command -v redis-server >/dev/null || { echo "redis-server is not installed (scripts/setup): not tested"; exit 77; }
python3 - <<'PY'
import json
import os
import re
import signal
import subprocess
import time

from gguf_change import with_template
from kvick_server import CHAT, FOLDER, KVICK, SLOW, TEXT, KvickServer, Tally, wait_until

MODEL, ADDRESS = f"{FOLDER}/tiny.gguf", f"unix:{FOLDER}/redis"
with_template(os.environ["MODEL"], MODEL)


class Redis:
    def __init__(self):
        self.process = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", f"{FOLDER}/redis", "--save", "",
                                         "--dir", FOLDER], stdout=subprocess.DEVNULL)
        wait_until(lambda: self.says("ping") == "PONG\n", 10)

    def says(self, *words):
        return subprocess.run(["redis-cli", "-s", f"{FOLDER}/redis", *words], capture_output=True, text=True,
                              check=False).stdout

    def end(self):
        self.process.kill()
        self.process.wait()


def serve(*arguments, address=ADDRESS):
    return KvickServer("--app-cache", address, "--no-access-log", *arguments, model=MODEL)


def chat(text="hi", **more):
    return dict({"messages": [{"role": "user", "content": text}], "max_tokens": 4, "temperature": 0,
                 "ignore_eos": True}, **more)


def ask(s, body, path=CHAT, **headers):
    """(hit, miss or None, the answer's bytes)"""
    status, got, data = s.ask("POST", path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    assert status == 200, (status, data)
    return got.get("x-kvick-app-cache"), data.decode()


def metric(s, name):
    return s.metrics()["kvick_app_cache_" + name + "{}"]


def prefix_queries(s):
    return s.metrics()["vllm:prefix_cache_queries_total{}"]


def same_but_for_ids(first, second):
    ids = [set(re.findall(r'"id":"([^"]+)"', text)) for text in (first, second)]
    assert ids[0] and not ids[0] & ids[1], ids
    # What a prefix hit is counted as differs: a hit of this cache has none.
    varying = r'"id":"[^"]+"|"(?:cached|input|cache_read_input)_tokens":\d+'
    return re.sub(varying, "", first) == re.sub(varying, "", second)


def the_same_again_is_a_hit(s):
    for path, body in ((CHAT, chat()), (CHAT, chat(stream=True, stream_options={"include_usage": True})),
                       (TEXT, {"prompt": ["a", "b"], "max_tokens": 3, "seed": 7, "n": 2, "temperature": 1}),
                       ("/v1/messages", chat(max_tokens=3)), ("/v1/messages", chat(max_tokens=3, stream=True))):
        (first, answer), hits, computed = ask(s, body, path), metric(s, "hits_total"), prefix_queries(s)
        second, again = ask(s, body, path)
        assert (first, second) == ("miss", "hit"), (body, first, second)
        assert same_but_for_ids(answer, again), (answer, again)
        assert metric(s, "hits_total") == hits + 1 and prefix_queries(s) == computed  # the engine was not asked


def an_id_of_the_client_is_told(s):
    body = chat("with an id")
    ask(s, body, x_request_id="first")
    assert '"id":"chatcmpl-second"' in ask(s, body, x_request_id="second")[1]


def a_hit_tells_of_no_prefix_hits(s):
    text = "a prefix that is long enough to fill some blocks of the cache " * 2
    ask(s, chat(text, max_tokens=1))
    body = chat(text, max_tokens=2)
    answer, again = (json.loads(ask(s, body)[1])["usage"] for _ in range(2))
    assert answer["prompt_tokens_details"]["cached_tokens"] > 0
    assert again["prompt_tokens_details"]["cached_tokens"] == 0
    assert again["prompt_tokens"] == answer["prompt_tokens"]
    body["max_tokens"] = 3
    answer, again = (json.loads(ask(s, body, "/v1/messages")[1])["usage"] for _ in range(2))
    assert answer["cache_read_input_tokens"] > 0 and again["cache_read_input_tokens"] == 0
    assert again["input_tokens"] == answer["input_tokens"] + answer["cache_read_input_tokens"]


def what_changes_the_answer_is_another_request(s):
    base = chat("base", seed=1, temperature=0.8)
    assert ask(s, base)[0] == "miss"
    for more in ({"seed": 2}, {"max_tokens": 3}, {"temperature": 0.9}, {"top_p": 0.9}, {"stop": ["zz"]}, {"n": 2},
                 {"logprobs": True}, {"stream": True}, {"an_unknown_field": 1}, {"cache_salt": "s"},
                 {"messages": [{"role": "user", "content": "base "}]}, {"logit_bias": {"5": 1}}):
        assert ask(s, dict(base, **more))[0] == "miss", more
    for more in ({"user": "u"}, {"metadata": {"a": "b"}}, {"service_tier": "auto"}, {"priority": 3}):
        assert ask(s, dict(base, **more))[0] == "hit", more
    reordered = dict(reversed(list(base.items())))
    assert ask(s, reordered)[0] == "hit"


def what_is_not_determined_is_not_kept(s):
    for body in (chat(temperature=1), chat(return_phases=True), chat(cache_prompt=False)):
        skipped = metric(s, "skipped_total")
        assert [ask(s, body)[0] for _ in range(2)] == [None, None], body
        assert metric(s, "skipped_total") == skipped + 2
    assert s.ask("POST", CHAT, chat(max_tokens=1000000))[0] == 400


def who_leaves_keeps_nothing(s):
    body = chat("left", max_tokens=200, stream=True)
    client = s.begin(CHAT, body)
    client.recv(100)
    client.close()
    wait_until(lambda: s.load() == 0, 1)
    assert ask(s, body)[0] == "miss"


def it_is_kept_so_long(s):
    assert [ask(s, chat("short"))[0] for _ in range(2)] == ["miss", "hit"]
    time.sleep(2.2)
    assert ask(s, chat("short"))[0] == "miss"


def tenants_do_not_meet():
    keys = [{"Authorization": "Bearer a"}, {"Authorization": "Bearer b"}]
    with serve("--api-key", "a", "--api-key", "b") as s:
        assert [ask(s, chat("secret"), **key)[0] for key in keys] == ["miss", "miss"]
        assert [ask(s, chat("secret"), **key)[0] for key in keys] == ["hit", "hit"]


def another_arithmetic_is_another_answer():
    with serve("--kv-cache-dtype", "f16") as s:
        assert ask(s, chat())[0] == "miss"
    with serve() as s:
        assert ask(s, chat())[0] == "hit"  # of a server that has ended


def without_redis_requests_go_on(s):
    global redis
    redis.end()
    for i in range(5):
        begun = time.monotonic()
        assert ask(s, chat(f"alone {i}"))[0] in (None, "miss")
        assert time.monotonic() - begun < 1 * SLOW
    time.sleep(1.3)
    assert ask(s, chat("alone"))[0] is None
    lines = [line for line in s.errors if "app cache" in line]
    assert len(lines) == 1 and "go on uncached" in lines[0], lines
    redis = Redis()
    wait_until(lambda: [ask(s, chat("back"))[0] for _ in range(2)] == ["hit", "hit"], 4)
    lines = [line for line in s.errors if "app cache" in line]
    assert len(lines) == 2 and "there again" in lines[1], lines


def a_redis_that_hangs_is_not_waited_for(s):
    redis.process.send_signal(signal.SIGSTOP)
    try:
        for i in range(4):
            begun = time.monotonic()
            ask(s, chat(f"hanging {i}"))
            assert time.monotonic() - begun < 0.5 + 0.5 * SLOW, i
        assert metric(s, "unavailable_total") > 0
    finally:
        redis.process.send_signal(signal.SIGCONT)
    wait_until(lambda: ask(s, chat("after it hung"))[0] == "hit", 4)


def addresses():
    for address in ("redis://", "redis://x:y", "redis://127.0.0.1:1/x", "http://x", "redis://u:p@h:1"):
        done = subprocess.run([KVICK, "serve", MODEL, "--port", "0", "--app-cache", address], capture_output=True,
                              text=True, check=False, timeout=60)
        assert done.returncode in (1, 2) and "--app-cache" in done.stderr, (address, done)
    # Nobody there is no reason not to start.
    with serve(address="redis://127.0.0.1:1/3") as s:
        assert ask(s, chat())[0] is None


tally = Tally()
redis = Redis()
server = serve()
for test in (the_same_again_is_a_hit, an_id_of_the_client_is_told, a_hit_tells_of_no_prefix_hits,
             what_changes_the_answer_is_another_request, what_is_not_determined_is_not_kept, who_leaves_keeps_nothing):
    tally.attempt(test, server)
tally.attempt(server.ends_well)
with serve("--app-cache-ttl", "2") as server:
    tally.attempt(it_is_kept_so_long, server)
tally.attempt(tenants_do_not_meet)
tally.attempt(another_arithmetic_is_another_answer)
with serve() as server:
    tally.attempt(without_redis_requests_go_on, server)
    tally.attempt(a_redis_that_hangs_is_not_waited_for, server)
redis.end()
tally.attempt(addresses)
tally.end()
PY
