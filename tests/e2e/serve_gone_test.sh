#!/usr/bin/env bash
# serve_gone: clients that leave a whale, while it is read, waits, is computed, or streams: within a second nothing of it
# runs and no block is held, and nobody else is touched.
# shellcheck source=tests/support/e2e.sh
source "$(dirname "$0")/../support/e2e.sh"
need_model smollm2
WORK=$folder python3 - <<'PY'
import json
import os
import re
import shutil
import socket
import sys
import threading
import time

sys.path.insert(0, "tests/support")
from kvick_server import SLOW, TEXT, KvickServer, Tally, text_of

N_WHALE = 8000


def whale(first=0, **more):
    """Several seconds of prefill."""
    return dict({"prompt": [(first + 37 * i) % 40000 + 3 for i in range(N_WHALE)], "max_tokens": 50, "temperature": 0,
                 "ignore_eos": True}, **more)


def send(server, body):
    raw = json.dumps(body).encode()
    client = socket.create_connection(("127.0.0.1", server.port))
    client.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (TEXT.encode(), len(raw)) + raw)
    return client


def state(server):
    """(running, waiting, blocks held, whether the others are free or reusable)"""
    metrics = server.ask("GET", "/metrics")[2].decode()
    counts = [int(float(re.search(rf"^vllm:num_requests_{name}\{{.*\}} (\S+)$", metrics, re.MULTILINE)[1]))
              for name in ("running", "waiting")]
    groups = json.loads(server.ask("GET", "/v1/cache")[2])["groups"]
    return (*counts, sum(group["held"] for group in groups),
            all(group["free"] + group["reusable"] + group["held"] == group["blocks"] for group in groups))


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds * SLOW
    while not condition():
        assert time.monotonic() < deadline, "not within the time"
        time.sleep(0.01)


def leave(server, client, how):
    if how == "half":
        client.shutdown(socket.SHUT_WR)
    else:
        client.close()
    begun = time.monotonic()
    wait_until(lambda: state(server) == (0, 0, 0, True) and server.load() == 0, 1)
    seconds = time.monotonic() - begun
    client.close()
    return seconds


def who_leaves_in_prefill_frees_all(server):
    worst = 0
    for i, (more, how) in enumerate((({}, "close"), ({"stream": True}, "close"), ({"n": 2}, "close"), ({}, "half"))):
        client = send(server, whale(1000 * i, **more))
        wait_until(lambda: state(server)[2] > 0, 5)
        time.sleep(0.3)
        assert state(server)[0] == 1, "the whale is through already"
        worst = max(worst, leave(server, client, how))
    print(f"     gone in prefill: {worst * 1e3:.0f} ms at most")


def timeout_1_curl(server):
    """As a user would: the words of a shell."""
    if not shutil.which("curl"):
        print("     no curl here: left out")
        return
    path = os.path.join(os.environ["WORK"], "whale.json")
    with open(path, "w", encoding="ascii") as out:
        json.dump(whale(9000), out)
    command = f"timeout {SLOW} curl -s -o /dev/null -d @{path} http://127.0.0.1:{server.port}{TEXT}"
    assert os.system(command) >> 8 == 124, "it was through within the second"
    wait_until(lambda: state(server) == (0, 0, 0, True), 1)


def who_leaves_in_decode_frees_all(server):
    for stream in (True, False):
        client = send(server, {"prompt": "x", "max_tokens": 4000, "ignore_eos": True, "stream": stream})
        wait_until(lambda: state(server)[2] > 0, 5)
        time.sleep(0.2)
        leave(server, client, "close")


def who_leaves_the_queue_harms_nobody(server):
    """One place: A computes, B waits and leaves, A's answer is what it would be alone."""
    body = {"prompt": "Once upon a time", "max_tokens": 120, "temperature": 0, "ignore_eos": True}
    alone = text_of(server.post(TEXT, body))
    result = []
    a = threading.Thread(target=lambda: result.append(text_of(server.post(TEXT, body))))
    a.start()
    time.sleep(0.05)
    b = send(server, whale(500))
    time.sleep(0.05)
    b.close()
    a.join()
    assert result == [alone]
    wait_until(lambda: state(server) == (0, 0, 0, True), 1)


def the_same_again_at_once_is_answered(server):
    body = {"prompt": "Say it again", "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    wanted = text_of(server.post(TEXT, body))
    for _ in range(5):
        send(server, body).close()
        assert text_of(server.post(TEXT, body)) == wanted


tally = Tally()
server = KvickServer("--no-access-log", "--max-num-seqs", "4", max_len=8192)
server.post(TEXT, {"prompt": "warm", "max_tokens": 1})
for test in (who_leaves_in_prefill_frees_all, timeout_1_curl, who_leaves_in_decode_frees_all,
             the_same_again_at_once_is_answered):
    tally.attempt(test, server)
tally.attempt(lambda: server.stop() == 0 or sys.exit(1))
server = KvickServer("--no-access-log", "--max-num-seqs", "1", max_len=8192)
tally.attempt(who_leaves_the_queue_harms_nobody, server)
server.stop()
tally.end()
PY
