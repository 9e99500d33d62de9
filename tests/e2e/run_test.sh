#!/usr/bin/env bash
# run: a real model in the terminal, as a person and as a script meet it: answers, turns, --json, stdin, interrupts, a
# terminal session, a reader that leaves, sampling.
. "$(dirname "$0")/../support/e2e.sh"
need_model smollm2
python3 - <<'PY'
import codecs
import json
import os
import pty
import select
import signal
import subprocess
import termios
import time

from kvick_server import KVICK, SLOW, Tally

FRANCE = "What is the capital of France?"
LONG = "Write a very long and detailed story about a ship that sails around the whole world."
STABLE = ("--activations", "int16", "--kv-cache-dtype", "f16")


def start(*arguments, **how):
    how = dict(dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE), **how)
    return subprocess.Popen([KVICK, "run", "smollm2", *arguments], **how)


def run(*arguments, text=None, code=0):
    process = start(*arguments, stdin=subprocess.PIPE)
    out, err = process.communicate((text or "").encode(), timeout=120 * SLOW)
    assert process.returncode == code, (arguments, process.returncode, err)
    assert code or not err, (arguments, err)
    return out.decode("utf-8")  # strict: no character is cut


def run_json(*arguments, **how):
    return [json.loads(line) for line in run("--json", *arguments, **how).splitlines()]


def answer_of(out):
    return out[:out.index("\nprefill ")]


def cached_of(out):
    return [int(line.split(" cached")[0].split()[-1]) for line in out.splitlines() if line.startswith("prefill ")]


# ---- tests ----

def the_answer_names_paris_and_the_phases_follow():
    out = run(*STABLE, "-p", FRANCE, "-n", "20")
    assert "Paris" in answer_of(out), out
    lines = out.splitlines()
    assert lines[-2].startswith("prefill  37 prompt tokens, 0 cached, 37 computed in "), out
    assert "first token after" in lines[-2] and lines[-1].startswith("decode   ") and "ms/token" in lines[-1], out


def a_second_turn_reuses_the_first():
    out = run(*STABLE, "-p", FRANCE, "-p", "And of Italy?", "-n", "20")
    first, second = cached_of(out)
    assert first == 0 and second >= 32, out
    assert "Paris" in out and "Rome" in out, out
    assert [u["usage"]["cached_tokens"] > 0 for u in run_json(*STABLE, "-p", FRANCE, "-p", "And of Italy?", "-n", "20")] == \
        [False, True]
    without = run(*STABLE, "--no-prefix-cache", "-p", FRANCE, "-p", "And of Italy?", "-n", "20")
    assert cached_of(without) == [0, 0], without


def json_has_its_keys():
    (answer,) = run_json(*STABLE, "-p", FRANCE, "-n", "20")
    assert set(answer) == {"text", "ids", "finish_reason", "usage", "phases", "work", "start"}, answer
    assert set(answer["usage"]) == {"prompt_tokens", "cached_tokens", "new_tokens"}, answer
    rates = {"prefill_ms", "prefill_tok_s", "first_token_ms", "decode_ms_per_token", "decode_tok_s"}
    assert set(answer["phases"]) == rates | {"parts_ms", "unaccounted_ms"}, answer
    assert "Paris" in answer["text"] and answer["finish_reason"] == "stop", answer
    assert answer["usage"] == {"prompt_tokens": 37, "cached_tokens": 0, "new_tokens": len(answer["ids"])}, answer
    assert all(answer["phases"][rate] > 0 for rate in rates), answer
    assert answer["phases"]["first_token_ms"] >= answer["phases"]["prefill_ms"] * 0.99, answer
    parts = answer["phases"]["parts_ms"]
    assert all(parts[part] > 0 for part in ("template", "tokenize", "queue", "prefill_own", "decode")), answer
    assert 0 <= answer["phases"]["unaccounted_ms"] <= 1, answer
    assert all(answer["work"][phase]["flops"] > 0 for phase in ("prefill", "decode")), answer
    assert answer["start"]["first_token_ms"] > answer["start"]["model_ms"] > 0, answer


def no_exact_option_changes_an_answer():
    prompt = " ".join([LONG] * 5)
    seen = {}
    for options in (("--chunk", "0"), ("--chunk", "7"), ("--chunk", "64"), ("--threads", "1"), ("--threads", "2"),
                    ("--block-tokens", "64"), ("--no-prefix-cache",)):
        (answer,) = run_json("-p", prompt, "-n", "12", *options)
        assert len(answer["ids"]) == 12, answer
        seen[options] = answer["ids"]
    assert len({tuple(ids) for ids in seen.values()}) == 1, seen


def standard_input_is_a_prompt():
    (given,), (piped,) = run_json("-p", FRANCE, "-n", "8"), run_json("-n", "8", text=FRANCE + "\n")
    assert given["ids"] == piped["ids"], (given, piped)


def one_token_is_one_token():
    (answer,) = run_json("-p", FRANCE, "-n", "1")
    assert len(answer["ids"]) == 1 and answer["finish_reason"] == "length", answer
    assert answer["usage"]["new_tokens"] == 1 and answer["phases"]["decode_ms_per_token"] == 0, answer
    assert "length limit" in run("-p", FRANCE, "-n", "1")


def raw_continues_plain_text():
    (raw,) = run_json("--raw", "-p", "The capital of France is", "-n", "3")
    assert raw["usage"]["prompt_tokens"] == 5 and "Paris" in raw["text"], raw
    (raw,) = run_json("--raw", "-n", "3", text="The capital of France is")
    assert raw["usage"]["prompt_tokens"] == 5, raw


def seeds_decide_what_is_sampled():
    def ids(*options):
        return run_json("-p", LONG, "-n", "16", *options)[0]["ids"]
    seven = ids("--temperature", "1", "--seed", "7")
    assert seven == ids("--temperature", "1", "--seed", "7", "--chunk", "5")
    assert seven != ids("--temperature", "1", "--seed", "8")
    greedy = ids()
    assert greedy == ids("--temperature", "1e-6", "--seed", "7") == ids("--temperature", "1", "--top-k", "1")


def an_interrupt_ends_a_long_answer():
    process = start("-p", LONG, "-n", "5000")
    seen = os.read(process.stdout.fileno(), 1)  # it speaks
    assert seen
    time.sleep(0.3 * SLOW)
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30 * SLOW)
    seconds = time.monotonic() - started
    assert seconds < 2 * SLOW, seconds
    assert b"; interrupted" in out and process.returncode == 1 and not err, (out, err, process.returncode)


def a_reader_that_leaves_is_no_crash():
    process = start("-p", LONG, "-n", "200")
    assert len(process.stdout.read(10)) == 10
    process.stdout.close()
    started = time.monotonic()
    err = process.stderr.read()
    code = process.wait(timeout=60 * SLOW)
    assert code == 1 and err.count(b"\n") == 1 and b"standard output" in err, (code, err)
    assert time.monotonic() - started < 60 * SLOW
    with open("/dev/full", "wb") as full:
        process = start("-p", FRANCE, "-n", "4", stdout=full)
        err = process.stderr.read()
        assert process.wait(timeout=60 * SLOW) == 1 and b"standard output" in err, err


class Terminal:
    """kvick with a terminal of its own; what it shows gathers in .shown."""

    def __init__(self, *arguments):
        self.shown = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm"
            os.execv(KVICK, [KVICK, "run", "smollm2", *arguments])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass  # it has ended
        os.close(self.fd)

    def wait_for(self, word, seconds):
        end = time.monotonic() + seconds
        while word not in self.shown:
            left = end - time.monotonic()
            assert left > 0, f"no {word!r} in {seconds} s: {self.shown!r}"
            if not select.select([self.fd], [], [], left)[0]:
                continue
            try:
                piece = os.read(self.fd, 4096)
            except OSError:
                piece = b""
            assert piece, f"ended without {word!r}: {self.shown!r}"
            self.shown += self.decoder.decode(piece)
        self.shown = self.shown[self.shown.index(word) + len(word):]

    def type_at_prompt(self, text):
        """Types when the line editor listens: it prints its prompt a moment before it sets the terminal's mode, and keys
        that come in between are the system's, not its own."""
        end = time.monotonic() + 10 * SLOW
        while termios.tcgetattr(self.fd)[3] & termios.ICANON:
            assert time.monotonic() < end, "the line editor does not listen"
            time.sleep(0.001)
        self.type(text)

    def type(self, text):
        os.write(self.fd, text.encode())

    def wait_end(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    os.read(self.fd, 4096)
                except OSError:
                    pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
        raise AssertionError(f"still running after {seconds} s")


def a_typed_line_keeps_every_character():
    text = "Où est Genève? 日本"
    n_prompt = run_json(*STABLE, "-p", text, "-n", "2")[0]["usage"]["prompt_tokens"]
    for locale in ("C", "C.UTF-8"):
        os.environ["LC_ALL"] = locale
        try:
            with Terminal(*STABLE, "-n", "2") as terminal:
                terminal.wait_for("> ", 30 * SLOW)
                terminal.type_at_prompt(text + "\n")
                terminal.wait_for(text + "\r\n", 10 * SLOW)  # what the line editor holds
                terminal.wait_for(f"prefill  {n_prompt} prompt tokens", 30 * SLOW)
        finally:
            del os.environ["LC_ALL"]


def an_interrupt_right_after_enter_counts():
    with Terminal(*STABLE, "-n", "400") as terminal:
        terminal.wait_for("> ", 30 * SLOW)
        terminal.type_at_prompt(LONG + "\n")
        terminal.wait_for("world.\r\n", 10 * SLOW)  # the echo: the line has been read, nothing is answered yet
        terminal.type("\3")
        terminal.wait_for("interrupted", 5 * SLOW)


def a_session_in_a_terminal():
    with Terminal(*STABLE, "-n", "400") as terminal:
        terminal.wait_for("> ", 30 * SLOW)
        terminal.type_at_prompt(FRANCE + "\n")
        terminal.wait_for("Paris", 30 * SLOW)
        terminal.wait_for("decode ", 30 * SLOW)
        terminal.wait_for("> ", 10 * SLOW)
        terminal.type_at_prompt(LONG + "\n")
        terminal.wait_for("world.\r\n", 10 * SLOW)  # the end of the echo, which holds " the " too
        terminal.wait_for(" the ", 30 * SLOW)
        terminal.type("\3")
        terminal.wait_for("interrupted", 5 * SLOW)
        terminal.wait_for("> ", 10 * SLOW)
        terminal.type_at_prompt("And of Italy?\n")  # the session goes on
        terminal.wait_for("decode ", 60 * SLOW)
        terminal.wait_for("> ", 10 * SLOW)
        started = time.monotonic()
        terminal.type_at_prompt("\4")
        code = terminal.wait_end(30 * SLOW)
        assert time.monotonic() - started < 2 * SLOW and code == 0, code


tally = Tally()
for test in (the_answer_names_paris_and_the_phases_follow, a_second_turn_reuses_the_first, json_has_its_keys,
             no_exact_option_changes_an_answer, standard_input_is_a_prompt, one_token_is_one_token,
             raw_continues_plain_text, seeds_decide_what_is_sampled, an_interrupt_ends_a_long_answer,
             a_reader_that_leaves_is_no_crash, a_typed_line_keeps_every_character,
             an_interrupt_right_after_enter_counts, a_session_in_a_terminal):
    tally.attempt(test)
tally.end()
PY
