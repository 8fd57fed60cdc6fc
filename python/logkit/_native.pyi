"""The native half of logkit."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import timedelta
from os import PathLike
from pathlib import Path
from types import CodeType
from typing import Any, Literal, final, overload

from typing_extensions import Self, TypeAlias

from ._types import AnyLogger, AnySink, Redact, SinkOrSpec
from .models import LogEntry
from .sinks import Sink

_Path: TypeAlias = str | PathLike[str]
_Binary: TypeAlias = Literal["repr", "meta"]
_Compress: TypeAlias = Literal["zstd"] | bool
_Durability: TypeAlias = Literal["buffered", "crash", "sync", "full"]
_OnFull: TypeAlias = Literal["block", "drop_new", "drop_old"]

# Capture

@final
class Site:
    """A function whose calls are logged."""

    def __new__(
        cls,
        function_name: str,
        module: str,
        parameters: tuple[str, ...],
        *,
        level: str = "DEBUG",
        logger: AnyLogger | None = None,
        max_repr_length: int | None = 2048,
        sample_rate: float | None = None,
        skip_args: tuple[str, ...] = (),
        redact: Redact | None = None,
        slow_ms: float | None = None,
    ) -> Self: ...
    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None: ...

@final
class Call:
    """A call that runs."""

    @property
    def span_id(self) -> int: ...
    @property
    def mark(self) -> tuple[int, int]: ...
    def returned(self, value: object) -> None: ...
    def raised(self, error: BaseException) -> None: ...
    def detach(self) -> None: ...
    def resume(self) -> None: ...
    def suspend(self) -> None: ...
    def start_clock(self) -> None: ...
    def stop_clock(self) -> None: ...
    def ended(self, n_yielded: int) -> None: ...
    def failed(self, error: BaseException, n_yielded: int) -> None: ...

def set_context(
    span: ContextVar[tuple[int, int] | None],
    fields: ContextVar[dict[str, Any] | None],
    silent: ContextVar[bool],
) -> None: ...
def use_context() -> None: ...
def capture_frames(*code_objects: CodeType) -> None: ...

# Loggers

class Logger:
    """Takes entries and hands them to its sinks, through a bounded queue and a thread that writes."""

    def __new__(
        cls,
        name: str = "logkit",
        level: str = "DEBUG",
        sinks: Iterable[SinkOrSpec] | None = None,
        propagate_stdlib: bool = True,
        *,
        console: bool | None = None,
        redact: Redact | None = None,
        binary: _Binary = "repr",
        on_full: _OnFull | None = None,
        durability: _Durability | None = None,
        queue: int | None = None,
    ) -> Self: ...
    @property
    def name(self) -> str: ...
    @property
    def level(self) -> str: ...
    @level.setter
    def level(self, level: str) -> None: ...
    @property
    def sinks(self) -> list[Any]: ...
    @property
    def propagate_stdlib(self) -> bool: ...
    def add_sink(self, sink: SinkOrSpec) -> Self: ...
    def remove_sink(self, sink: AnySink) -> None: ...
    def emit(self, entry: LogEntry) -> None: ...
    def flush(self, timeout: float = 5.0) -> bool: ...
    def close(self) -> None: ...
    def stats(self) -> dict[str, int]: ...

def default_logger() -> AnyLogger: ...
def set_default_logger(logger: AnyLogger) -> None: ...
def configure(
    *,
    name: str = "logkit",
    level: str = "DEBUG",
    sinks: Iterable[SinkOrSpec] | None = None,
    propagate_stdlib: bool = True,
    env_prefix: str = "LOGKIT_",
    environment: str | None = None,
    version: str | None = None,
    llm_model: str | None = None,
    detect_injection: bool = False,
    force: bool = False,
    redact: Redact | None = None,
    binary: _Binary = "repr",
    console: bool | None = None,
    on_full: _OnFull | None = None,
    durability: _Durability | None = None,
    queue: int | None = None,
) -> Logger: ...
def load_env(path: _Path | None = None, override: bool = False) -> dict[str, str]: ...

# For the hooks of the process; nobody else calls them.
def _before_fork() -> None: ...
def _after_fork() -> None: ...
def _in_child() -> None: ...
def _drain() -> None: ...
def _drain_in_child(*ignored: object) -> None: ...

# Sinks

class NativeSink(Sink):
    """A sink or wrapper of the native half. When the program runs it is registered as a `Sink`."""

    def write(self, entry: LogEntry) -> None: ...
    def write_batch(self, entries: Iterable[LogEntry]) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def delegate(self) -> Any: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...

class DbSink(NativeSink):
    """An SQLite database."""

    def __new__(
        cls,
        db_path: _Path = "logs.db",
        table: str = "logs",
        *,
        delegate: AnySink | None = None,
        durability: _Durability | None = None,
        retain: str | timedelta | None = None,
        max_rows: int | None = None,
    ) -> Self: ...
    @property
    def db_path(self) -> Path: ...
    @property
    def table(self) -> str: ...

class CSVSink(NativeSink):
    """A file of comma-separated values, with a header."""

    def __new__(
        cls,
        file_path: _Path = "logs.csv",
        delegate: AnySink | None = None,
        *,
        safe_formulas: bool = False,
        max_bytes: int | str | None = None,
        backups: int | None = None,
        daily: bool = False,
        compress: _Compress | None = None,
    ) -> Self: ...
    @property
    def file_path(self) -> Path: ...

class MarkdownSink(NativeSink):
    """A file for reading."""

    def __new__(
        cls,
        file_path: _Path = "logs.md",
        delegate: AnySink | None = None,
        *,
        max_bytes: int | str | None = None,
        backups: int | None = None,
        daily: bool = False,
        compress: _Compress | None = None,
    ) -> Self: ...
    @property
    def file_path(self) -> Path: ...

class JSONSink(NativeSink):
    """A file of JSON objects."""

    def __new__(
        cls,
        file_path: _Path = "logs.jsonl",
        pretty: bool = False,
        delegate: AnySink | None = None,
        compact: bool = False,
        *,
        typed: bool = False,
        max_bytes: int | str | None = None,
        backups: int | None = None,
        daily: bool = False,
        compress: _Compress | None = None,
    ) -> Self: ...
    @property
    def file_path(self) -> Path: ...

class MetricsSink(NativeSink):
    """Counts calls for Prometheus."""

    def __new__(
        cls,
        delegate: AnySink | None = None,
        port: int | None = None,
        host: str = "0.0.0.0",
        prefix: str = "logkit",
        registry: Any = None,
    ) -> Self: ...
    @property
    def port(self) -> int | None: ...
    def get_metrics(self) -> bytes: ...

class WebhookSink(NativeSink):
    """Announces errors."""

    def __new__(
        cls,
        url: str,
        delegate: AnySink | None = None,
        levels: Sequence[str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 5.0,
        format: str = "slack",
    ) -> Self: ...

class LLMSink(NativeSink):
    """Lets a model explain errors."""

    def __new__(
        cls,
        model: str,
        *,
        delegate: AnySink | None = None,
        system_prompt: str | None = None,
        analyze_levels: Sequence[str] | None = None,
        on_analysis: Callable[[LogEntry, str], object] | None = None,
        async_mode: bool = True,
        detect_injection: bool = True,
        timeout: float = 30.0,
        max_tokens: int = 200,
        temperature: float = 0.3,
        analyze_injected: bool = False,
    ) -> Self: ...

class EnvTagger(NativeSink):
    """Fills in environment, trace id and version where an entry has none."""

    def __new__(
        cls,
        delegate: AnySink,
        *,
        environment: str | None = None,
        trace_id: str | None = None,
        version: str | None = None,
        auto_detect: bool = True,
        git: bool = False,
    ) -> Self: ...
    @property
    def environment(self) -> str: ...
    @property
    def trace_id(self) -> str: ...
    @property
    def version(self) -> str: ...

class DiffTracker(NativeSink):
    """Tells when the same call gives something else in another version."""

    def __new__(
        cls, delegate: AnySink, store: _Path | DbSink | None = None, max_keys: int = 10_000
    ) -> Self: ...

class DynamicRouter(NativeSink):
    """Hands each entry to the sink of the first rule that is true of it."""

    def __new__(
        cls,
        rules: Iterable[tuple[Callable[[LogEntry], object], AnySink]],
        default: AnySink | None = None,
    ) -> Self: ...
    @property
    def unmatched(self) -> int: ...

class TerminalSink(NativeSink):
    """Lines on stderr."""

    def __new__(cls, format: str = "ascii") -> Self: ...

class RingBufferSink(NativeSink):
    """Holds entries back until an error, and then writes what led to it."""

    def __new__(
        cls,
        delegate: AnySink,
        capacity: int = 1000,
        trigger_levels: Sequence[str] | None = None,
        include_trigger: bool = True,
    ) -> Self: ...

class AsyncBufferedSink(NativeSink):
    """Hands entries on: native sinks are buffered already."""

    def __new__(cls, delegate: AnySink, **ignored: object) -> Self: ...

class RemoteSink(NativeSink):
    """Another logkit, over HTTP or gRPC."""

    def __new__(cls, url: str, api_key: str | None = None) -> Self: ...

class OTLPSink(NativeSink):
    """A collector of OpenTelemetry, over HTTP."""

    def __new__(
        cls, url: str, *, service: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Self: ...

class PostgresSink(NativeSink):
    """A PostgreSQL database."""

    def __new__(cls, url: str) -> Self: ...

class SyslogSink(NativeSink):
    """The log of the system, over a Unix socket."""

    def __new__(cls, path: _Path = "/dev/log", *, app_name: str | None = None) -> Self: ...
    @property
    def path(self) -> Path: ...

class NullSink(NativeSink):
    """Takes entries and keeps none."""

    def __new__(cls) -> Self: ...

def sink_from_spec(spec: str) -> NativeSink: ...

# Functions

def is_sensitive_key(name: object, /) -> bool: ...
def redact_value(name: object, value: Any, /) -> Any: ...
def redact_kwargs(kwargs: Mapping[str, Any], /) -> dict[str, Any]: ...
@overload
def redact_args(args: list[Any], names: Sequence[object] | None = None, /) -> list[Any]: ...
@overload
def redact_args(args: tuple[Any, ...], names: Sequence[object] | None = None, /) -> tuple[Any, ...]: ...
def redact_string(text: str, /) -> str: ...
def detect_prompt_injection(text: str | None, patterns: Sequence[str] | None = None) -> str | None: ...
def scan_entry_for_injection(entry: LogEntry, /) -> str | None: ...
def generate_trace_id() -> str: ...
def safe_repr(value: object, max_length: int | None = 2048) -> str: ...
def main(argv: Sequence[str], /) -> int: ...
def version() -> str: ...
