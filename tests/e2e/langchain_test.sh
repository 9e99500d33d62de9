#!/usr/bin/env bash
# langchain: the package langchain-openai as it comes from pip: answers, streams, batches, structured output, tool calls,
# vectors.
. "$(dirname "$0")/../support/e2e.sh"
only_e2e
need_model smollm2
need_venv langchain
"$python" - <<'PY'
from kvick_server import SLOW, KvickServer, Tally, chat, text_of
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel, Field

FRANCE = "What is the capital of France?"


class Person(BaseModel):
    """A person."""
    name: str = Field(max_length=10)
    age: int = Field(ge=0, le=120)


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"Sunny in {city}"


def model(server, **more):
    return ChatOpenAI(model="smollm2", base_url=f"http://127.0.0.1:{server.port}/v1", api_key="secret", max_retries=0,
                      timeout=60 * SLOW, **dict({"temperature": 0, "max_tokens": 16}, **more))


def answers_and_streams_are_equal(server):
    whole = model(server).invoke(FRANCE)
    own = server.post("/v1/chat/completions", chat(FRANCE), headers={"Authorization": "Bearer secret"})
    assert whole.content == text_of(own), (whole, own)
    assert whole.usage_metadata["output_tokens"] == own["usage"]["completion_tokens"], whole
    pieces = list(model(server, stream_usage=True).stream(FRANCE))
    assert len(pieces) > 3 and "".join(piece.content for piece in pieces) == whole.content, pieces
    assert sum(piece.usage_metadata["output_tokens"] for piece in pieces if piece.usage_metadata) == own["usage"]["completion_tokens"]


def batches_keep_their_order(server):
    questions = [f"What is {i} plus {i}?" for i in range(6)]
    alone = [model(server).invoke(question).content for question in questions]
    assert [answer.content for answer in model(server).batch(questions)] == alone


def conversations_have_roles(server):
    turns = [SystemMessage("Be brief."), HumanMessage(FRANCE), AIMessage("Paris."), HumanMessage("And of Spain?")]
    answer = model(server, stop=["\n"]).invoke(turns)
    assert answer.content and answer.response_metadata["finish_reason"] in ("stop", "length"), answer


def output_is_structured(server):
    for seed in range(3):
        person = model(server, temperature=1, seed=seed, max_tokens=100).with_structured_output(
            Person, method="json_schema").invoke("Invent a person.")
        assert isinstance(person, Person) and 0 <= person.age <= 120, person


def tools_are_called(server):
    with_tools = model(server, max_tokens=60).bind_tools([weather], tool_choice="weather")
    asked = HumanMessage("What is the weather in Rome?")
    answer = with_tools.invoke([asked])
    assert [call["name"] for call in answer.tool_calls] == ["weather"] and isinstance(
        answer.tool_calls[0]["args"]["city"], str), answer
    pieces = None
    for piece in with_tools.stream([asked]):
        pieces = piece if pieces is None else pieces + piece
    assert [call["args"] for call in pieces.tool_calls] == [call["args"] for call in answer.tool_calls], pieces
    result = ToolMessage(weather.invoke(answer.tool_calls[0]["args"]), tool_call_id=answer.tool_calls[0]["id"])
    assert model(server).invoke([asked, answer, result]).content is not None


def vectors_are_near_where_texts_are(server):
    embeddings = OpenAIEmbeddings(model="smollm2", base_url=f"http://127.0.0.1:{server.port}/v1", api_key="secret",
                                  check_embedding_ctx_length=False, max_retries=0)
    cat, cats, rates = embeddings.embed_documents(["The cat sat on the mat.", "A cat is sitting on a mat.",
                                                   "Interest rates rose by two points."])
    def near(a, b):
        return sum(x * y for x, y in zip(a, b))
    assert near(cat, cats) > near(cat, rates) and near(embeddings.embed_query("The cat sat on the mat."), cat) > 0.9999


tally = Tally()
server = KvickServer("--api-key", "secret", "--no-access-log")
for test in (answers_and_streams_are_equal, batches_keep_their_order, conversations_have_roles, output_is_structured,
             tools_are_called, vectors_are_near_where_texts_are):
    tally.attempt(test, server)
tally.attempt(server.ends_well)
tally.end()
PY
