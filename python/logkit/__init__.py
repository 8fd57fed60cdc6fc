"""Logs calls: what a function was given, what came of it, how long it took, and in which call it happened.

    import logkit

    logkit.configure(sinks=["db:logs.db"])

    @logkit.log_call
    def price(article: str, n: int) -> int:
        return catalogue[article] * n

Logging never changes what a program does: what goes wrong with it is counted, and told once on stderr.
"""

from __future__ import annotations

# Two functions have the names of their modules, and go before them.
from ._native import version as _version
from .auto import auto_log, auto_log_by_name
from .configure import configure, load_env
from .context import log_context, silence, span, temp_level, temp_sink
from .decorators import catch, decision_log, log_call, skip
from .env import DiffTracker, DynamicRouter, EnvTagger, generate_trace_id
from .events import critical, debug, error, event, get_logger, info, warning
from .json_sink import JSONSink
from .llm import LLMSink, detect_prompt_injection, scan_entry_for_injection
from .logged import logged
from .logger import Logger, default_logger, set_default_logger
from .metrics import MetricsSink, PrometheusSink
from .models import DEFAULT_MAX_REPR_LENGTH, LogEntry, safe_repr
from .redact import (
    REDACTED,
    is_sensitive_key,
    redact_args,
    redact_kwargs,
    redact_string,
    redact_value,
)
from .sinks import (
    AsyncBufferedSink,
    CSVSink,
    DbSink,
    MarkdownSink,
    NullSink,
    OTLPSink,
    PostgresSink,
    RemoteSink,
    RingBufferSink,
    Sink,
    SQLiteSink,
    SyslogSink,
    TerminalSink,
    sink_from_spec,
)
from .webhook import WebhookSink

__version__: str = _version()
#: Level of the interface: that of the earlier library whose programs run with this one.
__interface__ = "0.2.6"

__all__ = [
    "DEFAULT_MAX_REPR_LENGTH",
    "REDACTED",
    "AsyncBufferedSink",
    "CSVSink",
    "DbSink",
    "DiffTracker",
    "DynamicRouter",
    "EnvTagger",
    "JSONSink",
    "LLMSink",
    "LogEntry",
    "Logger",
    "MarkdownSink",
    "MetricsSink",
    "NullSink",
    "OTLPSink",
    "PostgresSink",
    "PrometheusSink",
    "RemoteSink",
    "RingBufferSink",
    "SQLiteSink",
    "Sink",
    "SyslogSink",
    "TerminalSink",
    "WebhookSink",
    "__interface__",
    "__version__",
    "auto_log",
    "auto_log_by_name",
    "catch",
    "configure",
    "critical",
    "debug",
    "decision_log",
    "default_logger",
    "detect_prompt_injection",
    "error",
    "event",
    "generate_trace_id",
    "get_logger",
    "info",
    "is_sensitive_key",
    "load_env",
    "log_call",
    "log_context",
    "logged",
    "redact_args",
    "redact_kwargs",
    "redact_string",
    "redact_value",
    "safe_repr",
    "scan_entry_for_injection",
    "set_default_logger",
    "silence",
    "sink_from_spec",
    "skip",
    "span",
    "temp_level",
    "temp_sink",
    "warning",
]
