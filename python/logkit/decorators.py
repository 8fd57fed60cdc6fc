"""Decorators that log calls of functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ._native import default_logger, set_default_logger
from ._wrap import SKIP, Options, wrap

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Generator

    from ._types import AnyLogger, Catcher, Decorator, F, P, R, Redact, S, Y

    D = TypeVar("D")

__all__ = ["catch", "decision_log", "default_logger", "log_call", "set_default_logger", "skip"]


@overload
def log_call(func: F, /) -> F: ...
@overload
def log_call(
    *,
    level: str = ...,
    logger: AnyLogger | None = ...,
    max_repr_length: int | None = ...,
    sample_rate: float | None = ...,
    skip_args: Sequence[str] = ...,
    redact: Redact | None = ...,
    slow_ms: float | None = ...,
    name: str | None = ...,
) -> Decorator: ...
def log_call(
    func: Any = None,
    /,
    *,
    level: str = "DEBUG",
    logger: Any = None,
    max_repr_length: int | None = 2048,
    sample_rate: float | None = None,
    skip_args: Sequence[str] = (),
    redact: Any = None,
    slow_ms: float | None = None,
    name: str | None = None,
) -> Any:
    """Log every call of a function, when it ends; use it bare or called.

    The result is returned and an error raised as without it. A coroutine function stays one, a
    generator function too: a generator is logged when it is exhausted or closed, with the time spent
    within it and the number of items.

    Args:
        level: Level of calls that go well. Calls that fail are ERROR.
        logger: The logger; without one the default logger at the time of the call.
        max_repr_length: Characters kept of arguments and results; ``None`` or 0 keeps all.
        sample_rate: Part of the calls that is logged, 0 to 1; errors always are.
        skip_args: Names of arguments that are not rendered.
        redact: More names whose values are secret; ``False`` blanks nothing; or a function that is
            given name and value and returns what is shown.
        slow_ms: Only calls that take that long are logged; errors always are.
        name: Name of the function in the log.
    """
    options = Options(
        level=level,
        logger=logger,
        max_repr_length=max_repr_length,
        sample_rate=sample_rate,
        skip_args=_names(skip_args),
        redact=redact,
        slow_ms=slow_ms,
        name=name,
    )
    return _apply(func, options)


@overload
def catch(func: Callable[P, Coroutine[Any, Any, R]], /) -> Callable[P, Coroutine[Any, Any, R | None]]: ...
@overload
def catch(func: Callable[P, AsyncGenerator[Y, S]], /) -> Callable[P, AsyncGenerator[Y, S]]: ...
@overload
def catch(func: Callable[P, Generator[Y, S, R]], /) -> Callable[P, Generator[Y, S, R | None]]: ...
@overload
def catch(func: Callable[P, R], /) -> Callable[P, R | None]: ...
@overload
def catch(
    *,
    default: D,
    level: str = ...,
    logger: AnyLogger | None = ...,
    max_repr_length: int | None = ...,
    sample_rate: float | None = ...,
    skip_args: Sequence[str] = ...,
    redact: Redact | None = ...,
    slow_ms: float | None = ...,
    name: str | None = ...,
) -> Catcher[D]: ...
@overload
def catch(
    *,
    level: str = ...,
    logger: AnyLogger | None = ...,
    max_repr_length: int | None = ...,
    sample_rate: float | None = ...,
    skip_args: Sequence[str] = ...,
    redact: Redact | None = ...,
    slow_ms: float | None = ...,
    name: str | None = ...,
) -> Catcher[None]: ...
def catch(
    func: Any = None,
    /,
    *,
    default: Any = None,
    level: str = "DEBUG",
    logger: Any = None,
    max_repr_length: int | None = 2048,
    sample_rate: float | None = None,
    skip_args: Sequence[str] = (),
    redact: Any = None,
    slow_ms: float | None = None,
    name: str | None = None,
) -> Any:
    """Log every call of a function, and return ``default`` where it raises an ``Exception``.

    ``KeyboardInterrupt``, ``SystemExit``, ``GeneratorExit`` and ``asyncio.CancelledError`` are logged and
    raised. A generator that fails ends, with ``default`` as the value of its ``StopIteration``; an
    asynchronous generator just ends. The other parameters are those of `log_call`.
    """
    options = Options(
        level=level,
        logger=logger,
        max_repr_length=max_repr_length,
        sample_rate=sample_rate,
        skip_args=_names(skip_args),
        redact=redact,
        slow_ms=slow_ms,
        name=name,
        caught=(Exception,),
        default=default,
    )
    return _apply(func, options)


def skip(func: F) -> F:
    """Leave a function alone where `logged` or `auto_log` would log it."""
    try:
        setattr(func, SKIP, True)
    except AttributeError:
        # What takes no attributes, such as a property, is left alone anyway.
        pass
    return func


@overload
def decision_log(name: F, /) -> F: ...
@overload
def decision_log(
    name: str | None = ..., *, level: str = ..., logger: AnyLogger | None = ...
) -> Decorator: ...
def decision_log(name: Any = None, *, level: str = "INFO", logger: Any = None) -> Any:
    """Log a function that returns a mapping with ``decision`` and ``reason``.

    Both are kept among the extra fields of the entry, where they can be asked for.
    """
    func = None if name is None or isinstance(name, str) else name
    options = Options(
        level=level,
        logger=logger,
        name=None if func is not None else name,
        fields_of=_decision,
    )
    return _apply(func, options)


def _decision(result: Any) -> dict[str, Any]:
    if not isinstance(result, Mapping):
        return {}
    return {key: result[key] for key in ("decision", "reason") if key in result}


def _apply(func: Any, options: Options) -> Any:
    if func is not None:
        return wrap(func, options)

    def decorate(func: Any) -> Any:
        return wrap(func, options)

    return decorate


def _names(names: Sequence[str]) -> tuple[str, ...]:
    # One name is easily written without the comma that makes it a tuple.
    return (names,) if isinstance(names, str) else tuple(names)
