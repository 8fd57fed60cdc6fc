"""The cases in which the existing library is wrong and this one must be right."""

from __future__ import annotations

import asyncio
import functools
import os
import sys
import time
import types
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import logkit
import pytest
from helpers import PATIENCE, Capture, Probe, db_rows, json_rows, run_python
from logkit import auto_log, catch, log_call, logged, skip


class Raising:
    """A sink that fails."""

    def write(self, entry: Any) -> None:
        raise OSError("the sink is broken")


# A sink raises.


@pytest.mark.parametrize(
    "kind", [OSError, ValueError, SystemExit, RecursionError, GeneratorExit, StopIteration]
)
def test_a_sink_that_raises_changes_no_result(probe: Probe, kind: type[BaseException]):
    class Fails:
        def write(self, entry: Any) -> None:
            raise kind("the sink is broken")

    probe.logger.add_sink(Fails())

    @log_call(logger=probe.logger)
    def add(a: int) -> int:
        return a + 1

    @catch(default=-1, logger=probe.logger)
    def caught(a: int) -> int:
        return a + 1

    @log_call(logger=probe.logger)
    def fail() -> None:
        raise KeyError("own")

    assert add(1) == 2 and caught(1) == 2
    with pytest.raises(KeyError, match="own"):
        fail()
    assert [row.level for row in probe.rows] == ["DEBUG", "DEBUG", "ERROR"]
    assert probe.logger.stats()["sink_errors"] == 3


def test_a_sink_that_raises_is_told_once(capfd: pytest.CaptureFixture[str]):
    logger = logkit.Logger("told", sinks=[Raising(), Raising()], propagate_stdlib=False)

    @log_call(logger=logger)
    def add() -> None: ...

    for _ in range(5):
        add()
    assert logger.flush(PATIENCE)
    assert logger.stats()["sink_errors"] == 10
    logger.close()
    assert capfd.readouterr().err.count("the sink is broken") == 2


def test_sinks_that_raise_are_counted_in_the_metrics():
    metrics = logkit.MetricsSink()
    logger = logkit.Logger("told", sinks=[metrics, Raising()], propagate_stdlib=False)

    @log_call(logger=logger)
    def add() -> None: ...

    add()
    logger.flush(PATIENCE)
    assert b"logkit_internal_errors_total" in metrics.get_metrics()
    logger.close()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_native_sink_that_fails_changes_no_result(tmp_path: Path):
    full = logkit.JSONSink("/dev/full")
    other = tmp_path / "other.jsonl"
    logger = logkit.Logger("told", sinks=[full, logkit.JSONSink(str(other))], propagate_stdlib=False)

    @catch(default=-1, logger=logger)
    def add(a: int) -> int:
        return a + 1

    assert add(1) == 2
    logger.flush(PATIENCE)
    assert logger.stats()["sink_errors"] >= 1
    assert [row.level for row in json_rows(other)] == ["DEBUG"]
    logger.close()


def test_a_sink_that_blocks_in_its_own_thread_holds_up_nothing():
    import threading

    release = threading.Event()

    class Blocking:
        threaded = True

        def write(self, entry: Any) -> None:
            release.wait(PATIENCE)

    logger = logkit.Logger("blocked", sinks=[Blocking()], propagate_stdlib=False)

    @log_call(logger=logger)
    def add(a: int) -> int:
        return a + 1

    started = time.monotonic()
    assert [add(n) for n in range(100)] == list(range(1, 101))
    assert time.monotonic() - started < 5
    assert logger.flush(0.2) is False
    release.set()
    assert logger.flush(PATIENCE) is True
    logger.close()


# @logged on a class with static and class methods; on a nested class.


def test_logged_keeps_static_and_class_methods(probe: Probe):
    @logged(logger=probe.logger)
    class Tools:
        @staticmethod
        def still(n: int) -> int:
            return n

        @classmethod
        def make(cls, n: int) -> str:
            return cls.__name__

    assert Tools.still(1) == Tools().still(1) == 1
    assert Tools.make(1) == Tools().make(1) == "Tools"
    assert isinstance(Tools.__dict__["still"], staticmethod)
    assert isinstance(Tools.__dict__["make"], classmethod)
    assert len(probe.rows) == 4


def test_logged_leaves_nested_classes_alone(probe: Probe):
    @logged(logger=probe.logger)
    class Outer:
        class Inner:
            def work(self) -> int:
                return 1

        def make(self) -> Inner:
            return Outer.Inner()

    assert isinstance(Outer.Inner, type)
    made = Outer().make()
    assert isinstance(made, Outer.Inner) and made.work() == 1
    assert probe.row.function_name.endswith("Outer.make")


# Generators.


def test_a_generator_is_logged_when_it_is_exhausted(probe: Probe):
    @log_call(logger=probe.logger)
    def count(n: int) -> Iterator[int]:
        for i in range(n):
            yield i

    running = count(3)
    assert probe.rows == []
    assert list(running) == [0, 1, 2]
    row = probe.row
    assert row.level == "DEBUG" and row.extra["yielded"] == 3
    assert row.args == "(3,)"


def test_an_error_within_a_generator_is_logged(probe: Probe):
    @log_call(logger=probe.logger)
    def count() -> Iterator[int]:
        yield 1
        raise ValueError("inside")

    running = count()
    assert next(running) == 1
    with pytest.raises(ValueError, match="inside"):
        next(running)
    row = probe.row
    assert (row.level, row.exception, row.extra["yielded"]) == ("ERROR", "inside", 1)


def test_an_async_generator_is_logged_when_it_is_exhausted(probe: Probe):
    @log_call(logger=probe.logger)
    async def count(n: int) -> AsyncIterator[int]:
        for i in range(n):
            await asyncio.sleep(0)
            yield i

    async def main() -> None:
        assert [i async for i in count(3)] == [0, 1, 2]

    asyncio.run(main())
    assert probe.row.extra["yielded"] == 3


# CancelledError, SystemExit, KeyboardInterrupt.


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (asyncio.CancelledError(), "INFO"),
        (SystemExit(0), "INFO"),
        (SystemExit(), "INFO"),
        (SystemExit(3), "ERROR"),
        (SystemExit("message"), "ERROR"),
        (KeyboardInterrupt(), "ERROR"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("decorator", [log_call, catch])
def test_what_ends_a_program_is_logged(probe: Probe, decorator: Any, error: BaseException, level: str):
    @decorator(level="INFO", logger=probe.logger)
    def stop() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        stop()
    assert caught.value is error
    assert (probe.row.level, probe.row.exception_type) == (level, type(error).__name__)


def test_a_cancelled_task_is_logged(probe: Probe):
    @log_call(level="INFO", logger=probe.logger)
    async def wait() -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(main())
    assert (probe.row.level, probe.row.exception_type) == ("INFO", "CancelledError")


# auto_log after @log_call.


def test_auto_log_leaves_alone_what_is_logged_already(probe: Probe):
    module = types.ModuleType("logged_already")
    exec(
        "import logkit\n"
        "@logkit.log_call\n"
        "def by_hand(): return 1\n"
        "@logkit.catch\n"
        "def caught(): return 1\n"
        "def plain(): return 1\n",
        module.__dict__,
    )
    sys.modules[module.__name__] = module
    try:
        logkit.set_default_logger(probe.logger)
        assert auto_log(module) == 1
        module.by_hand()
        module.caught()
        module.plain()
        assert len(probe.rows) == 3
    finally:
        del sys.modules[module.__name__]


# Tracebacks.


@pytest.mark.parametrize("kind", ["plain", "coroutine", "generator", "asyncgen", "catch", "logged"])
def test_tracebacks_have_no_frames_of_the_wrapper(probe: Probe, kind: str):
    def fail() -> None:
        raise ValueError("deep")

    if kind == "plain":

        @log_call(logger=probe.logger)
        def work() -> None:
            fail()

        run = work
    elif kind == "catch":

        @catch(logger=probe.logger)
        def work() -> None:
            fail()

        run = work
    elif kind == "coroutine":

        @log_call(logger=probe.logger)
        async def work() -> None:
            await asyncio.sleep(0)
            fail()

        run = lambda: asyncio.run(work())  # noqa: E731
    elif kind == "generator":

        @log_call(logger=probe.logger)
        def work() -> Iterator[int]:
            yield 1
            fail()

        run = lambda: list(work())  # noqa: E731
    elif kind == "asyncgen":

        @log_call(logger=probe.logger)
        async def work() -> AsyncIterator[int]:
            yield 1
            fail()

        async def main() -> None:
            async for _ in work():
                pass

        run = lambda: asyncio.run(main())  # noqa: E731
    else:

        @logged(logger=probe.logger)
        class Tools:
            def work(self) -> None:
                fail()

        run = lambda: Tools().work()  # noqa: E731
    try:
        run()
    except ValueError:
        pass
    text = probe.row.traceback
    assert os.path.dirname(logkit.__file__) not in text
    assert text.count('  File "') == 2, text
    assert ", in work\n" in text and ", in fail\n" in text
    assert text.rstrip().endswith("ValueError: deep")


# functools.partial, callable objects, coroutines behind a wrapper.


def test_partials(probe: Probe):
    def add(a: int, b: int) -> int:
        return a + b

    wrapped = log_call(logger=probe.logger)(functools.partial(add, 1))
    assert wrapped(2) == 3
    assert (probe.row.args, probe.row.return_value) == ("(2,)", "3")


def test_callable_objects(probe: Probe):
    class Adder:
        def __call__(self, a: int) -> int:
            return a + 1

    wrapped = log_call(logger=probe.logger)(Adder())
    assert wrapped(2) == 3
    assert (probe.row.args, probe.row.return_value) == ("(2,)", "3")
    assert "Adder" in probe.row.function_name


def test_builtins(probe: Probe):
    wrapped = log_call(logger=probe.logger)(len)
    assert wrapped([1, 2]) == 2
    assert (probe.row.args, probe.row.return_value) == ("([1, 2],)", "2")


def make_hidden(kind: str) -> Any:
    async def add(a: int, b: int) -> int:
        await asyncio.sleep(0)
        if b < 0:
            raise ValueError("negative")
        return a + b

    if kind == "partial":
        return functools.partial(add, 1)
    if kind == "callable":

        class Adder:
            async def __call__(self, b: int) -> int:
                return await add(1, b)

        return Adder()
    if kind == "wraps":

        @functools.wraps(add)
        def hidden(b: int) -> Any:
            return add(1, b)

        return hidden

    def plain(b: int) -> Any:
        return add(1, b)

    return plain


@pytest.mark.parametrize("kind", ["partial", "callable", "wraps", "plain"])
def test_coroutines_behind_something(probe: Probe, kind: str):
    wrapped = log_call(logger=probe.logger)(make_hidden(kind))

    async def main() -> None:
        assert await wrapped(2) == 3
        with pytest.raises(ValueError, match="negative"):
            await wrapped(-1)

    asyncio.run(main())
    fine, failed = probe.rows
    assert (fine.args, fine.return_value, fine.return_type) == ("(2,)", "3", "int")
    assert (failed.level, failed.exception) == ("ERROR", "negative")


@pytest.mark.parametrize("kind", ["partial", "callable", "wraps", "plain"])
def test_catch_with_coroutines_behind_something(probe: Probe, kind: str):
    wrapped = catch(default=-5, logger=probe.logger)(make_hidden(kind))

    async def main() -> None:
        assert await wrapped(2) == 3
        assert await wrapped(-1) == -5

    asyncio.run(main())
    assert [row.level for row in probe.rows] == ["DEBUG", "ERROR"]


def test_tasks_and_futures_are_returned_as_they_are(probe: Probe):
    made: list[Any] = []

    @log_call(logger=probe.logger)
    def start() -> Any:
        made.append(asyncio.ensure_future(asyncio.sleep(0, 5)))
        return made[0]

    async def main() -> None:
        task = start()
        assert task is made[0]
        assert await task == 5

    asyncio.run(main())
    assert len(probe.rows) == 1


# Functions that a __repr__ calls.


def test_functions_that_a_repr_calls_are_not_logged(probe: Probe):
    class Named:
        @log_call(logger=probe.logger)
        def name(self) -> str:
            return "n"

        def __repr__(self) -> str:
            return f"<Named {self.name()}>"

    @log_call(logger=probe.logger)
    def show(value: object) -> object:
        return value

    show(Named())
    assert probe.row.args == "(<Named n>,)"
    assert probe.row.return_value == "<Named n>"


def test_functions_that_a_sink_calls_are_not_logged():
    made: list[Any] = []

    class Curious:
        def write(self, entry: Any) -> None:
            made.append(entry)
            assert helper(1) == 1

    logger = logkit.Logger("curious", sinks=[Curious()], propagate_stdlib=False)

    @log_call(logger=logger)
    def helper(n: int) -> int:
        return n

    @log_call(logger=logger)
    def work() -> int:
        return 1

    assert work() == 1
    assert [entry.function_name.rsplit(".", 1)[1] for entry in made] == ["work"]
    assert logger.stats()["sink_errors"] == 0
    logger.close()


def test_functions_that_the_text_of_an_error_calls_are_not_logged(probe: Probe):
    @log_call(logger=probe.logger)
    def text() -> str:
        return "told"

    class Told(Exception):
        def __str__(self) -> str:
            return text()

    @catch(logger=probe.logger)
    def fail() -> None:
        raise Told

    fail()
    assert probe.row.exception == "told"


# fork().

FORK = """
import os, sys, logkit
sinks = [logkit.DbSink("logs.db"), logkit.JSONSink("logs.jsonl")]
logger = logkit.Logger("forked", sinks=sinks, propagate_stdlib=False)

@logkit.log_call(logger=logger)
def work(who, n):
    return n

for n in range(50):
    work("parent", n)
pid = os.fork()
who = "parent" if pid else "child"
for n in range(50, 100):
    work(who, n)
logger.close()
if pid:
    assert os.waitpid(pid, 0)[1] == 0
else:
    os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_shares_no_handles(tmp_path: Path):
    run_python(FORK, cwd=tmp_path, flags=("-X", "dev", "-W", "error", "-W", "ignore::DeprecationWarning"))
    rows = db_rows(tmp_path / "logs.db")
    wanted = sorted([f"('parent', {n})" for n in range(100)] + [f"('child', {n})" for n in range(50, 100)])
    assert sorted(row["args"] for row in rows) == wanted
    assert sorted(row.args for row in json_rows(tmp_path / "logs.jsonl")) == wanted


# Marked functions.


def test_skip_marks_and_returns_the_function():
    def work() -> None: ...

    assert skip(work) is work
    assert work._logkit_skip is True  # type: ignore[attr-defined]


def test_wrapped_functions_are_marked():
    def work() -> None: ...

    assert log_call(work)._logkit_wrapped
    assert catch(work)._logkit_wrapped


def test_the_capture_of_a_sink_is_in_the_thread_of_the_caller(capture: Capture, live: Any):
    import threading

    @log_call(logger=live)
    def work() -> None: ...

    work()
    assert capture.threads == [threading.get_ident()]
