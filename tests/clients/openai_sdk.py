"""Drives a running llmsrv through the official OpenAI SDK, unmodified.

The server's address comes in LLMSRV_URL. Arguments name the parts to run; without any, all are. The model `caller`
is the built-in one under a template that knows tools.
"""

import asyncio
import json
import os
import sys
from typing import Literal

import openai
from pydantic import BaseModel

MODEL = "default"
URL = os.environ["LLMSRV_URL"] + "/v1"
client = openai.OpenAI(base_url=URL, api_key="unused", max_retries=0)
QUESTION = [{"role": "user", "content": "Write a Python function that reverses a string."}]


def chat():
    answer = client.chat.completions.create(model=MODEL, messages=QUESTION, temperature=0)
    choice = answer.choices[0]
    assert "def reverse_string" in choice.message.content and choice.finish_reason == "stop", answer
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    chunks = list(
        client.chat.completions.create(
            model=MODEL, messages=QUESTION, temperature=0, stream=True, stream_options={"include_usage": True}
        )
    )
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == choice.message.content
    assert chunks[-1].usage.completion_tokens == answer.usage.completion_tokens
    assert chunks[-2].choices[0].finish_reason == "stop"
    with client.chat.completions.stream(model=MODEL, messages=QUESTION, temperature=0) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.content == choice.message.content


def limits():
    answer = client.chat.completions.create(model=MODEL, messages=QUESTION, max_completion_tokens=3, temperature=0)
    assert answer.choices[0].finish_reason == "length" and answer.usage.completion_tokens == 3
    answer = client.chat.completions.create(model=MODEL, messages=QUESTION, stop=["def"], temperature=0)
    assert "def" not in answer.choices[0].message.content
    answer = client.chat.completions.create(
        model=MODEL, messages=QUESTION, logprobs=True, top_logprobs=2, max_tokens=4, temperature=0
    )
    tokens = answer.choices[0].logprobs.content
    assert len(tokens) == 4 and all(len(t.top_logprobs) == 2 and t.logprob <= 0 for t in tokens)


def structured():
    class Answer(BaseModel):
        ok: bool
        kind: Literal["small", "large"]

    parsed = client.chat.completions.parse(model=MODEL, messages=QUESTION, response_format=Answer, max_tokens=500)
    assert isinstance(parsed.choices[0].message.parsed, Answer), parsed
    schema = {"type": "object", "properties": {"ok": {"const": True}}, "required": ["ok"], "additionalProperties": False}
    answer = client.chat.completions.create(
        model=MODEL,
        messages=QUESTION,
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
        max_tokens=200,
    )
    assert json.loads(answer.choices[0].message.content) == {"ok": True}


def tools():
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    tool = {"type": "function", "function": {"name": "weather", "parameters": schema}}
    asked = {"model": "caller", "messages": QUESTION, "tools": [tool], "tool_choice": "required", "max_tokens": 200}
    answer = client.chat.completions.create(**asked, parallel_tool_calls=False)
    (call,) = answer.choices[0].message.tool_calls
    assert answer.choices[0].finish_reason == "tool_calls" and call.function.name == "weather", answer
    assert json.loads(call.function.arguments)["city"] in ("Paris", "Rome")
    chunks = list(client.chat.completions.create(**asked, parallel_tool_calls=False, stream=True))
    pieces = [c.choices[0].delta.tool_calls[0].function for c in chunks if c.choices and c.choices[0].delta.tool_calls]
    assert pieces[0].name == "weather"
    assert json.loads("".join(piece.arguments or "" for piece in pieces))["city"] in ("Paris", "Rome")


def embeddings():
    answer = client.embeddings.create(model=MODEL, input=["What is Rust?", "Tell me a joke"], encoding_format="float")
    one, other = (item.embedding for item in answer.data)
    assert len(one) == len(other) and one != other and answer.usage.prompt_tokens > 0
    # Asked for as base64, which is what the SDK does by itself.
    again = client.embeddings.create(model=MODEL, input="What is Rust?").data[0].embedding
    assert max(abs(a - b) for a, b in zip(one, again, strict=True)) < 1e-6


def completions():
    answer = client.completions.create(model=MODEL, prompt="Hello!", temperature=0)
    assert answer.object == "text_completion" and answer.choices[0].text
    chunks = list(client.completions.create(model=MODEL, prompt="Hello!", temperature=0, stream=True))
    assert "".join(c.choices[0].text for c in chunks) == answer.choices[0].text
    assert chunks[-1].choices[0].finish_reason == "stop"


def models():
    ids = [model.id for model in client.models.list()]
    assert "default:latest" in ids, ids
    assert client.models.retrieve(ids[0]).id == ids[0]


def responses():
    answer = client.responses.create(model=MODEL, input="Hello!", temperature=0)
    assert "built-in model" in answer.output_text and answer.status == "completed", answer
    assert answer.usage.total_tokens > 0
    text = ""
    with client.responses.stream(model=MODEL, input="Hello!", temperature=0) as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                text += event.delta
        assert stream.get_final_response().output_text == text == answer.output_text


def errors():
    for call, kind in (
        (lambda: client.chat.completions.create(model="no-such-model", messages=QUESTION), openai.NotFoundError),
        (lambda: client.chat.completions.create(model=MODEL, messages=[]), openai.BadRequestError),
        (lambda: client.completions.create(model=MODEL, prompt=["a", "b"]), openai.BadRequestError),
        (lambda: client.models.retrieve("no-such-model"), openai.NotFoundError),
        (lambda: client.responses.create(model="bad name!", input="x"), openai.BadRequestError),
        (lambda: list(client.chat.completions.create(model="none", messages=QUESTION, stream=True)), openai.NotFoundError),
    ):
        try:
            call()
        except kind as error:
            assert error.body["message"], error
        else:
            raise AssertionError(f"{kind} was expected")


def concurrent():
    async def ask():
        async with openai.AsyncOpenAI(base_url=URL, api_key="unused") as many:
            one = lambda: many.chat.completions.create(model=MODEL, messages=QUESTION, temperature=0)
            return await asyncio.gather(*(one() for _ in range(6)))

    assert len({answer.choices[0].message.content for answer in asyncio.run(ask())}) == 1


for part in (chat, limits, structured, tools, embeddings, completions, models, responses, errors, concurrent):
    if not sys.argv[1:] or part.__name__ in sys.argv[1:]:
        part()
        print("ok", part.__name__)
