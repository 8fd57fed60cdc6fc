"""Drives a running llmsrv through the official Anthropic SDK, unmodified.

The server's address comes in LLMSRV_URL. Arguments name the parts to run; without any, all are. The model `caller`
is the built-in one under a template that knows tools.
"""

import os
import sys

import anthropic

MODEL = "default"
client = anthropic.Anthropic(base_url=os.environ["LLMSRV_URL"], api_key="unused", max_retries=0)
GREEDY = {"temperature": 0}
HELLO = [{"role": "user", "content": "Hello!"}]


def message():
    answer = client.messages.create(model=MODEL, max_tokens=200, messages=HELLO, extra_body=GREEDY)
    assert answer.type == "message" and answer.role == "assistant" and answer.stop_reason == "end_turn", answer
    assert "built-in model" in answer.content[0].text
    assert answer.usage.input_tokens > 0 and answer.usage.output_tokens > 0
    return answer


def stream():
    whole = client.messages.create(model=MODEL, max_tokens=200, messages=HELLO, extra_body=GREEDY)
    with client.messages.stream(model=MODEL, max_tokens=200, messages=HELLO, extra_body=GREEDY) as events:
        text = "".join(events.text_stream)
        last = events.get_final_message()
    assert text == whole.content[0].text == last.content[0].text
    assert last.stop_reason == "end_turn" and last.usage.output_tokens == whole.usage.output_tokens


def limits():
    answer = client.messages.create(model=MODEL, max_tokens=2, messages=HELLO, extra_body=GREEDY)
    assert answer.stop_reason == "max_tokens" and answer.usage.output_tokens == 2
    answer = client.messages.create(
        model=MODEL, max_tokens=200, messages=HELLO, extra_body=GREEDY, stop_sequences=["model"]
    )
    assert answer.stop_reason == "stop_sequence" and answer.stop_sequence == "model", answer


def count():
    counted = client.messages.count_tokens(model=MODEL, messages=HELLO).input_tokens
    assert counted == message().usage.input_tokens


def conversation():
    answer = client.messages.create(
        model=MODEL,
        max_tokens=50,
        system=[{"type": "text", "text": "Be brief."}],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "Hello!"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "Hi."}]},
            {"role": "user", "content": "Tell me a joke"},
        ],
    )
    assert answer.content == [] or answer.content[0].type == "text"


def tools():
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    answer = client.messages.create(
        model="caller",
        max_tokens=200,
        messages=HELLO,
        tools=[{"name": "weather", "input_schema": schema}],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
    )
    (call,) = answer.content
    assert answer.stop_reason == "tool_use" and call.type == "tool_use" and call.name == "weather", answer
    assert call.input["city"] in ("Paris", "Rome")


def errors():
    for call, kind in (
        (lambda: client.messages.create(model="no-such-model", max_tokens=1, messages=HELLO), anthropic.NotFoundError),
        (lambda: client.messages.create(model=MODEL, max_tokens=0, messages=HELLO), anthropic.BadRequestError),
        (lambda: client.messages.create(model=MODEL, max_tokens=1, messages=[]), anthropic.BadRequestError),
    ):
        try:
            call()
        except kind as error:
            assert error.body["error"]["message"] and error.body["request_id"].startswith("req_"), error
        else:
            raise AssertionError(f"{kind} was expected")


for part in (message, stream, limits, count, conversation, tools, errors):
    if not sys.argv[1:] or part.__name__ in sys.argv[1:]:
        part()
        print("ok", part.__name__)
