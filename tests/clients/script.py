"""A server of the OpenAI API whose model follows a script: it calls the first tool it knows, and once it
has the result, says what the tool said. Prints its port. Clients reach it through llmsrv, as an upstream, so
that their rounds of tools do not depend on what a model likes to do.
"""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# Arguments for the tools of the tests, and for those that coding agents bring along. Where an agent asks
# for a structured answer by a tool, that one comes first.
ARGUMENTS = {
    "StructuredOutput": {"city": "Paris"},
    "mcp__sky.weather": {"city": "Paris"},
    "weather": {"city": "Paris"},
    "Bash": {"command": "echo said-by-tool", "description": "Say it"},
    "exec_command": {"cmd": "echo said-by-tool"},
    "shell_command": {"command": "echo said-by-tool"},
    "shell": {"command": ["echo", "said-by-tool"]},
}


def texts(content):
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def reply(request):
    """The message of an answer."""
    results = [message for message in request["messages"] if message["role"] == "tool"]
    if results and request.get("response_format", {}).get("type") == "json_schema":
        return {"role": "assistant", "content": json.dumps({"city": "Paris"})}
    if results:
        return {"role": "assistant", "content": "The tool said: " + texts(results[-1]["content"])[:2000]}
    offered = [tool["function"]["name"] for tool in request.get("tools") or []]
    for name, arguments in ARGUMENTS.items():
        if name in offered:
            function = {"name": name, "arguments": json.dumps(arguments)}
            call = {"index": 0, "id": "call_1", "type": "function", "function": function}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
    return {"role": "assistant", "content": "Hello from the script."}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer({"object": "list", "data": [{"id": "script", "object": "model"}]})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = reply(request)
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        head = {"id": "chatcmpl-1", "created": 1, "model": "script"}
        usage = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
        if not request.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            return self.answer(head | {"object": "chat.completion", "choices": [choice], "usage": usage})
        chunks = [
            {"choices": [{"index": 0, "delta": message, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
            {"choices": [], "usage": usage},
        ]
        lines = [json.dumps(head | {"object": "chat.completion.chunk"} | chunk) for chunk in chunks]
        self.send("text/event-stream", "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]))

    def answer(self, value):
        self.send("application/json", json.dumps(value))

    def send(self, kind, text):
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
