#!/usr/bin/env bash
# clients: the openai and anthropic Python packages as they come from pip, against the server: answers, streams, usage,
# and every refusal as the exception class that their users catch.
. "$(dirname "$0")/../support/e2e.sh"
need_model smollm2
need_venv clients
"$python" - <<'PY'
import json

from kvick_server import SLOW, KvickServer, Tally
import anthropic
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


def openai_embeddings(o):
    texts = ["The cat sat on the mat.", "A cat is sitting on a mat.", "Interest rates rose by two points."]
    answer = o.embeddings.create(model="smollm2", input=texts, encoding_format="float")
    vectors = [one.embedding for one in answer.data]
    assert [one.index for one in answer.data] == [0, 1, 2] and all(len(v) == 576 for v in vectors)
    assert all(abs(sum(x * x for x in v) - 1) < 1e-5 for v in vectors)
    dot = [sum(x * y for x, y in zip(vectors[0], vectors[i])) for i in (1, 2)]
    assert dot[0] > dot[1], dot
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 10, answer.usage
    packed = o.embeddings.create(model="smollm2", input=texts[2]).data[0].embedding  # the client asks for base64
    assert max(abs(x - y) for x, y in zip(packed, vectors[2], strict=True)) < 1e-8
    assert o.embeddings.create(model="smollm2", input=[[1, 2, 3], [4]]).usage.prompt_tokens == 4
    for wrong in ({"input": []}, {"input": ""}, {"input": "x", "dimensions": 5}, {"input": [[7] * 300]},
                  {"input": "x", "encoding_format": "int8"}):
        raised(openai.BadRequestError, lambda: o.embeddings.create(model="smollm2", **wrong))


# ---- openai's responses ----

RESPONSE = {"model": "smollm2", "input": "What is the capital of France?", "max_output_tokens": 16, "temperature": 0}
TOOL = {"type": "function", "name": "weather", "strict": True, "description": "The weather in a city", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"],
    "additionalProperties": False}}


def events_of(stream):
    """The events of a stream, which are numbered, and their last response."""
    events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events))), events
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"], events[:2]
    assert events[0].response.status == "in_progress" and events[0].response.output == [], events[0]
    return events, events[-1].response


def openai_response_whole_and_streamed(o):
    whole = o.responses.create(**RESPONSE)
    assert whole.object == "response" and whole.store is False and whole.error is None, whole
    (message,) = whole.output
    assert message.type == "message" and message.role == "assistant" and whole.output_text, whole
    assert whole.status == message.status and whole.status in ("completed", "incomplete"), whole
    usage = whole.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens and usage.output_tokens <= 16, usage
    events, last = events_of(o.responses.create(**RESPONSE, stream=True))
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    assert "".join(event.delta for event in deltas) == whole.output_text == last.output_text, events
    assert last.usage.output_tokens == usage.output_tokens and last.usage.input_tokens_details.cached_tokens > 0, last
    assert events[-1].type == "response." + whole.status and last.status == whole.status, events[-1]
    types = [event.type for event in events if event not in deltas]
    assert types[2:-1] == ["response.output_item.added", "response.content_part.added", "response.output_text.done",
                           "response.content_part.done", "response.output_item.done"], types
    assert {event.item_id for event in deltas} == {last.output[0].id}, events
    short = dict(RESPONSE, extra_body={"structured_outputs": {"choice": ["Yes, Paris."]}})
    with o.responses.stream(**short) as stream:  # the client's own assembly
        stream.until_done()
        assert stream.get_final_response().output_text == "Yes, Paris.", stream
    long = dict(RESPONSE, user="u" * 700_000, max_output_tokens=1)  # a stream repeats it in three events
    assert events_of(o.responses.create(**long, stream=True))[1].user == long["user"]
    cut = o.responses.create(**dict(RESPONSE, max_output_tokens=2))
    assert cut.status == "incomplete" and cut.incomplete_details.reason == "max_output_tokens", cut
    assert cut.output[0].status == "incomplete" and cut.usage.output_tokens == 2, cut


def openai_response_input_forms(o):
    def n_input(**more):
        return o.responses.create(**dict(RESPONSE, max_output_tokens=1, **more)).usage.input_tokens
    plain = n_input()
    item = {"role": "user", "content": RESPONSE["input"]}
    parts = [{"type": "input_text", "text": "What is the capital"}, {"type": "input_text", "text": " of France?"}]
    assert n_input(input=[item]) == n_input(input=[dict(item, type="message", content=parts)]) == plain
    chat = o.chat.completions.create(**dict(GREEDY, max_tokens=1)).usage.prompt_tokens
    assert plain == chat, (plain, chat)
    brief = n_input(instructions="Be brief.")
    for role in ("system", "developer"):
        assert n_input(input=[{"role": role, "content": "Be brief."}, item]) == brief
    first = o.responses.create(**RESPONSE)
    turns = [item, *[one.model_dump(exclude_none=True) for one in first.output], {"role": "user", "content": "And Spain?"}]
    again = o.responses.create(**dict(RESPONSE, input=turns))
    as_chat = o.chat.completions.create(**dict(GREEDY, messages=FRANCE + [
        {"role": "assistant", "content": first.output_text}, {"role": "user", "content": "And Spain?"}]))
    assert again.output_text == as_chat.choices[0].message.content, (again, as_chat)
    assert o.responses.create(**RESPONSE, metadata={"a": "b"}, instructions="Be brief.").metadata == {"a": "b"}


def openai_response_tools_and_forms(o):
    asked = dict(RESPONSE, input="Weather in Rome?", tools=[TOOL], max_output_tokens=60)
    for choice in ("required", {"type": "function", "name": "weather"}):
        whole = o.responses.create(**asked, tool_choice=choice)
        (call,) = whole.output
        assert call.type == "function_call" and call.name == "weather" and call.call_id, whole
        assert json.loads(call.arguments)["city"] in ("Paris", "Rome") and whole.status == "completed", whole
        assert whole.tools[0].name == "weather", whole.tools
        events, last = events_of(o.responses.create(**asked, tool_choice=choice, stream=True))
        pieces = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
        (done,) = [event for event in events if event.type == "response.function_call_arguments.done"]
        assert "".join(pieces) == done.arguments == call.arguments == last.output[0].arguments, events
    given = [{"role": "user", "content": "Weather in Rome?"},
             call.model_dump(include={"type", "call_id", "name", "arguments"}),
             {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny, 21 degrees"}]
    assert o.responses.create(**dict(RESPONSE, input=given, tools=[TOOL])).output_text
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
    form = {"format": {"type": "json_schema", "name": "x", "strict": True, "schema": schema}}
    answer = o.responses.create(**dict(RESPONSE, text=form, max_output_tokens=40))
    assert set(json.loads(answer.output_text)) == {"ok"} and answer.text.format.name == "x", answer
    chosen = o.responses.create(**RESPONSE, extra_body={"structured_outputs": {"choice": ["yes"]}})
    assert chosen.output_text == "yes", chosen
    logprobs = o.responses.create(**dict(RESPONSE, max_output_tokens=3), include=["message.output_text.logprobs"],
                                  top_logprobs=2).output[0].content[0].logprobs
    assert len(logprobs) == 3 and all(len(one.top_logprobs) == 2 and one.logprob <= 0 for one in logprobs), logprobs


def openai_response_refusals(o):
    for wrong in ({"previous_response_id": "resp_1"}, {"conversation": "c"}, {"store": True}, {"background": True},
                  {"truncation": "auto"}, {"include": ["file_search_call.results"]}, {"tools": [{"type": "web_search"}]},
                  {"input": []}, {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
                  {"input": [{"type": "item_reference", "id": "x"}]}, {"input": [{"role": "robot", "content": "x"}]},
                  {"max_output_tokens": 0}, {"temperature": 5}, {"input": "word " * 400}, {"tool_choice": "required"},
                  {"text": {"format": {"type": "xml"}}}, {"prompt": {"id": "x"}},
                  {"extra_body": {"return_progress": True}, "stream": True}):
        error = raised(openai.BadRequestError, lambda: o.responses.create(**dict(RESPONSE, **wrong)))
        assert error.param and error.message, (wrong, error)
    raised(openai.BadRequestError, lambda: list(o.responses.create(**dict(RESPONSE, input="word " * 400), stream=True)))
    raised(openai.NotFoundError, lambda: o.responses.create(**dict(RESPONSE, model="x")))
    raised(openai.NotFoundError, lambda: o.responses.retrieve("resp_1"))  # nothing is stored
    o.responses.create(**RESPONSE, store=False, include=["reasoning.encrypted_content"], reasoning={"effort": "low"},
                       parallel_tool_calls=False, user="u", metadata=None, service_tier="flex")


def openai_progress_breaks_nothing(o):
    body = dict(GREEDY, stream=True, extra_body={"return_progress": True, "return_phases": True, "cache_salt": "p"})
    chunks = list(o.chat.completions.create(**body))
    told = [chunk.prompt_progress for chunk in chunks if getattr(chunk, "prompt_progress", None)]
    assert told and told[-1]["processed"] == told[-1]["total"], chunks
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == o.chat.completions.create(**GREEDY).choices[0].message.content
    assert chunks[-1].usage.kvick["ttft_ms"] > 0, chunks[-1]


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


# ---- anthropic ----

# This client has no argument for the temperature any more; those before it had one.
CLAUDE = {"model": "smollm2", "max_tokens": 16, "messages": FRANCE, "extra_body": {"temperature": 0}}


def anthropic_whole_and_streamed(a):
    whole = a.messages.create(**CLAUDE)
    assert whole.role == "assistant" and [block.type for block in whole.content] == ["text"], whole
    assert whole.stop_reason in ("end_turn", "max_tokens") and whole.stop_sequence is None, whole
    with a.messages.stream(**CLAUDE) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text and final.stop_reason == whole.stop_reason, final
    assert final.usage.cache_read_input_tokens > 0 and final.usage.output_tokens == whole.usage.output_tokens, final
    assert sum((final.usage.input_tokens, final.usage.cache_read_input_tokens)) == sum(
        (whole.usage.input_tokens, whole.usage.cache_read_input_tokens)), (final, whole)


def anthropic_limits_and_stops(a):
    slow = dict(CLAUDE, extra_body={"temperature": 0, "return_progress": True, "cache_salt": "p"})
    with a.messages.stream(**slow) as stream:
        assert "".join(stream.text_stream) == a.messages.create(**CLAUDE).content[0].text
    assert a.messages.create(**dict(CLAUDE, max_tokens=2)).stop_reason == "max_tokens"
    whole = a.messages.create(**CLAUDE).content[0].text
    stopped = a.messages.create(**CLAUDE, stop_sequences=[whole[5:9]])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", whole[5:9]), stopped
    assert stopped.content[0].text == whole[:whole.find(whole[5:9])], stopped


def anthropic_forms_of_a_conversation(a):
    def count(**more):
        return a.messages.count_tokens(**dict({"model": "smollm2", "messages": FRANCE}, **more)).input_tokens
    usage = a.messages.create(**CLAUDE, system="Be brief.").usage
    assert count(system="Be brief.") == usage.input_tokens + usage.cache_read_input_tokens
    assert count(system=[{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]) == count(system="Be brief.")
    parts = [{"type": "text", "text": "What is the capital"}, {"type": "text", "text": " of France?"}]
    assert count(messages=[{"role": "user", "content": parts}]) == count()
    turns = FRANCE + [{"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""},
                                                        {"type": "text", "text": "Paris."}]},
                      {"role": "user", "content": "And of Spain?"}]
    assert count(messages=turns) > count()


def anthropic_tools(a):
    tools = [{"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}},
                                                  "required": ["city"], "additionalProperties": False}}]
    asked = dict(CLAUDE, max_tokens=60, tools=tools, tool_choice={"type": "any"})
    whole = a.messages.create(**asked)
    assert whole.stop_reason == "tool_use" and [block.type for block in whole.content] == ["tool_use"], whole
    assert whole.content[0].name == "weather" and whole.content[0].input["city"] in ("Paris", "Rome"), whole
    with a.messages.stream(**asked) as stream:
        final = stream.get_final_message()
    assert final.content[0].input == whole.content[0].input and final.stop_reason == "tool_use", final
    turns = FRANCE + [{"role": "assistant", "content": [whole.content[0].model_dump(include={"type", "id", "name", "input"})]},
                      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": whole.content[0].id,
                                                    "content": "Sunny"}]}]
    assert a.messages.create(**dict(CLAUDE, messages=turns)).usage.output_tokens > 0


def anthropic_errors_have_their_classes(a):
    for wrong in ({"max_tokens": 0}, {"extra_body": {"temperature": 5}}, {"messages": []}, {"stop_sequences": [""]},
                  {"messages": FRANCE + [{"role": "assistant", "content": "Par"}]}, {"tools": [{"name": "x"}]},
                  {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
                  {"messages": [{"role": "user", "content": "word " * 400}]}):
        error = raised(anthropic.BadRequestError, lambda: a.messages.create(**dict(CLAUDE, **wrong)))
        assert error.body["error"]["type"] == "invalid_request_error", error
    raised(anthropic.NotFoundError, lambda: a.messages.create(**dict(CLAUDE, model="x")))
    raised(anthropic.AuthenticationError, lambda: a.with_options(api_key="wrong").messages.create(**CLAUDE))


tally = Tally()
server = KvickServer("--api-key", "secret")
client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="secret", max_retries=0,
                       timeout=60 * SLOW)
claude = anthropic.Anthropic(base_url=f"http://127.0.0.1:{server.port}", api_key="secret", max_retries=0,
                             timeout=60 * SLOW)
tests = [(openai_chat_whole_and_streamed, client), (openai_log_probabilities_and_choices, client),
         (openai_completions, client), (openai_embeddings, client), (openai_models, client),
         (openai_response_whole_and_streamed, client), (openai_response_input_forms, client),
         (openai_response_tools_and_forms, client), (openai_response_refusals, client),
         (openai_progress_breaks_nothing, client), (openai_errors_have_their_classes, client),
         (anthropic_whole_and_streamed, claude), (anthropic_limits_and_stops, claude),
         (anthropic_forms_of_a_conversation, claude), (anthropic_tools, claude), (anthropic_errors_have_their_classes, claude)]
for test, with_client in tests:
    tally.attempt(test, with_client)
tally.attempt(server.ends_well)
tally.end()
PY
