#!/usr/bin/env bash
# serve under abuse: many connections, readers that do not read, writers that do not stop, framing that lies, signals at
# the wrong moment, too few file descriptors. Memory, threads and blocks must be as before.
. "$(dirname "$0")/../support/e2e.sh"
need_golden gguf/llama.gguf
python3 - <<'PY'
import http.client
import json
import os
import re
import resource
import selectors
import signal
import socket
import struct
import subprocess
import threading
import time

from kvick_server import KVICK, SLOW, TEXT, Tally

MODEL = os.environ["MODEL"]
CLOSE = b"Connection: close\r\n"


class Server:
    def __init__(self, *arguments, port=0, descriptors=None):
        limit = (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))) if descriptors else None
        self.process = subprocess.Popen([KVICK, "serve", MODEL, "--port", str(port), "--no-access-log", *arguments],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=limit)
        for line in self.process.stdout:
            found = re.search(r"listening on \w+://[\d.]+:(\d+)", line)
            if found:
                self.port = int(found[1])
                return
        errors, code = self.process.stderr.read(), self.wait()
        assert code == 1, (code, errors)
        raise AssertionError(errors)

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        return self.wait()

    def wait(self):
        try:
            return self.process.wait(timeout=40 * SLOW)
        finally:
            self.process.stdout.close()
            self.process.stderr.close()

    def connect(self, timeout=20):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout * SLOW)

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30 * SLOW)
        connection.request(method, path, body if isinstance(body, (bytes, type(None))) else json.dumps(body))
        reply = connection.getresponse()
        data = reply.read()
        connection.close()
        return reply.status, data

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

    def n_running(self):
        return json.loads(self.ask("GET", "/load")[1])["server_load"]

    def is_idle(self):
        text = self.ask("GET", "/metrics")[1].decode()
        values = re.findall(r"^vllm:(?:num_requests_running|num_requests_waiting|kv_cache_usage_perc)\{.*\} (\S+)$", text,
                            re.MULTILINE)
        assert len(values) == 3, text
        return self.n_running() == 0 and all(float(value) == 0 for value in values)

    def is_idle_within(self, seconds):
        deadline = time.monotonic() + seconds * SLOW
        while not self.is_idle():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def rss_mb(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) / 1024

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def request(body, more=b"", path=TEXT, version=b"1.1"):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (b"POST %s HTTP/%s\r\nHost: x\r\nContent-Length: %d\r\n" % (path.encode(), version, len(raw))) + more + \
        b"\r\n" + raw


def answer(prompt="hello", **more):
    return dict({"prompt": prompt, "max_tokens": 3, "ignore_eos": True}, **more)


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

    def run():
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    run()
    before = s.rss_mb()
    run()
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
        assert s.is_idle_within(1), i
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
    assert s.is_idle_within(1)


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
    assert s.is_idle_within(1)


# ---- bytes ----

def bodies_that_cost_much_are_refused_at_once(s):
    worst = 0
    for body in (b'{"x":[' + b"[]," * 5000000 + b"0]}", b'{"x":[' + b"{}," * 5000000 + b"0]}",
                 b'{"prompt":[' + b"1," * 7900000 + b"1]}",
                 b'{"x":1' + b"".join(b',"%d":1' % i for i in range(300000)) + b"}"):
        result = []
        thread = threading.Thread(target=lambda: result.append(s.ask("POST", TEXT, body)))
        thread.start()
        while thread.is_alive():
            started = time.monotonic()
            assert s.ask("GET", "/health")[0] == 200
            worst = max(worst, time.monotonic() - started)
            time.sleep(0.01)
        assert result[0][0] == 400 and b"more than" in result[0][1], result
    assert worst < 0.5 * SLOW, worst


def long_runs_of_one_character_stop_nobody(s):
    for character in "a \n=é🦙":
        times = []
        for n in (100000, 200000):
            worst, result = 0, []
            thread = threading.Thread(target=lambda: result.append(s.ask("POST", TEXT, answer(character * n))))
            started = time.monotonic()
            thread.start()
            while thread.is_alive():
                asked = time.monotonic()
                assert s.ask("GET", "/health")[0] == 200
                worst = max(worst, time.monotonic() - asked)
                time.sleep(0.005)
            times.append(time.monotonic() - started)
            assert result[0][0] == 400 and worst < 0.25 * SLOW, (character, result, worst)
        assert times[1] < 2.5 * times[0] + 0.2 * SLOW and times[1] < 2 * SLOW, (character, times)


def what_is_cut_within_a_character_is_the_same_streamed(s):
    for seed in range(8):
        for n in (1, 2, 3, 4, 24):
            body = answer("\u682a\u5f0f", seed=seed, max_tokens=n)
            whole = json.loads(s.ask("POST", TEXT, body)[1].decode())["choices"][0]["text"]
            events = s.ask("POST", TEXT, dict(body, stream=True))[1].decode().split("\n\n")  # strict UTF-8
            pieces = [json.loads(event[6:])["choices"][0]["text"] for event in events[:-2]]
            assert "".join(pieces) == whole, (seed, n, pieces, whole)


def without_a_template_there_is_no_chat(s):
    status, data = s.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
    assert status == 400 and b"template" in data, data
    assert s.ask("POST", TEXT, answer())[0] == 200


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
    assert re.match(rb"HTTP/1.1 200 OK\r\n(?:(?!\r\n\r\n).)*Content-Length: \d+\r\n(?:(?!\r\n\r\n).)*\r\n\r\nHTTP/1.1 200 ",
                    head, re.DOTALL), head
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
    for bad in (b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + pieces, b"Transfer-Encoding: gzip\r\n\r\n",
                b"Content-Length: 5\r\nContent-Length: %d\r\n\r\n" % len(raw) + raw, b"Content-Length: -5\r\n\r\n",
                b"X: " + b"a" * 100000 + b"\r\n\r\n", b"A: b\r\n" * 20000 + b"\r\n"):
        try:
            reply = s.raw(start + bad)
        except ConnectionResetError:
            continue  # refused before all was sent
        assert reply.startswith(b"HTTP/1.1 400 ") and reply.count(b"HTTP/1.1") == 1, (bad[:60], reply)
    for path in (b"/%zz", b"/a%00b", b"/v1/../health", b"*"):
        assert s.raw(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n" + CLOSE + b"\r\n").startswith(b"HTTP/1.1 404 "), path


# ---- the end ----

def a_second_signal_ends_at_once():
    s = Server()
    clients = [s.connect() for _ in range(8)]
    for client in clients:
        client.sendall(request(answer("x", max_tokens=2000, stream=True, n=4)))
    while s.n_running() < len(clients):
        time.sleep(0.01)
    s.process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    started = time.monotonic()
    assert s.end() == 0
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
    s.end(signal.SIGKILL)
    again = Server(port=s.port)
    assert again.ask("POST", TEXT, answer())[0] == 200
    again.process.send_signal(signal.SIGHUP)
    assert again.ask("GET", "/health")[0] == 200
    client.close()
    assert again.end(signal.SIGINT) == 0


def too_few_descriptors_are_lived_with():
    s = Server(descriptors=64)
    clients = [s.connect() for _ in range(100)]
    time.sleep(1.5)  # by then costs have been measured, which an idle server does once
    before = s.cpu_s()
    time.sleep(0.5)
    assert s.cpu_s() - before < 0.25, "a full server spins"
    for client in clients:
        client.close()
    assert s.ask("POST", TEXT, answer())[0] == 200
    assert s.end() == 0
    for n in range(9, 40):  # whatever it is that finds no descriptor: a line, and the end
        try:
            s = Server(descriptors=n)
        except AssertionError as failure:
            assert str(failure).startswith("kvick: ") and str(failure).count("\n") <= 2, (n, failure)
        else:
            assert n > 9 and s.end() == 0, n
            return
    raise AssertionError("does not start")


def the_server_ends_well(s):
    assert s.end() == 0


tally = Tally()
server = Server("--max-num-seqs", "256")
for test in (two_hundred_streams, ten_thousand_short_requests, a_thousand_idle_connections, who_leaves_frees_everything,
             readers_that_do_not_read_are_bounded, writers_that_do_not_stop_are_not_collected,
             bodies_that_cost_much_are_refused_at_once, long_runs_of_one_character_stop_nobody,
             what_is_cut_within_a_character_is_the_same_streamed, without_a_template_there_is_no_chat,
             odd_values_are_nothing_special, old_and_odd_http_is_understood, the_server_ends_well):
    tally.attempt(test, server)
for test in (a_second_signal_ends_at_once, a_signal_while_it_loads_ends_it, a_killed_server_leaves_its_port,
             too_few_descriptors_are_lived_with):
    tally.attempt(test)
tally.end()
PY
