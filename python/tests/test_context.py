"""Messages, fields, spans, silence, and what holds for a while."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Callable

import logkit
import pytest
from helpers import Capture, Probe
from logkit import catch, log_call


@pytest.fixture
def default(probe: Probe) -> Probe:
    logkit.set_default_logger(probe.logger)
    return probe


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_messages(default: Probe, level: str):
    getattr(logkit, level)("it happened", n=5, name="x", nothing=None, flag=True, table={"a": [1]})
    row = default.row
    assert row.level == level.upper()
    assert "it happened" in (row.return_value, row.return_value.strip("'"), row.extra.get("message"))
    assert (row.extra["n"], row.extra["name"], row.extra["flag"]) == (5, "x", True)
    assert row.extra["nothing"] is None and row.extra["table"] == {"a": [1]}
    assert row.module == __name__


def test_events(default: Probe):
    logkit.event("paid", amount=5)
    assert default.row.extra["amount"] == 5


def test_values_that_are_no_json(default: Probe):
    class Odd:
        def __repr__(self) -> str:
            return "odd!"

    logkit.info("message", value=Odd(), raw=b"x", many={1}, text="żółw", number=10**30, nan=float("nan"))
    extra = default.row.extra
    assert "odd!" in str(extra["value"]) and "x" in str(extra["raw"]) and extra["text"] == "żółw"


def test_a_named_logger(default: Probe):
    billing = logkit.get_logger("billing")
    billing.info("sent", n=1)
    billing.warning("late")
    billing.error("lost")
    rows = default.rows
    assert [row.level for row in rows] == ["INFO", "WARNING", "ERROR"]
    assert {row.module for row in rows} == {"billing"}


def test_messages_within_an_exception_handler(default: Probe):
    try:
        raise ValueError("bad")
    except ValueError:
        logkit.error("it failed")
    assert default.row.level == "ERROR"


def test_messages_have_the_call_around_them_as_parent(default: Probe):
    @log_call
    def work() -> None:
        logkit.info("inside")

    work()
    message, call = default.rows
    assert message.parent_id == call.span_id


def test_fields_for_all_entries_within(default: Probe):
    @log_call
    def work() -> None: ...

    with logkit.log_context(request="r1", user="ann"):
        work()
        with logkit.log_context(user="bob", step=2):
            logkit.info("inner")
        work()
    work()
    extras = [{key: row.extra.get(key) for key in ("request", "user", "step")} for row in default.rows]
    assert extras == [
        {"request": "r1", "user": "ann", "step": None},
        {"request": "r1", "user": "bob", "step": 2},
        {"request": "r1", "user": "ann", "step": None},
        {"request": None, "user": None, "step": None},
    ]


def test_fields_of_an_entry_itself_win(default: Probe):
    with logkit.log_context(n=1):
        logkit.info("message", n=2)
    assert default.row.extra["n"] == 2


@pytest.fixture(params=["context", "message"])
def extra_of(request: pytest.FixtureRequest, default: Probe) -> Callable[..., dict[str, Any]]:
    """What an entry has of those fields: given to it by a context, or by a message."""

    def extra_of(**fields: Any) -> dict[str, Any]:
        if request.param == "context":
            with logkit.log_context(**fields):
                log_call(logger=default.logger)(len)("")
        else:
            # A sink in Python gets the objects themselves unless the entry is changed.
            with logkit.log_context(within=True):
                logkit.info("message", **fields)
        return default.row.extra

    return extra_of


def test_a_field_that_holds_itself_is_told_once(extra_of: Callable[..., dict[str, Any]]):
    node: dict[str, Any] = {}
    node["children"] = [{"parent": node} for _ in range(10)]
    ring: list[Any] = [1]
    ring.append((ring, 2))
    shared = [1, 2]
    extra = extra_of(node=node, ring=ring, twice=[shared, shared])
    assert extra["node"] == {"children": [{"parent": "{...}"}] * 10}
    assert extra["ring"] == [1, ["[...]", 2]]
    assert extra["twice"] == [[1, 2], [1, 2]]


def test_fields_of_many_values_are_cut(extra_of: Callable[..., dict[str, Any]]):
    extra = extra_of(
        rows=list(range(100_000)),
        table={str(n): n for n in range(100_000)},
        pair=([], "x" * 300),
        small="end",
    )
    rows = extra["rows"]
    n_kept = len(rows) - 1
    assert 9_900 < n_kept < 10_000 and rows[:-1] == list(range(n_kept))
    assert rows[-1] == f"... [truncated {100_000 - n_kept} values]"
    assert extra["table"] == extra["pair"] == "... [truncated 1 values]"
    assert extra["small"] == "end"


def test_a_dictionary_of_many_values_is_cut(extra_of: Callable[..., dict[str, Any]]):
    table = extra_of(table={n: {"n": n} for n in range(100_000)})["table"]
    assert table.pop("...") == f"... [truncated {100_000 - len(table)} values]"
    assert 4_900 < len(table) <= 5_000
    assert all(value == {"n": int(key)} for key, value in list(table.items())[:-1])


class Text(str):
    """A string that tells nothing of its parts."""

    def __getitem__(self, at: Any) -> str:
        raise TypeError("no")


@pytest.mark.parametrize("kind", [str, Text])
def test_fields_of_long_texts_are_cut(extra_of: Callable[..., dict[str, Any]], kind: type[str]):
    extra = extra_of(body=kind("ü" * 100_000), texts=["x" * 1000] * 100, small="end")
    kept, _, note = extra["body"].partition("...")
    assert set(kept) == {"ü"} and 32_000 < len(kept) <= 32 << 10
    assert note == f" [truncated {100_000 - len(kept)} chars]"
    assert extra["texts"] == "... [truncated 1 values]"
    assert extra["small"] == "end"


def test_many_objects_with_long_texts_are_cut(extra_of: Callable[..., dict[str, Any]]):
    n_rendered = 0

    class Long:
        def __repr__(self) -> str:
            nonlocal n_rendered
            n_rendered += 1
            return "r" * 2000

    objects = extra_of(objects=[Long() for _ in range(1000)])["objects"]
    assert objects[0] == "r" * 2000 and len(objects) == n_rendered + 1 < 40
    assert objects[-1] == f"... [truncated {1000 - n_rendered} values]"


def test_fields_are_blanked_by_their_names(default: Probe):
    with logkit.log_context(api_key="k-1"):
        logkit.info("message")
    assert "k-1" not in str(default.row.extra)


def test_a_trace_id_for_all_entries_within(default: Probe):
    with logkit.log_context(trace_id="t-1"):
        logkit.info("message")
    assert default.row.trace_id == "t-1"
    assert "trace_id" not in default.row.extra


def test_fields_belong_to_a_task(default: Probe):
    @log_call
    async def leaf(name: str) -> None:
        await asyncio.sleep(0)

    async def branch(name: str) -> None:
        with logkit.log_context(branch=name):
            for _ in range(3):
                await leaf(name)
                await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(branch(name) for name in "abc"))

    asyncio.run(main())
    assert len(default.rows) == 9
    for row in default.rows:
        assert row.args == f"('{row.extra['branch']}',)"


def test_fields_belong_to_a_thread(default: Probe):
    with logkit.log_context(n=1):
        thread = threading.Thread(target=lambda: logkit.info("other"))
        thread.start()
        thread.join()
        logkit.info("own")
    # A thread that inherits the context (free-threaded builds) has the fields, any other has not.
    assert default.rows[-1].extra["n"] == 1


def test_silence(default: Probe):
    @log_call
    def work() -> int:
        return 1

    with logkit.silence():
        assert work() == 1
        logkit.info("nothing")
        with logkit.silence():
            work()
        work()
    work()
    assert len(default.rows) == 1


def test_silence_holds_within_coroutines(default: Probe):
    @log_call
    async def work() -> None:
        await asyncio.sleep(0)

    async def main() -> None:
        async def quiet() -> None:
            with logkit.silence():
                await work()

        await asyncio.gather(quiet(), work())

    asyncio.run(main())
    assert len(default.rows) == 1


def test_spans(default: Probe):
    @log_call
    def work() -> None: ...

    with logkit.span("checkout", cart=5):
        work()
    inner, outer = default.rows
    assert outer.function_name == "checkout" and outer.extra["cart"] == 5
    assert inner.parent_id == outer.span_id
    assert outer.duration_ms is not None


def test_a_span_that_fails(default: Probe):
    error = ValueError("bad")
    with pytest.raises(ValueError) as caught, logkit.span("checkout"):
        raise error
    assert caught.value is error
    assert (default.row.level, default.row.exception) == ("ERROR", "bad")


def test_spans_around_coroutines(default: Probe):
    @log_call
    async def work(name: str) -> None:
        await asyncio.sleep(0.001)

    async def branch(name: str) -> None:
        with logkit.span(name):
            await work(name)
            await work(name)

    async def main() -> None:
        await asyncio.gather(branch("a"), branch("b"))

    asyncio.run(main())
    spans = {row.function_name: row.span_id for row in default.rows if row.function_name in ("a", "b")}
    for row in default.rows:
        if row.function_name not in spans:
            assert row.parent_id == spans[row.args[2]], default.rows


def test_a_level_for_a_while(default: Probe):
    default.logger.level = "WARNING"
    logkit.info("left out")
    with logkit.temp_level("DEBUG"):
        logkit.info("taken")
    logkit.info("left out")
    assert [row.level for row in default.rows] == ["INFO"]
    assert default.logger.level == "WARNING"


def test_a_sink_for_a_while(default: Probe):
    more = Capture()
    logkit.info("before")
    with logkit.temp_sink(more):
        logkit.info("within")
    logkit.info("after")
    assert len(default.rows) == 3 and len(more.rows) == 1
    assert more not in default.logger.sinks


def test_decisions(default: Probe):
    @logkit.decision_log(name="credit")
    def decide(amount: int) -> dict[str, Any]:
        return {"decision": "no", "reason": "too much", "other": 1}

    assert decide(5)["decision"] == "no"
    row = default.row
    assert row.level == "INFO" and row.function_name == "credit"
    assert (row.extra["decision"], row.extra["reason"]) == ("no", "too much")


def test_decisions_that_are_none(default: Probe):
    @logkit.decision_log
    def decide() -> Any:
        return 5

    assert decide() == 5
    assert default.row.return_value == "5"


def test_context_managers_pass_errors_on(default: Probe):
    for make in (lambda: logkit.log_context(a=1), logkit.silence, lambda: logkit.temp_level("INFO")):
        with pytest.raises(KeyError), make():
            raise KeyError("own")

    @catch
    def fine() -> int:
        return 1

    assert fine() == 1
    assert "a" not in default.rows[-1].extra
