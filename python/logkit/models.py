"""What is known of one call."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone
from html import escape
from typing import Any

from ._native import safe_repr

__all__ = ["DEFAULT_MAX_REPR_LENGTH", "LogEntry", "safe_repr"]

#: Characters kept of a rendered field unless something else is asked for.
DEFAULT_MAX_REPR_LENGTH = 2048


@dataclass(repr=False)
class LogEntry:
    """One logged call.

    Sinks written in Python get it with the objects of the call in ``args``, ``kwargs`` and
    ``return_value``; everything else keeps texts. Attributes may be changed.
    """

    timestamp: datetime
    level: str
    function_name: str
    module: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    arg_types: list[str]
    kwarg_types: dict[str, str]
    return_value: Any = None
    return_type: str = ""
    exception: str = ""
    exception_type: str = ""
    traceback: str = ""
    duration_ms: float | None = None
    environment: str = ""
    trace_id: str = ""
    version: str = ""
    llm_analysis: str = ""
    extra: dict[str, Any] = field(default_factory=dict)
    max_repr_length: int | None = DEFAULT_MAX_REPR_LENGTH

    @staticmethod
    def now() -> datetime:
        """Return the present moment, in UTC."""
        return datetime.now(timezone.utc)

    def args_repr(self) -> str:
        """Return the positional arguments as text: as they were before the call."""
        return self._text(0, self.args)

    def kwargs_repr(self) -> str:
        """Return the named arguments as text: as they were before the call."""
        return self._text(2, self.kwargs)

    def return_value_repr(self) -> str:
        """Return the result as text."""
        return self._text(4, self.return_value)

    def as_dict(self) -> dict[str, Any]:
        """Return the columns in the order used everywhere; all are texts but ``duration_ms``.

        ``extra`` is no column.
        """
        return {
            "timestamp": _iso(self.timestamp),
            "level": self.level,
            "function_name": self.function_name,
            "module": self.module,
            "args": self.args_repr(),
            "kwargs": self.kwargs_repr(),
            "arg_types": ", ".join(self.arg_types),
            "kwarg_types": safe_repr(self.kwarg_types, self.max_repr_length),
            "return_value": self.return_value_repr(),
            "return_type": self.return_type or "",
            "exception": self.exception or "",
            "exception_type": self.exception_type or "",
            "traceback": self.traceback or "",
            "duration_ms": self.duration_ms,
            "environment": self.environment or "",
            "trace_id": self.trace_id or "",
            "version": self.version or "",
            "llm_analysis": self.llm_analysis or "",
        }

    def as_compact(self) -> dict[str, Any]:
        """Return what is not empty under short keys, for the prompt of a model."""
        columns = self.as_dict()
        compact: dict[str, Any] = {}
        for key, column, empty in _COMPACT:
            value = columns[column]
            if value is not None and value not in ("", empty):
                compact[key] = value
        return compact

    def _text(self, at: int, value: Any) -> str:
        # Rendered before the call; worth nothing once somebody has put another object here.
        texts: tuple[Any, ...] = self.__dict__.get("_texts", ())
        if len(texts) > at + 1 and texts[at] is value:
            text = texts[at + 1]
            if isinstance(text, str):
                return text
        return safe_repr(value, self.max_repr_length)

    def __repr__(self) -> str:
        parts = [self.level, f"{self.function_name}()"]
        if self.exception_type:
            parts.append(f"{self.exception_type}: {_first_line(self.exception)}")
        elif self.return_value is not None:
            parts.append(f"-> {_short(self.return_value_repr())}")
        if self.duration_ms is not None:
            parts.append(f"[{self.duration_ms:.2f}ms]")
        return f"<LogEntry {' '.join(parts)}>"

    def _repr_html_(self) -> str:
        """Return a table of what is not empty, for notebooks."""
        rows: dict[str, Any] = {**self.as_dict(), **self.extra}
        cells = "".join(
            f"<tr><th style='text-align:left'>{escape(str(name))}</th>"
            f"<td style='text-align:left'><pre style='margin:0'>{escape(str(value))}</pre></td></tr>"
            for name, value in rows.items()
            if value is not None and value not in ("", "()", "{}")
        )
        return f"<table>{cells}</table>"


#: Short key, column, and what the column has when it says nothing.
_COMPACT = (
    ("fn", "function_name", ""),
    ("lvl", "level", ""),
    ("mod", "module", ""),
    ("a", "args", "()"),
    ("kw", "kwargs", "{}"),
    ("ret", "return_value", "None"),
    ("rt", "return_type", ""),
    ("err", "exception", ""),
    ("et", "exception_type", ""),
    ("ms", "duration_ms", ""),
    ("env", "environment", ""),
    ("tid", "trace_id", ""),
)

#: Characters of a value in a line about an entry.
_SHORT = 60


def _iso(moment: datetime) -> str:
    if moment.tzinfo is None:
        # As sinks take it.
        moment = moment.replace(tzinfo=timezone.utc)
    return moment.astimezone(timezone.utc).isoformat(timespec="microseconds")


def _first_line(text: str) -> str:
    return _short(text.split("\n", 1)[0])


def _short(text: str) -> str:
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"
