"""Messages: entries that are no calls."""

from __future__ import annotations

import sys
from typing import Any

from ._native import default_logger
from .models import LogEntry

__all__ = ["Named", "critical", "debug", "error", "event", "get_logger", "info", "warning"]


def debug(message: str, /, **fields: Any) -> None:
    """Log a message with fields at DEBUG."""
    _emit("DEBUG", message, fields, _caller())


def info(message: str, /, **fields: Any) -> None:
    """Log a message with fields at INFO."""
    _emit("INFO", message, fields, _caller())


def warning(message: str, /, **fields: Any) -> None:
    """Log a message with fields at WARNING."""
    _emit("WARNING", message, fields, _caller())


def error(message: str, /, **fields: Any) -> None:
    """Log a message with fields at ERROR."""
    _emit("ERROR", message, fields, _caller())


def critical(message: str, /, **fields: Any) -> None:
    """Log a message with fields at CRITICAL."""
    _emit("CRITICAL", message, fields, _caller())


def event(message: str, /, *, level: str = "INFO", **fields: Any) -> None:
    """Log a message with fields."""
    _emit(level, message, fields, _caller())


class Named:
    """Logs messages under a name of its own, which is the module of their entries; see `get_logger`."""

    __slots__ = ("name",)

    name: str

    def __init__(self, name: str) -> None:
        self.name = name

    def debug(self, message: str, /, **fields: Any) -> None:
        """Log a message with fields at DEBUG."""
        _emit("DEBUG", message, fields, self.name)

    def info(self, message: str, /, **fields: Any) -> None:
        """Log a message with fields at INFO."""
        _emit("INFO", message, fields, self.name)

    def warning(self, message: str, /, **fields: Any) -> None:
        """Log a message with fields at WARNING."""
        _emit("WARNING", message, fields, self.name)

    def error(self, message: str, /, **fields: Any) -> None:
        """Log a message with fields at ERROR."""
        _emit("ERROR", message, fields, self.name)

    def critical(self, message: str, /, **fields: Any) -> None:
        """Log a message with fields at CRITICAL."""
        _emit("CRITICAL", message, fields, self.name)

    def event(self, message: str, /, *, level: str = "INFO", **fields: Any) -> None:
        """Log a message with fields."""
        _emit(level, message, fields, self.name)

    def __repr__(self) -> str:
        return f"logkit.get_logger({self.name!r})"


def get_logger(name: str) -> Named:
    """Return what logs messages under that name, through the default logger."""
    return Named(name)


def _caller() -> str:
    return str(sys._getframe(2).f_globals.get("__name__", ""))


def _emit(level: str, message: str, fields: dict[str, Any], module: str) -> None:
    text = str(message)
    entry = LogEntry(
        timestamp=LogEntry.now(),
        level=level.upper(),
        function_name="event",
        module=module,
        args=(),
        kwargs={},
        arg_types=[],
        kwarg_types={},
        return_value=text,
        return_type="str",
        extra={"message": text, **fields},
    )
    default_logger().emit(entry)
