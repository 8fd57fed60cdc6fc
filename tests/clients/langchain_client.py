"""Drives a running llmsrv through LangChain's Ollama integration, unmodified.

The server's address comes in LLMSRV_URL.
"""

import asyncio
import os

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_ollama import ChatOllama, OllamaLLM

URL = os.environ["LLMSRV_URL"]
chat = ChatOllama(model="default", base_url=URL, temperature=0)


def invoke():
    answer = chat.invoke([SystemMessage("Be brief."), HumanMessage("Hello!")])
    assert answer.content and answer.usage_metadata["output_tokens"] > 0, answer


def stream():
    whole = chat.invoke("Write a Python function that reverses a string.")
    pieces = list(chat.stream("Write a Python function that reverses a string."))
    assert len(pieces) > 2 and "".join(piece.content for piece in pieces) == whole.content
    assert "def reverse_string" in whole.content


def structured():
    schema = {
        "title": "Answer",
        "type": "object",
        "properties": {"ok": {"const": True}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    assert chat.with_structured_output(schema, method="json_schema").invoke("Hello!") == {"ok": True}


def completion():
    assert OllamaLLM(model="default", base_url=URL, temperature=0).invoke("Hello!")


async def batch():
    answers = await chat.abatch(["Hello!"] * 4)
    assert len({answer.content for answer in answers}) == 1


for part in (invoke, stream, structured, completion):
    part()
    print("ok", part.__name__)
asyncio.run(batch())
print("ok batch")
