"""Logger: sinks, level, flush, counts, stdlib logging, the console line."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import logkit
import pytest
from helpers import PATIENCE, Capture, Probe, json_rows, make_entry, run_python
from logkit import Logger, log_call


class Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def records() -> Iterator[Records]:
    handler = Records()
    logging.getLogger("shop").addHandler(handler)
    yield handler
    logging.getLogger("shop").removeHandler(handler)


def test_defaults():
    logger = Logger()
    assert (logger.name, logger.level, logger.sinks, logger.propagate_stdlib) == ("logkit", "DEBUG", [], True)
    logger.close()


def test_positional_arguments(capture: Capture):
    logger = Logger("shop", "INFO", [capture], False)
    logger.emit(make_entry(level="DEBUG"))
    logger.emit(make_entry(level="INFO"))
    assert [row.level for row in capture.rows] == ["INFO"]
    logger.close()


def test_sinks_can_be_added_and_removed(tmp_path: Path, capture: Capture):
    logger = Logger("shop", propagate_stdlib=False)
    path = tmp_path / "a.jsonl"
    native = logkit.JSONSink(str(path))
    assert logger.add_sink(capture) is logger
    assert logger.add_sink(native) is logger
    assert logger.sinks == [capture, native]

    @log_call(logger=logger)
    def work() -> None: ...

    work()
    logger.remove_sink(capture)
    work()
    assert logger.flush(PATIENCE)
    logger.remove_sink(native)
    work()
    logger.flush(PATIENCE)
    assert len(capture.rows) == 1 and len(json_rows(path)) == 2 and logger.sinks == []
    logger.close()


def test_the_level_gates_sinks_and_console(probe: Probe):
    for level in ("debug", "Warning", "CRITICAL"):
        probe.logger.level = level
        assert probe.logger.level == level.upper()
        for own in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"):
            probe.logger.emit(make_entry(level=own))
    assert [row.level for row in probe.rows] == [
        "DEBUG",
        "INFO",
        "WARNING",
        "ERROR",
        "CRITICAL",
        "WARNING",
        "ERROR",
        "CRITICAL",
        "CRITICAL",
    ]


def test_entries_made_by_hand(probe: Probe):
    entry = make_entry(
        return_value={"a": 1},
        return_type="dict",
        duration_ms=1.25,
        trace_id="t1",
        version="2",
        environment="prod",
        extra={"n": 1},
    )
    probe.logger.emit(entry)
    row = probe.row
    assert (row.args, row.kwargs, row.return_value) == ("(3, 7)", "{'name': 'x'}", "{'a': 1}")
    assert (row.duration_ms, row.trace_id, row.version, row.environment) == (1.25, "t1", "2", "prod")
    assert row.extra["n"] == 1
    assert row.timestamp == entry.timestamp.isoformat(timespec="microseconds")


def test_entries_that_make_no_sense_harm_nothing(probe: Probe):
    for odd in (
        None,
        5,
        object(),
        make_entry(args=None, kwargs=None, arg_types=None, kwarg_types=None),
        make_entry(timestamp="yesterday"),
        make_entry(level=None),
        make_entry(duration_ms="slow"),
    ):
        try:
            probe.logger.emit(odd)
        except TypeError:
            pass  # what is no entry at all may be refused
    probe.logger.emit(make_entry(function_name="fine"))
    assert probe.rows[-1].function_name == "fine"


def test_counts(probe: Probe):
    @log_call(logger=probe.logger)
    def work() -> None: ...

    for _ in range(100):
        work()
    assert probe.logger.flush(PATIENCE) is True
    stats = probe.logger.stats()
    assert {"emitted", "written", "dropped", "sink_errors", "queue_len"} <= set(stats)
    assert stats["emitted"] == stats["written"] + stats["dropped"] == 100
    assert stats["queue_len"] == stats["sink_errors"] == 0


def test_counts_add_up_with_many_threads(probe: Probe):
    @log_call(logger=probe.logger)
    def work(n: int) -> int:
        return n

    threads = [threading.Thread(target=lambda: [work(n) for n in range(500)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert probe.logger.flush(PATIENCE)
    stats = probe.logger.stats()
    assert stats["emitted"] == stats["written"] + stats["dropped"] == 4000
    assert len(probe.rows) == 4000 - stats["dropped"]


def test_a_small_queue_drops_and_counts(tmp_path: Path):
    """A queue of one entry: what is dropped is counted, and an entry says so."""
    path = tmp_path / "a.jsonl"
    logger = Logger(
        "small", sinks=[logkit.JSONSink(str(path))], propagate_stdlib=False, queue=1, on_full="drop_new"
    )

    @log_call(logger=logger)
    def work() -> None: ...

    for _ in range(5000):
        work()
    assert logger.flush(PATIENCE)
    stats = logger.stats()
    assert stats["emitted"] == stats["written"] + stats["dropped"]
    rows = [row for row in json_rows(path) if row.function_name.endswith("work")]
    assert len(rows) == 5000 - stats["dropped"]
    logger.close()


def test_closing_writes_what_waits_and_closes_each_sink_once(tmp_path: Path, capture: Capture):
    path = tmp_path / "a.jsonl"
    logger = Logger("shop", sinks=[logkit.JSONSink(str(path)), capture, capture], propagate_stdlib=False)

    @log_call(logger=logger)
    def work() -> int:
        return 1

    for _ in range(100):
        work()
    logger.close()
    assert len(json_rows(path)) == 100 and capture.n_closed == 1
    logger.close()
    assert capture.n_closed == 1
    assert work() == 1  # nobody is harmed by a logger that is closed
    logger.emit(make_entry())
    assert logger.flush(1) in (True, False)


def test_a_sink_without_close_and_one_that_fails_to_close(capture: Capture):
    class Bare:
        def write(self, entry: Any) -> None: ...

    class Fails(Bare):
        def close(self) -> None:
            raise OSError("cannot close")

    logger = Logger("shop", sinks=[Bare(), Fails(), capture], propagate_stdlib=False)
    logger.close()
    assert capture.n_closed == 1


def test_sinks_in_python_may_flush():
    flushed = []

    class Own:
        def write(self, entry: Any) -> None: ...

        def flush(self) -> None:
            flushed.append(True)

    logger = Logger("shop", sinks=[Own()], propagate_stdlib=False)
    assert logger.flush(PATIENCE)
    assert flushed
    logger.close()


def test_sinks_in_python_are_called_in_order(tmp_path: Path):
    order = []

    class Own:
        def __init__(self, name: str) -> None:
            self.name = name

        def write(self, entry: Any) -> None:
            order.append((self.name, entry.function_name))

    logger = Logger(
        "shop", sinks=[Own("a"), logkit.JSONSink(str(tmp_path / "a.jsonl")), Own("b")], propagate_stdlib=False
    )
    for name in "xy":
        logger.emit(make_entry(function_name=name))
    assert order == [("a", "x"), ("b", "x"), ("a", "y"), ("b", "y")]
    logger.close()


def test_threaded_sinks_get_texts_in_another_thread():
    class Own(Capture):
        threaded = True

    own = Own()
    logger = Logger("shop", sinks=[own], propagate_stdlib=False)

    @log_call(logger=logger)
    def work(values: list[int]) -> list[int]:
        values.append(3)
        return values

    work([1, 2])
    assert logger.flush(PATIENCE)
    assert own.threads != [threading.get_ident()]
    assert own.rows[0].args == "([1, 2],)"
    assert own.rows[0].return_value == "[1, 2, 3]"
    logger.close()


# The logger of the standard library.


def test_entries_go_to_the_logger_of_that_name(records: Records):
    logger = Logger("shop", level="DEBUG")
    logging.getLogger("shop").setLevel(logging.DEBUG)

    @log_call(level="WARNING", logger=logger)
    def add(a: int, b: int, *, name: str) -> int:
        return a + b

    add(3, 7, name="x")
    with pytest.raises(TypeError):
        add()  # type: ignore[call-arg]
    logger.flush(PATIENCE)
    one, two = records.records
    assert (one.name, one.levelno, two.levelno) == ("shop", logging.WARNING, logging.ERROR)
    text = one.getMessage()
    assert "add() | args=(3, 7) | kwargs={'name': 'x'} | -> 10 | [" in text
    assert "EXCEPTION TypeError: " in two.getMessage()
    assert logging.getLogger("shop").propagate is False
    logger.close()


def test_a_handler_of_ones_own_gets_it_and_the_console_does_not(
    records: Records, capfd: pytest.CaptureFixture[str]
):
    logger = Logger("shop")
    logging.getLogger("shop").setLevel(logging.DEBUG)
    logger.emit(make_entry(function_name="once"))
    logger.flush(PATIENCE)
    logger.close()
    assert len(records.records) == 1
    assert "once" not in capfd.readouterr().err


def test_without_propagation_nothing_goes_there(records: Records, capfd: pytest.CaptureFixture[str]):
    logger = Logger("shop", propagate_stdlib=False)
    logger.emit(make_entry())
    logger.flush(PATIENCE)
    logger.close()
    assert records.records == [] and capfd.readouterr().err == ""


def test_handlers_that_fail_harm_nothing():
    class Fails(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            raise RuntimeError("handler")

    handler = Fails()
    logging.getLogger("shop").addHandler(handler)
    logger = Logger("shop")

    @log_call(logger=logger)
    def work() -> int:
        return 1

    assert work() == 1
    logging.getLogger("shop").removeHandler(handler)
    logger.close()


# The console line.

LINE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \| "

CONSOLE = """
import logkit
@logkit.log_call(level="INFO")
def add(a, b, *, name=""):
    return a + b
@logkit.log_call
def nothing(): pass
@logkit.catch
def fail(): raise ValueError("two\\nlines \\x1b[31m")
add(3, 7)
add(3, 7, name="x")
nothing()
fail()
"""


def test_the_default_logger_writes_to_the_console():
    done = run_python(CONSOLE)
    lines = done.stderr.splitlines()
    assert len(lines) == 4, done.stderr
    assert re.fullmatch(
        LINE + r"INFO \| logkit \| add\(\) \| args=\(3, 7\) \| -> 10 \| \[\d+\.\d\dms\]", lines[0]
    )
    assert re.fullmatch(
        LINE
        + r"INFO \| logkit \| add\(\) \| args=\(3, 7\) \| kwargs=\{'name': 'x'\} \| -> 10 \| \[\d+\.\d\dms\]",
        lines[1],
    )
    assert re.fullmatch(LINE + r"DEBUG \| logkit \| nothing\(\) \| \[\d+\.\d\dms\]", lines[2])
    assert re.fullmatch(
        LINE
        + r"ERROR \| logkit \| fail\(\) \| EXCEPTION ValueError: two\\nlines \\x1b\[31m \| \[\d+\.\d\dms\]",
        lines[3],
    )
    assert done.stdout == ""


def test_the_time_is_local_unless_asked_for(tmp_path: Path):
    code = "import logkit; logkit.configure(); logkit.info('x')"
    local = run_python(code, env={"TZ": "Etc/GMT-7"}).stderr
    utc = run_python(code, env={"TZ": "Etc/GMT-7", "LOGKIT_CONSOLE_TIME": "ms,utc"}).stderr
    hours = int(local[11:13]) - int(utc[11:13])
    assert hours % 24 in (7, 8), (local, utc)
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d{3}", utc)


def test_no_colour_in_a_pipe():
    assert "\x1b" not in run_python(CONSOLE).stderr


def test_a_replaced_stderr_gets_the_lines():
    """As in notebooks, where sys.stderr is not that of the process."""
    logger = Logger("notebook")
    shown = io.StringIO()
    with contextlib.redirect_stderr(shown):
        logger.emit(make_entry(function_name="cell"))
        logger.flush(PATIENCE)
    assert shown.getvalue().count("cell()") == 1 and shown.getvalue().endswith("\n")
    logger.close()


def test_a_stderr_that_is_closed_or_missing_harms_nothing():
    run_python(
        "import sys, logkit\n"
        "@logkit.log_call\n"
        "def work(): return 1\n"
        "before = sys.stderr\n"
        "for bad in (None, object()):\n"
        "    sys.stderr = bad\n"
        "    assert work() == 1\n"
        "sys.stderr = before\n"
    )
    done = run_python(
        "import os, logkit\nos.close(2)\n@logkit.log_call\ndef work(): return 1\nassert work() == 1\n",
        flags=(),
    )
    assert done.returncode == 0


def test_lines_of_processes_that_print_are_whole(tmp_path: Path):
    done = run_python(
        "import logkit, threading\n"
        "logger = logkit.Logger('many')\n"
        "@logkit.log_call(logger=logger)\n"
        "def work(text): pass\n"
        "threads = [threading.Thread(target=lambda: [work('x' * 200) for _ in range(100)]) for _ in range(4)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
    )
    lines = done.stderr.splitlines()
    assert len(lines) == 400
    assert all(
        re.match(LINE + r"DEBUG \| many \| work\(\) \| args=\('x{200}',\) \| \[", line) for line in lines
    )


def test_console_true_beside_sinks(tmp_path: Path):
    done = run_python(
        "import logkit, sys\n"
        "logger = logkit.Logger('both', sinks=[logkit.JSONSink('a.jsonl')], propagate_stdlib=True)\n"
        "@logkit.log_call(logger=logger)\n"
        "def work(): pass\n"
        "work()\n",
        cwd=tmp_path,
    )
    assert done.stderr.count("work()") == 1 and len(json_rows(tmp_path / "a.jsonl")) == 1


def test_set_default_logger_takes_any_object_with_emit(capture: Capture):
    class Own:
        def emit(self, entry: Any) -> None:
            capture.write(entry)

    own = Own()
    logkit.set_default_logger(own)

    @log_call
    def work() -> None: ...

    work()
    logkit.info("message")
    assert len(capture.rows) == 2


def test_texts_of_loggers_and_sinks_are_for_people(tmp_path: Path):
    logger = Logger(
        "shop", level="INFO", sinks=[logkit.JSONSink(str(tmp_path / "a.jsonl"))], propagate_stdlib=False
    )
    assert "shop" in repr(logger) and "INFO" in repr(logger)
    assert "JSONSink" in repr(logger.sinks[0]) and "a.jsonl" in repr(logger.sinks[0])
    assert len(repr(logger).splitlines()) == 1
    logger.close()
