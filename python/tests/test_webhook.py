"""Alerts."""

from __future__ import annotations

import time
from typing import Any

import pytest
from helpers import Capture, Server, make_entry, wait_until
from logkit import Logger, WebhookSink, catch, log_call


def error(**fields: Any) -> Any:
    values = dict(
        level="ERROR",
        exception="bad price",
        exception_type="ValueError",
        duration_ms=1.5,
        traceback="Traceback (most recent call last):\nValueError: bad price\n",
        environment="prod",
        trace_id="t1",
    )
    values.update(fields)
    return make_entry(**values)


def send(server: Server, *entries: Any, **options: Any) -> list[Any]:
    sink = WebhookSink(server.url + "/hook", **options)
    for entry in entries:
        sink.write(entry)
    sink.close()
    return [request.json for request in server.requests]


def test_only_entries_of_the_levels_but_all_to_the_delegate(server: Server, capture: Capture):
    sink = WebhookSink(server.url + "/hook", capture, ["error", "CRITICAL"])
    for level in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"):
        sink.write(make_entry(level=level, function_name=f"at_{level}"))
    sink.close()
    assert len(server.requests) == 2
    assert [row.level for row in capture.rows] == ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]


def test_the_request(server: Server):
    send(server, error(), headers={"X-Own": "yes"})
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/hook")
    assert request.headers["content-type"].startswith("application/json")
    assert request.headers["x-own"] == "yes"


def test_slack(server: Server):
    (body,) = send(server, error())
    assert "ERROR: `add()`" in body["text"]
    header, section = body["blocks"]
    assert header["type"] == "header" and header["text"]["type"] == "plain_text"
    assert "ERROR: add()" in header["text"]["text"]
    assert section["type"] == "section" and section["text"]["type"] == "mrkdwn"
    text = section["text"]["text"]
    assert "**" not in text and "*Function:*" in text
    for part in ("add", "(3, 7)", "ValueError: bad price", "1.5ms", "prod", "t1"):
        assert part in text, text


def test_lines_that_say_nothing_are_left_out(server: Server):
    (body,) = send(server, error(args=(), duration_ms=None, environment="", trace_id=""))
    text = body["blocks"][1]["text"]["text"]
    for part in ("Args", "Duration", "Env", "Trace"):
        assert part not in text


def test_discord(server: Server):
    one, two = send(
        server,
        error(),
        error(level="CRITICAL", function_name="other"),
        format="discord",
        levels=["ERROR", "CRITICAL"],
    )
    assert "ERROR: `add()`" in one["content"]
    assert one["embeds"][0]["color"] == 0xFF0000 and two["embeds"][0]["color"] == 0xFFAA00
    assert {"title", "description", "color"} <= set(one["embeds"][0])


def test_teams(server: Server):
    (body,) = send(server, error(), format="teams")
    assert body["@type"] == "MessageCard" and "@context" in body
    assert body["themeColor"] == "FF0000"
    assert {"summary", "title", "text"} <= set(body)


def test_raw(server: Server):
    (body,) = send(server, error(extra={"a": 1}), format="raw")
    assert body["function_name"] == "add" and body["args"] == "(3, 7)" and body["extra"]["a"] == 1


def test_formats_that_do_not_exist():
    with pytest.raises(ValueError):
        WebhookSink("http://127.0.0.1:9/", format="pigeon")


def test_limits_of_the_services(server: Server):
    big = error(function_name="f" * 500, exception="x" * 20_000, args=("y" * 5000,))
    (body,) = send(server, big, format="slack")
    assert len(body["blocks"][0]["text"]["text"]) <= 150
    assert len(body["blocks"][1]["text"]["text"]) <= 3000
    server.requests.clear()
    (discord,) = send(server, big, format="discord")
    assert len(discord["content"]) <= 2000
    assert len(discord["embeds"][0]["title"]) <= 256 and len(discord["embeds"][0]["description"]) <= 4096


def test_equal_alerts_are_sent_once(server: Server):
    bodies = send(server, *(error() for _ in range(10)), error(function_name="other"))
    assert len(bodies) == 2


def test_what_fails_is_tried_again():
    n_asked = 0

    def answer(request: Any) -> Any:
        nonlocal n_asked
        n_asked += 1
        return (503, {"Retry-After": "0"}, b"") if n_asked == 1 else (200, {}, b"")

    server = Server(answer)
    sink = WebhookSink(server.url)
    sink.write(error())
    wait_until(lambda: n_asked >= 2)
    sink.close()
    server.close()
    assert n_asked == 2


def test_a_service_that_is_away_holds_up_nothing(capfd: pytest.CaptureFixture[str]):
    logger = Logger(
        "hook", sinks=[WebhookSink("http://127.0.0.1:9/hook/T0P-SECRET", timeout=1.0)], propagate_stdlib=False
    )

    @catch(default=1, logger=logger)
    def fail() -> int:
        raise ValueError("bad")

    started = time.monotonic()
    assert fail() == 1
    assert time.monotonic() - started < 2
    logger.close()
    assert time.monotonic() - started < 15
    assert "T0P-SECRET" not in capfd.readouterr().err


def test_the_address_is_not_shown():
    sink = WebhookSink("https://hooks.example.com/services/T0P-SECRET")
    assert "T0P-SECRET" not in repr(sink) and "WebhookSink" in repr(sink)
    sink.close()


def test_secrets_of_arguments(server: Server):
    logger = Logger("hook", sinks=[WebhookSink(server.url)], propagate_stdlib=False)

    @log_call(logger=logger)
    def login(password: str, note: str) -> None:
        raise ValueError("token=abc123def")

    with pytest.raises(ValueError):
        login("hunter2", "note")
    logger.close()
    text = server.requests[0].body.decode()
    assert "hunter2" not in text and "abc123def" not in text and "note" in text
