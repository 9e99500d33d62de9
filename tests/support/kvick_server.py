"""A `kvick serve` on a free port of 127.0.0.1, for the tests in Python, and what they ask of it. e2e.sh sets the
environment."""

import atexit
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback

KVICK, FOLDER = os.environ["KVICK"], os.environ["FOLDER"]
SLOW = 1 if "build/release/" in KVICK else 15  # how much longer things may take where the code is slow
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


def raw_request(path, body, headers=b"", version=b"1.1"):
    """The bytes of a POST. body: JSON, or bytes as they are; headers: lines with their ends."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return b"POST %s HTTP/%s\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n%s" % (path.encode(), version, len(raw), headers, raw)


def wait_until(condition, seconds, what="not within the time"):
    deadline = time.monotonic() + seconds * SLOW
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def in_threads(*calls):
    """The results of calls that run beside each other; None of one that failed, which says so by itself."""
    results = [None] * len(calls)

    def run(i):
        results[i] = calls[i]()
    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class KvickServer:
    """printed, errors: the lines that it says; nobody reads errors where the caller gives a stderr of its own. As a
    context it must end well."""

    def __init__(self, *arguments, model="smollm2", max_len=256, port=0, prefix=(), env=None, **more):
        command = [*prefix, KVICK, "serve", *([model] if model else []), "--port", str(port),
                   *(["--max-model-len", str(max_len)] if max_len else []), *arguments]
        self.process = subprocess.Popen(command, text=True, env=dict(os.environ, **(env or {})),
                                        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more})
        atexit.register(self.process.kill)  # whatever becomes of the test
        self.printed, self.errors = [], []
        self.reader = threading.Thread(target=lambda: self.errors.extend([] if "stderr" in more else self.process.stderr),
                                       daemon=True)
        self.reader.start()
        for line in self.process.stdout:
            self.printed.append(line)
            found = re.search(r"listening on \w+://[\d.]+:(\d+)", line)
            if found:
                self.port = int(found[1])
                return
        code = self.wait()
        assert code == 1, (code, self.errors)
        raise AssertionError("".join(self.errors))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.returncode is None:
            self.ends_well()

    def wait(self):
        try:
            return self.process.wait(timeout=40 * SLOW)
        finally:
            self.reader.join(timeout=10)
            self.process.stdout.close()
            if self.process.stderr:
                self.process.stderr.close()

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        return self.wait()

    def ends_well(self):
        code = self.stop()
        assert code == 0, (code, self.errors)

    def connect(self, timeout=60):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout * SLOW)

    def begin(self, path, body, headers=b""):
        """A client that has asked and has read nothing yet."""
        client = self.connect()
        client.sendall(raw_request(path, body, headers))
        return client

    def ask(self, method, path, body=None, headers=None, timeout=60, port=None):
        """(status, headers, body) of a request; body: JSON, or bytes as they are."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=timeout * SLOW)
        raw = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection.request(method, path, raw, headers or {})
        reply = connection.getresponse()
        data = reply.read()
        connection.close()
        return reply.status, dict((k.lower(), v) for k, v in reply.getheaders()), data

    def post(self, path, body, code=200, headers=None):
        status, _, data = self.ask("POST", path, body, headers=headers)
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

    def get(self, path, headers=None):
        status, _, data = self.ask("GET", path, headers=headers)
        assert status == 200, (status, data)
        return json.loads(data)

    def probe_beside(self, *calls):
        """(the results of calls that run beside each other, the longest that /health took meanwhile, in seconds)"""
        results, worst = [], 0
        thread = threading.Thread(target=lambda: results.extend(in_threads(*calls)))
        thread.start()
        while thread.is_alive():
            asked = time.monotonic()
            assert self.ask("GET", "/health")[0] == 200
            worst = max(worst, time.monotonic() - asked)
            time.sleep(0.005)
        return results, worst

    def load(self):
        return self.get("/load")["server_load"]

    def metrics(self):
        """name{labels} -> value; the labels that all have are left out."""
        status, headers, data = self.ask("GET", "/metrics")
        assert status == 200 and headers["content-type"].startswith("text/plain; version=0.0.4"), headers
        values = {}
        for line in data.decode().splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                assert name not in values and value.lower() != "nan", line
                values[re.sub(r'model_name="[^"]*",engine="0",?', "", name)] = float(value)
        return values


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


class Skip(Exception):
    """Raised by a test that this build of the program cannot pass; says why."""


class Tally:
    """Tests one by one; each may fail without ending the others. Environment: ONLY=WORD leaves out those whose name does
    not hold it."""

    def __init__(self):
        self.n_passed = self.n_failed = self.n_skipped = 0

    def attempt(self, test, *arguments, name=None):
        name = name or test.__name__
        if os.environ.get("ONLY", "") not in name:
            return
        started = time.monotonic()
        try:
            test(*arguments)
            self.n_passed += 1
            print(f"ok   {time.monotonic() - started:5.1f} s {name}", flush=True)
        except Skip as why:
            self.n_skipped += 1
            print(f"skip {name}: {why}", flush=True)
        except Exception:
            self.n_failed += 1
            print(f"FAIL {name}", flush=True)
            traceback.print_exc(file=sys.stdout)

    def check(self, name, is_so):
        self.n_passed += bool(is_so)
        self.n_failed += not is_so
        if not is_so:
            print(f"FAIL {name}", flush=True)

    def end(self):
        print(f"{self.n_passed} passed, {self.n_failed} failed, {self.n_skipped} skipped")
        sys.exit(self.n_failed > 0)
