"""Where entries go: the base of sinks, and the native ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from ._native import (
    AsyncBufferedSink,
    CSVSink,
    DbSink,
    JSONSink,
    MarkdownSink,
    NativeSink,
    NullSink,
    OTLPSink,
    PostgresSink,
    RemoteSink,
    RingBufferSink,
    SyslogSink,
    TerminalSink,
    sink_from_spec,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from typing_extensions import Self

    from .models import LogEntry

__all__ = [
    "AsyncBufferedSink",
    "CSVSink",
    "DbSink",
    "JSONSink",
    "MarkdownSink",
    "NativeSink",
    "NullSink",
    "OTLPSink",
    "PostgresSink",
    "RemoteSink",
    "RingBufferSink",
    "SQLiteSink",
    "Sink",
    "SyslogSink",
    "TerminalSink",
    "sink_from_spec",
]


class Sink(ABC):
    """Keeps entries, or hands them on.

    A sink written in Python gets entries with the objects of the call, in the thread of the caller
    and in order. What it raises is counted and told once; the caller never sees it. Calls of logged
    functions within a sink are not logged. Anything else with a method ``write`` is a sink too.
    """

    #: Entries come from the writer's thread, and all their values are texts.
    threaded: ClassVar[bool] = False

    @abstractmethod
    def write(self, entry: LogEntry) -> None:
        """Take one entry."""

    def write_batch(self, entries: Sequence[LogEntry]) -> None:
        """Take several entries, in order."""
        for entry in entries:
            self.write(entry)

    def flush(self) -> None:  # noqa: B027 - a sink that holds nothing back has nothing to do.
        """Write what is held back."""

    def close(self) -> None:  # noqa: B027 - as above.
        """Let go of everything. Nothing is written afterwards."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


if not TYPE_CHECKING:
    # For type checkers the native sinks are subclasses; see `_native.pyi`.
    Sink.register(NativeSink)

SQLiteSink = DbSink
