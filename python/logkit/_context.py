"""What belongs to the code that runs now, across tasks: its span, fields of its entries, silence."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from . import _native

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextvars import Token
    from types import TracebackType

__all__ = ["adding", "fields", "leave", "silent", "span", "use"]

#: The innermost call that may change threads or wait: `Call.mark` of it.
span: ContextVar[tuple[int, int] | None] = ContextVar("logkit_span", default=None)
#: Fields of all entries made here. The dictionary itself is never changed.
fields: ContextVar[dict[str, Any] | None] = ContextVar("logkit_fields", default=None)
#: Nothing is logged here.
silent: ContextVar[bool] = ContextVar("logkit_silent", default=False)

_native.set_context(span, fields, silent)


def use() -> None:
    """Let the native half look at these variables from now on; a program without them does not pay."""
    _native.use_context()


def leave(token: Token[Any]) -> None:
    """Give a variable the value it had before."""
    try:
        token.var.reset(token)
    except ValueError:
        # A coroutine or generator that is closed in another context than it ran in: there is nothing
        # of it in this one.
        pass


class adding:  # noqa: N801 - reads as a verb in `with adding(...)`.
    """While it is entered, entries made here get those fields too."""

    __slots__ = ("_fields", "_tokens")

    def __init__(self, more: Mapping[str, Any]) -> None:
        self._fields = more
        self._tokens: list[Token[dict[str, Any] | None]] = []

    def __enter__(self) -> None:
        use()
        self._tokens.append(fields.set({**(fields.get() or {}), **self._fields}))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        leave(self._tokens.pop())


class silencing:  # noqa: N801 - as above.
    """While it is entered, nothing is logged here."""

    __slots__ = ("_tokens",)

    def __init__(self) -> None:
        self._tokens: list[Token[bool]] = []

    def __enter__(self) -> None:
        use()
        self._tokens.append(silent.set(True))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        leave(self._tokens.pop())
