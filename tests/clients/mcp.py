"""A server of the Model Context Protocol on standard input and output, with one tool."""

import json
import sys

TOOL = {
    "name": "weather",
    "description": "The weather",
    "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def result(request):
    params = request.get("params") or {}
    match request["method"]:
        case "initialize":
            version = params["protocolVersion"]
            about = {"name": "sky", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            text = f"It rains in {params['arguments']['city']}."
            return {"content": [{"type": "text", "text": text}]}
    return {}


for line in sys.stdin:
    asked = json.loads(line)
    # The others are notifications.
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result(asked)}), flush=True)
