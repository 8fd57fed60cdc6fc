"""Coroutines: results, errors, parents under gather and create_task, cancellation, context variables."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from helpers import Probe
from logkit import catch, log_call


def test_a_coroutine_is_logged_at_its_end(probe: Probe):
    @log_call(level="INFO", logger=probe.logger)
    async def fetch(n: int) -> int:
        await asyncio.sleep(0.05)
        return n * 2

    async def main() -> None:
        coroutine = fetch(4)
        assert asyncio.iscoroutine(coroutine)
        assert await coroutine == 8

    asyncio.run(main())
    row = probe.row
    assert (row.args, row.return_value, row.return_type, row.level) == ("(4,)", "8", "int", "INFO")
    assert 49 <= row.duration_ms < 5000


def test_errors_and_defaults(probe: Probe):
    error = ValueError("bad")

    @log_call(logger=probe.logger)
    async def fail() -> None:
        await asyncio.sleep(0)
        raise error

    @catch(default="none", logger=probe.logger)
    async def caught() -> str:
        await asyncio.sleep(0)
        raise error

    async def main() -> None:
        with pytest.raises(ValueError) as raised:
            await fail()
        assert raised.value is error
        assert await caught() == "none"

    asyncio.run(main())
    assert [row.level for row in probe.rows] == ["ERROR", "ERROR"]


def test_parents_under_gather(probe: Probe):
    @log_call(logger=probe.logger)
    async def leaf(name: str) -> str:
        await asyncio.sleep(0.001)
        return name

    @log_call(logger=probe.logger)
    async def branch(name: str) -> None:
        for _ in range(5):
            assert await leaf(name) == name
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(branch(name) for name in "abcdefgh"))

    asyncio.run(main())
    spans = {row.args: row.span_id for row in probe.rows if row.function_name.endswith("branch")}
    leaves = [row for row in probe.rows if row.function_name.endswith("leaf")]
    assert len(leaves) == 40 and len(set(spans.values())) == 8
    for row in leaves:
        assert row.parent_id == spans[row.args]


def test_parents_of_created_tasks(probe: Probe):
    @log_call(logger=probe.logger)
    async def child(n: int) -> int:
        await asyncio.sleep(0.001)
        return n

    @log_call(logger=probe.logger)
    async def parent() -> None:
        tasks = [asyncio.create_task(child(n)) for n in range(3)]
        await asyncio.gather(*tasks)

    @log_call(logger=probe.logger)
    async def unrelated() -> None:
        await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(parent(), unrelated())
        await unrelated()

    asyncio.run(main())
    span = probe.named("parent").span_id
    for row in probe.rows:
        assert row.parent_id == (span if row.function_name.endswith("child") else None)


def test_a_task_that_outlives_its_creator_keeps_it_as_parent(probe: Probe):
    @log_call(logger=probe.logger)
    async def late() -> None:
        await asyncio.sleep(0.02)

    @log_call(logger=probe.logger)
    async def creator() -> Any:
        return asyncio.create_task(late())

    async def main() -> None:
        task = await creator()
        await task

    asyncio.run(main())
    assert probe.named("late").parent_id == probe.named("creator").span_id


def test_plain_calls_within_coroutines(probe: Probe):
    @log_call(logger=probe.logger)
    def plain(name: str) -> None: ...

    @log_call(logger=probe.logger)
    async def around(name: str) -> None:
        plain(name)
        await asyncio.sleep(0.001)
        plain(name)

    @log_call(logger=probe.logger)
    def alone(name: str) -> None: ...

    async def main() -> None:
        running = asyncio.gather(around("a"), around("b"))
        await asyncio.sleep(0)
        alone("c")
        await running
        alone("c")

    asyncio.run(main())
    alone("c")
    spans = {row.args: row.span_id for row in probe.rows if row.function_name.endswith("around")}
    for row in probe.rows:
        if row.function_name.endswith("plain"):
            assert row.parent_id == spans[row.args]
        else:
            assert row.parent_id is None, row


def test_a_plain_call_that_runs_a_loop_is_the_parent(probe: Probe):
    @log_call(logger=probe.logger)
    async def inner() -> None:
        await asyncio.sleep(0)

    @log_call(logger=probe.logger)
    def outer() -> None:
        asyncio.run(inner())

    outer()
    assert probe.named("inner").parent_id == probe.named("outer").span_id


def test_callbacks_of_the_loop_do_not_see_a_coroutine_that_waits(probe: Probe):
    @log_call(logger=probe.logger)
    def callback() -> None: ...

    @log_call(logger=probe.logger)
    async def waits() -> None:
        await asyncio.sleep(0.05)

    async def main() -> None:
        asyncio.get_running_loop().call_later(0.01, callback)
        await waits()

    asyncio.run(main())
    assert probe.named("callback").parent_id is None


def test_to_thread_takes_the_parent_along(probe: Probe):
    @log_call(logger=probe.logger)
    def in_thread() -> int:
        return threading.get_ident()

    @log_call(logger=probe.logger)
    async def outer() -> int:
        return await asyncio.to_thread(in_thread)

    assert asyncio.run(outer()) != threading.get_ident()
    assert probe.named("in_thread").parent_id == probe.named("outer").span_id


def test_threads_do_not_share_parents(probe: Probe):
    @log_call(logger=probe.logger)
    def leaf(n: int) -> None:
        time.sleep(0.001)

    @log_call(logger=probe.logger)
    def branch(n: int) -> None:
        for _ in range(5):
            leaf(n)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(branch, range(16)))
    spans = {row.args: row.span_id for row in probe.rows if row.function_name.endswith("branch")}
    assert len(probe.rows) == 16 * 6
    for row in probe.rows:
        if row.function_name.endswith("leaf"):
            assert row.parent_id == spans[row.args]


def test_context_variables_pass_in_both_directions(probe: Probe):
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    @log_call(logger=probe.logger)
    async def change() -> str:
        before = variable.get()
        await asyncio.sleep(0)
        variable.set("inside")
        return before

    async def main() -> None:
        variable.set("outside")
        assert await change() == "outside"
        assert variable.get() == "inside"

    asyncio.run(main())


def test_cancellation_that_is_swallowed(probe: Probe):
    @log_call(logger=probe.logger)
    async def stubborn() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "survived"
        return "never"

    async def main() -> None:
        task = asyncio.create_task(stubborn())
        await asyncio.sleep(0.01)
        task.cancel()
        assert await task == "survived"

    asyncio.run(main())
    assert (probe.row.return_value, probe.row.exception) == ("'survived'", "")


def test_time_limits(probe: Probe):
    @log_call(level="INFO", logger=probe.logger)
    async def slow() -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(slow(), 0.02)

    asyncio.run(main())
    assert (probe.row.level, probe.row.exception_type) == ("INFO", "CancelledError")


def test_catch_does_not_swallow_cancellation(probe: Probe):
    @catch(default=1, logger=probe.logger)
    async def slow() -> int:
        await asyncio.sleep(60)
        return 0

    async def main() -> None:
        task = asyncio.create_task(slow())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_shared_tasks(probe: Probe):
    """Many waiters on one task: nothing about logging stands between them."""

    @log_call(logger=probe.logger)
    async def shared() -> int:
        await asyncio.sleep(0.01)
        return 5

    async def main() -> None:
        task = asyncio.create_task(shared())
        assert await asyncio.gather(task, task, asyncio.shield(task)) == [5, 5, 5]

    asyncio.run(main())
    assert len(probe.rows) == 1


@pytest.mark.parametrize("end", ["result", "error", "cancelled"])
def test_a_task_that_is_done_already(probe: Probe, end: str):
    """Its loop is closed, and calls nobody back."""

    async def work() -> int:
        if end == "error":
            raise ValueError("bad")
        await asyncio.sleep(60 if end == "cancelled" else 0)
        return 5

    async def main() -> Any:
        task = asyncio.ensure_future(work())
        await asyncio.sleep(0)
        if end == "cancelled":
            task.cancel()
        await asyncio.wait([task])
        return task

    task = asyncio.run(main())

    @log_call(level="INFO", logger=probe.logger)
    def finished() -> Any:
        return task

    assert finished() is task
    row = probe.row
    assert (row.level, row.return_value, row.exception_type) == {
        "result": ("INFO", "5", ""),
        "error": ("ERROR", "None", "ValueError"),
        "cancelled": ("INFO", "None", "CancelledError"),
    }[end]
    if end == "error":
        assert isinstance(task.exception(), ValueError)


def test_a_coroutine_driven_by_hand(probe: Probe):
    """No event loop at all, as other frameworks and their tests do it."""
    import types

    @types.coroutine
    def suspend(value: str) -> Any:
        return (yield value)

    @log_call(logger=probe.logger)
    async def talk() -> str:
        first = await suspend("one")
        try:
            await suspend("two")
        except KeyError:
            return f"end {first}"
        return "never"

    coroutine: Any = talk()
    assert coroutine.send(None) == "one"
    assert coroutine.send("answer") == "two"
    with pytest.raises(StopIteration) as stopped:
        coroutine.throw(KeyError("x"))
    assert stopped.value.value == "end answer"
    assert probe.row.return_value == "'end answer'"


def test_a_coroutine_that_is_closed(probe: Probe):
    import types

    @types.coroutine
    def suspend() -> Any:
        yield

    @log_call(level="INFO", logger=probe.logger)
    async def waits() -> None:
        await suspend()

    coroutine: Any = waits()
    coroutine.send(None)
    coroutine.close()
    assert (probe.row.level, probe.row.exception_type) == ("INFO", "GeneratorExit")


def test_async_context_managers_and_iterators(probe: Probe):
    class Source:
        @log_call(logger=probe.logger)
        async def __aenter__(self) -> Source:
            return self

        @log_call(logger=probe.logger)
        async def __aexit__(self, *exc: object) -> bool:
            return True

    async def main() -> None:
        async with Source():
            raise ValueError("swallowed")

    asyncio.run(main())
    assert len(probe.rows) == 2


@pytest.mark.skipif(sys.version_info < (3, 11), reason="TaskGroup is newer")
def test_task_groups(probe: Probe):
    @log_call(logger=probe.logger)
    async def child(n: int) -> int:
        await asyncio.sleep(0)
        return n

    @log_call(logger=probe.logger)
    async def parent() -> int:
        async with asyncio.TaskGroup() as group:  # type: ignore[attr-defined]
            tasks = [group.create_task(child(n)) for n in range(3)]
        return sum(task.result() for task in tasks)

    assert asyncio.run(parent()) == 3
    span = probe.named("parent").span_id
    assert {row.parent_id for row in probe.rows if row.function_name.endswith("child")} == {span}


def test_debug_mode_of_the_loop(probe: Probe):
    @log_call(logger=probe.logger)
    async def work() -> int:
        await asyncio.sleep(0)
        return 1

    assert asyncio.run(work(), debug=True) == 1


def test_deep_chains_of_coroutines(probe: Probe):
    @log_call(logger=probe.logger)
    async def down(n: int) -> int:
        await asyncio.sleep(0)
        return 0 if n == 0 else 1 + await down(n - 1)

    assert asyncio.run(down(50)) == 50
    rows = probe.rows
    for inner, outer in zip(rows, rows[1:]):
        assert inner.parent_id == outer.span_id
