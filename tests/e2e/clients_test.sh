#!/usr/bin/env bash
# clients: the openai and anthropic Python packages as they come from pip, against the server: answers, streams, usage,
# and every refusal as the exception class that their users catch.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

model=${XDG_CACHE_HOME:-$HOME/.cache}/kvick/models/smollm2.gguf
if [ ! -e "$model" ]; then
    echo "smollm2 is not downloaded (scripts/fetch-model smollm2): not tested"
    exit 77
fi
if ! python=$(scripts/venv --find clients); then
    echo "the environment clients is not made (scripts/venv clients): not tested"
    exit 77
fi
KVICK=${KVICK:-build/release/kvick} "$python" - <<'PY'
import sys
import traceback

sys.path.insert(0, "tests/support")
from kvick_server import SLOW, KvickServer
import openai

FRANCE = [{"role": "user", "content": "What is the capital of France?"}]
GREEDY = {"model": "smollm2", "messages": FRANCE, "max_tokens": 16, "temperature": 0}


def raised(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


# ---- openai ----

def openai_chat_whole_and_streamed(o):
    whole = o.chat.completions.create(**GREEDY)
    assert whole.choices[0].message.role == "assistant" and whole.choices[0].message.content, whole
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens, whole
    pieces, usage, reasons = [], None, []
    for chunk in o.chat.completions.create(**GREEDY, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            pieces.append(choice.delta.content or "")
            reasons += [choice.finish_reason] if choice.finish_reason else []
    assert "".join(pieces) == whole.choices[0].message.content and reasons == [whole.choices[0].finish_reason]
    assert (usage.prompt_tokens, usage.completion_tokens) == (whole.usage.prompt_tokens, whole.usage.completion_tokens)
    assert usage.prompt_tokens_details.cached_tokens > 0, usage


def openai_log_probabilities_and_choices(o):
    answer = o.chat.completions.create(**dict(GREEDY, max_tokens=3, logprobs=True, top_logprobs=2, n=2, seed=1))
    assert [choice.index for choice in answer.choices] == [0, 1]
    for choice in answer.choices:
        content = choice.logprobs.content
        assert len(content) == 3 and all(len(one.top_logprobs) == 2 for one in content), content
        assert "".join(bytes(one.bytes).decode() for one in content) == choice.message.content


def openai_completions(o):
    answer = o.completions.create(model="smollm2", prompt=["One, two,", "Red, green,"], max_tokens=4, temperature=0)
    assert [choice.index for choice in answer.choices] == [0, 1] and all(choice.text for choice in answer.choices)
    streamed = ["", ""]
    for chunk in o.completions.create(model="smollm2", prompt=["One, two,", "Red, green,"], max_tokens=4, temperature=0,
                                      stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
    assert streamed == [choice.text for choice in answer.choices], streamed


def openai_models(o):
    assert [model.id for model in o.models.list()] == ["smollm2"]


def openai_errors_have_their_classes(o):
    error = raised(openai.BadRequestError, lambda: o.chat.completions.create(**dict(GREEDY, temperature=5)))
    assert error.param == "temperature" and "temperature" in error.message, error
    error = raised(openai.BadRequestError,
                   lambda: o.completions.create(model="smollm2", prompt=[7] * 300, max_tokens=1, stream=True))
    assert error.code == "context_length_exceeded", error
    assert raised(openai.NotFoundError,
                  lambda: o.chat.completions.create(**dict(GREEDY, model="x"))).code == "model_not_found"
    raised(openai.NotFoundError, lambda: o.images.generate(prompt="x"))
    raised(openai.AuthenticationError, lambda: o.with_options(api_key="wrong").models.list())


n_passed = n_failed = 0
server = KvickServer("--api-key", "secret")
client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="secret", max_retries=0,
                       timeout=60 * SLOW)
tests = [(openai_chat_whole_and_streamed, client), (openai_log_probabilities_and_choices, client),
         (openai_completions, client), (openai_models, client), (openai_errors_have_their_classes, client)]
for test, with_client in tests:
    try:
        test(with_client)
        n_passed += 1
        print(f"ok   {test.__name__}", flush=True)
    except Exception:
        n_failed += 1
        print(f"FAIL {test.__name__}", flush=True)
        traceback.print_exc(file=sys.stdout)
if server.stop() != 0:
    n_failed += 1
    print("FAIL the server's end")
print(f"{n_passed} passed, {n_failed} failed, 0 skipped")
sys.exit(n_failed > 0)
PY
