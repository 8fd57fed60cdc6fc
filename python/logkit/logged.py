"""The decorator that logs the methods of a class."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, overload

from ._wrap import Options, is_wrapped, wrap
from .decorators import skip

if TYPE_CHECKING:
    from ._types import AnyLogger, C, ClassDecorator

__all__ = ["logged", "skip"]


@overload
def logged(cls: C, /) -> C: ...
@overload
def logged(
    *, level: str = ..., logger: AnyLogger | None = ..., max_repr_length: int | None = ...
) -> ClassDecorator: ...
def logged(
    cls: Any = None,
    /,
    *,
    level: str = "DEBUG",
    logger: Any = None,
    max_repr_length: int | None = 2048,
) -> Any:
    """Log the public methods of a class: those that it defines itself, static and class methods too.

    Properties, nested classes, inherited methods and what is marked with `skip` are left alone.
    """
    options = Options(level=level, logger=logger, max_repr_length=max_repr_length)

    def decorate(cls: Any) -> Any:
        if not isinstance(cls, type):
            raise TypeError("logkit.logged is for classes: use logkit.log_call for functions")
        for name, value in list(vars(cls).items()):
            if not name.startswith("_") and _is_method(value) and not is_wrapped(value):
                setattr(cls, name, wrap(value, options))
        return cls

    return decorate if cls is None else decorate(cls)


def _is_method(value: Any) -> bool:
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    return isinstance(value, types.FunctionType)
