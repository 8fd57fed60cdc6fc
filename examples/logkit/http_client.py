"""Log calls from Python with nothing but the standard library, and find them again.

    LOGKIT_URL=http://127.0.0.1:8080 python3 http_client.py
"""

import json
import os
import time
import traceback
import urllib.parse
import urllib.request

URL = os.environ.get("LOGKIT_URL", "http://127.0.0.1:8080")
KEY = os.environ.get("LOGKIT_API_KEY", "")


def ask(path, body=None):
    """GET without a body, POST with one."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data=data)
    if KEY:
        request.add_header("Authorization", f"Bearer {KEY}")
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)


def logged(function):
    """Logs every call of a function: a decorator in fifteen lines."""

    def call(*args):
        began = time.perf_counter()
        entry = {"cmd": function.__qualname__, "language": "python", "env": "example",
                 "args": [str(arg) for arg in args], "success": True}
        try:
            result = function(*args)
            entry["output"] = str(result)
            return result
        except Exception as error:
            entry.update(success=False, error=f"{type(error).__name__}: {error}",
                         extra={"traceback": traceback.format_exc()})
            raise
        finally:
            entry["duration_ms"] = (time.perf_counter() - began) * 1000
            ask("/log", entry)

    return call


@logged
def divide(a, b):
    return a / b


if __name__ == "__main__":
    divide(6, 3)
    try:
        divide(1, 0)
    except ZeroDivisionError:
        pass
    reply = ask("/log/batch", {"entries": [{"cmd": f"step {n}", "env": "example"} for n in range(3)]})
    print("stored", reply["stored"])
    query = urllib.parse.urlencode({"env": "example", "level": "ERROR", "limit": 1})
    for row in ask("/logs?" + query):
        print(row["function_name"], row["args"], row["exception"])
