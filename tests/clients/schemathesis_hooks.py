"""Hooks for schemathesis: name the model that is there, and keep answers short.

Which requests are changed depends on their content alone, so a run can be repeated.
"""

import json
import zlib

import schemathesis

LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


@schemathesis.hook
def map_body(context, body):
    if not isinstance(body, dict):
        return body
    number = zlib.crc32(json.dumps(body, sort_keys=True, default=str).encode())
    # One in four keeps the name it has, which is nearly always that of no model.
    for member in ("model", "source"):
        if isinstance(body.get(member), str) and number % 4:
            body[member] = "default"
    if isinstance(body.get("options"), dict):
        body["options"]["num_predict"] = 3
    elif "prompt" in body or "messages" in body:
        body.setdefault("options", {"num_predict": 3})
    for limit in LIMITS:
        if isinstance(body.get(limit), int):
            body[limit] = 3
    # Everything at once costs memory, not time: contexts stay small.
    if isinstance(body.get("options"), dict) and isinstance(body["options"].get("num_ctx"), int):
        body["options"]["num_ctx"] = min(body["options"]["num_ctx"], 2048)
    return body
