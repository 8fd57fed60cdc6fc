"""Makes entries of what the standard library's loggers are told."""

from __future__ import annotations

import logging
import threading
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from .models import LogEntry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._types import AnyLogger

__all__ = ["Bridge", "install", "remove"]

#: Whether this thread hands on a record.
_busy = threading.local()

#: Loggers that were given a handler, and that handler.
_installed: list[tuple[logging.Logger, Bridge]] = []


class Bridge(logging.Handler):
    """Hands records to a logger of logkit."""

    def __init__(self, logger: AnyLogger) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        """Make an entry of a record; nothing that fails reaches whoever logged it."""
        # A logger that hands its entries on to the standard library would get them back, and a sink
        # that logs would be called for its own records.
        if record.name == getattr(self._logger, "name", None) or getattr(_busy, "yes", False):
            return
        _busy.yes = True
        try:
            self._logger.emit(entry_of(record))
        except Exception:
            self.handleError(record)
        finally:
            _busy.yes = False


def entry_of(record: logging.LogRecord) -> LogEntry:
    """Return the entry of a record."""
    try:
        message = record.getMessage()
    except Exception:
        # The arguments do not fit the format: that is no reason to lose both.
        message = f"{record.msg} {record.args!r}"
    at_module_level = not record.funcName or record.funcName == "<module>"
    exception, kind, traceback = "", "", record.exc_text or ""
    if record.exc_info and record.exc_info[0] is not None:
        kind = record.exc_info[0].__name__
        exception = _text(record.exc_info[1])
        traceback = traceback or logging.Formatter().formatException(record.exc_info)
    return LogEntry(
        timestamp=datetime.fromtimestamp(record.created, timezone.utc),
        level=record.levelname.upper(),
        function_name=record.name if at_module_level else f"{record.name}.{record.funcName}",
        module=record.name,
        args=(),
        kwargs={},
        arg_types=[],
        kwarg_types={},
        return_value=message,
        return_type="str",
        exception=exception,
        exception_type=kind,
        traceback=traceback,
        extra={"message": message, "source": "stdlib_bridge"},
    )


def install(logger: AnyLogger, modules: Iterable[str] | None = None) -> int:
    """Hand what those loggers of the standard library are told to `logger`; return how many that are.

    Without names it is the root logger, which gets everything that is not kept from it.
    """
    names = ["root"] if modules is None else sorted(set(modules), key=lambda name: (len(name), name))
    n_installed = 0
    for name in names:
        source = logging.getLogger(None if name in ("", "root") else name)
        if _is_bridged(source):
            continue
        handler = Bridge(logger)
        source.addHandler(handler)
        _installed.append((source, handler))
        n_installed += 1
    return n_installed


def remove() -> None:
    """Take all bridges away."""
    while _installed:
        source, handler = _installed.pop()
        source.removeHandler(handler)
        handler.close()


def _is_bridged(source: logging.Logger) -> bool:
    """Tell whether records of that logger come to a bridge already: its own, or that of an ancestor."""
    at: logging.Logger | None = source
    while at is not None:
        if any(isinstance(handler, Bridge) for handler in at.handlers):
            return True
        at = at.parent if at.propagate else None
    return False


def _text(error: Any) -> str:
    try:
        return str(error)
    except Exception as failed:
        return f"<str failed: {type(failed).__name__}>"
