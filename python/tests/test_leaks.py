"""A million calls leave nothing behind."""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import logkit
import pytest
from helpers import PATIENCE

MIB = 1 << 20


class Drops:
    """A sink of one's own that keeps nothing."""

    def write(self, entry: Any) -> None:
        pass


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def make(kind: str) -> tuple[Any, Any]:
    """A logger and a function that makes a few calls."""
    sink = logkit.NullSink() if kind == "native" else Drops()
    logger = logkit.Logger("leak", sinks=[sink], propagate_stdlib=False)

    @logkit.log_call(logger=logger)
    def work(a: object, b: object, *, name: str) -> dict[str, object]:
        return {"a": a}

    @logkit.catch(logger=logger)
    def fail(a: object) -> None:
        raise ValueError(a)

    @logkit.log_call(logger=logger)
    def count(n: int) -> Iterator[int]:
        yield n

    @logkit.log_call(logger=logger)
    async def fetch(a: object) -> object:
        return a

    def drive(a: object) -> None:
        try:
            fetch(a).send(None)
        except StopIteration:
            pass

    value = object()

    def calls(n: int) -> None:
        for i in range(n):
            work(value, i, name="abc")
            if i % 50 == 0:
                fail(value)
                list(count(i))
                drive(value)

    return logger, (calls, value)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_a_million_calls_leave_memory_as_it_was():
    logger, (calls, value) = make("native")
    calls(100_000)
    assert logger.flush(PATIENCE)
    before, references = resident(), sys.getrefcount(value)
    started = time.monotonic()
    for _ in range(10):
        calls(100_000)
    assert logger.flush(PATIENCE)
    gc.collect()
    grown = resident() - before
    assert sys.getrefcount(value) == references
    # Within the limits of the queue, which may be full in between.
    assert grown < 8 * MIB, f"{grown / MIB:.1f} MiB more after {time.monotonic() - started:.1f} s"
    logger.close()


@pytest.mark.parametrize("kind", ["native", "object"])
def test_calls_leave_no_objects_behind(kind: str):
    logger, (calls, value) = make(kind)
    calls(5000)
    assert logger.flush(PATIENCE)
    gc.collect()
    tracemalloc.start()
    try:
        references, objects = sys.getrefcount(value), len(gc.get_objects())
        calls(1000)
        logger.flush(PATIENCE)
        gc.collect()
        one = tracemalloc.get_traced_memory()[0]
        calls(20_000)
        logger.flush(PATIENCE)
        gc.collect()
        two = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert two - one < 100_000, f"{two - one} bytes of objects more"
    assert sys.getrefcount(value) == references
    assert len(gc.get_objects()) - objects < 200
    logger.close()


@pytest.mark.parametrize("kind", ["native", "object"])
def test_arguments_results_and_errors_are_let_go(kind: str):
    import weakref

    logger, _ = make(kind)

    class Thing:
        pass

    @logkit.log_call(logger=logger)
    def same(thing: Thing, *, named: Thing) -> Thing:
        return thing

    class OwnError(Exception):
        pass

    @logkit.catch(logger=logger)
    def fail(thing: Thing) -> None:
        raise OwnError(thing)

    thing = Thing()
    gone = weakref.ref(thing)
    same(thing, named=thing)
    fail(thing)
    del thing
    gc.collect()
    assert gone() is None
    logger.close()


def test_decorated_functions_are_let_go():
    import weakref

    logger, _ = make("native")

    def scope() -> Any:
        @logkit.log_call(logger=logger)
        def work() -> None: ...

        work()
        return weakref.ref(work)

    gone = scope()
    gc.collect()
    assert gone() is None
    logger.close()


def test_many_loggers_and_sinks_come_and_go(tmp_path: Path):
    import threading

    n_threads = threading.active_count()
    files = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
    for _ in range(50):
        logger = logkit.Logger(
            "short", sinks=[logkit.JSONSink(str(tmp_path / "a.jsonl"))], propagate_stdlib=False
        )
        logkit.log_call(logger=logger)(lambda: None)()
        logger.close()
    assert threading.active_count() == n_threads
    if files:
        assert len(list(Path("/proc/self/fd").iterdir())) <= files + 3
