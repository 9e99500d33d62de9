#!/usr/bin/env bash
# lm_eval: the package lm-eval measures the server with tasks of our own (tests/lm_eval): choices by the log-probabilities of
# prompts, texts by stops. What it finds is what the server's own answers say.
. "$(dirname "$0")/../support/e2e.sh"
only_e2e
need_model smollm2
need_venv lm-eval
# Nothing may be fetched, and what it keeps must not be an earlier run's.
export HF_DATASETS_OFFLINE=1 HF_HUB_OFFLINE=1 HF_HOME=$folder/hf PYTHONWARNINGS=ignore
"$python" - <<'PY'
import json

import lm_eval
from kvick_server import TEXT, KvickServer, Tally
from lm_eval.tasks import TaskManager

with open("tests/lm_eval/capitals.jsonl", encoding="utf-8") as file:
    DOCS = [json.loads(line) for line in file]


def evaluate(server, task):
    found = lm_eval.simple_evaluate(
        model="local-completions", tasks=[task], log_samples=True, bootstrap_iters=0,
        task_manager=TaskManager(include_path="tests/lm_eval", include_defaults=False),
        model_args={"model": "smollm2", "base_url": f"http://127.0.0.1:{server.port}/v1/completions", "num_concurrent": 4,
                    "tokenizer_backend": "remote", "max_length": 256, "max_retries": 1})
    return found["results"][task], sorted(found["samples"][task], key=lambda sample: sample["doc_id"])


def choices_are_weighed(server):
    result, samples = evaluate(server, "capitals_choice")
    assert len(samples) == len(DOCS) and result["acc,none"] >= 0.75, result
    for doc, sample in zip(DOCS, samples):
        for choice, ((logprob, _),) in zip(doc["choices"], sample["resps"]):
            answer = server.post(TEXT, {"prompt": f"The capital of {doc['country']} is {choice}", "max_tokens": 0,
                                        "echo": True, "logprobs": 1})["choices"][0]["logprobs"]
            context = server.post("/tokenize", {"prompt": f"The capital of {doc['country']} is"})["count"]
            assert abs(sum(answer["token_logprobs"][context:]) - float(logprob)) < 1e-3, (doc, choice, logprob)


def texts_are_written(server):
    result, samples = evaluate(server, "capitals_text")
    assert len(samples) == len(DOCS) and result["exact_match,first_word"] >= 0.5, result
    for doc, sample in zip(DOCS, samples):
        answer = server.post(TEXT, {"prompt": f"The capital of {doc['country']} is", "max_tokens": 12, "temperature": 0,
                                    "stop": ["\n", ".", ","]})["choices"][0]["text"]
        assert sample["resps"][0][0] == answer, (sample["resps"], answer)


tally = Tally()
server = KvickServer("--no-access-log")
for test in (choices_are_weighed, texts_are_written):
    tally.attempt(test, server)
tally.attempt(server.ends_well)
tally.end()
PY
