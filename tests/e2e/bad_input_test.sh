#!/usr/bin/env bash
# bad input: whatever is wrong, the program says so in one line that names file, field or value, and ends by itself:
# exit 1 (2 for wrong usage), nothing on stdout, no signal, < 1 s, < 100 MB (time and memory not under sanitizers).
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

golden=${KVICK_GOLDEN:-../shared/golden}
if [ ! -d "$golden" ]; then
    echo "no golden data (KVICK_GOLDEN): bad input is not tested"
    exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

KVICK=${KVICK:-build/release/kvick} GOLDEN=$golden FOLDER=$folder python3 - <<'PY'
import glob
import os
import resource
import shutil
import signal
import subprocess
import sys
import time

KVICK, GOLDEN, FOLDER = os.environ["KVICK"], os.environ["GOLDEN"], os.environ["FOLDER"]
IS_RELEASE = "release" in KVICK
MAX_S, MAX_KIB = 1.0, 100 * 1024
GOOD = f"{GOLDEN}/gguf/llama.gguf"
REFERENCE = f"{GOLDEN}/real/smollm2.json"
n_passed = n_failed = 0


class Ended:
    def __init__(self, arguments, memory_kib):
        def limit():
            if memory_kib:
                resource.setrlimit(resource.RLIMIT_AS, (memory_kib * 1024, memory_kib * 1024))
        out, err = open(f"{FOLDER}/out", "w+b"), open(f"{FOLDER}/err", "w+b")
        started = time.monotonic()
        process = subprocess.Popen([KVICK] + arguments, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                   preexec_fn=limit)
        signal.setitimer(signal.ITIMER_REAL, 60)
        signal.signal(signal.SIGALRM, lambda *_: process.kill())
        _, status, usage = os.wait4(process.pid, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        process.returncode = 0  # waited for already
        self.seconds, self.kib = time.monotonic() - started, usage.ru_maxrss
        self.cpu_seconds = usage.ru_utime + usage.ru_stime
        self.code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        self.out, self.err = (f.seek(0) or f.read().decode("utf-8", "backslashreplace") for f in (out, err))
        out.close(), err.close()


def faults_of(ended, code, words):
    if ended.code != code:
        yield f"exit {ended.code}, not {code}"
    if ended.out:
        yield f"stdout is not empty: {ended.out[:80]!r}"
    if ended.err.count("\n") != 1 or not ended.err.endswith("\n"):
        yield "stderr is not one line"
    for word in words:
        if word not in ended.err:
            yield f"{word!r} is not named"
    if any(ord(c) < 32 and c != "\n" for c in ended.err):
        yield "control bytes in the message"
    # other work on the machine stretches the time, not the work: waiting is judged less strictly
    if IS_RELEASE and (ended.cpu_seconds >= MAX_S or ended.seconds >= 10 * MAX_S):
        yield f"took {ended.seconds:.2f} s, {ended.cpu_seconds:.2f} s of CPU"
    if IS_RELEASE and ended.kib >= MAX_KIB:
        yield f"took {ended.kib} KiB"


def expect(code, words, *arguments, memory_kib=0):
    """The program refuses; words: texts that its line must hold."""
    global n_passed, n_failed
    for attempt in range(2):  # a second try: other work on the machine may cost a second
        ended = Ended(list(arguments), memory_kib)
        faults = list(faults_of(ended, code, [words] if isinstance(words, str) else words))
        if not any("took" in fault for fault in faults):
            break
    if faults:
        n_failed += 1
        print(f"FAIL kvick {' '.join(arguments)}: {'; '.join(faults)}\n  {ended.err.strip()[:400]}")
    else:
        n_passed += 1


def write(name, content):
    with open(f"{FOLDER}/{name}", "wb") as file:
        file.write(content)
    return f"{FOLDER}/{name}"


def model_commands(path):
    yield "run", path, "-p", "x"
    yield "run", path, "--raw", "-p", "x"
    yield "tokenize", path, "x"
    yield "inspect", path
    yield "inspect", path, "--json"
    yield "eval", "reference", path, "--reference", REFERENCE


# ---- model files that are no models ----

for path in sorted(glob.glob(f"{GOLDEN}/bad/*")):
    name = os.path.basename(path)
    for command in model_commands(path):
        if not name.startswith("ok-control"):
            expect(1, name, *command)
        elif command[0] != "inspect":  # well-formed, but no model
            expect(1, name, *command)

for name, content in (("empty.gguf", b""), ("text.gguf", b"hello, this is no model\n" * 100),
                      ("zeros.gguf", bytes(5000)), ("magic.gguf", b"GGUF"), ("control\x1b[2J\n.gguf", b"GGUF\3\0\0\0")):
    path = write(name, content)
    for command in model_commands(path):
        expect(1, ".gguf", *command)

good = open(GOOD, "rb").read()
for n_bytes in [len(good) - 1, len(good) - 33, len(good) // 2] + [int(1.7 ** i) for i in range(2, 25)]:
    if n_bytes >= len(good):
        continue
    path = write("truncated.gguf", good[:n_bytes])
    for command in (("run", path, "--raw", "-p", "x"), ("inspect", path), ("tokenize", path, "x")):
        expect(1, "truncated.gguf", *command)

for path, why in ((f"{FOLDER}/nosuch.gguf", "No such file"), (FOLDER, ""), ("/dev/null", "regular"),
                  (f"{GOOD}/x.gguf", "Not a directory"), ("", "empty")):
    for command in model_commands(path):
        expect(1, [path, why], *command)
for command in model_commands("no-such-model"):
    expect(1, ["no-such-model", "fetch-model"], *command)
secret = write("secret.gguf", good)
os.chmod(secret, 0)
if os.geteuid() != 0:
    expect(1, ["secret.gguf", "Permission denied"], "run", secret, "-p", "x")
os.chmod(secret, 0o600)

# ---- models that are not understood ----

def patched(name, old, new):
    content = good.replace(old, new, 1)
    assert content != good and len(content) == len(good)
    return write(name, content)


path = patched("arch.gguf", b"\5\0\0\0\0\0\0\0llama", b"\5\0\0\0\0\0\0\0lxama")
expect(1, ["arch.gguf", "lxama"], "run", path, "--raw", "-p", "x")
expect(1, ["arch.gguf", "lxama"], "eval", "reference", path, "--reference", REFERENCE)
at = good.index(b"token_embd.weight") + len("token_embd.weight") + 4 + 16
path = write("type.gguf", good[:at] + (77).to_bytes(4, "little") + good[at + 4:])
for command in model_commands(path):
    expect(1, ["type.gguf", "token_embd.weight", "77"], *command)
expect(1, ["mixtral.gguf", "expert_count"], "run", f"{GOLDEN}/gguf/mixtral.gguf", "--raw", "-p", "x")
expect(1, ["llama.gguf", "tokenizer.chat_template"], "run", GOOD, "-p", "x")
expect(1, ["gpt-2.gguf", "gpt2"], "run", f"{GOLDEN}/vocab/gpt-2.gguf", "--raw", "-p", "x")

# ---- prompts and sizes ----

expect(1, ["prompt", "context", "2048"], "run", GOOD, "--raw", "-p", "word " * 20000)
expect(1, ["prompt", "context", "4"], "run", GOOD, "--raw", "-c", "4", "-p", "one two three four five")
expect(1, ["--context", "3000", "2048"], "run", GOOD, "--raw", "-c", "3000", "-p", "x")
expect(1, "prompt", "run", GOOD, "--raw", "-p", "")
expect(1, "standard input", "run", GOOD, "--raw")
expect(1, "nosuch.json", "eval", "reference", GOOD, "--reference", f"{FOLDER}/nosuch.json")
expect(1, "bad.json", "eval", "reference", GOOD, "--reference", write("bad.json", b"{\"prompts\": [1, "))
expect(1, "deep.json", "eval", "reference", GOOD, "--reference", write("deep.json", b"[" * 200000))
expect(1, "nosuch.jinja", "render", f"{FOLDER}/nosuch.jinja", "--messages", f"{FOLDER}/bad.json")
expect(1, "nosuch.json", "render", GOOD, "--messages", f"{FOLDER}/nosuch.json")
loop = write("loop.jinja", b"{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}")
expect(1, "loop.jinja", "render", loop, "--messages", write("hello.json", b'{"messages":[{"role":"user","content":"x"}]}'))

# ---- usage ----

for words, *arguments in (
        ("unknown command 'foo'", "foo"), ("unknown command ''", ""), ("unknown command 'a?b'", "a\nb"), ("--a?b", "run", "--a\nb"), ("unknown command 'RUN'", "RUN"),
        ("--bogus", "run", GOOD, "--bogus"), ("-Z", "run", GOOD, "-Z"), ("0 given", "run"), ("2 given", "run", GOOD, GOOD),
        ("needs a value", "run", GOOD, "-n"), ("--isa", "tokenize", GOOD, "--isa", "scalar", "x"),
        ("foo", "run", GOOD, "-p", "x", "--isa", "foo"), ("foo", "cpu", "--isa", "foo"),
        ("i8mm", "run", GOOD, "-p", "x", "--isa", "i8mm" if os.uname().machine == "x86_64" else "avx2"),
        ("q8_0", "run", GOOD, "-p", "x", "--kv-cache-dtype", "q8_0"), ("int4", "run", GOOD, "-p", "x", "--activations", "int4"),
        ("9999", "run", GOOD, "-p", "x", "--threads", "9999"), ("-1", "run", GOOD, "-p", "x", "--threads", "-1"),
        ("2x", "run", GOOD, "-p", "x", "--threads", "2x"), ("17", "run", GOOD, "-p", "x", "--block-tokens", "17"),
        ("-5", "run", GOOD, "-p", "x", "--chunk", "-5"), ("99999999999999999999", "run", GOOD, "-p", "x", "--seed", "99999999999999999999"),
        ("--max-tokens", "run", GOOD, "-p", "x", "-n", "0"), ("nan", "run", GOOD, "-p", "x", "--temperature", "nan"),
        ("temperature -1", "run", GOOD, "-p", "x", "--temperature", "-1"), ("top_p 0", "run", GOOD, "-p", "x", "--top-p", "0"),
        ("min_p 2", "run", GOOD, "-p", "x", "--min-p", "2"), ("--top-k", "run", GOOD, "-p", "x", "--top-k", "5000000000"),
        ("--reference", "eval", "reference", GOOD), ("'foo'", "eval", "foo", GOOD), ("--messages", "render", GOOD),
        ("--now", "render", GOOD, "--messages", "x", "--now", "tomorrow"), ("--system", "run", GOOD, "--raw", "-p", "x", "-s", "y")):
    if words == "i8mm":
        words = arguments[-1]
    expect(2, words, *arguments)

# ---- no memory ----

if IS_RELEASE:  # sanitizers reserve terabytes
    # below 12 MB the program cannot even be loaded
    for memory_kib in range(14_000, 30_000, 2_000):
        ended = Ended(["run", GOOD, "--raw", "-p", "x", "-t", "2", "-n", "2"], memory_kib)
        if ended.code == 0 and ended.out:
            n_passed += 1
            continue
        expect(1, "kvick: ", "run", GOOD, "--raw", "-p", "x", "-t", "2", "-n", "2", memory_kib=memory_kib)
    expect(1, "kvick: ", "run", GOOD, "--raw", "-p", "x", "-t", "2", memory_kib=14_000)
    large = f"{FOLDER}/large.gguf"
    shutil.copy(GOOD, large)
    os.truncate(large, 4 << 30)  # sparse
    expect(1, ["large.gguf", "annot"], "run", large, "--raw", "-p", "x", memory_kib=1 << 20)

print(f"{n_passed} passed, {n_failed} failed, 0 skipped")
sys.exit(n_failed > 0)
PY
