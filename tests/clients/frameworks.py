"""Drives a running llmsrv through frameworks of Python, unmodified: each has a structured answer of the
built-in model and a round of a tool with the model `script`, of which script.py says what it does.

The server's address comes in LLMSRV_URL; the argument is the framework.
"""

import asyncio
import json
import os
import sys
from typing import Literal

os.environ |= {
    # Nothing is asked of anybody but the server.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_TELEMETRY": "False",
    "ANONYMIZED_TELEMETRY": "False",
    "OPENAI_API_KEY": "unused",
}
from pydantic import BaseModel

URL = os.environ["LLMSRV_URL"]
V1 = URL + "/v1"


class Answer(BaseModel):
    ok: bool
    kind: Literal["small", "large"]


QUESTION = [{"role": "user", "content": "Is an ant small or large?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def weather(city: str) -> str:
    """The weather of a city."""
    return f"It rains in {city}."


def use_litellm():
    import litellm

    litellm.telemetry = False
    ways = (
        ("ollama_chat/", {"api_base": URL}),
        ("openai/", {"api_base": V1, "api_key": "unused"}),
        ("anthropic/", {"api_base": URL, "api_key": "unused"}),
    )
    for prefix, way in ways:
        if prefix != "anthropic/":
            answer = litellm.completion(
                prefix + "default", messages=QUESTION, response_format=Answer, max_tokens=500, **way
            )
            Answer.model_validate_json(answer.choices[0].message.content)
        messages = [*QUESTION]
        asked = litellm.completion(prefix + "script", messages=messages, tools=[WEATHER], max_tokens=500, **way)
        message = asked.choices[0].message
        assert asked.choices[0].finish_reason == "tool_calls" and not message.content, asked
        (call,) = message.tool_calls
        result = weather(**json.loads(call.function.arguments))
        messages += [message, {"role": "tool", "tool_call_id": call.id, "name": "weather", "content": result}]
        told = litellm.completion(prefix + "script", messages=messages, tools=[WEATHER], max_tokens=500, **way)
        assert told.choices[0].message.content == "The tool said: It rains in Paris.", told
        pieces = litellm.completion(prefix + "default", messages=QUESTION, max_tokens=20, stream=True, **way)
        assert "".join(piece.choices[0].delta.content or "" for piece in pieces)


def use_llama_index():
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool
    from llama_index.llms.ollama import Ollama
    from llama_index.llms.openai_like import OpenAILike

    def native(model):
        return Ollama(model=model, base_url=URL, request_timeout=60, context_window=2000)

    def openai(model):
        return OpenAILike(
            model=model, api_base=V1, api_key="unused", is_chat_model=True, is_function_calling_model=True
        )

    tool = FunctionTool.from_defaults(weather)
    answer = native("default").as_structured_llm(Answer).complete("Is an ant small or large?")
    assert isinstance(answer.raw, Answer), answer
    for make in (native, openai):
        llm = make("script")
        history = [ChatMessage(role="user", content="Is an ant small or large?")]
        asked = llm.chat_with_tools([tool], chat_history=history)
        (call,) = llm.get_tool_calls_from_response(asked)
        result = tool(**call.tool_kwargs).content
        kwargs = {"tool_call_id": call.tool_id, "name": "weather"}
        history += [asked.message, ChatMessage(role="tool", content=result, additional_kwargs=kwargs)]
        told = llm.chat_with_tools([tool], chat_history=history)
        assert told.message.content == "The tool said: It rains in Paris.", told


def use_instructor():
    import anthropic
    import instructor
    import openai

    plain = openai.OpenAI(base_url=V1, api_key="unused", max_retries=0)
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        client = instructor.from_openai(plain, mode=mode)
        model = "caller" if mode == instructor.Mode.TOOLS else "default"
        answer = client.chat.completions.create(
            model=model, messages=QUESTION, response_model=Answer, max_tokens=500, max_retries=0
        )
        assert isinstance(answer, Answer), answer
    claude = anthropic.Anthropic(base_url=URL, api_key="unused", max_retries=0)
    client = instructor.from_anthropic(claude, mode=instructor.Mode.ANTHROPIC_TOOLS)
    answer = client.messages.create(
        model="caller", messages=QUESTION, response_model=Answer, max_tokens=500, max_retries=0
    )
    assert isinstance(answer, Answer), answer


def use_pydantic_ai():
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.ollama import OllamaProvider
    from pydantic_ai.providers.openai import OpenAIProvider

    openai = OpenAIProvider(base_url=V1, api_key="unused")
    ways = (
        lambda name: OpenAIChatModel(name, provider=OllamaProvider(base_url=V1)),
        lambda name: OpenAIChatModel(name, provider=openai),
        lambda name: OpenAIResponsesModel(name, provider=openai),
        lambda name: AnthropicModel(name, provider=AnthropicProvider(base_url=URL, api_key="unused")),
    )
    limit = {"max_tokens": 500}
    for make in ways[:3]:
        agent = Agent(make("default"), output_type=NativeOutput(Answer), model_settings=limit, retries=0)
        assert isinstance(agent.run_sync("Is an ant small or large?").output, Answer)
    for make in ways:
        agent = Agent(make("script"), tools=[weather], model_settings=limit, retries=0)
        told = agent.run_sync("What is the weather in Paris?").output
        assert told == "The tool said: It rains in Paris.", told

    async def stream():
        agent = Agent(ways[0]("script"), tools=[weather], model_settings=limit)
        async with agent.run_stream("What is the weather in Paris?") as run:
            return await run.get_output()

    assert asyncio.run(stream()) == "The tool said: It rains in Paris."


{
    "litellm": use_litellm,
    "llama-index": use_llama_index,
    "instructor": use_instructor,
    "pydantic-ai": use_pydantic_ai,
}[sys.argv[1]]()
print("ok", sys.argv[1])
