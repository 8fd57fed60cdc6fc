"""Counts for Prometheus."""

from __future__ import annotations

import re
import socket
import urllib.error
import urllib.request
from typing import Any

import pytest
from helpers import PATIENCE, Capture, make_entry, run_python
from logkit import Logger, MetricsSink, PrometheusSink, catch, log_call


def get(port: int, path: str = "/metrics", accept: str = "text/plain") -> tuple[int, str, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return reply.status, reply.headers["Content-Type"], reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, "", ""


def value(text: str, line: str) -> float:
    found = re.search("^" + re.escape(line) + r" (\S+)$", text, re.MULTILINE)
    assert found, f"{line} is not in\n{text}"
    return float(found.group(1))


def test_names_labels_and_buckets():
    sink = MetricsSink()
    sink.write(make_entry(function_name="add", module="shop", level="INFO", duration_ms=3.0))
    sink.write(make_entry(function_name="add", module="shop", level="ERROR", duration_ms=20_000.0))
    text = sink.get_metrics()
    assert isinstance(text, bytes)
    text = text.decode()
    assert value(text, 'logkit_calls_total{function="add",level="INFO",module="shop"}') == 1
    assert value(text, 'logkit_calls_total{function="add",level="ERROR",module="shop"}') == 1
    assert value(text, 'logkit_errors_total{function="add",module="shop"}') == 1
    bounds = re.findall(r'_seconds_bucket\{function="add",le="([^"]+)",module="shop"\}', text)
    assert bounds == "0.001 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1.0 2.5 5.0 10.0 +Inf".split()
    assert value(text, 'logkit_duration_seconds_count{function="add",module="shop"}') == 2
    assert value(text, 'logkit_duration_seconds_sum{function="add",module="shop"}') == pytest.approx(20.003)
    assert value(text, 'logkit_last_call_timestamp{function="add"}') > 1.6e9
    assert "_created" not in text
    sink.close()


def test_without_a_duration_the_histogram_is_not_touched():
    sink = MetricsSink()
    sink.write(make_entry(duration_ms=None))
    text = sink.get_metrics().decode()
    assert "logkit_calls_total{" in text and "logkit_duration_seconds_count{" not in text
    sink.close()


def test_names_that_are_empty():
    sink = MetricsSink()
    sink.write(make_entry(function_name="", module=""))
    assert (
        'logkit_calls_total{function="unknown",level="INFO",module="unknown"} 1'
        in sink.get_metrics().decode()
    )
    sink.close()


def test_another_prefix_and_the_alias():
    assert PrometheusSink is MetricsSink
    sink = MetricsSink(prefix="shop")
    sink.write(make_entry())
    text = sink.get_metrics().decode()
    assert "shop_calls_total{" in text and "logkit_calls_total" not in text
    sink.close()


def test_calls_are_counted(capture: Capture):
    sink = MetricsSink(delegate=capture)
    logger = Logger("metrics", sinks=[sink], propagate_stdlib=False)

    @catch(logger=logger)
    def work(fail: bool) -> None:
        if fail:
            raise ValueError

    for n in range(10):
        work(n % 5 == 0)
    logger.flush(PATIENCE)
    text = sink.get_metrics().decode()
    name = "test_calls_are_counted.<locals>.work"
    assert value(text, f'logkit_calls_total{{function="{name}",level="DEBUG",module="{__name__}"}}') == 8
    assert value(text, f'logkit_errors_total{{function="{name}",module="{__name__}"}}') == 2
    assert len(capture.rows) == 10
    logger.close()


def test_the_server():
    sink = MetricsSink(port=0, host="127.0.0.1")
    assert isinstance(sink.port, int) and sink.port > 0
    sink.write(make_entry())
    status, kind, text = get(sink.port)
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert "logkit_calls_total{" in text
    assert get(sink.port, "/other")[0] == 404
    assert get(sink.port, "/")[0] == 404
    _, kind, text = get(sink.port, accept="application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text") and text.endswith("# EOF\n")
    sink.close()


def test_without_a_port_no_server():
    sink = MetricsSink()
    assert sink.port is None
    sink.close()


def test_a_port_that_is_taken_is_told(capfd: pytest.CaptureFixture[str]):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        sink = MetricsSink(port=taken.getsockname()[1], host="127.0.0.1")
        sink.write(make_entry())
        assert b"logkit_calls_total{" in sink.get_metrics()
        sink.close()
    assert str(taken) and "logkit" in capfd.readouterr().err


def test_at_most_a_thousand_sets_of_labels():
    sink = MetricsSink()
    sink.write_batch([make_entry(function_name=f"f{n}") for n in range(1200)])
    text = sink.get_metrics().decode()
    assert 'function="__overflow__"' in text
    assert len(re.findall(r"^logkit_calls_total\{", text, re.MULTILINE)) <= 1001
    sink.close()


def test_labels_are_escaped():
    sink = MetricsSink()
    sink.write(make_entry(function_name='a"b\\c\nd'))
    assert 'function="a\\"b\\\\c\\nd"' in sink.get_metrics().decode()
    sink.close()


def test_the_server_goes_with_the_program():
    run_python("import logkit\nsink = logkit.MetricsSink(port=0)\nassert sink.port\n")


def test_counts_of_many_threads():
    import threading

    sink = MetricsSink()
    logger = Logger("metrics", sinks=[sink], propagate_stdlib=False)

    @log_call(logger=logger, name="work")
    def work() -> Any: ...

    threads = [threading.Thread(target=lambda: [work() for _ in range(500)]) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    logger.flush(PATIENCE)
    text = sink.get_metrics().decode()
    assert value(text, f'logkit_calls_total{{function="work",level="DEBUG",module="{__name__}"}}') == 4000
    logger.close()
