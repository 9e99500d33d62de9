#!/usr/bin/env bash
# Whatever is wrong with what a command is given: exit 1 (2 for usage), one line on stderr that names it, nothing on
# stdout, no signal, < 1 s, < 100 MB.
. "$(dirname "$0")/../support/e2e.sh"
python3 - <<'PY'
import os

from kvick_server import FOLDER, KVICK, SLOW, Tally

GOLDEN = os.environ.get("KVICK_GOLDEN", "../shared/golden")
CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
SMOLLM2 = os.path.join(CACHE, "kvick", "models", "smollm2.gguf")
tally = Tally()


def measure(args):
    """(exit status, stdout, stderr, seconds of CPU, KiB of memory) of one child; negative status: a signal."""
    with open(os.path.join(FOLDER, "out"), "w+b") as out, open(os.path.join(FOLDER, "err"), "w+b") as err:
        pid = os.posix_spawn(KVICK, [KVICK, *args], os.environ, file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, out.fileno(), 1), (os.POSIX_SPAWN_DUP2, err.fileno(), 2)])
        _, status, usage = os.wait4(pid, 0)
        out.seek(0), err.seek(0)
        return (os.waitstatus_to_exitcode(status), out.read(), err.read(), usage.ru_utime + usage.ru_stime,
                usage.ru_maxrss)


def expect(exit_code, words, *args, max_mib=100):
    status, out, err, seconds, kib = measure(args)
    text, wrong = err.decode("utf-8", "replace"), []
    if status != exit_code: wrong.append(f"exit {status}, not {exit_code}")
    if out: wrong.append(f"stdout: {out[:80]!r}")
    if not text.endswith("\n") or text.count("\n") != 1: wrong.append("not one line on stderr")
    wrong += [f"'{word}' is not named" for word in words if word not in text]
    if SLOW == 1:
        if seconds > 1: wrong.append(f"{seconds:.2f} s")
        if kib > max_mib * 1024: wrong.append(f"{kib} KiB")
    tally.check(f"kvick {' '.join(a[:60] for a in args)}: {'; '.join(wrong)}: {text[:300]!r}", not wrong)


def file_of(name, data):
    path = os.path.join(FOLDER, name)
    with open(path, "wb") as file:
        file.write(data)
    return path


# Wrong usage.
expect(2, ["unknown command", "rnu"], "rnu")
expect(2, ["--frob"], "run", "x", "--frob")
expect(2, ["run", "MODEL"], "run")
expect(2, ["MODEL"], "run", "a", "b")
expect(2, ["--max-tokens", "0"], "run", "x", "-p", "a", "-n", "0")
expect(2, ["--max-tokens", "99999999999"], "run", "x", "-p", "a", "-n", "99999999999")
expect(2, ["--max-tokens", "abc"], "run", "x", "-n", "abc")
expect(2, ["temperature", "-1"], "run", "x", "-p", "a", "--temperature", "-1")
expect(2, ["--temperature", "nan"], "run", "x", "-p", "a", "--temperature", "nan")
expect(2, ["top_p", "1.5"], "run", "x", "-p", "a", "--top-p", "1.5")
expect(2, ["min_p"], "run", "x", "-p", "a", "--min-p", "2")
expect(2, ["--top-k", "-1"], "run", "x", "-p", "a", "--top-k=-1")
expect(2, ["--seed", "1e5"], "run", "x", "--seed", "1e5")
expect(2, ["--raw"], "run", "x", "--raw", "-s", "a")
expect(2, ["--raw", "2"], "run", "x", "--raw", "-p", "a", "-p", "b")
expect(2, ["-n", "needs a value"], "run", "x", "-n")
expect(2, ["frob"], "eval", "frob", "x")
expect(2, ["--reference"], "eval", "reference", "x")
expect(2, ["--jsonl"], "run", "x", "--jsonl")

# Files that are none.
for command in (["run", "{}", "-p", "a"], ["inspect", "{}"], ["tokenize", "{}"],
                ["eval", "reference", "{}", "--reference", "REF"]):
    def with_file(path):
        reference = os.path.join(GOLDEN, "real", "smollm2.json")
        return [word.replace("{}", path).replace("REF", reference) for word in command]
    if command[0] == "eval" and not os.path.isdir(GOLDEN):
        continue
    expect(1, ["no/such.gguf", "No such file"], *with_file("no/such.gguf"))
    expect(1, ["no-such-model", "fetch-model"], *with_file("no-such-model"))
    expect(1, ["empty.gguf"], *with_file(file_of("empty.gguf", b"")))
    expect(1, ["noise.gguf"], *with_file(file_of("noise.gguf", bytes(range(256)) * 64)))
    expect(1, [os.path.basename(FOLDER)], *with_file(FOLDER))
    if os.path.isdir(os.path.join(GOLDEN, "bad")):
        for name in sorted(os.listdir(os.path.join(GOLDEN, "bad"))):
            if name.startswith("ok-control"): continue
            expect(1, [name], *with_file(os.path.join(GOLDEN, "bad", name)))
    if os.path.exists(SMOLLM2):
        with open(SMOLLM2, "rb") as file:
            head = file.read(3 << 20)
        expect(1, ["cut.gguf"], *with_file(file_of("cut.gguf", head)))
        expect(1, ["cut-head.gguf"], *with_file(file_of("cut-head.gguf", head[:100000])))

# What a good file cannot do.
gguf = os.path.join(GOLDEN, "gguf")
if os.path.isdir(gguf):
    llama = os.path.join(gguf, "llama.gguf")
    expect(1, ["mixtral.gguf"], "run", os.path.join(gguf, "mixtral.gguf"), "-p", "a", "--raw")
    expect(1, ["gpt-oss.gguf", "general.architecture", "gpt-oss"], "run", os.path.join(gguf, "gpt-oss.gguf"), "-p", "a",
           "--raw")
    expect(2, ["frob", "known"], "run", llama, "-p", "a", "--raw", "--isa", "frob")
    expect(2, ["--kv-cache-dtype", "q9"], "run", llama, "-p", "a", "--raw", "--kv-cache-dtype", "q9")
    expect(1, ["qwen3.gguf", "attention.key_length 48", "q8_0", "int8"], "run", os.path.join(gguf, "qwen3.gguf"), "-p", "a",
           "--raw", "--kv-cache-dtype", "q8_0")
    expect(2, ["--activations", "int3"], "run", llama, "-p", "a", "--raw", "--activations", "int3")
    expect(2, ["--block-tokens", "17"], "run", llama, "-p", "a", "--raw", "--block-tokens", "17")
    expect(2, ["--threads", "100000"], "run", llama, "-p", "a", "--raw", "--threads", "100000")
    expect(1, ["--context", "99999999"], "run", llama, "-p", "a", "--raw", "-c", "99999999")
    reference = os.path.join(GOLDEN, "real", "smollm2.json")
    expect(1, [reference], "eval", "reference", llama, "--reference", reference)
    expect(1, ["not-json"], "eval", "reference", llama, "--reference", file_of("not-json", b"{"))
    expect(1, ["other-json"], "eval", "reference", llama, "--reference", file_of("other-json", b"[1]"))
    expect(1, ["no/ref"], "eval", "reference", llama, "--reference", "no/ref")
if os.path.exists(SMOLLM2):
    # The model itself takes memory; what is bounded is the refusal's own.
    # The weights are being packed while the prompt's tokens are counted: the model itself may be there already.
    expect(1, ["context", "16"], "run", SMOLLM2, "-p", "a", "-c", "16", max_mib=100 + 200)

tally.end()
PY
