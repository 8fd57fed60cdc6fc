"""A program of a user, for type checkers: decorators keep the types of what they decorate."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any, Optional

import logkit
from logkit import LogEntry, Logger, Sink, catch, log_call, logged, skip
from logkit.env import DynamicRouter
from logkit.models import safe_repr

if sys.version_info >= (3, 11):
    from typing import assert_type
else:
    from typing_extensions import assert_type


class Own(Sink):
    """A sink of one's own."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []

    def write(self, entry: LogEntry) -> None:
        self.entries.append(entry)


class Duck:
    """A sink that is no subclass."""

    def write(self, entry: LogEntry) -> None:
        print(entry.function_name, entry.args_repr())


logger: Logger = logkit.configure(
    name="shop",
    level="INFO",
    sinks=[
        "db:logs.db",
        Own(),
        Duck(),
        logkit.DbSink("other.db"),
        logkit.EnvTagger(Duck(), environment="prod"),
    ],
    modules=["urllib3"],
    environment="prod",
    redact=["pin"],
)


@log_call
def bare(a: int, *, name: str = "x") -> str:
    return name * a


@log_call(
    level="INFO", logger=logger, skip_args=["a"], redact=["pin"], sample_rate=0.5, slow_ms=1.0, name="shown"
)
def called(a: int, pin: str = "") -> list[int]:
    return [a]


@log_call
async def fetch(n: int) -> bytes:
    return b"x" * n


@log_call
def count(n: int) -> Iterator[int]:
    yield n


@log_call
async def stream(n: int) -> AsyncIterator[int]:
    yield n


@catch
def may_fail(a: int) -> int:
    return 1 // a


@catch(default=0)
def with_default(a: int) -> int:
    return 1 // a


@logged
class Tools:
    def work(self, n: int) -> int:
        return n

    @staticmethod
    def still(n: int) -> str:
        return str(n)

    @skip
    def left_out(self) -> None: ...


@logged(level="INFO")
class More:
    def work(self) -> float:
        return 1.0


class Client:
    @log_call
    def get(self, path: str) -> bytes:
        return path.encode()

    @classmethod
    @log_call(level="INFO")
    def make(cls, n: int) -> Client:
        return cls()


async def use() -> None:
    assert_type(bare(1, name="y"), str)
    assert_type(called(1), list[int])
    assert_type(await fetch(3), bytes)
    for number in count(1):
        assert_type(number, int)
    async for number in stream(1):
        assert_type(number, int)
    assert_type(may_fail(1), Optional[int])
    assert_type(with_default(1), int)
    assert_type(Tools().work(1), int)
    assert_type(Tools.still(1), str)
    assert_type(More().work(), float)
    assert_type(Client().get("x"), bytes)
    assert_type(Client.make(1), Client)


def context() -> None:
    with logkit.log_context(user="ann", n=1), logkit.span("checkout", cart=5), logkit.silence():
        logkit.info("message", value=1)
    with logkit.temp_level("DEBUG"), logkit.temp_sink(Own()):
        logkit.get_logger("billing").warning("late", days=3)


def more() -> None:
    entry = LogEntry(
        timestamp=LogEntry.now(),
        level="INFO",
        function_name="f",
        module="m",
        args=(1,),
        kwargs={},
        arg_types=["int"],
        kwarg_types={},
    )
    columns: dict[str, Any] = entry.as_dict()
    text: str = safe_repr(columns, 10)
    router = DynamicRouter([(lambda entry: entry.level == "ERROR", logkit.NullSink())], default=Own())
    logger.add_sink(router).add_sink(Duck())
    done: bool = logger.flush(1.0)
    counts: dict[str, int] = logger.stats()
    found: str | None = logkit.detect_prompt_injection(text)
    n: int = logkit.auto_log(level="INFO") + logkit.auto_log_by_name("shop.prices")
    secret: bool = logkit.is_sensitive_key("password")
    print(done, counts, found, n, secret, logkit.MetricsSink().get_metrics().decode())


# What follows must be refused; `warn_unused_ignores` makes a checker complain where it is not.
bare("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
log_call(no_such_option=1)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
