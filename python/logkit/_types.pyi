"""Types of the package's own annotations. There is no such module when a program runs."""

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from typing import Any, Protocol, TypeVar, overload

from typing_extensions import ParamSpec, TypeAlias

from .models import LogEntry

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
Y = TypeVar("Y")
D_co = TypeVar("D_co", covariant=True)

class AnyLogger(Protocol):
    """What a decorator can log to: a `Logger`, or anything that takes entries."""

    def emit(self, entry: LogEntry, /) -> object: ...

class AnySink(Protocol):
    """Anything that takes entries; see `Sink` for what else it may have."""

    def write(self, entry: LogEntry, /) -> object: ...

# A sink, or its specification such as `db:logs.db`.
SinkOrSpec: TypeAlias = AnySink | str

# What is blanked: what is built in or nothing, more names, or what a function makes of a value.
Redact: TypeAlias = bool | Callable[[str, Any], Any] | Sequence[str]

class Decorator(Protocol):
    """Takes a function, and returns one of the same type."""

    def __call__(self, func: F, /) -> F: ...

class ClassDecorator(Protocol):
    """Takes a class, and returns it."""

    def __call__(self, cls: C, /) -> C: ...

class Catcher(Protocol[D_co]):
    """A decorator whose functions return a default instead of raising."""

    @overload
    def __call__(
        self, func: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R | D_co]]: ...
    @overload
    def __call__(self, func: Callable[P, AsyncGenerator[Y, S]], /) -> Callable[P, AsyncGenerator[Y, S]]: ...
    @overload
    def __call__(
        self, func: Callable[P, Generator[Y, S, R]], /
    ) -> Callable[P, Generator[Y, S, R | D_co]]: ...
    @overload
    def __call__(self, func: Callable[P, R], /) -> Callable[P, R | D_co]: ...
