#!/usr/bin/env bash
# json_schema: answers at temperature 1 follow 200 schemas (tests/schemas/taken.jsonl), as the package jsonschema reads them;
# what cannot be honoured is refused with the keyword's place; what the masks cost.
. "$(dirname "$0")/../support/e2e.sh"
only_e2e
need_model smollm2
need_venv schemas
"$python" - <<'PY'
import collections
import concurrent.futures
import http.client
import json
import threading

import jsonschema

from kvick_server import CHAT, SLOW, KvickServer, Tally

# Source: IMPLEMENTED in llguidance's json/schema.rs, without what is refused.
KEYWORDS = """anyOf oneOf allOf $ref const enum type items additionalItems prefixItems minItems maxItems properties
additionalProperties patternProperties required minProperties maxProperties minLength maxLength pattern format minimum maximum
exclusiveMinimum exclusiveMaximum multipleOf $defs definitions""".split()
N_SEEDS = 3
MAX_TOKENS = 400
BOUNDS = json.load(open("tests/bounds.json", encoding="utf-8"))["entries"]
local = threading.local()


def read(name):
    with open(f"tests/schemas/{name}.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def ask(body):
    """(status, answer), on a connection of the thread's own."""
    if not hasattr(local, "connection"):
        local.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120 * SLOW)
    local.connection.request("POST", CHAT, json.dumps(body))
    reply = local.connection.getresponse()
    return reply.status, json.loads(reply.read())


def wish(schema, **more):
    return {"messages": [{"role": "user", "content": "Give an example, as short as can be."}], "max_tokens": MAX_TOKENS,
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}},
            **more}


def count(schema, counts):
    if not isinstance(schema, dict):
        return
    for key, value in schema.items():
        counts[key] += 1
        if key in ("properties", "patternProperties", "$defs", "definitions"):
            for one in value.values():
                count(one, counts)
        elif key not in ("const", "enum", "required", "default"):
            for one in value if isinstance(value, list) else [value]:
                count(one, counts)


def every_keyword_is_tried():
    counts = collections.Counter()
    schemas = read("taken")
    for schema in schemas:
        count(schema, counts)
    assert len(schemas) >= 200, len(schemas)
    rare = {key: counts[key] for key in KEYWORDS if counts[key] < 5}
    assert not rare, rare


def answers_follow_their_schemas():
    schemas = read("taken")
    jobs = [(i, seed) for seed in range(N_SEEDS) for i in range(len(schemas))]

    def run(job):
        i, seed = job
        return job, ask(wish(schemas[i], temperature=1, seed=seed))
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        results = list(pool.map(run, jobs))
    wrong, cut = [], []
    for (i, seed), (status, answer) in results:
        if status != 200:
            wrong.append((i, seed, schemas[i], answer))
            continue
        choice = answer["choices"][0]
        text = choice["message"]["content"]
        if choice["finish_reason"] == "length":  # no end, and nothing to check
            cut.append((i, seed, text[:80]))
            continue
        checker = jsonschema.validators.validator_for(schemas[i], default=jsonschema.Draft202012Validator)
        try:
            checker(schemas[i], format_checker=checker.FORMAT_CHECKER).validate(json.loads(text))
        except Exception as error:
            wrong.append((i, seed, schemas[i], text, str(error).splitlines()[0]))
    print(f"     {len(jobs)} answers, {len(cut)} without an end, {len(wrong)} wrong", flush=True)
    for one in cut[:10]:
        print(f"     {one}", flush=True)
    assert not wrong, "\n".join(map(str, wrong))
    assert len(cut) <= len(jobs) * BOUNDS["schema_answers_cut"]["value"], "\n".join(map(str, cut))


def what_cannot_be_honoured_is_refused_with_its_place():
    cases = read("refused")
    assert len(cases) >= 30
    wrong = []
    for case in cases:
        status, answer = ask(wish(case["schema"]))
        message = answer.get("error", {}).get("message", "")
        if status != 400 or f" {case['place']}: " not in message:
            wrong.append((case, status, message or answer["choices"][0]["message"]["content"]))
    assert not wrong, "\n".join(map(str, wrong))


def masks_cost_little():
    """Decoding with and without, in turns: the fastest of each, so that what disturbs both does not count."""
    def token_ms(**form):
        answer = server.post(CHAT, {"messages": [{"role": "user", "content": "Tell a story."}], "max_tokens": 200,
                                    "temperature": 0, "ignore_eos": True, "return_phases": True, **form})
        assert answer["usage"]["completion_tokens"] == 200, answer
        return answer["usage"]["kvick"]["decode_ms"] / 199
    free, masked = [], []
    for _ in range(5):
        free.append(token_ms())
        masked.append(token_ms(structured_outputs={"json": {"type": "array", "minItems": 200, "items": {
            "type": "object", "properties": {"name": {"type": "string", "minLength": 2}, "age": {"type": "integer"}},
            "required": ["name", "age"], "additionalProperties": False}}}))
    share = min(masked) / min(free) - 1
    print(f"     {min(free):.3f} ms a token, {min(masked):.3f} under a schema: {share:+.1%}", flush=True)
    assert share <= BOUNDS["schema_mask_share"]["value"], (free, masked)


tally = Tally()
server = KvickServer("--no-access-log", max_len=512)
tally.attempt(every_keyword_is_tried)
tally.attempt(what_cannot_be_honoured_is_refused_with_its_place)
tally.attempt(answers_follow_their_schemas)
if SLOW == 1:
    tally.attempt(masks_cost_little)
tally.attempt(server.ends_well)
tally.end()
PY
