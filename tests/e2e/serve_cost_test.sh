#!/usr/bin/env bash
# serve_cost: what the server itself takes: CPU of the io thread for a streamed token, and HTTP, JSON and template of a
# request. CPU time and the server's own phases, so that company on the machine moves them little.
. "$(dirname "$0")/../support/e2e.sh"
need_model smollm2
need_golden gguf/llama.gguf
python3 - <<'PY'
import json
import os
import selectors
import time

from kvick_server import CHAT, SLOW, TEXT, KvickServer, Tally, chat, raw_request

MAX_TOKEN_US = 25 * SLOW
OVERHEAD = ("read", "preprocess", "text_queue", "template")


def io_cpu_ns(server):
    """Of the process's first thread, which runs the event loop."""
    with open(f"/proc/{server.process.pid}/task/{server.process.pid}/schedstat", encoding="ascii") as stat:
        return int(stat.read().split()[0])


def streams(server, n_streams, body):
    """Reads them all with one thread; returns how many bytes came."""
    waiting, n_open, n_bytes = selectors.DefaultSelector(), n_streams, 0
    for i in range(n_streams):
        client = server.begin(TEXT, dict(body, prompt=f"stream {i}", stream=True), b"Connection: close\r\n")
        waiting.register(client, selectors.EVENT_READ)
    while n_open:
        for key, _ in waiting.select(60):
            part = key.fileobj.recv(1 << 16)
            n_bytes += len(part)
            if not part:
                waiting.unregister(key.fileobj)
                key.fileobj.close()
                n_open -= 1
    return n_bytes


def a_streamed_token_costs_little(server, n_streams, n_tokens):
    body = {"max_tokens": n_tokens, "temperature": 0, "ignore_eos": True}
    streams(server, n_streams, dict(body, max_tokens=2))
    before = io_cpu_ns(server)
    assert streams(server, n_streams, body) > n_streams * n_tokens * 50
    us = (io_cpu_ns(server) - before) / 1e3 / (n_streams * n_tokens)
    print(f"     io CPU {us:.1f} us per streamed token, {n_streams} streams")
    assert us <= MAX_TOKEN_US, us


def overhead_ms(server, text):
    """(the server's phases beside tokenizer and engine, wall time beside those)"""
    raw = raw_request(CHAT, chat(text, max_tokens=1, return_phases=True))
    client = server.connect()
    begun = time.monotonic()
    client.sendall(raw)
    reply = b""
    while b"\r\n\r\n" not in reply or len(reply.split(b"\r\n\r\n", 1)[1]) < int(
            reply.lower().split(b"content-length: ")[1].split(b"\r\n")[0]):
        reply += client.recv(65536)
    wall_ms = (time.monotonic() - begun) * 1e3
    client.close()
    assert reply.startswith(b"HTTP/1.1 200 "), reply
    phases = json.loads(reply.split(b"\r\n\r\n", 1)[1])["usage"]["kvick"]
    own = sum(phases[f"{name}_ms"] for name in OVERHEAD)
    if os.environ.get("VERBOSE"):
        print({name: phases[f"{name}_ms"] for name in (*OVERHEAD, "tokenize")})
    return own, wall_ms - phases["total_ms"] + own


def a_request_costs_little(server, name, text, max_ms):
    overhead_ms(server, text)
    runs = [overhead_ms(server, text) for _ in range(15 if SLOW == 1 else 2)]
    own, wall = (min(run[i] for run in runs) for i in range(2))  # the least: company only adds
    print(f"     {name}: {own:.2f} ms in the server's phases, {wall:.2f} ms with sockets and this client")
    assert own <= max_ms * SLOW and wall <= max_ms * SLOW, runs


tally = Tally()
with KvickServer("--no-access-log", model=os.environ["MODEL"]) as tiny:
    tally.attempt(a_streamed_token_costs_little, tiny, 64, 100)
real = KvickServer("--no-access-log", max_len=8192)
tally.attempt(a_streamed_token_costs_little, real, *((32, 40) if SLOW == 1 else (8, 8)))
words = "The quick brown fox jumps over the lazy dog and then sleeps. " * 40
tally.attempt(a_request_costs_little, real, "2,000 characters", words[:2000], 1)
# Long runs are few tokens: the text is what costs here, not the prompt.
tally.attempt(a_request_costs_little, real, "100 kB", ("-" * 63 + "\n") * 1562, 5)
tally.attempt(real.ends_well)
tally.end()
PY
