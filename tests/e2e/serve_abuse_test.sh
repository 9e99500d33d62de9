#!/usr/bin/env bash
# serve under abuse: many connections, readers that do not read, writers that do not stop, framing that lies, signals at
# the wrong moment, too few file descriptors. Memory, threads and blocks must be as before.
. "$(dirname "$0")/../support/e2e.sh"
need_golden gguf/llama.gguf
python3 - <<'PY'
import http.client
import json
import os
import random
import re
import select
import selectors
import signal
import socket
import struct
import subprocess
import time

from gguf_change import rewrite, with_template, with_tokens
from kvick_server import (CHAT, FOLDER, KVICK, SLOW, TEXT, KvickServer, Skip, Tally, in_threads, raw_request,
                          streamed_text, text_of, wait_until)

MODEL = os.environ["MODEL"]
CLOSE = b"Connection: close\r\n"


class Server(KvickServer):
    def __init__(self, *arguments, descriptors=None, model=MODEL, **more):
        super().__init__("--no-access-log", *arguments, model=model, max_len=None,
                         prefix=("prlimit", f"--nofile={descriptors}") if descriptors else (), **more)

    def connect(self, timeout=20):
        return super().connect(timeout)

    def raw(self, request):
        """All bytes of the replies until the server closes."""
        client, data = self.connect(), b""
        client.sendall(request)
        while True:
            part = client.recv(65536)
            if not part:
                client.close()
                return data
            data += part

    def is_idle(self):
        metrics = self.metrics()
        return self.load() == 0 and all(metrics[f"vllm:{name}{{}}"] == 0 for name in (
            "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"))

    def rss_mb(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) / 1024

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def request(body, headers=b"", path=TEXT, version=b"1.1"):
    return raw_request(path, body, headers, version)


def answer(prompt="hello", **more):
    return dict({"prompt": prompt, "max_tokens": 3, "ignore_eos": True}, **more)


def fault_of(reply):
    """The code of a reply that is an error in OpenAI's form, and nothing more."""
    head, _, body = reply.partition(b"\r\n\r\n")
    assert head.count(b"HTTP/1.") == 1 and b"Content-Type: application/json" in head, reply[:500]
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"] and error["type"], error
    return int(head.split(b" ")[1])


# ---- many ----

def two_hundred_streams(s):
    """One thread reads them all: a thread each would measure Python."""
    waiting, replies = selectors.DefaultSelector(), {}
    for i in range(200):
        client = s.connect()
        client.sendall(request(answer(f"n{i} " * 5, max_tokens=40, stream=True), CLOSE))
        waiting.register(client, selectors.EVENT_READ)
        replies[client] = b""
    deadline = time.monotonic() + 20 * SLOW
    n_open = len(replies)
    while n_open and time.monotonic() < deadline:
        for key, _ in waiting.select(1):
            part = key.fileobj.recv(65536)
            replies[key.fileobj] += part
            if not part:
                waiting.unregister(key.fileobj)
                n_open -= 1
    for client in replies:
        client.close()
    n_whole = sum(reply.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") for reply in replies.values())
    assert n_whole == 200, (n_whole, n_open, {reply[:12] for reply in replies.values()})


def ten_thousand_short_requests(s):
    n_each = 1250 if SLOW == 1 else 100

    def work():
        connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=30 * SLOW)
        for i in range(n_each // 2):
            connection.request("POST", TEXT, json.dumps(answer(f"r{i % 50}", max_tokens=1)))
            reply = connection.getresponse()
            reply.read()
            assert reply.status == 200
        connection.close()

    in_threads(*[work] * 8)
    before = s.rss_mb()
    in_threads(*[work] * 8)
    assert SLOW > 1 or s.rss_mb() < before + 2, (before, s.rss_mb())


def a_thousand_idle_connections(s):
    idle = [s.connect() for _ in range(1000)]
    started = time.monotonic()
    assert s.ask("POST", TEXT, answer())[0] == 200
    assert time.monotonic() - started < 2 * SLOW
    for client in idle:
        client.close()


# ---- clients that are gone, or might as well be ----

def who_leaves_frees_everything(s):
    long_prompt = [5 + i % 200 for i in range(1900)]
    for i in range(24):
        client = s.connect()
        if i % 2:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, not an end
        client.sendall(request(answer(long_prompt, max_tokens=100, stream=i % 3 == 0, cache_salt=f"s{i}")))
        time.sleep(0.01 * (i % 6))
        client.close()
        wait_until(s.is_idle, 1, i)
    assert s.ask("POST", TEXT, answer(long_prompt))[0] == 200


def readers_that_do_not_read_are_bounded(s):
    before, readers = s.rss_mb(), []
    for _ in range(10):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.connect(("127.0.0.1", s.port))
        client.sendall(request(answer("x", max_tokens=2000, stream=True, logprobs=5, n=4)))
        readers.append(client)
    time.sleep(1)
    started = time.monotonic()
    assert s.ask("POST", TEXT, answer("y"))[0] == 200
    assert time.monotonic() - started < 1 * SLOW
    assert SLOW > 1 or s.rss_mb() < before + 30, (before, s.rss_mb())
    for client in readers:
        client.close()
    wait_until(s.is_idle, 1)


def writers_that_do_not_stop_are_not_collected(s):
    before, n_sent = s.rss_mb(), 0
    client = s.connect(0.5 / SLOW)
    client.sendall(request(answer("x", max_tokens=2000, stream=True, n=4)))
    try:
        while n_sent < 200:
            client.sendall(b"z" * (1 << 20))
            n_sent += 1
    except OSError:
        pass  # the sockets are full, or the stream ended and this was no request
    client.close()
    assert SLOW > 1 or s.rss_mb() < before + 40, (before, s.rss_mb(), n_sent)
    wait_until(s.is_idle, 1)


# ---- bytes ----

def bodies_that_cost_much_are_refused_at_once(s):
    for body in (b'{"x":[' + b"[]," * 5000000 + b"0]}", b'{"x":[' + b"{}," * 5000000 + b"0]}",
                 b'{"prompt":[' + b"1," * 7900000 + b"1]}",
                 b'{"x":1' + b"".join(b',"%d":1' % i for i in range(300000)) + b"}"):
        (error,), worst = s.probe_beside(lambda: s.post(TEXT, body, 400))
        assert "more than" in error["error"]["message"] and worst < 0.5 * SLOW, (error, worst)


def long_runs_of_one_character_stop_nobody(s):
    for character in "a \n=é🦙":
        times = []
        for n in (100000, 200000):
            started = time.monotonic()
            (error,), worst = s.probe_beside(lambda: s.post(TEXT, answer(character * n), 400))
            times.append(time.monotonic() - started)
            assert error and worst < 0.25 * SLOW, (character, worst)
        assert times[1] < 2.5 * times[0] + 0.2 * SLOW and times[1] < 2 * SLOW, (character, times)


def what_is_cut_within_a_character_is_the_same_streamed(s):
    for seed in range(8):
        for n in (1, 2, 3, 4, 24):
            body = answer("\u682a\u5f0f", seed=seed, max_tokens=n)
            whole, streamed = text_of(s.post(TEXT, body)), streamed_text(s.stream(TEXT, body))  # strict UTF-8
            assert streamed == whole, (seed, n, streamed, whole)


def without_a_template_there_is_no_chat(s):
    error = s.post(CHAT, {"messages": [{"role": "user", "content": "x"}]}, 400)["error"]
    assert "template" in error["message"], error
    assert s.ask("POST", TEXT, answer())[0] == 200


def what_a_template_refuses_is_told_in_its_words():
    user, path = {"role": "user", "content": "u"}, f"{FOLDER}/strict.gguf"
    with_template(MODEL, path, "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}"
                  "{% endif %}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
                  "{{ raise_exception('Roles must alternate') }}{% endif %}{{ m.content }}{% endfor %}")
    with Server(model=path) as s:
        for messages, words in (([{"role": "system", "content": "s"}, user], "System role not supported"),
                                ([user, user], "Roles must alternate"),
                                ([{"role": "assistant", "content": "a"}], "Roles must alternate"),
                                ([{"role": "banana", "content": "x"}], "Roles must alternate")):
            for stream in (False, True):
                error = s.post(CHAT, {"messages": messages, "max_tokens": 1, "stream": stream}, 400)["error"]
                if "KVICK_BRIDGE=OFF" in error["message"]:
                    raise Skip(error["message"])
                assert words in error["message"], error
            assert s.post(CHAT, {"messages": [user], "max_tokens": 1})["choices"], messages
    # One that never ends, one that is none: chats are refused, nobody waits, and texts are completed.
    for template in ("{% for a in range(999) %}" * 3 + "{% endfor %}" * 3, "{% if %}"):
        with_template(MODEL, path, template)
        with Server(model=path) as s:
            begun = time.monotonic()
            (answered,), worst = s.probe_beside(lambda: s.post(CHAT, {"messages": [user], "max_tokens": 1}, 400))
            assert time.monotonic() - begun < 2 * SLOW and worst < 0.25 * SLOW, (template, worst)
            assert "chat template: line 1: " in answered["error"]["message"], answered
            assert s.post(TEXT, answer())["choices"]


def an_empty_prompt_is_what_stands_in_front():
    def with_front(keys):
        keys["tokenizer.ggml.add_bos_token"] = struct.pack("<I?", 7, True)
        keys["tokenizer.ggml.bos_token_id"] = struct.pack("<II", 4, 1)
    path = f"{FOLDER}/front.gguf"
    rewrite(MODEL, path, with_front)
    with Server(model=path) as s:
        for prompt in ("", [""]):
            assert s.post(TEXT, answer(prompt))["usage"]["prompt_tokens"] == 1, prompt
        for prompt in ([], [[]]):
            s.post(TEXT, answer(prompt), 400)


def rows_without_a_token_are_nobodys():
    path = f"{FOLDER}/padded.gguf"
    n_tokens = with_tokens(MODEL, path, -100) - 100
    with Server(model=path) as s:
        for prompt in ([n_tokens], [n_tokens + 99]):
            s.post(TEXT, answer(prompt), 400)
        s.post(TEXT, answer([n_tokens - 1]))
        s.post(TEXT, answer(logit_bias={str(n_tokens): 1}), 400)
        for more in ({}, {"top_p": 0.99}, {"top_k": 1000}, {"presence_penalty": 1}, {"logprobs": 5}):
            made = s.post(TEXT, answer(max_tokens=100, temperature=2, seed=1, n=4, return_token_ids=True, **more))
            assert max(max(choice["token_ids"]) for choice in made["choices"]) < n_tokens, (more, n_tokens, made)
    with_tokens(MODEL, path, 1)
    try:
        Server(model=path)
    except AssertionError as failure:
        assert f"padded.gguf: tokenizer.ggml.tokens has {n_tokens + 101} tokens, token_embd.weight " in str(failure), failure
    else:
        raise AssertionError("more tokens than rows are taken")


def odd_values_are_nothing_special(s):
    for field, code in ((b"1" * 1000000, 400), (b'"' + b"s" * 10000000 + b'"', 200), (b'"\\u0000"', 200),
                        (b'"' + b"[" * 3000 + b'"', 200), (b"-" * 100000, 400), (b'"\xff"', 400)):
        assert s.ask("POST", TEXT, b'{"prompt":"x","max_tokens":1,"metadata":' + field + b"}")[0] == code, field[:9]


def old_and_odd_http_is_understood(s):
    health = b"GET /health HTTP/1.1\r\nHost: x\r\n"
    assert s.raw(request(answer(), version=b"1.0")).startswith(b"HTTP/1.0 200 ")
    stream = s.raw(request(answer(stream=True), version=b"1.0"))
    assert b"chunked" not in stream and stream.endswith(b"data: [DONE]\n\n"), stream
    head = s.raw(b"HEAD /v1/models HTTP/1.1\r\nHost: x\r\n\r\n" + health + CLOSE + b"\r\n")
    first, found, rest = head.partition(b"\r\n\r\n")
    assert first.startswith(b"HTTP/1.1 200 OK") and re.search(rb"\r\nContent-Length: [1-9]\d+", first), head
    assert found and rest.startswith(b"HTTP/1.1 200 "), head  # no body between them
    assert s.raw(request(b"garbage") + request({"prompt": "x", "max_tokens": -1}) + request(b"{}", path="/nope") +
                 request(answer(), CLOSE)).count(b"HTTP/1.1 ") == 4
    both = s.raw(request(answer(stream=True)) + request(answer(), CLOSE))
    assert both.index(b"[DONE]") < both.index(b"text_completion", both.index(b"[DONE]")), both
    raw = json.dumps(answer()).encode()
    pieces = b"".join(b"%x\r\n%s\r\n" % (len(raw[i:i + 7]), raw[i:i + 7]) for i in range(0, len(raw), 7)) + b"0\r\n\r\n"
    start = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n" + CLOSE
    assert s.raw(start + b"Transfer-Encoding: chunked\r\n\r\n" + pieces).startswith(b"HTTP/1.1 200 ")
    client = s.connect()
    client.sendall(start + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(raw))
    assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.sendall(raw)
    assert client.recv(100).startswith(b"HTTP/1.1 200 ")
    client.close()
    for code, bad in ((400, b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + pieces),
                      (400, b"Transfer-Encoding: gzip\r\n\r\n"),
                      (400, b"Content-Length: 5\r\nContent-Length: %d\r\n\r\n" % len(raw) + raw),
                      (400, b"Content-Length: -5\r\n\r\n"), (431, b"X: " + b"a" * 100000 + b"\r\n\r\n"),
                      (431, b"A: b\r\n" * 20000 + b"\r\n"), (417, b"Expect: more\r\n\r\n"),
                      (413, b"Content-Length: 17000000\r\n\r\n" + b"x" * 1000000)):
        assert fault_of(s.raw(start + bad)) == code, bad[:60]
    for path in (b"/%zz", b"/a%00b", b"/v1/../health", b"*"):
        assert s.raw(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n" + CLOSE + b"\r\n").startswith(b"HTTP/1.1 404 "), path


def every_fault_has_the_same_form(s):
    for code, bad in ((400, b"\x16\x03\x01\x02\x00\r\n\r\n"), (400, b"GET /\r\n\r\n"), (400, b"GET / HTTP/1.1\r\n\r\n"),
                      (400, b"GET / HTTP/1.1\nHost: x\n\n"), (505, b"GET / HTTP/2.0\r\nHost: x\r\n\r\n"),
                      (400, b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
                      (404, b"GET /nothing HTTP/1.1\r\nHost: x\r\n" + CLOSE + b"\r\n"),
                      (405, b"BREW /health HTTP/1.1\r\nHost: x\r\n" + CLOSE + b"\r\n"),
                      (405, b"TRACE /health HTTP/1.1\r\nHost: x\r\n" + CLOSE + b"\r\n"),
                      (405, b"CONNECT /v1/models HTTP/1.1\r\nHost: x\r\n" + CLOSE + b"\r\n"),
                      (400, request(b"[]", CLOSE)), (400, request({"prompt": "x", "max_tokens": 1e9}, CLOSE))):
        assert fault_of(s.raw(bad)) == code, bad


def bytes_at_random_break_nothing(s):
    """Requests that are cut, doubled, mixed and overwritten: each ends in replies, and every fault is told in form."""
    dice = random.Random(1)
    good = [request(answer()), request(answer(stream=True)), b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
            b"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\ne\r\n{\"prompt\":\"x\"}\r\n0\r\n\r\n",
            b"OPTIONS /v1/models HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\nExpect: 100-continue\r\n\r\n"]
    marks = [b"\r\n", b"\n", b"\r", b":", b" ", b"\x00", b"\xff", b"%", b"0", b"99999999", b"Content-Length: 3\r\n",
             b"Transfer-Encoding: chunked\r\n", b"Host: x\r\n", b"HTTP/1.1", b"{", b"}"]
    for i in range(600 if SLOW == 1 else 60):
        text = bytearray(b"".join(dice.choices(good, k=dice.choice((1, 1, 2, 3)))))
        for _ in range(dice.randrange(4)):
            at = dice.randrange(len(text))
            text[at:at + dice.choice((0, 0, 1, 1, 5, 40))] = dice.choice(marks)
        client = s.connect()
        cut = dice.randrange(len(text))
        try:
            client.sendall(text[:cut])
            client.sendall(text[cut:])
            client.shutdown(socket.SHUT_WR)
            data = b""
            while part := client.recv(65536):
                data += part
        except (ConnectionResetError, BrokenPipeError):
            data = b""
        client.close()
        assert not data or data.startswith(b"HTTP/1."), (i, bytes(text), data)
        assert b"<" not in data.split(b"\r\n\r\n")[0] and b"<html" not in data.lower(), (i, bytes(text), data)
        for head, body in re.findall(rb"HTTP/1\.[01] [45]\d\d [^\r]*\r\n((?:[^\r]+\r\n)+)\r\n(\{[^\r]*\}|)", data):
            assert b"application/json" in head and (not body or "message" in json.loads(body)["error"]), data
    wait_until(s.is_idle, 1)


def who_half_closes_is_gone(s):
    client = s.connect()
    client.sendall(request(answer([5] * 1900, max_tokens=100, n=4)))
    client.shutdown(socket.SHUT_WR)
    wait_until(s.is_idle, 1)
    client.close()


# ---- limits ----

def who_sends_slowly_is_cut_and_stops_nobody():
    s = Server("--header-timeout", "1")
    begun, slow = time.monotonic(), [s.connect() for _ in range(100)]
    for i, client in enumerate(slow):
        client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n" if i % 2 else request(answer())[:-5])
    replies = {}
    while len(replies) < len(slow):
        assert time.monotonic() - begun < 4 + 2 * SLOW, len(replies)
        assert s.ask("GET", "/health")[0] == 200
        for i, client in enumerate(slow):
            if i in replies:
                continue
            try:
                client.sendall(b"a" if i % 2 else b"")
                client.settimeout(0.0001)
                data = client.recv(65536)
            except TimeoutError:
                continue
            except OSError:
                data = b""
            replies[i] = (time.monotonic() - begun, data)
    for i, (seconds, data) in replies.items():
        assert not data or fault_of(data) == 408, data
        assert seconds > (0.9 if i % 2 else 2.9), (i, seconds)
    assert sum(bool(data) for _, data in replies.values()) > 90
    s.ends_well()


def the_key_comes_before_the_body():
    s = Server("--api-key", "right", "--cors-origin", "http://page")
    for head in (b"", b"Authorization: Bearer wrong\r\n", b"Authorization: Basic right\r\n", b"Authorization: right\r\n",
                 b"Authorization: Bearer right2\r\n", b"Authorization: Bearer  right\r\n",
                 b"Authorization: Bearer right\r\n" * 2, b"Authorization: Bearer " + b"r" * 50000 + b"\r\n"):
        begun = time.monotonic()
        reply = s.raw(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 15000000\r\n" + head + b"\r\n")
        assert fault_of(reply) == 401 and time.monotonic() - begun < 3 * SLOW, reply
        assert b"Access-Control-Allow-Origin: http://page\r\n" in reply and b"Allow-Credentials" not in reply, reply
    right = b"authorization: bearer right\r\n"
    assert s.raw(request(answer(), right + CLOSE)).startswith(b"HTTP/1.1 200 ")
    assert fault_of(s.raw(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n" + right + b"Content-Length: 17000000\r\n\r\n")) == 413
    preflight = s.raw(b"OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: x\r\nOrigin: http://page\r\n" + CLOSE +
                      b"Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n\r\n")
    for line in (b"HTTP/1.1 204 ", b"Access-Control-Allow-Methods: POST", b"Access-Control-Allow-Headers: authorization",
                 b"Access-Control-Allow-Origin: http://page"):
        assert line in preflight, preflight
    s.ends_well()


def bodies_and_connections_are_bounded():
    s = Server("--max-connections", "40", "--max-body-bytes", "1000000")
    before = s.rss_mb()
    clients = [s.connect() for _ in range(30)]
    for client in clients:  # 16 of them have room
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 999999\r\n\r\n")
    time.sleep(0.2 * SLOW)
    refused = select.select(clients, [], [], 0)[0]
    replies = [client.recv(65536) for client in refused]
    for client in clients:
        if client not in refused:
            client.sendall(b"x" * 999998)
    assert 10 <= len(replies) <= 14 and all(fault_of(reply) == 503 for reply in replies), replies
    assert s.ask("GET", "/health")[0] == 200
    assert SLOW > 1 or s.rss_mb() < before + 40, (before, s.rss_mb())
    for client in clients:
        client.close()
    idle = [s.connect() for _ in range(60)]  # those past 40 wait until idle ones have had their time
    begun = time.monotonic()
    idle[-1].settimeout(20)
    idle[-1].sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    assert idle[-1].recv(100).startswith(b"HTTP/1.1 200 ") and time.monotonic() - begun < 8 * SLOW
    for client in idle:
        client.close()
    s.ends_well()


# ---- the end ----

def a_second_signal_ends_at_once():
    s = Server()
    clients = [s.connect() for _ in range(8)]
    for client in clients:
        client.sendall(request(answer("x", max_tokens=2000, stream=True, n=4)))
    wait_until(lambda: s.load() == len(clients), 20)
    s.process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    started = time.monotonic()
    s.ends_well()
    assert time.monotonic() - started < 2 * SLOW
    for client in clients:
        client.close()


def a_signal_while_it_loads_ends_it():
    for wait_ms in (5, 15, 40):
        process = subprocess.Popen([KVICK, "serve", MODEL, "--port", "0"], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        time.sleep(wait_ms / 1000 * SLOW)
        process.send_signal(signal.SIGTERM)
        code, errors = process.wait(timeout=20 * SLOW), process.stderr.read()
        process.stderr.close()
        assert code in (0, -signal.SIGTERM) and errors == "", (wait_ms, code, errors)


def a_killed_server_leaves_its_port():
    s = Server()
    client = s.connect()
    client.sendall(request(answer(max_tokens=2000, stream=True)))
    client.recv(10)
    s.stop(signal.SIGKILL)
    again = Server(port=s.port)
    assert again.ask("POST", TEXT, answer())[0] == 200
    again.process.send_signal(signal.SIGHUP)
    assert again.ask("GET", "/health")[0] == 200
    client.close()
    assert again.stop(signal.SIGINT) == 0


def too_few_descriptors_are_lived_with():
    s = Server(descriptors=64)
    clients = [s.connect() for _ in range(100)]

    def is_quiet():
        before = s.cpu_s()
        time.sleep(0.5)
        return s.cpu_s() - before < 0.25
    wait_until(is_quiet, 2, "a full server spins")  # by then costs have been measured, which an idle server does once
    for client in clients:
        client.close()
    assert s.ask("POST", TEXT, answer())[0] == 200
    s.ends_well()
    for n in range(9, 40):  # whatever it is that finds no descriptor: a line, and the end
        try:
            s = Server(descriptors=n)
        except AssertionError as failure:
            assert str(failure).startswith(("kvick: ", '{"time_ms": ')) and str(failure).count("\n") <= 2, (n, failure)
        else:
            assert n > 9 and s.stop() == 0, n
            return
    raise AssertionError("does not start")


tally = Tally()
server = Server("--max-num-seqs", "256")
for test in (two_hundred_streams, ten_thousand_short_requests, a_thousand_idle_connections, who_leaves_frees_everything,
             readers_that_do_not_read_are_bounded, writers_that_do_not_stop_are_not_collected,
             bodies_that_cost_much_are_refused_at_once, long_runs_of_one_character_stop_nobody,
             what_is_cut_within_a_character_is_the_same_streamed, without_a_template_there_is_no_chat,
             odd_values_are_nothing_special, old_and_odd_http_is_understood, every_fault_has_the_same_form,
             bytes_at_random_break_nothing, who_half_closes_is_gone):
    tally.attempt(test, server)
tally.attempt(server.ends_well)
for test in (what_a_template_refuses_is_told_in_its_words, an_empty_prompt_is_what_stands_in_front,
             rows_without_a_token_are_nobodys, a_second_signal_ends_at_once, a_signal_while_it_loads_ends_it, a_killed_server_leaves_its_port,
             too_few_descriptors_are_lived_with, who_sends_slowly_is_cut_and_stops_nobody,
             the_key_comes_before_the_body, bodies_and_connections_are_bounded):
    tally.attempt(test)
tally.end()
PY
