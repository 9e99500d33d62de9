#!/usr/bin/env bash
# serve_gone: clients that leave a whale, while it is read, waits, is computed, or streams: within a second nothing of it
# runs and no block is held, and nobody else is touched.
. "$(dirname "$0")/../support/e2e.sh"
need_model smollm2
python3 - <<'PY'
import json
import os
import socket
import threading
import time

from kvick_server import FOLDER, SLOW, TEXT, KvickServer, Tally, text_of, wait_until

N_WHALE = 8000


def whale(first=0, **more):
    """Several seconds of prefill."""
    return dict({"prompt": [(first + 37 * i) % 40000 + 3 for i in range(N_WHALE)], "max_tokens": 50, "temperature": 0,
                 "ignore_eos": True}, **more)


def state(server):
    """(running, waiting, blocks held, whether the others are free or reusable)"""
    metrics, groups = server.metrics(), server.get("/v1/cache")["groups"]
    return (*(metrics[f"vllm:num_requests_{name}{{}}"] for name in ("running", "waiting")), sum(group["held"] for group in groups),
            all(group["free"] + group["reusable"] + group["held"] == group["blocks"] for group in groups))


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
        client = server.begin(TEXT, whale(1000 * i, **more))
        wait_until(lambda: state(server)[2] > 0, 5)
        time.sleep(0.3)
        assert state(server)[0] == 1, "the whale is through already"
        worst = max(worst, leave(server, client, how))
    print(f"     gone in prefill: {worst * 1e3:.0f} ms at most")


def timeout_1_curl(server):
    """As a user would: the words of a shell."""
    path = os.path.join(FOLDER, "whale.json")
    with open(path, "w", encoding="ascii") as out:
        json.dump(whale(9000), out)
    command = f"timeout {SLOW} curl -s -o /dev/null -d @{path} http://127.0.0.1:{server.port}{TEXT}"
    assert os.system(command) >> 8 == 124, "it was through within the second"
    wait_until(lambda: state(server) == (0, 0, 0, True), 1)


def who_leaves_in_decode_frees_all(server):
    for stream in (True, False):
        client = server.begin(TEXT, {"prompt": "x", "max_tokens": 4000, "ignore_eos": True, "stream": stream})
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
    b = server.begin(TEXT, whale(500))
    time.sleep(0.05)
    b.close()
    a.join()
    assert result == [alone]
    wait_until(lambda: state(server) == (0, 0, 0, True), 1)


def the_same_again_at_once_is_answered(server):
    body = {"prompt": "Say it again", "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    wanted = text_of(server.post(TEXT, body))
    for _ in range(5):
        server.begin(TEXT, body).close()
        assert text_of(server.post(TEXT, body)) == wanted


tally = Tally()
server = KvickServer("--no-access-log", "--max-num-seqs", "4", max_len=8192)
server.post(TEXT, {"prompt": "warm", "max_tokens": 1})
for test in (who_leaves_in_prefill_frees_all, timeout_1_curl, who_leaves_in_decode_frees_all,
             the_same_again_at_once_is_answered):
    tally.attempt(test, server)
tally.attempt(server.ends_well)
with KvickServer("--no-access-log", "--max-num-seqs", "1", max_len=8192) as server:
    tally.attempt(who_leaves_the_queue_harms_nobody, server)
tally.end()
PY
