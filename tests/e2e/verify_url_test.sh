#!/usr/bin/env bash
# verify --url: a kvick server gives one answer whatever it is busy with; one that answers otherwise now and then is found
# out; servers that do not answer are told on one line.
. "$(dirname "$0")/../support/e2e.sh"
need_model smollm2
python3 - <<'PY'
import http.server
import json
import os
import re
import subprocess
import threading

from kvick_server import KVICK, SLOW, KvickServer, Tally


def verify(port, *arguments):
    return subprocess.run([KVICK, "verify", "--url", f"http://127.0.0.1:{port}/v1", *arguments], capture_output=True,
                          text=True, timeout=120 * SLOW, check=False)


class Liar(http.server.BaseHTTPRequestHandler):
    """Says another word every 50th time."""
    protocol_version = "HTTP/1.1"
    n_asked = 0
    lock = threading.Lock()

    def log_message(self, *_):
        pass

    def reply(self, kind, data):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.reply("application/json", json.dumps({"object": "list", "data": [{"id": "liar"}]}).encode())

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        with Liar.lock:
            Liar.n_asked += 1
            word = "green" if Liar.n_asked % 50 == 0 else "blue"
        events = [{"choices": [{"index": 0, "delta": {"content": f"the sea was {word}"}}]},
                  {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
                  {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 4}}]
        self.reply("text/event-stream", b"".join(b"data: %s\n\n" % json.dumps(one).encode() for one in events)
                   + b"data: [DONE]\n\n")


def one_answer_beside_others():
    with KvickServer("--api-key", "secret", "--no-access-log") as server:
        done = verify(server.port, "--api-key", "secret")
        assert done.returncode == 0 and not done.stderr, done
        digest, verdict = done.stdout.splitlines()
        assert re.fullmatch("[0-9a-f]{64}", digest), done
        assert re.fullmatch(r"1 distinct answer in 200 of smollm2, beside \d+ others, compared by token ids", verdict), done
        assert int(verdict.split("beside ")[1].split()[0]) >= 50, verdict
        refused = verify(server.port)
        assert refused.returncode == 1 and refused.stderr.count("\n") == 1 and not refused.stdout, refused


def another_answer_is_found():
    liar = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Liar)
    threading.Thread(target=liar.serve_forever, daemon=True).start()
    done = verify(liar.server_address[1])
    liar.shutdown()
    assert done.returncode == 1 and "2 distinct answers in 200 of liar" in done.stdout, done
    assert "green" in done.stdout and "blue" in done.stdout.splitlines()[2], done


def no_server_is_one_line():
    done = verify(9)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "127.0.0.1:9" in done.stderr, done
    both = subprocess.run([KVICK, "verify", "smollm2", "--url", "http://127.0.0.1:9"], capture_output=True, text=True,
                          timeout=20, check=False)
    assert both.returncode == 2 and "--url" in both.stderr, both


tally = Tally()
for test in (another_answer_is_found, no_server_is_one_line):
    tally.attempt(test)
if os.environ.get("KVICK_E2E"):  # it takes long
    tally.attempt(one_answer_beside_others)
tally.end()
PY
