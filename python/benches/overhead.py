"""What a logged call costs, beside the standard library, loguru and structlog.

    python benches/overhead.py [--rounds N] [--calls N] [--only TEXT] [--json] [--check]

The figure is the time that logging adds to ``f(i, 2, name="abc")``, which returns a small dictionary: that
of the decorated function minus that of the plain one, in rounds in which all take turns, so that all see the
same machine. The peers write the same fields (arguments, types, result, duration) with a decorator written
by hand. Writers that work behind the program get time to finish after each round; that time is shown apart,
and the sustained rate counts it. Peers that are not installed are left out.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import logging
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import logkit

Work = Callable[..., Any]


def plain(i: int, n: int, *, name: str) -> dict[str, Any]:
    """What is measured."""
    return {"i": i, "n": n, "name": name}


def failing(i: int, n: int, *, name: str) -> dict[str, Any]:
    """What is measured where it fails."""
    raise ValueError("bad price")


def failing_caught(i: int, n: int, *, name: str) -> dict[str, Any] | None:
    """The same without logging."""
    try:
        return failing(i, n, name=name)
    except Exception:
        return None


class Target:
    """One way to log."""

    def __init__(
        self,
        label: str,
        make: Callable[[Path], tuple[Work, Callable[[], object]]],
        *,
        goal: float | None = None,
        kind: str = "",
        fails: bool = False,
        share: int = 1,
        stderr: bool = False,
    ) -> None:
        self.label = label
        self.make = make
        self.goal = goal
        self.kind = kind
        self.fails = fails
        self.share = share
        self.stderr = stderr
        self.costs: list[float] = []
        self.drains: list[float] = []
        self.rates: list[float] = []


# Ours.


def ours(*sinks: Callable[[Path], Any], console: bool = False, fails: bool = False) -> Any:
    """A target with those sinks."""

    def make(folder: Path) -> tuple[Work, Callable[[], object]]:
        made = [sink(folder) for sink in sinks]
        logger = logkit.Logger("bench", sinks=made, propagate_stdlib=console)
        decorator: Any = logkit.catch(logger=logger) if fails else logkit.log_call(logger=logger)

        def drain() -> None:
            if not logger.flush(60.0):
                raise RuntimeError("the queue was not drained")
            stats = logger.stats()
            if stats["dropped"] or stats["sink_errors"]:
                raise RuntimeError(f"entries were lost: {stats}")

        return decorator(failing if fails else plain), drain

    return make


OURS = [
    Target("null sink", ours(lambda folder: logkit.NullSink()), goal=2.5, kind="null"),
    Target("database", ours(lambda folder: logkit.DbSink(str(folder / "a.db"))), goal=4.0, kind="db"),
    Target("CSV", ours(lambda folder: logkit.CSVSink(str(folder / "a.csv"))), goal=4.0, kind="text"),
    Target("Markdown", ours(lambda folder: logkit.MarkdownSink(str(folder / "a.md"))), goal=4.0, kind="text"),
    Target(
        "JSON Lines", ours(lambda folder: logkit.JSONSink(str(folder / "a.jsonl"))), goal=4.0, kind="json"
    ),
    Target("metrics", ours(lambda folder: logkit.MetricsSink()), goal=3.5, kind="metrics"),
    Target("console, into a file", ours(console=True), goal=5.0, kind="text", stderr=True),
    Target(
        "caught exception, null sink",
        ours(lambda folder: logkit.NullSink(), fails=True),
        goal=20.0,
        kind="null",
        fails=True,
        share=5,
    ),
    Target(
        "caught exception, database",
        ours(lambda folder: logkit.DbSink(str(folder / "e.db")), fails=True),
        goal=25.0,
        kind="db",
        fails=True,
        share=5,
    ),
]


# Peers: the same fields, written by hand.


def fields_of(function: Work, args: Any, kwargs: Any, result: Any, started: int) -> dict[str, Any]:
    """What an entry holds."""
    return {
        "function_name": function.__qualname__,
        "module": function.__module__,
        "args": repr(args),
        "kwargs": repr(kwargs),
        "arg_types": ", ".join([type(value).__name__ for value in args]),
        "kwarg_types": repr({name: type(value).__name__ for name, value in kwargs.items()}),
        "return_value": repr(result),
        "return_type": type(result).__name__,
        "duration_ms": round((time.perf_counter_ns() - started) / 1e6, 3),
    }


LINE = (
    "{function_name}() | {module} | args={args} ({arg_types}) | kwargs={kwargs} ({kwarg_types})"
    " | -> {return_value} ({return_type}) | [{duration_ms}ms]"
)


def by_hand(log: Callable[[dict[str, Any]], object]) -> Work:
    """The function, decorated by hand."""

    @functools.wraps(plain)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter_ns()
        result = plain(*args, **kwargs)
        log(fields_of(plain, args, kwargs, result, started))
        return result

    return wrapper


def by_hand_failing(log: Callable[[dict[str, Any]], object]) -> Work:
    """The function that fails, decorated by hand; `log` is called within the handler."""

    @functools.wraps(failing)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter_ns()
        try:
            return failing(*args, **kwargs)
        except Exception:
            log(fields_of(failing, args, kwargs, None, started))
            return None

    return wrapper


def stdlib_logger(folder: Path, name: str) -> tuple[logging.Logger, logging.Handler]:
    """A logger of the standard library that writes to a file."""
    logger = logging.getLogger(f"peer.{name}")
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    handler = logging.FileHandler(folder / f"{name}.log", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s | %(levelname)s | %(name)s | %(message)s"))
    logger.addHandler(handler)
    return logger, handler


def stdlib(folder: Path) -> tuple[Work, Callable[[], object]]:
    """logging, text in a file."""
    logger, handler = stdlib_logger(folder, "stdlib")
    return by_hand(lambda fields: logger.debug(LINE.format(**fields))), handler.flush


def stdlib_failing(folder: Path) -> tuple[Work, Callable[[], object]]:
    """logging, with the traceback."""
    logger, handler = stdlib_logger(folder, "stdlib-error")
    return by_hand_failing(lambda fields: logger.error(LINE.format(**fields), exc_info=True)), handler.flush


def loguru(serialize: bool, enqueue: bool) -> Callable[[Path], tuple[Work, Callable[[], object]]]:
    """loguru in a file."""

    def make(folder: Path) -> tuple[Work, Callable[[], object]]:
        from loguru import logger

        number = f"{int(serialize)}{int(enqueue)}"
        mine = logger.bind(peer=number)
        logger.add(
            folder / f"loguru-{number}.log",
            format="{time} | {level} | {message}",
            serialize=serialize,
            enqueue=enqueue,
            filter=lambda record: record["extra"].get("peer") == number,
        )
        if serialize:
            return by_hand(lambda fields: mine.bind(**fields).debug("call")), logger.complete
        return by_hand(lambda fields: mine.debug(LINE.format(**fields))), logger.complete

    return make


def structlog_json(folder: Path) -> tuple[Work, Callable[[], object]]:
    """structlog, JSON in a file."""
    import structlog

    file = (folder / "structlog.jsonl").open("w", encoding="utf-8")
    logger = structlog.wrap_logger(
        structlog.WriteLogger(file),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        cache_logger_on_first_use=True,
    ).bind()
    return by_hand(lambda fields: logger.debug("call", **fields)), file.flush


def peers() -> list[Target]:
    """Those that are installed."""
    found = [
        Target("logging, file", stdlib, kind="text", share=4),
        Target("logging, file, caught exception", stdlib_failing, kind="db", fails=True, share=5),
    ]
    try:
        import loguru as module

        module.logger.remove()
        found += [
            Target("loguru, file", loguru(False, False), kind="text", share=4),
            Target("loguru, JSON", loguru(True, False), kind="json", share=8),
            Target("loguru, file, enqueue", loguru(False, True), kind="text", share=8),
        ]
    except ImportError:
        pass
    try:
        import structlog

        assert structlog
        found.append(Target("structlog, JSON", structlog_json, kind="json", share=4))
    except ImportError:
        pass
    return found


# Measuring.


def loop(work: Work, n: int) -> float:
    """Microseconds of a call."""
    numbers = range(n)
    started = time.perf_counter_ns()
    for i in numbers:
        work(i, 2, name="abc")
    return (time.perf_counter_ns() - started) / n / 1e3


class Stderr:
    """Lets what is written to stderr go to a file."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def __enter__(self) -> None:
        if self.path:
            sys.stderr.flush()
            self.before = os.dup(2)
            file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(file, 2)
            os.close(file)

    def __exit__(self, *error: object) -> None:
        if self.path:
            os.dup2(self.before, 2)
            os.close(self.before)


def measure(targets: list[Target], rounds: int, calls: int) -> None:
    """Lets all of them take turns."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = [(target, *target.make(folder)) for target in targets]
        for number in range(-1, rounds):  # the first round warms up
            for target, work, drain in made:
                n = max(calls // target.share, 100)
                gc.collect()
                with Stderr(folder / "console.log" if target.stderr else None):
                    base = loop(failing_caught if target.fails else plain, n)
                    cost = loop(work, n)
                    started = time.perf_counter()
                    drain()
                    drained = time.perf_counter() - started
                if number >= 0:
                    target.costs.append(cost - base)
                    target.drains.append(drained / n * 1e6)
                    target.rates.append(n / (cost * n / 1e6 + drained))


def rows_of(targets: list[Target]) -> list[dict[str, Any]]:
    """The figures."""
    return [
        {
            "label": target.label,
            "kind": target.kind,
            "fails": target.fails,
            "added_us": round(statistics.median(target.costs), 2),
            "fastest_us": round(min(target.costs), 2),
            "goal_us": target.goal,
            "drain_us": round(statistics.median(target.drains), 2),
            "sustained_per_s": round(statistics.median(target.rates)),
        }
        for target in targets
    ]


def print_tables(own: list[dict[str, Any]], others: list[dict[str, Any]], about: str) -> None:
    """The figures as Markdown."""
    print(about)
    print()
    print("| logkit | added to a call | fastest round | goal | then to drain | sustained |")
    print("|---|---|---|---|---|---|")
    for row in own:
        met = "" if row["added_us"] <= row["goal_us"] else " (missed)"
        print(
            f"| {row['label']} | {row['added_us']:.2f} µs | {row['fastest_us']:.2f} µs | {row['goal_us']:g} µs{met} "
            f"| {row['drain_us']:.2f} µs | {row['sustained_per_s']:,} a second |"
        )
    if not others:
        return
    print()
    print(
        "| peer, same fields | added to a call | fastest round | logkit's counterpart | ratio | sustained |"
    )
    print("|---|---|---|---|---|---|")
    for row in others:
        same = [mine for mine in own if mine["kind"] == row["kind"] and mine["fails"] == row["fails"]]
        slowest = max(same, key=lambda mine: mine["added_us"], default=None)
        beside, ratio = "", ""
        if slowest:
            beside = f"{slowest['label']}, {slowest['added_us']:.2f} µs"
            ratio = f"{row['added_us'] / slowest['added_us']:.1f}×"
        print(
            f"| {row['label']} | {row['added_us']:.2f} µs | {row['fastest_us']:.2f} µs | {beside} | {ratio} "
            f"| {row['sustained_per_s']:,} a second |"
        )


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description="What a logged call costs, beside other libraries.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=20_000, help="calls of a round; slow ones make fewer")
    parser.add_argument("--only", default="", help="targets whose name holds this")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--check", action="store_true", help="fail if a goal is missed by more than a fifth")
    options = parser.parse_args()
    own = [target for target in OURS if options.only in target.label]
    others = [target for target in peers() if options.only in target.label]
    measure(own + others, options.rounds, options.calls)
    own_rows, other_rows = rows_of(own), rows_of(others)
    about = (
        f"logkit {logkit.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores, "
        f"{options.rounds} rounds of {options.calls:,} calls, medians."
    )
    if options.json:
        print(
            json.dumps(
                {"about": about, "logkit": own_rows, "peers": other_rows}, indent=2, ensure_ascii=False
            )
        )
    else:
        print_tables(own_rows, other_rows, about)
    missed = [row for row in own_rows if row["added_us"] > row["goal_us"] * 1.2]
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
