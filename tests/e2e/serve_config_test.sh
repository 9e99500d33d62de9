#!/usr/bin/env bash
# serve's configuration from outside: where options come from, what --check says, keys and what they may do, limits of
# classes, reload by SIGHUP, the service manager's sockets and notices, the port for administration, logs.
. "$(dirname "$0")/../support/e2e.sh"
need_golden gguf/llama.gguf
python3 - <<'PY'
import hashlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import time

from kvick_server import FOLDER, KVICK, SLOW, TEXT, KvickServer, Tally, wait_until

MODEL = os.environ["MODEL"]


def write(name, text):
    path = os.path.join(FOLDER, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def run(*arguments, code=0, env=None):
    """(stdout, stderr) of a serve that ends by itself."""
    process = subprocess.run([KVICK, "serve", *arguments], capture_output=True, text=True, timeout=20 * SLOW,
                             env=dict(os.environ, **(env or {})))
    assert process.returncode == code, (arguments, process)
    return process.stdout, process.stderr


class Server(KvickServer):
    def ask(self, method, path, body=None, key=None, headers=None, port=None):
        return super().ask(method, path, body, dict(headers or {}, **({"Authorization": "Bearer " + key} if key else {})),
                           port=port)

    def post(self, body, code=200, key=None, headers=None, path=TEXT):
        status, headers, data = self.ask("POST", path, body, key, headers=headers)
        assert status == code, (status, data)
        return json.loads(data) if code == 200 else (json.loads(data)["error"], headers)

    def lines(self):
        return [json.loads(line) for line in self.errors if line.startswith("{")]

    def wait_for(self, words):
        wait_until(lambda: any(words in line for line in self.errors), 10, (words, self.errors))


def with_server(test, *arguments, **more):
    with Server(*arguments, model=MODEL, **dict({"max_len": None}, **more)) as server:
        test(server)
    return server


def ids(n, seed=0):
    return [(seed * 37 + i * 7) % 200 + 20 for i in range(n)]


def ask_for(n_prompt, seed=0, **more):
    return dict({"prompt": ids(n_prompt, seed), "max_tokens": 2, "ignore_eos": True, "temperature": 0}, **more)


def key_table(name, text, **more):
    digest = hashlib.sha256(text.encode()).hexdigest()
    fields = "".join(f"{field.replace('_', '-')} = {json.dumps(value)}\n" for field, value in more.items())
    return f'[[key]]\nname = "{name}"\nsha256 = "{digest}"\n{fields}'


# ---- where options come from ----

def printed(*arguments, env=None):
    """name -> (value, source) of --print-config."""
    text = run(*arguments, "--print-config", env=env)[0]
    return {name: (value, source) for name, value, source in re.findall(r"^(?:# )?([\w-]+) = (.*?)  # (.*)$", text,
                                                                        re.MULTILINE)}


def the_nearest_origin_wins():
    path = write("a.toml", f'model = "{MODEL}"\nport = 1\nmax-num-seqs = 2\nserved-model-name = ["a", "b"]\n'
                           'enable-prefix-caching = false\ntarget-itl-ms = 20\n')
    values = printed("--config", path, "--port", "3", env={"KVICK_MAX_NUM_SEQS": "4", "KVICK_PORT": "5"})
    assert values["port"] == ("3", "command line"), values["port"]
    assert values["max-num-seqs"] == ("4", "KVICK_MAX_NUM_SEQS"), values["max-num-seqs"]
    assert values["served-model-name"] == ('["a", "b"]', path + ":4"), values["served-model-name"]
    assert values["no-prefix-cache"] == ("true", path + ":5"), values["no-prefix-cache"]
    assert values["target-itl-ms"] == ("20", path + ":6"), values["target-itl-ms"]
    assert values["host"] == ('"127.0.0.1"', "default"), values["host"]
    assert printed(env={"KVICK_CONFIG": path})["port"] == ("1", path + ":2")
    # What is printed can be read again and says the same.
    again = write("b.toml", run("--config", path, "--print-config")[0])
    first, second = printed("--config", path), printed("--config", again)
    assert {name: value for name, (value, _) in first.items()} == {name: value for name, (value, _) in second.items()}


def faults_are_named_with_file_and_line():
    for text, words in (("port = 1\nprot = 2\n", ":2: prot: there is no such option"),
                        ("\n\nport = \"x\"\n", ":3: port must be a whole number, not a text"),
                        ("port = 70000\n", ":1: --port: 70000 is not within 0..65535"),
                        ("api-key = [1]\n", ":1: api-key must be a text or a list of texts, not a whole number"),
                        ("api-key = [\"a\", 1]\n", ":1: api-key: "),
                        ("host = [\"a\"]\n", ":1: host must be a text, not a list"),
                        ("[server]\nport = 1\n", ":1: server: there are no tables"),
                        ("port = 1\nport = 2\n", ":2: "), ("port = \n", ":1: "), ("print-config = true\n", ":1: "),
                        ("prompt = \"x\"\n", ":1: prompt: does not belong to this command"),
                        ("slo = \"interactive:ttft=2\"\n", ":1: --slo: 'interactive:ttft=2' is not"),
                        ("block-tokens = 17\n", ":1: --block-tokens: 17 is not 16, 32 or 64"),
                        ("log-level = \"loud\"\n", ":1: --log-level: 'loud' is unknown (known: error, warning, info")):
        path = write("wrong.toml", text)
        errors = run(MODEL, "--config", path, code=2)[1]
        assert path + words in errors and errors.count("\n") == 1, (text, errors)
    assert "KVICK_PORT: " in run(MODEL, code=2, env={"KVICK_PORT": "x"})[1]
    assert "no-such.toml" in run(MODEL, "--config", "no-such.toml", code=2)[1]
    for arguments, words in ((["--slo", "gold:ttft=1s"], "--slo"), (["--slo", "batch:"], "--slo"),
                             (["--max-prompt-tokens", "batch=0"], "--max-prompt-tokens"), (["--over-cap", "x"], "--over-cap"),
                             (["--max-queued-requests", "gold=1"], "gold=1"), (["--admin-listen", "x:y"], "--admin-listen"),
                             (["--admin-listen", "8000"], "--port already"), (["-tb", "2", "-t", "4"], "--threads: 4"),
                             (["-ctk", "f16", "-ctv", "int8"], "-ctv"), (["-ctk", "q4_0", "-ctv", "q4_0"], "q8_0"),
                             *((["--kv-cache-dtype", name], f"no '{name}': ") for name in ("fp8", "fp8_e4m3", "fp8_e5m2")),
                             (["--kv-cache-dtype", "fp8"], "q8_0 (or int8)"), (["--kv-cache-dtype", "fp9"], "known: int8, q8_0"),
                             (["--max-body-bytes", "1"], "--max-body-bytes"),
                             ([MODEL], "one model is expected"), (["-m", MODEL], "one model is expected")):
        errors = run(MODEL, *arguments, code=2)[1]
        assert words in errors and errors.count("\n") == 1, (arguments, errors)


def a_check_says_what_would_be():
    taken = socket.create_server(("127.0.0.1", 0))  # it binds nothing
    port = str(taken.getsockname()[1])
    text, errors = run(MODEL, "--check", "--port", port, "--max-model-len", "64")
    assert "one request may have 64 tokens, bound by option" in text and "listening" not in text, text
    assert "blocks of 16 tokens" in text and "a prefix of one token can hit" in text, text
    assert "first token after" in text and "the configuration is good" in text and errors == "", (text, errors)
    taken.close()
    text = run("-m", MODEL, "-c", "64", "-np", "2", "-t", "1", "-tb", "2", "-ctk", "f16", "-ctv", "f16", "--check")[0]
    assert "64 tokens" in text and "of f16" in text and "2 requests run at a time" in text, text
    assert "threads  2 for prompts, 1 for answers" in text, text
    text = run("-m", MODEL, "-ctk", "q8_0", "-ctv", "q8_0", "--check")[0]
    assert "of q8_0" in text, text
    assert 'kv-cache-dtype = "q8_0"' in run(MODEL, "-ctk", "q8_0", "--print-config")[0]
    assert "no/such.gguf" in run("no/such.gguf", "--check", code=1)[1]
    assert "no-such.toml" in run(MODEL, "--check", "--keys", "no-such.toml", code=1)[1]
    bad = write("bad-keys.toml", "[[key]]\nname = \"a\"\n")
    assert bad + ":1: key: there is no sha256 in it" in run(MODEL, "--check", "--keys", bad, code=1)[1]
    pem = write("bad.pem", "no certificate\n")
    assert "bad.pem" in run(MODEL, "--check", "--ssl-certfile", pem, "--ssl-keyfile", pem, code=1)[1]
    assert "--max-model-len: 1000000" in run(MODEL, "--check", "--max-model-len", "1000000", code=1)[1]


def the_longest_context_leaves_four_sessions():
    def facts(*arguments):
        text = run(MODEL, "--check", *arguments)[0]
        pool = int(re.search(r"KV cache (\d+) tokens", text)[1])
        context, bound, model = re.search(r"may have (\d+) tokens, bound by (\w+) \(the model allows (\d+)\)", text).groups()
        return pool, int(context), bound, int(model)
    pool, context, bound, model = facts()
    assert bound == "model" and context == model and pool >= 4 * context, (pool, context, bound, model)
    kv_bytes = float(re.search(r"KV cache ([\d.]+) MB\n", run(MODEL, "--check")[0])[1]) * 1e6
    budget = int(kv_bytes / pool * 4 * context / 3)
    pool, context, bound, model = facts("--kv-cache-memory-bytes", str(budget))
    assert bound == "memory" and context < model and 4 * context <= pool < 4 * (context + 32), (pool, context, bound)


def an_open_door_and_broken_promises_are_warned_of():
    errors = run(MODEL, "--check", "--host", "0.0.0.0", "--slo", "interactive:ttft=0.001ms,itl=0.001ms", "--admin-listen",
                 "0.0.0.0:1", "--log-format", "text")[1]
    for words in ("0.0.0.0 is not loopback and there is neither --api-key nor --keys", "ttft=", "itl=", "--admin-listen"):
        assert "kvick: warning: " in errors and words in errors, (words, errors)
    assert run(MODEL, "--check", "--host", "0.0.0.0", "--api-key", "x")[1] == ""
    line = json.loads(run(MODEL, "--check", "--host", "0.0.0.0")[1])
    assert line["level"] == "warning" and "loopback" in line["message"], line
    assert run(MODEL, "--check", "--host", "0.0.0.0", "--log-level", "error")[1] == ""


# ---- keys ----

def each_key_has_its_own_terms():
    keys = write("keys.toml", key_table("alice", "a", salt_scope="group:team") + key_table("bob", "b", max_context=40,
                 max_output=3) + key_table("carol", "c", salt_scope="group:team", weight=2) +
                 key_table("dave", "d", **{"class": "batch"}) + key_table("root", "r", admin=True))

    def test(s):
        assert s.post(ask_for(8), 401)[0]["code"] == "invalid_api_key"
        assert s.post(b"[" * 100000, 401, "x") and s.post(ask_for(8), 401, "alice")
        assert s.post(ask_for(8), key="a")["usage"]["completion_tokens"] == 2
        models = {key: json.loads(s.ask("GET", "/v1/models", key=key)[2])["data"][0] for key in "ab"}
        assert (models["a"]["max_model_len"], models["a"]["max_model_len_bound_by"]) == (128, "option"), models
        assert (models["b"]["max_model_len"], models["b"]["max_model_len_bound_by"]) == (40, "key"), models
        assert s.post({"prompt": "x"}, key="b", path="/tokenize")["max_model_len"] == 40
        error, _ = s.post(ask_for(60), 400, "b")
        assert error["code"] == "context_length_exceeded" and "'bob'" in error["message"], error
        assert "40" in error["message"] and "60" in error["message"], error
        error, _ = s.post(ask_for(8, max_tokens=4), 400, "b")
        assert error["param"] == "max_tokens" and "'bob'" in error["message"], error
        answer = s.post(ask_for(8, max_tokens=None) | {"max_tokens": 3}, key="b")
        assert answer["usage"]["completion_tokens"] == 3, answer
        whole = s.post({"model": None, "prompt": ids(8), "max_tokens": 128 - 8, "ignore_eos": True}, key="a")
        assert whole["usage"]["completion_tokens"] == 120, whole["usage"]
        # Prefixes are found by those of one scope.
        s.post(ask_for(64, seed=5), key="a")
        cached = {key: s.post(ask_for(64, seed=5), key=key)["usage"]["prompt_tokens_details"]["cached_tokens"]
                  for key in "acdr"}
        assert cached["a"] >= 48 and cached["c"] >= 48 and cached["d"] == 0 and cached["r"] == 0, cached
        # What all do is for admins.
        assert s.ask("GET", "/metrics", key="a")[0] == 403 and s.ask("GET", "/metrics", key="r")[0] == 200
        assert s.ask("GET", "/metrics")[0] == 401 and s.ask("GET", "/health")[0] == 200
        s.post(ask_for(8), key="d", headers={"x-request-id": "daves"})
    lines = with_server(test, "--keys", keys, "--max-model-len", "128").lines()
    assert {line["key"] for line in lines if "key" in line} == {"alice", "bob", "carol", "dave", "root"}, lines
    assert all(line["class"] == ("batch" if line["key"] == "dave" else "interactive")
               for line in lines if "class" in line), lines


def rates_are_kept_and_say_when_to_come_again():
    keys = write("rates.toml", key_table("slow", "s", tokens_per_minute=600) + key_table("free", "f") +
                 key_table("short", "p", prefill_ms_per_minute=0.0006))

    def test(s):
        for seed in range(6):  # 6 times 102 tokens: 12 more than a minute's, 10 come back in a second
            s.post(ask_for(100, seed=seed), key="s")
        error, headers = s.post(ask_for(100), 429, "s")
        wait = int(headers["retry-after"])
        assert 1 <= wait <= 2 and error["code"] == "rate_limit_exceeded" and "'slow'" in error["message"], (wait, error)
        assert s.post(b"{", 429, "s")  # before the body is looked at
        assert s.post(ask_for(8), key="f")  # others are not concerned
        assert s.ask("GET", "/v1/models", key="s")[0] == 200  # nor is what costs nothing
        time.sleep(wait)
        s.post(ask_for(4, seed=9), key="s")
        s.post(ask_for(100, seed=77), key="p")
        error, headers = s.post(ask_for(4), 429, "p")
        assert "ms of prefill" in error["message"] and int(headers["retry-after"]) > 60, (error, headers)
    with_server(test, "--keys", keys, "--max-model-len", "128")

    def moved(s):
        for seed in range(7):
            s.post(ask_for(100, seed=seed), key="s")
    lines = with_server(moved, "--keys", keys, "--max-model-len", "128", "--over-cap", "batch").lines()
    assert [line["class"] for line in lines if "class" in line] == ["interactive"] * 6 + ["batch"], lines


def a_key_can_be_made():
    made = [subprocess.run([KVICK, "key", name], capture_output=True, text=True, timeout=20 * SLOW, check=True)
            for name in ("eve", "eva")]
    keys = [process.stderr.splitlines()[-1] for process in made]
    for key, process in zip(keys, made):
        assert re.fullmatch(r"kv-[0-9a-f]{64}", key) and key not in process.stdout, process
    path = write("made.toml", "".join(process.stdout for process in made))
    with_server(lambda s: [s.post(ask_for(4), key=key) for key in keys], "--keys", path)
    assert subprocess.run([KVICK, "key", "a b"], capture_output=True, timeout=20 * SLOW).returncode == 2


def signals_reload_keys():
    keys = write("reload.toml", key_table("alice", "a", tokens_per_minute=1) + key_table("bob", "b"))

    def test(s):
        s.post(ask_for(20), key="a")
        assert s.post(ask_for(4), 429, "a") and s.post(ask_for(4), key="b")
        write("reload.toml", key_table("alice", "a2", tokens_per_minute=1) + key_table("zoe", "z"))
        s.process.send_signal(signal.SIGHUP)
        s.wait_for("2 keys were read again")
        # A new key of the same name has used what the old one had.
        assert s.post(ask_for(4), 401, "a") and s.post(ask_for(4), 429, "a2")
        assert s.post(ask_for(4), 401, "b") and s.post(ask_for(4), key="z")
        write("reload.toml", key_table("alice", "a3") + "weight = 0\n")
        s.process.send_signal(signal.SIGHUP)
        s.wait_for("keys were not read again: " + keys + ":4: weight: 0 is not within")
        assert s.post(ask_for(4), 401, "a3") and s.post(ask_for(4), key="z")
    with_server(test, "--keys", keys, "--log-level", "info")


# ---- classes ----

def caps_of_a_class_are_kept():
    def refused(s):
        error, _ = s.post(ask_for(50), 400)
        assert "50" in error["message"] and "20" in error["message"], error
        s.post(ask_for(20))
        s.post(ask_for(50, service_tier="batch"))
    with_server(refused, "--max-prompt-tokens", "interactive=20", "--max-model-len", "128")
    lines = with_server(lambda s: s.post(ask_for(50)), "--max-prompt-tokens", "interactive=20", "--max-model-len", "128",
                        "--over-cap", "batch").lines()
    assert [line["class"] for line in lines if "class" in line] == ["batch"], lines


def an_slo_is_a_deadline():
    slo = ("--slo", "interactive:ttft=0.001ms", "--max-model-len", "128")

    def refused(s):
        error, _ = s.post(ask_for(50), 400)
        assert error["code"] == "deadline", error
        s.post(ask_for(50), headers={"x-kvick-deadline-ms": "60000"})  # its own goes before
        s.post(ask_for(50, service_tier="batch"))
    with_server(refused, *slo)
    lines = with_server(lambda s: s.post(ask_for(50)), *slo, "--over-cap", "batch").lines()
    assert [line["class"] for line in lines if "class" in line] == ["batch"], lines

    def counted(s):
        s.post(ask_for(50, max_tokens=4))
        s.post(ask_for(50, service_tier="batch"))
        text = s.ask("GET", "/metrics")[2].decode()
        found = {match[:4]: float(match[4]) for match in re.findall(
            r'^kvick_slo_requests_total\{.*class="(\w+)",slo="(\w+)",target_seconds="([\d.e-]+)",met="(\w+)"\} (\S+)$', text,
            re.MULTILINE)}
        assert found == {("interactive", "ttft", "60", "true"): 1, ("interactive", "ttft", "60", "false"): 0,
                         ("interactive", "itl", "1e-06", "true"): 0, ("interactive", "itl", "1e-06", "false"): 1}, found
    with_server(counted, "--slo", "interactive:ttft=60s,itl=0.001ms", "--max-model-len", "128")


# ---- doors ----

def administration_has_a_door_of_its_own():
    keys = write("admin.toml", key_table("alice", "a", tokens_per_minute=6))

    def test(s):
        port = int(re.search(r"administration on port (\d+)", "".join(s.printed))[1])
        assert s.ask("GET", "/metrics", port=port)[0] == 200 and s.ask("GET", "/health", port=port)[0] == 200
        assert s.ask("GET", "/metrics")[0] == 401 and s.ask("GET", "/metrics", key="a")[0] == 404
        assert s.ask("POST", TEXT, ask_for(4), port=port)[0] == 404
        # The dashboard's chat is the one exception, by the rules of the other port.
        chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
        assert s.ask("POST", "/v1/chat/completions", chat, port=port)[0] == 401
        assert s.ask("POST", "/v1/chat/completions", chat, key="b", port=port)[0] == 401
        assert s.ask("GET", "/dashboard", port=port)[0] in (200, 406) and s.ask("GET", "/dashboard")[0] == 404
        assert s.ask("GET", "/v1/models", port=port)[0] == 404
        s.post(ask_for(4), key="a")
        known = json.loads(s.ask("GET", "/debug/keys", port=port)[2])["data"]
        assert [(key["name"], key["tokens_per_minute"], key["tokens_wait_ms"]) for key in known] == [("alice", 6, 0)], known
        s.post(ask_for(20), key="a")
        known = json.loads(s.ask("GET", "/debug/keys", port=port)[2])["data"]
        assert 150_000 < known[0]["tokens_wait_ms"] <= 220_000, known  # 22 too many, 6 a minute
        assert json.loads(s.ask("GET", "/debug/requests", port=port)[2]) == {"data": []}
        found = json.loads(s.ask("GET", "/debug/diagnosis", port=port)[2])
        assert found["diagnosis"] == [] and found["engine"]["steps"] > 0 and found["engine"]["blocks"] > 0, found
        assert s.ask("GET", "/debug/diagnosis")[0] == 401
        assert s.ask("GET", "/debug/keys", key="a")[0] == 404 and s.ask("POST", "/debug/keys", port=port)[0] == 405
        assert s.ask("GET", "/debug/nothing", port=port)[0] == 404
    with_server(test, "--keys", keys, "--admin-listen", "0")

    def one_door(s):
        client = s.begin(TEXT, ask_for(4, max_tokens=100, stream=True), b"Authorization: Bearer a\r\n")
        client.recv(1)
        running = json.loads(s.ask("GET", "/debug/requests", key="r")[2])["data"]
        assert [(call["key"], call["class"]) for call in running] in ([("alice", "interactive")], []), running
        client.close()
        assert s.ask("GET", "/debug/requests", key="a")[0] == 403
    write("admin.toml", key_table("alice", "a") + key_table("root", "r", admin=True))
    with_server(one_door, "--keys", keys)


def bodies_and_connections_are_bounded():
    def test(s):
        assert s.ask("POST", TEXT, {"prompt": "x" * 3000, "max_tokens": 1})[0] == 413
        s.post(ask_for(4))
        held = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(8)]
        time.sleep(0.3)
        third = socket.create_connection(("127.0.0.1", s.port), timeout=0.7)
        third.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        try:
            assert not third.recv(100), "one connection too many was answered"
        except TimeoutError:
            pass
        for client in held:
            client.close()
        third.settimeout(20 * SLOW)
        assert third.recv(100).startswith(b"HTTP/1.1 200")
        third.close()
    with_server(test, "--max-body-bytes", "2048", "--max-connections", "8")


def logs_have_the_form_that_was_asked_for():
    lines = with_server(lambda s: s.post(ask_for(4), headers={"x-request-id": "me"}), "--log-format", "text").errors
    pattern = r"\d{4}-\d\d-\d\dT[\d:.]+Z cmpl-me /v1/completions 200 key=- interactive length prompt=4 cached=0 " \
              r"output=2 ttft_ms=[\d.]+ total_ms=[\d.]+\n"
    assert len(lines) == 1 and re.fullmatch(pattern, lines[0]), lines
    assert with_server(lambda s: s.post(ask_for(4)), "--no-access-log").errors == []


def tls_is_reloaded():
    def make(name):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=" + name,
                        "-keyout", os.path.join(FOLDER, "tls.key"), "-out", os.path.join(FOLDER, "tls.pem")], check=True,
                       capture_output=True)

    def seen(port):
        return ssl.get_server_certificate(("127.0.0.1", port))
    make("one")

    def test(s):
        first = seen(s.port)
        make("two")
        assert seen(s.port) == first
        s.process.send_signal(signal.SIGHUP)
        wait_until(lambda: seen(s.port) != first, 10)
    with_server(test, "--ssl-certfile", os.path.join(FOLDER, "tls.pem"), "--ssl-keyfile", os.path.join(FOLDER, "tls.key"))


# ---- the service manager ----

def the_service_manager_is_told():
    path = os.path.join(FOLDER, "notify")
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(path)
    notify.settimeout(20 * SLOW)

    def test(s):
        told = notify.recv(4096).decode()
        assert told.startswith("READY=1\nMAINPID=%d\n" % s.process.pid), told
        s.process.send_signal(signal.SIGHUP)
        told = notify.recv(4096).decode()
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        stamp = int(re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=(\d+)", told)[1])
        assert abs(now_us - stamp) < 10_000_000, (now_us, stamp)
        assert notify.recv(4096).startswith(b"READY=1\n")
    with_server(test, env={"NOTIFY_SOCKET": path})
    assert notify.recv(4096).startswith(b"STOPPING=1")
    notify.close()
    assert any("cannot be told" in line for line in
               with_server(lambda s: None, env={"NOTIFY_SOCKET": "/no/such/socket"}).errors)


def sockets_are_taken_over():
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [listener.getsockname()[1] for listener in listeners]
    kept = [os.dup(fd) for fd in (3, 4) if os.path.exists(f"/proc/self/fd/{fd}")]
    copies = [os.dup(listener.fileno()) for listener in listeners]
    script = f"exec 3<&{copies[0]} 4<&{copies[1]}; LISTEN_PID=$$ exec \"$@\""

    def test(s):
        text = "".join(s.printed)
        assert s.port == ports[0] and f"administration on port {ports[1]}" in text, text
        assert s.ask("GET", "/v1/models")[0] == 200 and s.ask("GET", "/metrics")[0] == 404
        assert s.ask("GET", "/metrics", port=ports[1])[0] == 200
    with_server(test, prefix=("bash", "-c", script, "x"), port=1, pass_fds=copies,
                env={"LISTEN_FDS": "2", "LISTEN_FDNAMES": "http:admin"})
    for fd in copies + kept:
        os.close(fd)
    for listener in listeners:
        listener.close()
    script = 'LISTEN_PID=$$ exec "$@" 3</dev/null'
    process = subprocess.run(["bash", "-c", script, "x", KVICK, "serve", MODEL], capture_output=True, text=True,
                             timeout=20 * SLOW, env=dict(os.environ, LISTEN_FDS="1"))
    assert process.returncode == 1 and "descriptor 3 is no socket that listens" in process.stderr, process


def a_drain_is_seen_from_outside():
    s = Server("--shutdown-timeout", "20", model=MODEL, max_len=128)
    held = s.connect()  # open before the drain begins, so that it can still ask
    stream = s.begin(TEXT, ask_for(4, max_tokens=120, stream=True))
    stream.recv(1)
    s.process.send_signal(signal.SIGTERM)
    time.sleep(0.02)
    held.settimeout(20 * SLOW)
    try:
        held.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        reply = held.recv(1000)
    except ConnectionError:
        reply = b""
    assert reply == b"" or reply.startswith(b"HTTP/1.1 503"), reply
    data = b""
    while True:
        part = stream.recv(65536)
        if not part:
            break
        data += part
    assert b"[DONE]" in data, data[-300:]
    assert s.wait() == 0
    held.close()
    stream.close()


tally = Tally()
for test in (the_nearest_origin_wins, faults_are_named_with_file_and_line, a_check_says_what_would_be,
             the_longest_context_leaves_four_sessions, an_open_door_and_broken_promises_are_warned_of,
             each_key_has_its_own_terms, rates_are_kept_and_say_when_to_come_again, a_key_can_be_made,
             signals_reload_keys, caps_of_a_class_are_kept, an_slo_is_a_deadline, administration_has_a_door_of_its_own,
             bodies_and_connections_are_bounded, logs_have_the_form_that_was_asked_for, tls_is_reloaded,
             the_service_manager_is_told, sockets_are_taken_over, a_drain_is_seen_from_outside):
    tally.attempt(test)
tally.end()
PY
