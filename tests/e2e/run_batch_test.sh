#!/usr/bin/env bash
# run-batch: a file of requests answered as the server answers them, line by line, whatever a line does; ended in the
# middle and taken up.
. "$(dirname "$0")/../support/e2e.sh"
need_model smollm2
python3 - <<'PY'
import json
import os
import signal
import subprocess

from kvick_server import CHAT, FOLDER, KVICK, SLOW, TEXT, KvickServer, Tally, chat, wait_until

IN, OUT = (os.path.join(FOLDER, name) for name in ("in.jsonl", "out.jsonl"))


def line(custom_id, body, url=TEXT, **more):
    return dict({"custom_id": custom_id, "method": "POST", "url": url, "body": dict({"model": "smollm2"}, **body)}, **more)


def write(lines):
    with open(IN, "w", encoding="utf-8") as out:
        for one in lines:
            out.write((one if isinstance(one, str) else json.dumps(one)) + "\n")


def command(*arguments):
    return [KVICK, "run-batch", "smollm2", "-i", IN, "-o", OUT, "--max-model-len", "512", *arguments]


def run(*arguments, code=0):
    process = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=120 * SLOW)
    assert process.returncode == code, process
    return process.stderr


def answers():
    with open(OUT, encoding="utf-8") as lines:
        text = lines.read()
    assert text.endswith("\n"), "the last line is not whole"
    rows = [json.loads(one) for one in text.splitlines()]
    assert all(set(row) == {"id", "custom_id", "response", "error"} for row in rows), rows
    return {row["custom_id"]: row for row in rows}, rows


def fresh():
    if os.path.exists(OUT):
        os.remove(OUT)


GREEDY = {"temperature": 0, "max_tokens": 12}
N_MANY = 40 if SLOW == 1 else 9  # lines


def answers_are_the_servers():
    fresh()
    bodies = {"text": (TEXT, dict(GREEDY, prompt="Once upon a time")),
              "ids": (TEXT, dict(GREEDY, prompt=[[1, 2, 3], [4, 5, 6]], n=2, seed=3)),
              "chat": (CHAT, chat("What is the capital of France?")),
              "form": (CHAT, chat("Yes or no?", structured_outputs={"choice": ["yes", "no"]})),
              "vector": ("/v1/embeddings", {"input": "a text"}),
              "message": ("/v1/messages", chat("Say hello.")),
              "response": ("/v1/responses", {"input": "Say hello.", "temperature": 0, "max_output_tokens": 8})}
    write([line(name, body, url) for name, (url, body) in bodies.items()])
    said = run()
    assert "7 of 7 lines, 0 refused" in said, said
    rows, _ = answers()
    with KvickServer(max_len=512) as s:
        for name, (url, body) in bodies.items():
            response = rows[name]["response"]
            assert response["status_code"] == 200 and rows[name]["error"] is None, rows[name]
            answer = s.post(url, dict({"model": "smollm2"}, **body))
            for either in (response["body"], answer):
                for key in ("id", "created", "created_at", "usage"):
                    either.pop(key, None)
                for item in either.get("output", []):
                    item.pop("id")
            assert response["body"] == answer, (name, response["body"], answer)


def a_bad_line_hurts_no_other():
    fresh()
    write([line("good-1", dict(GREEDY, prompt="a")), "this is no JSON", "[]", line("temperature", {"prompt": "x", "temperature": 9}),
           line("route", {"prompt": "x"}, "/v1/nothing"), line("stream", {"prompt": "x", "stream": True}),
           line("good-1", dict(GREEDY, prompt="again")), line("model", {"prompt": "x", "model": "other"}),
           line("method", {"prompt": "x"}, method="GET"), "", {"method": "POST", "url": TEXT, "body": {}},
           {"custom_id": "body", "method": "POST", "url": TEXT, "body": 5}, line("long", {"prompt": [7] * 600}), line(5, {"prompt": "x"}),
           line("large", dict(GREEDY, prompt=[7] * 505)), line("good-2", dict(GREEDY, prompt="b"))])
    said = run()
    assert "15 of 15 lines, 13 refused" in said, said
    by_id, rows = answers()
    assert len(rows) == 15, rows
    for name in ("good-1", "good-2"):
        assert [row["response"]["status_code"] for row in rows if row["custom_id"] == name and row["response"]] == [200]
    status = {name: by_id[name]["response"]["status_code"] for name in ("temperature", "model", "long", "large")}
    assert status == {"temperature": 400, "model": 404, "long": 400, "large": 400}, status
    assert by_id["temperature"]["response"]["body"]["error"]["param"] == "temperature", by_id["temperature"]
    assert by_id["large"]["response"]["body"]["error"]["code"] == "context_length_exceeded", by_id["large"]
    errors = {row["custom_id"]: row["error"]["code"] for row in rows if row["error"] and row["custom_id"]}
    assert errors == {"route": "invalid_url", "stream": "unsupported_parameter", "method": "invalid_line",
                      "body": "invalid_line", "good-1": "duplicate_custom_id"}, errors
    told = [row["error"]["message"] for row in rows if row["error"] and row["custom_id"] is None]
    assert sorted(message.split(":")[0] for message in told) == ["line 11", "line 14", "line 2", "line 3"], told


def more_than_fit_wait_their_turn():
    fresh()
    write([line(f"{i}", dict(GREEDY, prompt=f"Number {i} is", n=1 + i % 2, temperature=1, seed=i)) for i in range(N_MANY)])
    run("--max-num-seqs", "3")
    rows, _ = answers()
    assert len(rows) == N_MANY and all(row["response"]["status_code"] == 200 for row in rows.values()), rows
    assert all(len(rows[str(i)]["response"]["body"]["choices"]) == 1 + i % 2 for i in range(N_MANY))


def an_ended_run_is_taken_up():
    fresh()
    lines = [line(f"{i}", {"prompt": f"Story {i}:", "max_tokens": 40, "ignore_eos": True, "temperature": 0})
             for i in range(N_MANY)]
    write(lines)
    for how in (signal.SIGINT, signal.SIGKILL):
        before = len(answers()[1]) if os.path.exists(OUT) else 0
        process = subprocess.Popen(command("--max-num-seqs", "4", "--resume"), stderr=subprocess.PIPE, text=True)
        wait_until(lambda: process.poll() is not None or (
            os.path.exists(OUT) and open(OUT, encoding="utf-8").read().count("\n") >= before + 2), 60)
        assert process.poll() is None, process
        process.send_signal(how)
        said = process.communicate(timeout=30 * SLOW)[1]
        if how == signal.SIGINT:
            assert process.returncode == 1 and "--resume goes on" in said, (process.returncode, said)
            rows, _ = answers()
            assert 2 <= len(rows) < N_MANY and all(row["response"]["status_code"] == 200 for row in rows.values()), rows
    with open(OUT, "a", encoding="utf-8") as out:
        out.write('{"id": "batch_req_1", "custom_id": "0", "resp')  # as if it had ended within a write
    assert "--resume" in run(code=1)  # never over what is there
    said = run("--resume")
    assert f"{N_MANY} of {N_MANY} lines (" in said, said
    rows, in_order = answers()
    assert len(in_order) == N_MANY and set(rows) == {str(i) for i in range(N_MANY)}, sorted(rows)
    assert all(row["response"]["body"]["usage"]["completion_tokens"] == 40 for row in rows.values())
    first = open(OUT, "rb").read()
    run("--resume")
    assert open(OUT, "rb").read() == first, "a run with nothing to do changed the output"


def wrong_files_are_told():
    fresh()
    assert "no_such_file" in subprocess.run([KVICK, "run-batch", "smollm2", "-i", "no_such_file", "-o", OUT],
                                            capture_output=True, text=True, timeout=20 * SLOW).stderr
    for arguments in ([], ["smollm2"], ["smollm2", "-i", IN], ["smollm2", "-i", IN, "-o", OUT, "--max-num-seqs", "0"]):
        process = subprocess.run([KVICK, "run-batch", *arguments], capture_output=True, text=True, timeout=20 * SLOW)
        assert process.returncode == 2 and process.stderr.startswith("kvick run-batch: "), process
    write([])
    assert "0 of 0 lines" in run()
    with open(OUT, "w", encoding="utf-8") as out:
        out.write("something else\nand more\n")
    assert "line 1" in run("--resume", code=1)
    assert open(OUT, encoding="utf-8").read() == "something else\nand more\n"


tally = Tally()
for test in (answers_are_the_servers, a_bad_line_hurts_no_other, more_than_fit_wait_their_turn,
             an_ended_run_is_taken_up, wrong_files_are_told):
    tally.attempt(test)
tally.end()
PY
