"""Wrappers: tags, differences between versions, routes, rings; with sinks in Python inside each of them."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Callable

import pytest
from helpers import PATIENCE, Capture, Server, clean_env, json_rows, make_entry, run_python
from logkit import (
    AsyncBufferedSink,
    CSVSink,
    DbSink,
    DiffTracker,
    DynamicRouter,
    EnvTagger,
    JSONSink,
    LLMSink,
    Logger,
    MarkdownSink,
    MetricsSink,
    NullSink,
    RingBufferSink,
    SyslogSink,
    TerminalSink,
    WebhookSink,
    catch,
    generate_trace_id,
    log_call,
)

# A sink in Python inside every wrapper.

WRAPPERS: dict[str, Callable[[Any, Path], Any]] = {
    "DbSink": lambda sink, folder: DbSink(str(folder / "a.db"), delegate=sink),
    "CSVSink": lambda sink, folder: CSVSink(str(folder / "a.csv"), delegate=sink),
    "MarkdownSink": lambda sink, folder: MarkdownSink(str(folder / "a.md"), delegate=sink),
    "JSONSink": lambda sink, folder: JSONSink(str(folder / "a.jsonl"), delegate=sink),
    "MetricsSink": lambda sink, folder: MetricsSink(delegate=sink),
    "WebhookSink": lambda sink, folder: WebhookSink(
        "http://127.0.0.1:9/", delegate=sink, levels=["CRITICAL"]
    ),
    "LLMSink": lambda sink, folder: LLMSink("openai/m", delegate=sink, analyze_levels=[]),
    "EnvTagger": lambda sink, folder: EnvTagger(sink, environment="prod"),
    "DiffTracker": lambda sink, folder: DiffTracker(sink),
    "DynamicRouter": lambda sink, folder: DynamicRouter([(lambda entry: True, sink)]),
    "DynamicRouter's default": lambda sink, folder: DynamicRouter([], default=sink),
    "RingBufferSink": lambda sink, folder: RingBufferSink(sink, trigger_levels=["DEBUG", "ERROR"]),
    "AsyncBufferedSink": lambda sink, folder: AsyncBufferedSink(sink, max_size=10, flush_interval=1.0),
    "nested": lambda sink, folder: EnvTagger(
        DiffTracker(MetricsSink(delegate=JSONSink(str(folder / "a.jsonl"), delegate=sink))),
        environment="prod",
    ),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_live_objects_inside_every_wrapper(tmp_path: Path, capture: Capture, name: str):
    logger = Logger("wrapped", sinks=[WRAPPERS[name](capture, tmp_path)], propagate_stdlib=False)
    value, result = object(), object()

    @log_call(logger=logger)
    def work(value: object, *, named: object) -> object:
        return result

    @catch(logger=logger)
    def fail() -> None:
        raise ValueError("bad")

    assert work(value, named=value) is result
    assert fail() is None
    one, two = capture.entries
    assert one.args == (value,) and one.kwargs == {"named": value} and one.return_value is result
    assert two.exception == "bad" and two.args == ()
    logger.flush(PATIENCE)
    logger.close()
    assert capture.n_closed == 1
    assert logger.stats()["sink_errors"] == 0


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_sink_that_fails_inside_every_wrapper(tmp_path: Path, name: str):
    class Fails:
        def write(self, entry: Any) -> None:
            raise OSError("broken")

        def close(self) -> None:
            raise OSError("broken too")

    logger = Logger("wrapped", sinks=[WRAPPERS[name](Fails(), tmp_path)], propagate_stdlib=False)

    @catch(default=-1, logger=logger)
    def work() -> int:
        return 1

    assert work() == 1
    logger.flush(PATIENCE)
    assert logger.stats()["sink_errors"] >= 1
    logger.close()


@pytest.mark.parametrize("name", WRAPPERS)
def test_wrappers_by_hand_and_their_texts(tmp_path: Path, capture: Capture, name: str):
    sink = WRAPPERS[name](capture, tmp_path)
    assert type(sink).__name__ in repr(sink)
    entry = make_entry(level="DEBUG")
    sink.write(entry)
    sink.flush()
    assert capture.entries[0] is entry or capture.entries[0].function_name == "add"
    sink.close()
    assert capture.n_closed == 1


def test_native_sinks_after_python_ones(tmp_path: Path, capture: Capture):
    """A wrapper in Python around a native sink: what it changes is what is written."""
    path = tmp_path / "a.jsonl"

    class Upper:
        def __init__(self, delegate: Any) -> None:
            self.delegate = delegate

        def write(self, entry: Any) -> None:
            entry.environment = "CHANGED"
            entry.extra["own"] = 1
            entry.args = ("other",)
            self.delegate.write(entry)

        def close(self) -> None:
            self.delegate.close()

    logger = Logger("wrapped", sinks=[Upper(JSONSink(str(path)))], propagate_stdlib=False)

    @log_call(logger=logger)
    def work(a: int) -> int:
        return a

    assert work(5) == 5
    logger.close()
    (row,) = json_rows(path)
    assert (row.environment, row.extra["own"], row.args) == ("CHANGED", 1, "('other',)")


# Tags.


def tagged(capture: Capture, entry: Any = None, **options: Any) -> Any:
    sink = EnvTagger(capture, **options)
    sink.write(entry or make_entry())
    return capture.rows[-1]


def test_only_empty_fields_are_filled(capture: Capture):
    row = tagged(
        capture, make_entry(environment="own", trace_id="t"), environment="prod", trace_id="x", version="1"
    )
    assert (row.environment, row.trace_id, row.version) == ("own", "t", "1")
    row = tagged(capture, environment="prod", trace_id="x", version="1")
    assert (row.environment, row.trace_id, row.version) == ("prod", "x", "1")


@pytest.mark.parametrize(
    ("variables", "environment"),
    [
        ({"LOGKIT_ENV": " Prod ", "APP_ENV": "x"}, "prod"),
        ({"APP_ENV": "a", "ENVIRONMENT": "b"}, "a"),
        ({"ENVIRONMENT": "b", "ENV": "c"}, "b"),
        ({"ENV": "c", "NODE_ENV": "d"}, "c"),
        ({"NODE_ENV": "d", "FLASK_ENV": "e"}, "d"),
        ({"FLASK_ENV": "e", "DJANGO_ENV": "f"}, "e"),
        ({"DJANGO_ENV": "f", "CI": "true"}, "f"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "CI": "true"}, "k8s"),
        ({"CI": "true", "DOCKER_CONTAINER": "1"}, "ci"),
        ({"DOCKER_CONTAINER": "1"}, "docker"),
    ],
    ids=str,
)
def test_where_the_environment_comes_from(
    capture: Capture, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], environment: str
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert tagged(capture).environment == environment


def test_the_environment_without_anything(capture: Capture):
    assert tagged(capture).environment in ("local", "docker")


@pytest.mark.parametrize(
    ("variables", "trace"),
    [
        ({"LOGKIT_TRACE_ID": "a", "TRACE_ID": "b"}, "a"),
        ({"TRACE_ID": "b", "X_TRACE_ID": "c"}, "b"),
        ({"X_TRACE_ID": "c", "OTEL_TRACE_ID": "d"}, "c"),
        ({"OTEL_TRACE_ID": "d", "DD_TRACE_ID": "e"}, "d"),
        (
            {"TRACEPARENT": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "DD_TRACE_ID": "e"},
            "4bf92f3577b34da6a3ce929d0e0e4736",
        ),
        ({"DD_TRACE_ID": "e", "REQUEST_ID": "f"}, "e"),
        ({"REQUEST_ID": "f"}, "f"),
    ],
    ids=str,
)
def test_where_the_trace_comes_from(
    capture: Capture, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], trace: str
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert tagged(capture).trace_id == trace


def test_a_trace_is_made_once_for_each_tagger(capture: Capture):
    one, two = EnvTagger(capture), EnvTagger(capture)
    for sink in (one, one, two):
        sink.write(make_entry())
    first, again, other = (row.trace_id for row in capture.rows)
    assert first == again != other
    assert re.fullmatch("[0-9a-f]{16}", first)


def test_generated_trace_ids():
    ids = {generate_trace_id() for _ in range(1000)}
    assert len(ids) == 1000 and all(re.fullmatch("[0-9a-f]{16}", made) for made in ids)


@pytest.mark.parametrize(
    ("variables", "version"),
    [
        ({"LOGKIT_VERSION": "1", "APP_VERSION": "2"}, "1"),
        ({"APP_VERSION": "2.0.0-a-very-long-version", "VERSION": "3"}, "2.0.0-a-very-long-version"),
        ({"VERSION": "3", "GIT_SHA": "4"}, "3"),
        ({"GIT_SHA": "0123456789abcdef0123456789abcdef01234567"}, "0123456789ab"),
        ({"GIT_COMMIT": "a" * 64}, "a" * 12),
        ({"GITHUB_SHA": "5"}, "5"),
        ({"CI_COMMIT_SHA": "6"}, "6"),
        ({}, ""),
    ],
    ids=str,
)
def test_where_the_version_comes_from(
    capture: Capture, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], version: str
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert tagged(capture).version == version


def test_detection_can_be_off(capture: Capture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOGKIT_ENV", "prod")
    row = tagged(capture, auto_detect=False)
    assert (row.environment, row.version) == ("", "")


# Differences between versions.


def versions(sink: Any, *calls: Any) -> None:
    for version, value in calls:
        sink.write(
            make_entry(
                function_name="add",
                args=(1, 2),
                kwargs={},
                arg_types=["int", "int"],
                kwarg_types={},
                version=version,
                return_value=value,
                return_type="int",
            )
        )


def test_the_text_of_a_difference(capture: Capture):
    versions(DiffTracker(capture), ("1.0", 3), ("2.0", 4))
    first, second = capture.rows
    assert first.extra == {}
    assert second.extra["version_diff"] == "DIFF: add((1, 2)) 1.0→3 vs 2.0→4"
    assert (second.extra["prev_version"], second.extra["prev_return"]) == ("1.0", "3")


@pytest.mark.parametrize(
    "calls",
    [
        [("1.0", 3), ("1.0", 4)],
        [("1.0", 3), ("2.0", 3)],
        [("", 3), ("2.0", 4)],
        [("1.0", 3), ("", 4)],
    ],
    ids=str,
)
def test_what_is_no_difference(capture: Capture, calls: Any):
    versions(DiffTracker(capture), *calls)
    assert all("version_diff" not in row.extra for row in capture.rows)


def test_the_history_is_updated_in_every_case(capture: Capture):
    versions(DiffTracker(capture), ("1.0", 3), ("1.0", 5), ("2.0", 5), ("3.0", 6))
    assert capture.rows[-1].extra["version_diff"] == "DIFF: add((1, 2)) 2.0→5 vs 3.0→6"
    assert "version_diff" not in capture.rows[2].extra


def test_none_and_errors_are_outcomes(capture: Capture):
    sink = DiffTracker(capture)
    versions(sink, ("1.0", None), ("2.0", 4))
    assert "1.0→None vs 2.0→4" in capture.rows[-1].extra["version_diff"]
    sink.write(
        make_entry(
            args=(1, 2),
            kwargs={},
            arg_types=["int", "int"],
            kwarg_types={},
            version="3.0",
            level="ERROR",
            exception="bad",
            exception_type="ValueError",
        )
    )
    assert "2.0→4 vs 3.0→!ValueError" in capture.rows[-1].extra["version_diff"]


def test_addresses_are_not_part_of_the_key(capture: Capture):
    class Thing:
        pass

    sink = DiffTracker(capture)
    for version, value in (("1.0", 1), ("2.0", 2)):
        sink.write(
            make_entry(args=(Thing(),), kwargs={}, version=version, return_value=value, return_type="int")
        )
    assert "version_diff" in capture.rows[1].extra


def test_other_arguments_are_other_keys(capture: Capture):
    sink = DiffTracker(capture)
    for n in (1, 2):
        sink.write(make_entry(args=(n,), version=str(n), return_value=n, return_type="int"))
    assert "version_diff" not in capture.rows[1].extra


def test_the_number_of_keys_is_limited(capture: Capture):
    sink = DiffTracker(capture, max_keys=2)
    for n in range(3):
        sink.write(make_entry(args=(n,), version="1", return_value=n, return_type="int"))
    for n in range(3):
        sink.write(make_entry(args=(n,), version="2", return_value=n + 1, return_type="int"))
    assert "version_diff" not in capture.rows[3].extra


DEPLOY = """
import logkit, sys
sink = logkit.EnvTagger(logkit.DiffTracker(logkit.DbSink("logs.db"){store}), version=sys.argv[1])
logger = logkit.Logger("deploy", sinks=[sink], propagate_stdlib=False)
@logkit.log_call(logger=logger, name="add")
def add(a, b): return a + b + (sys.argv[1] == "2.0")
add(1, 2)
logger.close()
"""


@pytest.mark.parametrize("store", ["", ', store="history.db"'])
def test_the_history_outlives_the_program(tmp_path: Path, store: str):
    from helpers import db_rows

    for version in ("1.0", "2.0"):
        run_python(DEPLOY.format(store=store), version, cwd=tmp_path)
    first, second = db_rows(tmp_path / "logs.db")
    assert "version_diff" not in first["extra"]
    assert "DIFF: add((1, 2)) 1.0→3 vs 2.0→4" in second["extra"]


# Routes.


def test_the_first_rule_that_matches_wins():
    sinks = [Capture() for _ in range(3)]
    router = DynamicRouter(
        [
            (lambda entry: entry.level == "ERROR", sinks[0]),
            (lambda entry: entry.args and entry.args[0] > 5, sinks[1]),
        ],
        default=sinks[2],
    )
    router.write(make_entry(level="ERROR", args=(9,)))
    router.write(make_entry(args=(9,)))
    router.write(make_entry(args=(1,)))
    assert [len(sink.rows) for sink in sinks] == [1, 1, 1]
    router.close()


def test_a_predicate_that_fails_does_not_match(capture: Capture):
    other = Capture()
    router = DynamicRouter([(lambda entry: 1 / 0 > 0, other)], default=capture)
    router.write(make_entry())
    assert (len(other.rows), len(capture.rows)) == (0, 1)


def test_predicates_see_live_objects(capture: Capture):
    seen: list[Any] = []
    router = DynamicRouter([(lambda entry: bool(seen.append(entry.args[0])) or True, capture)])
    logger = Logger("routed", sinks=[router], propagate_stdlib=False)
    value = object()
    log_call(logger=logger)(lambda value: None)(value)
    assert seen == [value]
    logger.close()


def test_predicates_with_native_sinks(tmp_path: Path):
    errors, rest = tmp_path / "errors.jsonl", tmp_path / "rest.jsonl"
    router = DynamicRouter(
        [(lambda entry: entry.level == "ERROR", JSONSink(str(errors)))], default=JSONSink(str(rest))
    )
    logger = Logger("routed", sinks=[router], propagate_stdlib=False)

    @catch(logger=logger)
    def work(fail: bool) -> None:
        if fail:
            raise ValueError

    for n in range(10):
        work(n % 2 == 0)
    logger.close()
    assert len(json_rows(errors)) == len(json_rows(rest)) == 5


def test_a_failing_sink_does_not_fall_through(capture: Capture):
    class Fails:
        def write(self, entry: Any) -> None:
            raise OSError("broken")

    logger = Logger(
        "routed",
        sinks=[DynamicRouter([(lambda e: True, Fails()), (lambda e: True, capture)], default=capture)],
        propagate_stdlib=False,
    )
    logger.emit(make_entry())
    assert capture.rows == [] and logger.stats()["sink_errors"] == 1
    logger.close()


def test_without_a_match_and_a_default_it_is_dropped(capture: Capture):
    logger = Logger("routed", sinks=[DynamicRouter([(lambda entry: False, capture)])], propagate_stdlib=False)
    logger.emit(make_entry())
    logger.flush(PATIENCE)
    assert capture.rows == [] and logger.stats()["sink_errors"] == 0
    logger.close()


def test_each_sink_is_closed_once(capture: Capture):
    router = DynamicRouter([(lambda entry: False, capture), (lambda entry: True, capture)], default=capture)
    router.write(make_entry())
    router.close()
    assert capture.n_closed == 1 and len(capture.rows) == 1


# Rings and the rest.


@pytest.mark.parametrize("native", [True, False])
def test_a_ring_writes_what_led_to_an_error(tmp_path: Path, native: bool):
    path = tmp_path / "a.jsonl"
    inner: Any = JSONSink(str(path)) if native else Capture()
    logger = Logger("ring", sinks=[RingBufferSink(inner, capacity=3)], propagate_stdlib=False)

    def names() -> list[str]:
        logger.flush(PATIENCE)
        return [row.function_name for row in (json_rows(path) if native else inner.rows)]

    for n in range(5):
        logger.emit(make_entry(function_name=f"f{n}"))
    assert names() == []
    logger.emit(make_entry(function_name="bad", level="ERROR"))
    assert names() == ["f2", "f3", "f4", "bad"]
    logger.emit(make_entry(function_name="after"))
    logger.close()
    assert names() == ["f2", "f3", "f4", "bad"]


def test_a_ring_without_what_set_it_off(capture: Capture):
    ring = RingBufferSink(capture, capacity=5, trigger_levels=["WARNING"], include_trigger=False)
    ring.write(make_entry(function_name="before"))
    ring.write(make_entry(function_name="trigger", level="WARNING"))
    ring.flush()
    assert [row.function_name for row in capture.rows] == ["before"]
    ring.close()


@pytest.mark.parametrize("form", ["ascii", "color", "compact"])
def test_terminals(form: str, capfd: pytest.CaptureFixture[str]):
    logger = Logger("terminal", sinks=[TerminalSink(form)], propagate_stdlib=False)
    logger.emit(make_entry(function_name="shown"))
    logger.close()
    text = capfd.readouterr().err
    assert text.count("shown") == 1
    assert ("args=" in text) is (form != "compact")


def test_terminals_of_other_forms():
    with pytest.raises(ValueError):
        TerminalSink("fancy")


def test_nothing_at_all():
    sink = NullSink()
    sink.write(make_entry())
    sink.close()


def test_a_remote_logkit(server: Server):
    from logkit import RemoteSink

    logger = Logger("remote", sinks=[RemoteSink(server.url, api_key="k-1")], propagate_stdlib=False)
    logger.emit(make_entry())
    logger.close()
    assert [request.path for request in server.requests if request.method == "POST"] == ["/log/batch"]


def test_opentelemetry(server: Server):
    from logkit import OTLPSink

    logger = Logger("otlp", sinks=[OTLPSink(server.url)], propagate_stdlib=False)
    logger.emit(make_entry())
    logger.close()
    assert any(request.path == "/v1/logs" for request in server.requests)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[socket.socket]:
    """It listens at the socket `log` as the log of a system does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "log"))
        listening.settimeout(PATIENCE)
        yield listening


def test_the_log_of_the_system(tmp_path: Path, daemon: socket.socket):
    sink = SyslogSink(tmp_path / "log", app_name="my shop")
    assert (sink.path, repr(sink)) == (tmp_path / "log", f"SyslogSink('{tmp_path}/log')")
    logger = Logger("syslog", sinks=[sink], propagate_stdlib=False)
    at = datetime(2026, 11, 20, 19, 54, 48, 596202, tzinfo=timezone.utc)
    logger.emit(make_entry(timestamp=at, level="WARNING", function_name="two\nlines", args=('"ż]',)))
    logger.close()
    assert daemon.recv(8193).decode() == (
        f"<12>1 2026-11-20T19:54:48.596202+00:00 - my_shop {os.getpid()} - "
        '[logkit@32473 function="two\\\\nlines" module="shop"] '
        """two\\nlines() | args=('"ż]',) | kwargs={'name': 'x'}"""
    )


def test_the_log_of_the_system_from_a_spec(tmp_path: Path, daemon: socket.socket):
    script = tmp_path / "billing.py"
    script.write_text(
        "import logkit, sys\n"
        "sink = logkit.sink_from_spec('syslog:' + sys.argv[1])\n"
        "logger = logkit.Logger('x', sinks=[sink], propagate_stdlib=False)\n"
        "@logkit.log_call(level='INFO', logger=logger)\n"
        "def pay(): pass\n"
        "pay()\n"
        "logger.close()\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "log")], env=clean_env(), timeout=PATIENCE, check=False
    )
    assert done.returncode == 0
    message = daemon.recv(8193).decode()
    assert message.startswith("<14>1 ") and " - billing " in message and "pay()" in message, message


def test_a_log_of_the_system_that_is_absent_holds_up_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    logger = Logger("syslog", sinks=[SyslogSink(tmp_path / "log")], propagate_stdlib=False)
    start = time.monotonic()
    for _ in range(100):
        logger.emit(make_entry())
    logger.close()
    assert time.monotonic() - start < 3.0
    assert capfd.readouterr().err.count("logkit: syslog: ") == 1
    with pytest.raises(OSError):
        SyslogSink("x" * 200)
    with pytest.raises(ValueError):
        SyslogSink("")


def test_sinks_from_specs(tmp_path: Path):
    from logkit import sink_from_spec

    sink = sink_from_spec(f"json:{tmp_path}/a.jsonl")
    sink.write(make_entry())
    sink.close()
    assert len(json_rows(tmp_path / "a.jsonl")) == 1
    with pytest.raises(ValueError, match="Invalid sink spec 'nonsense'"):
        sink_from_spec("nonsense")
    with pytest.raises(OSError):
        sink_from_spec("db:/no/such/folder/logs.db").write(make_entry())
