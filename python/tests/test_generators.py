"""Generators and asynchronous generators: one entry, when they end."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import logkit
import pytest
from helpers import Probe
from logkit import catch, log_call


def test_closed_early(probe: Probe):
    cleaned = []

    @log_call(level="INFO", logger=probe.logger)
    def count() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            cleaned.append(True)

    running = count()
    assert next(running) == 1
    running.close()
    assert cleaned == [True]
    assert (probe.row.level, probe.row.extra["yielded"]) == ("INFO", 1)


def test_dropped_early(probe: Probe):
    @log_call(logger=probe.logger)
    def count() -> Iterator[int]:
        yield 1
        yield 2

    for _ in count():
        break
    gc.collect()
    assert (probe.row.level, probe.row.extra["yielded"]) == ("DEBUG", 1)


def test_values_sent_errors_thrown_and_the_result(probe: Probe):
    @log_call(logger=probe.logger)
    def talk(start: int) -> Generator[Any, Any, str]:
        got = yield start
        try:
            got = yield ("got", got)
        except KeyError as error:
            got = yield ("caught", error.args[0])
        return f"end {got}"

    running = talk(7)
    assert next(running) == 7
    assert running.send("hello") == ("got", "hello")
    assert running.throw(KeyError("k")) == ("caught", "k")
    with pytest.raises(StopIteration) as stopped:
        running.send("bye")
    assert stopped.value.value == "end bye"
    row = probe.row
    assert row.extra["yielded"] == 3 and row.level == "DEBUG"


def test_the_result_of_yield_from(probe: Probe):
    @log_call(logger=probe.logger)
    def inner() -> Generator[int, None, str]:
        yield 1
        return "done"

    def outer() -> Generator[int, None, str]:
        result = yield from inner()
        return result

    running = outer()
    assert next(running) == 1
    with pytest.raises(StopIteration) as stopped:
        next(running)
    assert stopped.value.value == "done"


def test_the_duration_is_the_time_inside(probe: Probe):
    @log_call(logger=probe.logger)
    def count() -> Iterator[int]:
        time.sleep(0.03)
        yield 1
        time.sleep(0.03)
        yield 2

    for _ in count():
        time.sleep(0.4)
    assert 58 <= probe.row.duration_ms < 400


def test_arguments_are_those_at_the_call(probe: Probe):
    values = [1, 2]

    @log_call(logger=probe.logger)
    def each(values: list[int]) -> Iterator[int]:
        yield from values

    running = each(values)
    values.append(3)
    assert list(running) == [1, 2, 3]
    assert probe.row.args in ("([1, 2],)", "([1, 2, 3],)")
    assert probe.row.extra["yielded"] == 3


def test_wrong_arguments_are_an_error_when_it_begins(probe: Probe):
    @log_call(logger=probe.logger)
    def count(n: int) -> Iterator[int]:
        yield n

    wrong: Any = count
    running = wrong()
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'n'"):
        next(running)
    assert (probe.row.level, probe.row.exception_type) == ("ERROR", "TypeError")


def test_catch_ends_a_generator_that_fails(probe: Probe):
    @catch(logger=probe.logger)
    def count() -> Iterator[int]:
        yield 1
        raise ValueError("inside")

    assert list(count()) == [1]
    assert (probe.row.level, probe.row.extra["yielded"]) == ("ERROR", 1)


def test_calls_made_by_a_generator_have_it_as_parent(probe: Probe):
    @log_call(logger=probe.logger)
    def inner(n: int) -> int:
        return n

    @log_call(logger=probe.logger)
    def count() -> Iterator[int]:
        yield inner(1)
        yield inner(2)

    @log_call(logger=probe.logger)
    def outside() -> None: ...

    for _ in count():
        outside()
    rows = {
        name: [row for row in probe.rows if row.function_name.endswith(name)]
        for name in ("inner", "count", "outside")
    }
    (around,) = rows["count"]
    assert [row.parent_id for row in rows["inner"]] == [around.span_id] * 2
    assert [row.parent_id for row in rows["outside"]] == [None] * 2


def test_generators_that_take_turns(probe: Probe):
    @log_call(logger=probe.logger)
    def leaf(name: str) -> str:
        return name

    @log_call(logger=probe.logger)
    def letters(name: str) -> Iterator[str]:
        for _ in range(3):
            yield leaf(name)

    assert list(zip(letters("a"), letters("b"))) == [("a", "b")] * 3
    gc.collect()
    spans = {row.args: row.span_id for row in probe.rows if row.function_name.endswith("letters")}
    for row in probe.rows:
        if row.function_name.endswith("leaf"):
            assert row.parent_id == spans[row.args]


def test_a_generator_is_what_it_was(probe: Probe):
    @log_call(logger=probe.logger)
    def count() -> Iterator[int]:
        yield 1

    running: Any = count()
    assert iter(running) is running
    assert {"send", "throw", "close"} <= set(dir(running))
    running.close()


def test_an_error_within_an_async_generator(probe: Probe):
    @log_call(logger=probe.logger)
    async def count() -> AsyncIterator[int]:
        yield 1
        raise ValueError("inside")

    async def main() -> None:
        with pytest.raises(ValueError, match="inside"):
            async for _ in count():
                pass

    asyncio.run(main())
    assert (probe.row.level, probe.row.extra["yielded"]) == ("ERROR", 1)


def test_an_async_generator_that_is_closed(probe: Probe):
    cleaned = []

    @log_call(logger=probe.logger)
    async def count() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    async def main() -> None:
        running: Any = count()
        assert await running.__anext__() == 1
        await running.aclose()

    asyncio.run(main())
    assert cleaned == [True]
    assert (probe.row.level, probe.row.extra["yielded"]) == ("DEBUG", 1)


def test_an_async_generator_that_is_sent_values_and_errors(probe: Probe):
    @log_call(logger=probe.logger)
    async def talk() -> Any:
        got = yield "start"
        try:
            got = yield ("got", got)
        except KeyError as error:
            yield ("caught", error.args[0])

    async def main() -> None:
        running = talk()
        assert await running.asend(None) == "start"
        assert await running.asend(5) == ("got", 5)
        assert await running.athrow(KeyError("k")) == ("caught", "k")
        with pytest.raises(StopAsyncIteration):
            await running.__anext__()

    asyncio.run(main())
    assert probe.row.extra["yielded"] == 3


def test_an_async_generator_that_is_cancelled(probe: Probe):
    @log_call(level="INFO", logger=probe.logger)
    async def count() -> AsyncIterator[int]:
        yield 1
        await asyncio.sleep(60)

    async def main() -> None:
        async def consume() -> None:
            async for _ in count():
                pass

        task = asyncio.ensure_future(consume())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert (probe.row.level, probe.row.exception_type) == ("INFO", "CancelledError")


def test_parents_within_async_generators(probe: Probe):
    @log_call(logger=probe.logger)
    async def leaf(name: str) -> str:
        await asyncio.sleep(0)
        return name

    @log_call(logger=probe.logger)
    async def letters(name: str) -> AsyncIterator[str]:
        for _ in range(3):
            yield await leaf(name)

    async def consume(name: str) -> list[str]:
        return [letter async for letter in letters(name)]

    async def main() -> None:
        assert await asyncio.gather(consume("a"), consume("b")) == [["a"] * 3, ["b"] * 3]

    asyncio.run(main())
    spans = {row.args: row.span_id for row in probe.rows if row.function_name.endswith("letters")}
    leaves = [row for row in probe.rows if row.function_name.endswith("leaf")]
    assert len(leaves) == 6
    for row in leaves:
        assert row.parent_id == spans[row.args]


def test_the_level_of_a_filtered_generator(probe: Probe):
    probe.logger.level = "ERROR"

    @log_call(logger=probe.logger)
    def count(fail: bool) -> Iterator[int]:
        yield 1
        if fail:
            raise ValueError

    assert list(count(False)) == [1]
    with pytest.raises(ValueError):
        list(count(True))
    assert probe.row.level == "ERROR"


def test_a_generator_with_a_logger_that_takes_nothing(probe: Probe):
    probe.logger.level = "CRITICAL"

    @log_call(logger=probe.logger)
    def count() -> Generator[int, Any, str]:
        got = yield 1
        return f"got {got}"

    running = count()
    next(running)
    with pytest.raises(StopIteration) as stopped:
        running.send(5)
    assert stopped.value.value == "got 5"
    assert probe.rows == []


def test_logkit_is_not_in_the_way_of_interrupts(probe: Probe):
    @log_call(logger=probe.logger)
    def count() -> Iterator[int]:
        yield 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(count())
    assert probe.row.exception_type == "KeyboardInterrupt"
    assert logkit.log_call is log_call
