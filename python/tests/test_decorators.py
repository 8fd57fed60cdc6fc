"""log_call and catch on plain functions and methods."""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from typing import Any

import logkit
import pytest
from helpers import SPAN, TIMESTAMP, Capture, Probe
from logkit import catch, log_call


def test_bare_and_called_are_the_same(probe: Probe):
    logkit.set_default_logger(probe.logger)

    @log_call
    def bare(a: int) -> int:
        return a

    @log_call()
    def called(a: int) -> int:
        return a

    @catch
    def bare_catch() -> None:
        raise ValueError

    @catch()
    def called_catch() -> None:
        raise ValueError

    assert bare(1) == called(1) == 1
    assert bare_catch() is called_catch() is None
    assert [row.level for row in probe.rows] == ["DEBUG", "DEBUG", "ERROR", "ERROR"]


def test_what_an_entry_of_a_success_holds(probe: Probe):
    @log_call(level="INFO", logger=probe.logger)
    def add(a: int, b: int, *, name: str) -> str:
        return name

    assert add(3, 7, name="ok") == "ok"
    row = probe.row
    assert TIMESTAMP.fullmatch(row.timestamp)
    assert row.level == "INFO"
    assert row.function_name == "test_what_an_entry_of_a_success_holds.<locals>.add"
    assert row.module == __name__
    assert row.args == "(3, 7)"
    assert row.kwargs == "{'name': 'ok'}"
    assert row.arg_types == "int, int"
    assert row.kwarg_types == "{'name': 'str'}"
    assert row.return_value == "'ok'"
    assert row.return_type == "str"
    assert (row.exception, row.exception_type, row.traceback) == ("", "", "")
    assert isinstance(row.duration_ms, float) and 0 <= row.duration_ms < 10_000
    assert round(row.duration_ms, 3) == row.duration_ms
    assert (row.environment, row.trace_id, row.version, row.llm_analysis) == ("", "", "", "")
    assert SPAN.fullmatch(row.span_id) and row.parent_id is None


def test_a_call_without_arguments_that_returns_none(probe: Probe):
    @log_call(logger=probe.logger)
    def nothing() -> None:
        pass

    nothing()
    row = probe.row
    assert (row.args, row.kwargs, row.arg_types, row.kwarg_types) == ("()", "{}", "", "{}")
    assert (row.return_value, row.return_type) == ("None", "NoneType")


def test_what_an_entry_of_an_error_holds(probe: Probe):
    error = ValueError("bad price")

    @log_call(level="INFO", logger=probe.logger)
    def price(article: str) -> int:
        raise error

    with pytest.raises(ValueError) as caught:
        price("pear")
    assert caught.value is error
    assert error.__cause__ is None and error.__context__ is None
    row = probe.row
    assert row.level == "ERROR"
    assert row.exception == "bad price"
    assert row.exception_type == "ValueError"
    assert row.traceback.startswith("Traceback (most recent call last):\n")
    assert "raise error" in row.traceback and "ValueError: bad price" in row.traceback
    assert (row.return_value, row.return_type) == ("None", "")
    assert row.args == "('pear',)"
    assert row.duration_ms is not None


def test_the_type_of_an_error_is_its_name_only(probe: Probe):
    class Custom(Exception):
        pass

    @log_call(logger=probe.logger)
    def fail() -> None:
        raise Custom

    with pytest.raises(Custom):
        fail()
    assert probe.row.exception_type == "Custom"
    assert probe.row.exception == ""


def test_causes_are_in_the_traceback(probe: Probe):
    @catch(logger=probe.logger)
    def fail() -> None:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ValueError("outer") from error

    fail()
    text = probe.row.traceback
    assert "KeyError: 'inner'" in text and "ValueError: outer" in text
    assert "direct cause" in text
    assert text.index("inner") < text.index("outer")


def test_an_error_whose_text_fails(probe: Probe):
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    @catch(default=5, logger=probe.logger)
    def fail() -> int:
        raise Broken

    assert fail() == 5
    assert probe.row.exception_type == "Broken"


@pytest.mark.parametrize("decorator", [log_call, catch])
def test_metadata_is_preserved(probe: Probe, decorator: Any):
    def add(a: int, b: int = 2, *more: int, name: str = "x", **rest: int) -> int:
        """Adds."""
        return a + b

    add.mark = 5  # type: ignore[attr-defined]
    wrapped = decorator(logger=probe.logger)(add)
    assert wrapped.__name__ == "add" and wrapped.__qualname__ == add.__qualname__
    assert wrapped.__doc__ == "Adds." and wrapped.__module__ == __name__
    assert wrapped.__wrapped__ is add and wrapped.mark == 5
    assert inspect.signature(wrapped) == inspect.signature(add)
    assert wrapped.__annotations__ == add.__annotations__
    assert inspect.isfunction(wrapped)


def test_kinds_of_functions_are_preserved(probe: Probe):
    async def coroutine() -> None: ...

    def generator():  # type: ignore[no-untyped-def]
        yield 1

    async def asyncgen():  # type: ignore[no-untyped-def]
        yield 1

    for decorator in (log_call, catch):
        wrap = decorator(logger=probe.logger)
        assert inspect.iscoroutinefunction(wrap(coroutine)) and asyncio.iscoroutinefunction is not None
        assert inspect.isgeneratorfunction(wrap(generator))
        assert inspect.isasyncgenfunction(wrap(asyncgen))


def test_the_logger_is_looked_up_at_the_call(probe: Probe):
    @log_call
    def add(a: int) -> int:
        return a

    add(1)
    logkit.set_default_logger(probe.logger)
    add(2)
    assert probe.row.args == "(2,)"


def test_levels_are_case_insensitive(probe: Probe):
    @log_call(level="warning", logger=probe.logger)
    def low() -> None: ...

    @log_call(level="Notice", logger=probe.logger)
    def unknown() -> None: ...

    low()
    unknown()
    assert [row.level for row in probe.rows] == ["WARNING", "NOTICE"]
    probe.logger.level = "INFO"
    low()
    unknown()  # an unknown level counts as DEBUG
    assert [row.level for row in probe.rows] == ["WARNING", "NOTICE", "WARNING"]


def test_catch_returns_the_default(probe: Probe):
    default: list[int] = []

    @catch(default=default, level="INFO", logger=probe.logger)
    def fail() -> list[int]:
        raise ValueError("bad")

    assert fail() is default
    assert (probe.row.level, probe.row.exception) == ("ERROR", "bad")


def test_catch_changes_nothing_of_a_success(probe: Probe):
    value = object()

    @catch(default=1, level="INFO", logger=probe.logger)
    def fine() -> object:
        return value

    assert fine() is value
    assert probe.row.level == "INFO"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_catch_lets_other_exceptions_pass(probe: Probe, kind: type[BaseException]):
    error = kind()

    @catch(default=1, logger=probe.logger)
    def stop() -> int:
        raise error

    with pytest.raises(kind) as caught:
        stop()
    assert caught.value is error
    assert probe.row.exception_type == kind.__name__


def test_wrong_arguments_are_errors_of_the_call(probe: Probe):
    @log_call(logger=probe.logger)
    def add(a: int) -> int:
        return a

    with pytest.raises(TypeError, match=r"add\(\)"):
        add(1, 2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="wrong"):
        add(wrong=2)  # type: ignore[call-arg]
    assert [row.exception_type for row in probe.rows] == ["TypeError", "TypeError"]


def test_methods(probe: Probe):
    class Basket:
        @log_call(logger=probe.logger)
        def put(self, n: int) -> Basket:
            return self

        @staticmethod
        @log_call(logger=probe.logger)
        def still(n: int) -> int:
            return n

        @classmethod
        @log_call(logger=probe.logger)
        def make(cls, n: int) -> Basket:
            return cls()

        @property
        @log_call(logger=probe.logger)
        def size(self) -> int:
            return 3

        def __repr__(self) -> str:
            return "Basket()"

    basket = Basket()
    assert basket.put(1) is basket and Basket.put(basket, 2) is basket
    assert basket.still(1) == Basket.still(1) == 1
    assert isinstance(Basket.make(1), Basket) and basket.size == 3
    row = probe.rows[0]
    assert row.function_name == "test_methods.<locals>.Basket.put"
    assert row.args == "(Basket(), 1)" and row.arg_types == "Basket, int"
    assert len(probe.rows) == 6


def test_decorators_on_static_and_class_methods_themselves(probe: Probe):
    class Tools:
        @log_call(logger=probe.logger)
        @staticmethod
        def still(n: int) -> int:
            return n

        @log_call(logger=probe.logger)
        @classmethod
        def make(cls, n: int) -> int:
            return n

    assert Tools.still(1) == Tools().still(1) == 1
    assert Tools.make(2) == Tools().make(2) == 2
    assert [row.return_value for row in probe.rows] == ["1", "1", "2", "2"]


def test_a_name_of_its_own(probe: Probe):
    @log_call(name="shown", logger=probe.logger)
    def hidden() -> None: ...

    hidden()
    assert probe.row.function_name == "shown"


def test_arguments_are_rendered_before_the_call(probe: Probe):
    @log_call(logger=probe.logger)
    def drain(values: list[int], *, table: dict[str, int]) -> int:
        n = len(values)
        values.clear()
        table["new"] = 1
        return n

    assert drain([1, 2], table={"a": 1}) == 2
    assert probe.row.args == "([1, 2],)"
    assert probe.row.kwargs == "{'table': {'a': 1}}"
    assert "args_after" not in probe.row.extra


def test_the_result_is_rendered_when_the_call_ends(probe: Probe):
    @log_call(logger=probe.logger)
    def make() -> list[int]:
        return [1]

    made = make()
    made.append(2)
    assert probe.row.return_value == "[1]"


def test_without_a_success_to_log_errors_show_the_arguments_after_the_call(probe: Probe):
    probe.logger.level = "ERROR"
    n_rendered = 0

    class Counted:
        def __repr__(self) -> str:
            nonlocal n_rendered
            n_rendered += 1
            return "counted"

    @log_call(level="INFO", logger=probe.logger)
    def work(value: object, values: list[int], fail: bool) -> None:
        values.clear()
        if fail:
            raise ValueError("bad")

    work(Counted(), [1], False)
    assert probe.rows == [] and n_rendered == 0
    with pytest.raises(ValueError):
        work(Counted(), [1], True)
    assert probe.row.args == "(counted, [], True)"
    assert probe.row.extra["args_after"] is True


def test_a_logger_that_takes_no_errors_either(probe: Probe):
    probe.logger.level = "CRITICAL"

    @catch(default=3, logger=probe.logger)
    def work(fail: bool) -> int:
        if fail:
            raise ValueError
        return 1

    assert work(False) == 1 and work(True) == 3
    assert probe.rows == []


def test_skipped_arguments_are_not_rendered(probe: Probe):
    class Fragile:
        def __repr__(self) -> str:
            raise AssertionError("rendered")

    @log_call(skip_args=["big", "other"], logger=probe.logger)
    def work(a: int, big: object, *, other: object = None) -> None: ...

    work(1, Fragile(), other=Fragile())
    work(1, big=Fragile())
    for row in probe.rows:
        assert "1" in row.args
        assert "repr failed" not in row.args + row.kwargs


def test_a_sample_of_the_calls(probe: Probe):
    @log_call(sample_rate=0.0, logger=probe.logger)
    def never(fail: bool = False) -> None:
        if fail:
            raise ValueError

    @log_call(sample_rate=1.0, logger=probe.logger)
    def always() -> None: ...

    @log_call(sample_rate=0.5, logger=probe.logger)
    def half() -> None: ...

    for _ in range(50):
        never()
        always()
    for _ in range(2000):
        half()
    with pytest.raises(ValueError):
        never(True)
    rows = probe.rows
    assert [row.level for row in rows if row.function_name.endswith("never")] == ["ERROR"]
    assert sum(row.function_name.endswith("always") for row in rows) == 50
    assert 700 < sum(row.function_name.endswith("half") for row in rows) < 1300


def test_only_slow_calls(probe: Probe):
    @log_call(slow_ms=50, logger=probe.logger)
    def work(seconds: float, fail: bool = False) -> None:
        time.sleep(seconds)
        if fail:
            raise ValueError

    work(0)
    work(0.06)
    with pytest.raises(ValueError):
        work(0, True)
    assert [row.level for row in probe.rows] == ["DEBUG", "ERROR"]
    assert probe.rows[0].duration_ms >= 50


def test_durations_are_those_of_the_call(probe: Probe):
    @log_call(logger=probe.logger)
    def work() -> None:
        time.sleep(0.05)

    work()
    assert 49 <= probe.row.duration_ms < 5000


def test_calls_within_calls(probe: Probe):
    @log_call(logger=probe.logger)
    def inner(n: int) -> int:
        return n

    @catch(logger=probe.logger)
    def outer() -> int:
        return inner(1) + inner(2)

    assert outer() == 3
    inner(9)
    one, two, around, alone = probe.rows
    assert one.parent_id == two.parent_id == around.span_id
    assert around.parent_id is None and alone.parent_id is None
    assert len({row.span_id for row in probe.rows}) == 4


def test_a_failed_call_leaves_no_parent_behind(probe: Probe):
    @catch(logger=probe.logger)
    def fail() -> None:
        raise ValueError

    @log_call(logger=probe.logger)
    def fine() -> None: ...

    fail()
    fine()
    assert probe.rows[1].parent_id is None


def test_recursion(probe: Probe):
    @log_call(logger=probe.logger)
    def factorial(n: int) -> int:
        return 1 if n == 0 else n * factorial(n - 1)

    assert factorial(5) == 120
    rows = probe.rows
    assert [row.args for row in rows] == [f"({n},)" for n in range(6)]
    for inner, outer in zip(rows, rows[1:]):
        assert inner.parent_id == outer.span_id


def test_endless_recursion_is_the_error_it_is(probe: Probe):
    @log_call(logger=probe.logger)
    def endless() -> None:
        endless()

    with pytest.raises(RecursionError):
        endless()
    assert {row.exception_type for row in probe.rows} == {"RecursionError"}


def test_decorating_twice_logs_once_each(probe: Probe):
    @log_call(logger=probe.logger, name="outer")
    @catch(default=1, logger=probe.logger, name="inner")
    def fail() -> int:
        raise ValueError

    assert fail() == 1
    assert [(row.function_name, row.level) for row in probe.rows] == [("inner", "ERROR"), ("outer", "DEBUG")]


def test_any_object_with_emit_is_a_logger(capture: Capture):
    class Own:
        def emit(self, entry: Any) -> None:
            capture.write(entry)

    @log_call(logger=Own())
    def add(a: list[int]) -> int:
        return sum(a)

    values = [1, 2]
    assert add(values) == 3
    entry = capture.entries[0]
    assert isinstance(entry, logkit.LogEntry)
    assert entry.args[0] is values and entry.return_value == 3


def test_a_logger_of_ones_own_that_fails_harms_nothing():
    class Broken:
        def emit(self, entry: Any) -> None:
            raise RuntimeError("broken logger")

    @log_call(logger=Broken())
    def add(a: int) -> int:
        return a + 1

    @catch(default=5, logger=Broken())
    def fail() -> int:
        raise ValueError

    assert add(1) == 2 and fail() == 5
    logkit.set_default_logger(Broken())

    @log_call
    def other() -> int:
        return 7

    assert other() == 7


def test_wrong_options_are_errors_where_they_are_written():
    with pytest.raises(TypeError):
        log_call(no_such_option=1)  # type: ignore[call-overload]
    with pytest.raises((TypeError, ValueError)):
        log_call(5)  # type: ignore[call-overload]


def test_a_call_that_is_not_logged_is_as_if_plain(probe: Probe):
    probe.logger.level = "CRITICAL"

    @log_call(logger=probe.logger)
    def work(a: int, *, b: int) -> int:
        return a + b

    assert work(1, b=2) == 3
    with pytest.raises(TypeError, match=re.escape("work()")):
        work()  # type: ignore[call-arg]
