"""hook_service.py ADDRESS LOG: a guardrail for the tests, on a unix socket or a port. What it does stands in the text
that it is asked about; every question is a line of LOG."""

import json
import os
import socket
import socketserver
import sys
import threading
import time

ADDRESS, LOG = sys.argv[1:]
lock = threading.Lock()


def instead(question):
    """SECRET becomes [gone], wherever it was asked."""
    for field in ("messages", "prompt", "input"):
        if field in question:
            return {"action": "replace", field: json.loads(json.dumps(question[field]).replace("SECRET", "[gone]"))}
    raise AssertionError(question)


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.rfile.read(1)
        n_bytes = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-l"))
        question = json.loads(self.rfile.read(n_bytes))
        with lock, open(LOG, "a", encoding="utf-8") as log:
            log.write(json.dumps(question) + "\n")
        text = " ".join(question["texts"])
        answer = {"action": "pass"}
        if "HANG" in text:
            time.sleep(30)
        if "SLEEP" in text:
            time.sleep(0.2)
        if "REFUSE" in text:
            answer = {"action": "refuse", "reason": "not about that"}
        if "SECRET" in text:
            answer = instead(question)
        if "NONSENSE" in text:
            answer = {"action": "replace", "messages": [{"role": 5}], "prompt": {"a": 1}}
        body = b"<html>" if "GARBAGE" in text else json.dumps(answer).encode()
        code = b"500 Oops" if "FAULT" in text else b"200 OK"
        if "DIE" in text:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"action\": \"pa")
            self.wfile.flush()
            os._exit(1)
        if "CHUNKS" in text:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for byte in body:
                self.wfile.write(b"1\r\n%c\r\n" % byte)
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        elif "CLOSE" in text:
            self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n" + body)
        else:
            self.wfile.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (code, len(body)) + body)


if ADDRESS.startswith("unix:"):
    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True
        request_queue_size = 128
    if os.path.exists(ADDRESS[5:]):
        os.unlink(ADDRESS[5:])
    server = Server(ADDRESS[5:], Handler)
else:
    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True
        request_queue_size = 128
        address_family = socket.AF_INET
    server = Server(("127.0.0.1", 0), Handler)
print(server.server_address if ADDRESS.startswith("unix:") else server.server_address[1], flush=True)
server.serve_forever()
