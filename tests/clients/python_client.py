"""Drives a running llmsrv through the official Python client of the native API, unmodified.

The server's address comes in OLLAMA_HOST, as for any user of that client. Arguments name the parts to run; without
any, all are.
"""

import asyncio
import sys

import ollama
from pydantic import BaseModel

MODEL = "default"
GREEDY = {"temperature": 0}


def generate():
    whole = ollama.generate(MODEL, "Write a Python function that reverses a string.", options=GREEDY)
    assert "def reverse_string" in whole.response, whole
    assert whole.done and whole.done_reason == "stop"
    assert whole.eval_count > 0 and whole.total_duration > 0 and whole.context
    pieces = list(ollama.generate(MODEL, "Write a Python function that reverses a string.", options=GREEDY, stream=True))
    assert "".join(piece.response for piece in pieces) == whole.response
    assert [piece.done for piece in pieces] == [False] * (len(pieces) - 1) + [True]


def chat():
    messages = [{"role": "user", "content": "Hello!"}]
    for question in ("What is Rust?", "Tell me a joke"):
        answer = ollama.chat(MODEL, messages, options=GREEDY)
        assert answer.message.role == "assistant" and answer.message.content
        messages += [answer.message, {"role": "user", "content": question}]
    pieces = list(ollama.chat(MODEL, messages[:1], stream=True, options=GREEDY))
    assert "built-in model" in "".join(piece.message.content for piece in pieces)
    assert pieces[-1].done


def structured():
    class Answer(BaseModel):
        name: str
        year: int

    answer = ollama.chat(
        MODEL,
        [{"role": "user", "content": "Who wrote the first compiler, and when?"}],
        format=Answer.model_json_schema(),
        options={"temperature": 1, "seed": 7, "num_predict": 400},
    )
    if answer.done_reason == "stop":
        Answer.model_validate_json(answer.message.content)


def embeddings():
    one = ollama.embed(MODEL, "What is Rust?")
    both = ollama.embed(MODEL, ["What is Rust?", "Tell me a joke"])
    assert both.embeddings[0] == one.embeddings[0] != both.embeddings[1]
    assert abs(sum(x * x for x in one.embeddings[0]) - 1) < 1e-3 and one.prompt_eval_count > 0


def library():
    names = [model.model for model in ollama.list().models]
    assert "default:latest" in names, names
    shown = ollama.show(MODEL)
    assert shown.details.family and shown.modelinfo["general.architecture"] and "completion" in shown.capabilities
    ollama.copy(MODEL, "py-copy")
    assert any(model.model == "py-copy:latest" for model in ollama.list().models)
    assert ollama.delete("py-copy").status == "success"
    ollama.generate(MODEL, keep_alive="1m")
    assert len(ollama.ps().models) == 1


def errors():
    for call in (
        lambda: ollama.generate("no-such-model", "x"),
        lambda: ollama.show("no-such-model"),
        lambda: list(ollama.chat("no-such-model", [{"role": "user", "content": "x"}], stream=True)),
        lambda: ollama.generate("bad name!", "x"),
    ):
        try:
            call()
        except ollama.ResponseError as error:
            assert error.status_code in (400, 404) and error.error, error
        else:
            raise AssertionError("an error was expected")


def concurrent():
    async def ask():
        client = ollama.AsyncClient()
        return await asyncio.gather(*(client.generate(MODEL, "Hello!", options=GREEDY) for _ in range(6)))

    assert len({answer.response for answer in asyncio.run(ask())}) == 1


for part in (generate, chat, structured, embeddings, library, errors, concurrent):
    if not sys.argv[1:] or part.__name__ in sys.argv[1:]:
        part()
        print("ok", part.__name__)
