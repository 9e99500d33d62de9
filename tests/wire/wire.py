"""wire.py [WORD]: plays tests/wire/cases/*.txt against `kvick serve`, each request in two pieces cut at
every byte, and once byte by byte; every reply must be the case's. WORD: only cases whose name holds it. e2e.sh sets the
environment.

A file of cases: `## NAME` begins a case; after `>>>` stands the request, after `<<<` the reply. Lines of a head end in
CR LF on the wire; a backslash at the end of a line of the request joins it to the next, and `\\xNN`, `\\r`, `\\n` in a
line of a head, or in a body, that begins with `!` are those bytes, and nothing is added. <length> is the length of the body that
follows. In a reply <int>, <num>, <id>, <text>, <date> and <any> stand for what differs from run to run; <id:1> must be
the same each time. Chunks of a reply are joined, headers are compared in their order."""

import glob
import os
import re
import socket
import sys
import time

from gguf_change import with_template
from kvick_server import FOLDER, KvickServer, Tally

HERE = os.path.dirname(os.path.abspath(__file__))
N_AT_A_TIME = 100
PATTERNS = {"int": r"\d+", "num": r"-?\d+(?:\.\d+)?(?:e-?\d+)?", "id": r"[\w-]+", "text": r'(?:[^"\\]|\\.)*',
            "date": r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", "any": r"[^\n]*"}


# ---- cases ----

def raw_bytes(text):
    return text.encode().decode("unicode_escape").encode("latin-1")


def request_bytes(lines):
    """Lines of a case -> what goes over the wire."""
    out, head, is_body = b"", [], False
    text = "\n".join(lines)
    blocks = text.split("\n>>>\n")  # pipelined ones
    for block in blocks:
        parts = block.split("\n\n", 1)
        body = parts[1].replace("\\\n", "") if len(parts) > 1 else ""
        body = raw_bytes(body[1:]) if body.startswith("!") else body.encode()
        for line in parts[0].split("\n"):
            if line.startswith("!"):
                out += raw_bytes(line[1:])
            else:
                out += line.replace("<length>", str(len(body))).encode() + b"\r\n"
        if not parts[0].startswith("!"):
            out += b"\r\n"
        out += body
    return out


def reply_pattern(text):
    at, names = 0, set()
    out = ""
    for found in re.finditer(r"<(int|num|id|text|date|any)(?::(\w+))?>", text):
        out += re.escape(text[at:found.start()])
        at = found.end()
        kind, name = found.groups()
        if name in names:
            out += f"(?P=n{name})"
        elif name:
            names.add(name)
            out += f"(?P<n{name}>{PATTERNS[kind]})"
        else:
            out += PATTERNS[kind]
    return re.compile(out + re.escape(text[at:]), re.DOTALL)


class Case:
    def __init__(self, where, name, request, reply):
        self.where, self.name = where, name
        self.request = request_bytes(request)
        self.expected = "\n".join(reply).rstrip("\n")
        self.pattern = reply_pattern(self.expected)
        self.n_replies = sum(line.startswith("HTTP/1.") and " 100 " not in line for line in reply)


def read_cases(path):
    cases, name, parts = [], None, {}

    def close():
        if name:
            cases.append(Case(os.path.basename(path), name, parts[">>>"], parts["<<<"]))
    part = None
    for line in open(path, encoding="utf-8").read().split("\n"):
        if line.startswith("## "):
            close()
            name, parts, part = line[3:], {}, None
        elif line in (">>>", "<<<") and line not in parts:
            part = line
            parts[part] = []
        elif part:
            parts[part].append(line)
    close()
    for case in cases:
        assert case.request and case.n_replies, case.name
    return cases


# ---- replies ----

def take_reply(data, is_over):
    """(normal form, rest) of the first reply in data, or None while it is not whole."""
    head, found, rest = data.partition(b"\r\n\r\n")
    if not found:
        return None
    text = head.replace(b"\r\n", b"\n").decode()
    assert "\r" not in text, text
    headers = dict(line.lower().split(": ", 1) for line in text.split("\n")[1:])
    body = b""
    if text.startswith("HTTP/1.1 100"):
        pass
    elif headers.get("transfer-encoding") == "chunked":
        while True:
            size, found, after = rest.partition(b"\r\n")
            if not found or len(after) < int(size, 16) + 2:
                return None
            n = int(size, 16)
            assert after[n:n + 2] == b"\r\n", after[:n + 2]
            body, rest = body + after[:n], after[n + 2:]
            if n == 0:
                break
    elif "content-length" in headers:
        n = int(headers["content-length"])
        if len(rest) < n:
            return None
        body, rest = rest[:n], rest[n:]
    elif "connection" in headers:
        if not is_over:
            return None
        body, rest = rest, b""
    return text + "\n\n" + body.decode(), rest


def receive(client, n_replies):
    data, out, is_over = b"", [], False
    while True:
        while (taken := take_reply(data, is_over)) is not None:
            out.append(taken[0])
            data = taken[1]
            n_replies -= not taken[0].startswith("HTTP/1.1 100")
        if n_replies <= 0 or is_over:
            return "\n".join(out) + ("\n" + data.decode("latin-1") if data else "")
        part = client.recv(65536)
        data, is_over = data + part, not part


class Player(KvickServer):
    def connect(self, timeout=60):
        client = super().connect(timeout)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return client

    def check(self, case, how, client):
        got = receive(client, case.n_replies).rstrip("\n")
        client.close()
        if not case.pattern.fullmatch(got):
            raise AssertionError(f"{how}:\n{got}\n---- expected:\n{case.expected}")

    def play(self, case):
        client = self.connect()
        client.sendall(case.request)
        self.check(case, "whole", client)
        client = self.connect()
        for i in range(len(case.request)):
            client.sendall(case.request[i:i + 1])
        self.check(case, "byte by byte", client)
        for begin in range(1, len(case.request), N_AT_A_TIME):
            cuts = range(begin, min(begin + N_AT_A_TIME, len(case.request)))
            clients = {cut: self.connect() for cut in cuts}
            for cut, client in clients.items():
                client.sendall(case.request[:cut])
            time.sleep(0.005)
            for cut, client in clients.items():
                try:
                    client.sendall(case.request[cut:])
                except OSError:
                    pass  # refused by what came first
            for cut, client in clients.items():
                self.check(case, f"cut at {cut}", client)


def main(word=""):
    tally, path = Tally(), os.path.join(FOLDER, "tiny.gguf")
    with_template(os.environ["MODEL"], path)
    player = Player("--no-access-log", "--api-key", "abc123", "--served-model-name", "tiny", "--max-num-seqs", "256",
                    "--no-prefix-cache", model=path, max_len=None)
    for file in sorted(glob.glob(os.path.join(HERE, "cases", "*.txt"))):
        for case in read_cases(file):
            if word in case.name:
                tally.attempt(player.play, case, name=f"{case.where}: {case.name}")
    tally.attempt(player.ends_well)
    tally.end()


main(*sys.argv[1:])
