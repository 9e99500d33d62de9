"""A `kvick serve` of smollm2 on a free port of 127.0.0.1, for the tests in Python, and what they ask of it."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
import traceback

KVICK = os.environ["KVICK"]
SLOW = 1 if "release" in KVICK else 15
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


class KvickServer:
    def __init__(self, *arguments, model="smollm2", max_len=256):
        self.process = subprocess.Popen([KVICK, "serve", model, "--port", "0", "--max-model-len", str(max_len),
                                         *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            found = re.search(r"listening on \w+://[\d.]+:(\d+)", line)
            if found:
                self.port = int(found[1])
                return
        raise AssertionError(self.process.stderr.read())

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        try:
            return self.process.wait(timeout=40 * SLOW)
        finally:
            self.process.stdout.close()
            self.process.stderr.close()

    def ask(self, method, path, body=None, headers=None, timeout=60):
        """(status, headers, body) of a request; body: JSON, or bytes as they are."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout * SLOW)
        raw = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection.request(method, path, raw, headers or {})
        reply = connection.getresponse()
        data = reply.read()
        connection.close()
        return reply.status, dict((k.lower(), v) for k, v in reply.getheaders()), data

    def post(self, path, body, code=200, headers=None):
        status, _, data = self.ask("POST", path, body, headers)
        text = data.decode("utf-8")  # strict
        assert status == code, (status, body if len(str(body)) < 300 else str(body)[:300], text[:400])
        answer = json.loads(text)
        if code != 200:
            error = answer["error"]
            assert error["message"] and error["type"] and set(error) == {"message", "type", "param", "code"}, answer
        return answer

    def stream(self, path, body):
        """The data of a stream's events, without [DONE], which must be there."""
        status, headers, data = self.ask("POST", path, dict(body, stream=True))
        assert status == 200 and headers["content-type"].startswith("text/event-stream"), (status, headers, data)
        events = data.decode("utf-8").split("\n\n")
        assert events[-1] == "" and events[-2] == "data: [DONE]", events[-3:]
        assert all(event.startswith("data: ") for event in events[:-1]), events
        return [json.loads(event[6:]) for event in events[:-2]]

    def load(self):
        return json.loads(self.ask("GET", "/load")[2])["server_load"]


def chat(text="What is the capital of France?", **more):
    return dict({"model": "smollm2", "messages": [{"role": "user", "content": text}], "max_tokens": 16,
                 "temperature": 0}, **more)


def text_of(answer):
    choice = answer["choices"][0]
    return choice["message"]["content"] if "message" in choice else choice["text"]


def streamed_text(events, index=0):
    pieces = []
    for event in events:
        for choice in event["choices"]:
            if choice["index"] == index:
                pieces.append(choice["delta"].get("content") or "" if "delta" in choice else choice["text"])
    return "".join(pieces)


class Tally:
    """Tests one by one; each may fail without ending the others."""

    def __init__(self):
        self.n_passed = self.n_failed = 0

    def attempt(self, test, *arguments):
        started = time.monotonic()
        try:
            test(*arguments)
            self.n_passed += 1
            print(f"ok   {time.monotonic() - started:5.1f} s {test.__name__}", flush=True)
        except Exception:
            self.n_failed += 1
            print(f"FAIL {test.__name__}", flush=True)
            traceback.print_exc(file=sys.stdout)

    def end(self):
        print(f"{self.n_passed} passed, {self.n_failed} failed, 0 skipped")
        sys.exit(self.n_failed > 0)
