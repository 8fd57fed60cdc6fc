"""What the tests share: loggers whose entries can be read, programs of their own, servers on loopback."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Callable

import logkit

FIELDS = [
    "timestamp",
    "level",
    "function_name",
    "module",
    "args",
    "kwargs",
    "arg_types",
    "kwarg_types",
    "return_value",
    "return_type",
    "exception",
    "exception_type",
    "traceback",
    "duration_ms",
    "environment",
    "trace_id",
    "version",
    "llm_analysis",
]
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00")
SPAN = re.compile(r"[0-9a-f]{16}")

# Longer than anything here takes on a busy machine.
PATIENCE = 30.0


class Row:
    """An entry as a sink that keeps texts sees it."""

    def __init__(self, texts: dict[str, Any], extra: dict[str, Any]) -> None:
        self.texts = texts
        self.extra = extra

    def __getattr__(self, name: str) -> Any:
        try:
            return self.texts[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def span_id(self) -> str | None:
        return self.extra.get("span_id")

    @property
    def parent_id(self) -> str | None:
        return self.extra.get("parent_id")

    def __repr__(self) -> str:
        return f"Row({self.texts!r}, {self.extra!r})"


def row_of(entry: Any) -> Row:
    """The texts of a live entry."""
    texts = {name: getattr(entry, name) for name in FIELDS}
    texts["timestamp"] = entry.timestamp.isoformat(timespec="microseconds")
    texts["args"] = entry.args_repr()
    texts["kwargs"] = entry.kwargs_repr()
    texts["arg_types"] = ", ".join(entry.arg_types)
    texts["kwarg_types"] = repr(entry.kwarg_types)
    texts["return_value"] = entry.return_value_repr()
    return Row(texts, dict(entry.extra))


class Capture:
    """A sink of one's own: keeps entries, and their texts as they are when they come."""

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.rows: list[Row] = []
        self.threads: list[int] = []
        self.n_closed = 0

    def write(self, entry: Any) -> None:
        self.entries.append(entry)
        self.rows.append(row_of(entry))
        self.threads.append(threading.get_ident())

    def close(self) -> None:
        self.n_closed += 1


class Probe:
    """A logger and what it has written; on the native path or, with a sink in Python, on the other."""

    def __init__(self, folder: Path, native: bool, **settings: Any) -> None:
        self.native = native
        self.path = folder / "probe.jsonl"
        self.sink: Any = logkit.JSONSink(str(self.path)) if native else Capture()
        self.logger = logkit.Logger("probe", sinks=[self.sink], propagate_stdlib=False, **settings)

    @property
    def rows(self) -> list[Row]:
        assert self.logger.flush(PATIENCE)
        if not self.native:
            return list(self.sink.rows)
        return json_rows(self.path)

    @property
    def row(self) -> Row:
        rows = self.rows
        assert len(rows) == 1, rows
        return rows[0]

    def named(self, end: str) -> Row:
        """The one row of the function whose name ends so."""
        rows = [row for row in self.rows if row.function_name.endswith(end)]
        assert len(rows) == 1, (end, self.rows)
        return rows[0]


def json_rows(path: Any) -> list[Row]:
    """The entries of a file of JSON Lines."""
    if not Path(path).exists():
        return []
    rows = []
    # Not splitlines(): that also splits at characters which are no line ends in JSON.
    for line in filter(None, Path(path).read_text(encoding="utf-8").split("\n")):
        texts = json.loads(line)
        rows.append(Row(texts, texts.pop("extra", {})))
    return rows


def db_rows(path: Any, table: str = "logs") -> list[dict[str, Any]]:
    """The rows of a database, oldest first."""
    connection = sqlite3.connect(str(path))
    try:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(f"SELECT * FROM {table} ORDER BY id")]
    finally:
        connection.close()


def make_entry(**fields: Any) -> Any:
    """An entry by hand."""
    values: dict[str, Any] = {
        "timestamp": logkit.LogEntry.now(),
        "level": "INFO",
        "function_name": "add",
        "module": "shop",
        "args": (3, 7),
        "kwargs": {"name": "x"},
        "arg_types": ["int", "int"],
        "kwarg_types": {"name": "str"},
    }
    values.update(fields)
    return logkit.LogEntry(**values)


def wait_until(condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Waits until it is true."""
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found or time.monotonic() > end:
            assert found, "this did not happen in time"
            return found
        time.sleep(0.01)


def clean_env(**more: str) -> dict[str, str]:
    """The environment without anything that logkit reads."""
    env = {name: value for name, value in os.environ.items() if not is_read_by_logkit(name)}
    env.update(more)
    return env


TAG_NAMES = {
    *(
        "APP_ENV",
        "ENVIRONMENT",
        "ENV",
        "NODE_ENV",
        "FLASK_ENV",
        "DJANGO_ENV",
        "KUBERNETES_SERVICE_HOST",
        "CI",
    ),
    *(
        "DOCKER_CONTAINER",
        "GITHUB_ACTIONS",
        "GITLAB_CI",
        "TRACE_ID",
        "X_TRACE_ID",
        "OTEL_TRACE_ID",
        "TRACEPARENT",
    ),
    *(
        "DD_TRACE_ID",
        "REQUEST_ID",
        "APP_VERSION",
        "VERSION",
        "GIT_SHA",
        "GIT_COMMIT",
        "GITHUB_SHA",
        "CI_COMMIT_SHA",
    ),
    *("OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "NO_COLOR"),
}


def is_read_by_logkit(name: str) -> bool:
    """True if a variable of that name changes what logkit does."""
    return name.startswith(("LOGKIT_", "LLMSRV_")) or name in TAG_NAMES


STRICT = ("-X", "dev", "-W", "error")


def run_python(
    code: str,
    *args: str,
    cwd: Any = None,
    env: dict[str, str] | None = None,
    flags: tuple[str, ...] = STRICT,
    check: bool = True,
    timeout: float = 120.0,
) -> subprocess.CompletedProcess[str]:
    """Runs a program of its own: in development mode, with warnings as errors."""
    done = subprocess.run(
        [sys.executable, *flags, "-c", code, *args],
        cwd=cwd,
        env=clean_env(**(env or {})),
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        timeout=timeout,
    )
    if check:
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


class Request:
    """What a server was sent."""

    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    """An HTTP server that remembers what it was sent; `answer` says what it replies."""

    def __init__(
        self, answer: Callable[[Request], tuple[int, dict[str, str], bytes]] | None = None
    ) -> None:
        self.requests: list[Request] = []
        self.answer = answer or (lambda request: (200, {}, b"{}"))
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Request(self.command, self.path, headers, body)
                outer.requests.append(request)
                status, more, reply = outer.answer(request)
                self.send_response(status)
                for name, value in more.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            do_GET = do_POST

            def log_message(self, *args: Any) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args: Any) -> None:
                pass

        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def chunks(text: str, n: int) -> Iterator[str]:
    """The text in pieces of that length."""
    for at in range(0, len(text), n):
        yield text[at : at + n]
