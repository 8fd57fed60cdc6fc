"""What holds for a part of a program: fields, spans, silence, another level, another sink."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from . import _context
from ._native import Logger, Site, default_logger

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager
    from contextvars import Token
    from types import TracebackType

    from ._native import Call
    from ._types import AnyLogger, AnySink

__all__ = ["log_context", "silence", "span", "temp_level", "temp_sink"]


def log_context(**fields: Any) -> AbstractContextManager[None]:
    """Give those fields to all entries made within, also in tasks that are started within.

    ``trace_id`` becomes the trace id of the entries; all others go to ``extra``.
    """
    return _context.adding(fields)


def silence() -> AbstractContextManager[None]:
    """Log nothing that happens within, also in tasks that are started within."""
    return _context.silencing()


class span:  # noqa: N801 - used as a function.
    """Log a piece of work that has no function of its own.

    Calls within have it as their parent, also in tasks that are started within.
    """

    __slots__ = ("_attrs", "_call", "_level", "_logger", "_name", "_token")

    def __init__(
        self, name: str, /, *, level: str = "INFO", logger: AnyLogger | None = None, **attrs: Any
    ) -> None:
        self._name = name
        self._level = level
        self._logger = logger
        self._attrs = attrs
        self._call: Call | None = None
        self._token: Token[tuple[int, int] | None] | None = None

    def __enter__(self) -> span:
        _context.use()
        site = Site(self._name, "span", (), level=self._level, logger=self._logger)
        self._call = call = site.begin((), {})
        if call is not None:
            # It may wait, and go on in another thread.
            call.detach()
            self._token = _context.span.set(call.mark)
        return self

    def field(self, **attrs: Any) -> span:
        """Add fields to the entry."""
        self._attrs.update(attrs)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        call, self._call = self._call, None
        if call is None:
            return
        if self._token is not None:
            _context.leave(self._token)
        with _context.adding(self._attrs):
            if error is None:
                call.returned(None)
            else:
                call.raised(error)


@contextmanager
def temp_level(level: str, logger: Logger | None = None) -> Generator[Logger, None, None]:
    """Give a logger another level; without one, the default logger."""
    logger = _logger(logger)
    before = logger.level
    logger.level = level
    try:
        yield logger
    finally:
        logger.level = before


@contextmanager
def temp_sink(sink: AnySink, logger: Logger | None = None) -> Generator[Logger, None, None]:
    """Give a logger another sink; without one, the default logger. What was logged within is written."""
    logger = _logger(logger)
    logger.add_sink(sink)
    try:
        yield logger
    finally:
        logger.flush()
        logger.remove_sink(sink)


def _logger(logger: Logger | None) -> Logger:
    if logger is not None:
        return logger
    found = default_logger()
    if not isinstance(found, Logger):
        raise TypeError("the default logger is no logkit.Logger: name the logger")
    return found
