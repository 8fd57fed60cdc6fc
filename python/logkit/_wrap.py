"""Functions that log the calls of other functions.

What a wrapper is follows what it wraps: a coroutine function stays one, so do generator functions and
asynchronous generator functions. The native half does the rest: `Site.begin` before the call, one of
`Call`'s methods after it. Neither ever raises.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _context, _native

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence

    from ._native import Call

__all__ = ["SKIP", "WRAPPED", "Options", "is_wrapped", "wrap"]

#: Attribute of functions that are left alone.
SKIP = "_logkit_skip"
#: Attribute of functions whose calls are logged already.
WRAPPED = "_logkit_wrapped"


@dataclass(frozen=True)
class Options:
    """How calls of a function are logged."""

    level: str = "DEBUG"
    logger: Any = None
    max_repr_length: int | None = 2048
    sample_rate: float | None = None
    skip_args: Sequence[str] = ()
    redact: Any = None
    slow_ms: float | None = None
    name: str | None = None
    #: What is not raised any further.
    caught: tuple[type[BaseException], ...] = ()
    #: What a call returns instead.
    default: Any = None
    #: Reads fields out of a result.
    fields_of: Callable[[Any], Mapping[str, Any]] | None = None


def is_wrapped(function: Any) -> bool:
    """Tell whether calls of that are logged already, or must not be."""
    for part in (function, getattr(function, "__func__", None)):
        if part is not None and (getattr(part, WRAPPED, False) or getattr(part, SKIP, False)):
            return True
    return False


def wrap(target: Any, options: Options) -> Any:
    """Return a function that does what `target` does, and logs it."""
    if isinstance(target, (staticmethod, classmethod)):
        inner = target.__func__
        return type(target)(wrap(inner, options))
    if isinstance(target, type):
        raise TypeError(f"{target.__qualname__} is a class: use logkit.logged for classes")
    if not callable(target):
        raise TypeError(f"{target!r} is not callable")
    function = _function_of(target)
    site = _native.Site(
        options.name or _name_of(function),
        _module_of(function, target),
        _parameters(target),
        level=options.level,
        logger=options.logger,
        max_repr_length=options.max_repr_length,
        sample_rate=options.sample_rate,
        skip_args=tuple(options.skip_args),
        redact=options.redact,
        slow_ms=options.slow_ms,
    )
    if _is(function, target, inspect.iscoroutinefunction):
        _context.use()
        wrapper = _coroutine(target, site.begin, options)
    elif _is(function, target, inspect.isasyncgenfunction):
        _context.use()
        wrapper = _async_generator(target, site.begin, options)
    elif _is(function, target, inspect.isgeneratorfunction):
        wrapper = _generator(target, site.begin, options)
    else:
        wrapper = _plain(target, site.begin, options)
        _learn_futures()
    _describe(wrapper, function, target)
    code = getattr(function, "__code__", None)
    if getattr(code, "co_flags", 0) & inspect.CO_ITERABLE_COROUTINE:
        # A generator that can be awaited; this changes the code of the wrapper in place.
        wrapper = types.coroutine(wrapper)
        _native.capture_frames(wrapper.__code__)
    setattr(wrapper, WRAPPED, True)
    return wrapper


# ------------------------------------------------------------------------------------------------
# One wrapper for each kind of function. `caught` is empty for those that only log.


def _plain(func: Callable[..., Any], begin: Callable[..., Call | None], options: Options) -> Any:
    if options.fields_of is not None:
        return _telling(func, begin, options)
    caught, default = options.caught, options.default

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        call = begin(args, kwargs)
        if call is None:
            if not caught:
                return func(*args, **kwargs)
            try:
                result = func(*args, **kwargs)
            except caught:
                return default
            return _later(None, result, options) if type(result) in _LATER else result
        try:
            result = func(*args, **kwargs)
        except BaseException as error:
            call.raised(error)
            if not isinstance(error, caught):
                raise
            return default
        if type(result) in _LATER:
            return _later(call, result, options)
        call.returned(result)
        return result

    return wrapper


def _telling(func: Callable[..., Any], begin: Callable[..., Call | None], options: Options) -> Any:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        call = begin(args, kwargs)
        if call is None:
            return func(*args, **kwargs)
        try:
            result = func(*args, **kwargs)
        except BaseException as error:
            call.raised(error)
            raise
        if type(result) in _LATER:
            return _later(call, result, options)
        _returned(call, result, options)
        return result

    return wrapper


def _coroutine(func: Callable[..., Any], begin: Callable[..., Call | None], options: Options) -> Any:
    caught, default, fields_of = options.caught, options.default, options.fields_of
    enter, leave = _context.span.set, _context.leave

    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        call = begin(args, kwargs)
        if call is None:
            try:
                return await func(*args, **kwargs)
            except caught:
                return default
        call.detach()
        token = enter(call.mark)
        try:
            result = await func(*args, **kwargs)
        except BaseException as error:
            leave(token)
            call.raised(error)
            if not isinstance(error, caught):
                raise
            return default
        leave(token)
        if fields_of is None:
            call.returned(result)
        else:
            _returned(call, result, options)
        return result

    return wrapper


def _generator(func: Callable[..., Any], begin: Callable[..., Call | None], options: Options) -> Any:
    caught, default = options.caught, options.default

    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        call = begin(args, kwargs)
        if call is None:
            try:
                return (yield from func(*args, **kwargs))
            except caught:
                return default
        call.detach()
        n_yielded = 0
        try:
            call.resume()
            try:
                generator = func(*args, **kwargs)
                item = next(generator)
                while True:
                    n_yielded += 1
                    call.suspend()
                    # Errors thrown in, GeneratorExit among them, are for the generator to handle.
                    try:
                        sent = yield item
                    except BaseException as error:
                        call.resume()
                        item = generator.throw(error)
                    else:
                        call.resume()
                        item = generator.send(sent)
            except StopIteration as stop:
                result = stop.value
            finally:
                call.suspend()
        except GeneratorExit:
            call.ended(n_yielded)
            raise
        except BaseException as error:
            call.failed(error, n_yielded)
            if not isinstance(error, caught):
                raise
            return default
        call.ended(n_yielded)
        return result

    return wrapper


def _async_generator(func: Callable[..., Any], begin: Callable[..., Call | None], options: Options) -> Any:
    caught = options.caught

    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        call = begin(args, kwargs)
        if call is not None:
            call.detach()
        n_yielded = 0
        try:
            generator = func(*args, **kwargs)
            step = generator.__anext__()
            try:
                while True:
                    item = await (step if call is None else _step(call, step))
                    n_yielded += 1
                    try:
                        sent = yield item
                    except BaseException as error:
                        step = generator.athrow(error)
                    else:
                        step = generator.asend(sent)
            except StopAsyncIteration:
                pass
        except GeneratorExit:
            if call is not None:
                call.ended(n_yielded)
            raise
        except BaseException as error:
            if call is not None:
                call.failed(error, n_yielded)
            if not isinstance(error, caught):
                raise
            return
        if call is not None:
            call.ended(n_yielded)

    return wrapper


async def _step(call: Call, step: Any) -> Any:
    """Let an asynchronous generator go on to its next item, as part of its call."""
    # Between two items other code runs in the same context: the span is not left in it.
    token = _context.span.set(call.mark)
    call.start_clock()
    try:
        return await step
    finally:
        call.stop_clock()
        _context.leave(token)


# ------------------------------------------------------------------------------------------------
# Plain functions whose result is still to come.

#: Types of such results. Those of asyncio join when a program has imported it.
_LATER: set[type] = {types.CoroutineType}


def _learn_futures() -> None:
    asyncio = sys.modules.get("asyncio")
    for name in ("Future", "Task"):
        kind = getattr(asyncio, name, None)
        if isinstance(kind, type) and kind not in _LATER:
            _context.use()
            _LATER.add(kind)


def _later(call: Call | None, result: Any, options: Options) -> Any:
    """Log a call when its result has come. A future stays itself; a coroutine gets one around it."""
    if call is not None:
        call.detach()
    if type(result) is types.CoroutineType:
        _context.use()
        outer: Any = _awaited(call, result, options)
        outer.__name__, outer.__qualname__ = result.__name__, result.__qualname__
        return outer
    if call is None:
        return result
    if result.done():
        _done(call, options, result)
        return result
    try:
        result.add_done_callback(functools.partial(_done, call, options))
    except Exception:
        # Another thread has finished it meanwhile, and its loop is closed.
        call.returned(result)
    return result


async def _awaited(call: Call | None, coroutine: Any, options: Options) -> Any:
    token = None if call is None else _context.span.set(call.mark)
    try:
        result = await coroutine
    except BaseException as error:
        if call is not None and token is not None:
            _context.leave(token)
            call.raised(error)
        if not isinstance(error, options.caught):
            raise
        return options.default
    if call is not None and token is not None:
        _context.leave(token)
        _returned(call, result, options)
    return result


def _done(call: Call, options: Options, future: Any) -> None:
    if future.cancelled():
        call.raised(sys.modules["asyncio"].CancelledError())
        return
    # `exception()` would mark the error as seen, and asyncio would not tell of one nobody looks at.
    error = getattr(future, "_exception", None)
    if error is not None:
        call.raised(error)
    else:
        _returned(call, future.result(), options)


def _returned(call: Call, result: Any, options: Options) -> None:
    if options.fields_of is None:
        call.returned(result)
        return
    with _context.adding(options.fields_of(result)):
        call.returned(result)


# ------------------------------------------------------------------------------------------------
# What a callable is.


def _function_of(target: Any) -> Any:
    """Return the function within partial applications, methods and callable objects."""
    while True:
        if isinstance(target, functools.partial):
            target = target.func
        elif inspect.ismethod(target):
            target = target.__func__
        elif inspect.isroutine(target) or isinstance(target, type) or hasattr(target, "__qualname__"):
            return target
        else:
            # Looked up as a call does it: on the type.
            target = type(target).__call__


def _is(function: Any, target: Any, kind: Callable[[Any], bool]) -> bool:
    # Decorators of others may hide a function behind `__wrapped__`, such as a generator function
    # behind a context manager. What counts is what a call gives.
    return kind(target) or kind(function)


def _name_of(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or getattr(function, "__name__", "") or "")


def _module_of(function: Any, target: Any) -> str:
    module = getattr(function, "__module__", None) or getattr(target, "__module__", None)
    return str(module or "")


def _parameters(target: Any) -> tuple[str, ...]:
    """Return the names of the positional parameters, in order."""
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        # Functions written in C may not tell.
        return ()
    names = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            names.append(f"*{parameter.name}")
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    return tuple(names)


def _describe(wrapper: Any, function: Any, target: Any) -> None:
    """Give the wrapper the name, the documentation and the attributes of what it wraps."""
    # The attributes of a class are no attributes of a function.
    attributes = () if isinstance(function, type) else functools.WRAPPER_UPDATES
    functools.update_wrapper(wrapper, function, updated=attributes)
    if function is not target:
        wrapper.__wrapped__ = target


def _register_frames() -> None:
    codes = [_step.__code__, _awaited.__code__, _later.__code__]
    for make in (_plain, _telling, _coroutine, _generator, _async_generator):
        codes.extend(code for code in make.__code__.co_consts if isinstance(code, types.CodeType))
    _native.capture_frames(*codes)


_register_frames()
