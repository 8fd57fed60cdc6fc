"""Logs the functions of whole modules."""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

from ._wrap import Options, is_wrapped, wrap

if TYPE_CHECKING:
    from ._types import AnyLogger

__all__ = ["auto_log", "auto_log_by_name"]


def auto_log(
    *modules: types.ModuleType,
    level: str = "DEBUG",
    catch_exceptions: bool = False,
    default: Any = None,
    include_private: bool = False,
    logger: AnyLogger | None = None,
    max_repr_length: int | None = 2048,
) -> int:
    """Log the functions that modules define, and return how many that are.

    Without modules it is the one that calls this: write it below the functions. Classes, lambdas,
    imported functions, what is marked with `skip` and what is logged already are left alone. Names
    that other modules have imported before still mean the function as it was.

    Args:
        level: Level of calls that go well.
        catch_exceptions: Return ``default`` where a function raises, as `catch` does.
        default: What is returned then.
        include_private: Log functions whose names start with ``_`` too.
        logger: The logger; without one the default logger at the time of the call.
        max_repr_length: Characters kept of arguments and results.
    """
    options = Options(
        level=level,
        logger=logger,
        max_repr_length=max_repr_length,
        caught=(Exception,) if catch_exceptions else (),
        default=default,
    )
    namespaces = [vars(module) for module in modules] or [sys._getframe(1).f_globals]
    return sum(_wrap_all(namespace, options, include_private) for namespace in namespaces)


def auto_log_by_name(
    *names: str,
    level: str = "DEBUG",
    catch_exceptions: bool = False,
    default: Any = None,
    include_private: bool = False,
    logger: AnyLogger | None = None,
    max_repr_length: int | None = 2048,
) -> int:
    """Do what `auto_log` does with the modules of those names that are imported already."""
    found = [sys.modules.get(name) for name in names]
    modules = [module for module in found if module is not None]
    if not modules:
        # Without modules `auto_log` would take ours.
        return 0
    return auto_log(
        *modules,
        level=level,
        catch_exceptions=catch_exceptions,
        default=default,
        include_private=include_private,
        logger=logger,
        max_repr_length=max_repr_length,
    )


def _wrap_all(namespace: dict[str, Any], options: Options, include_private: bool) -> int:
    own = namespace.get("__name__")
    wrappers: dict[int, Any] = {}
    for name, value in list(namespace.items()):
        if not isinstance(value, types.FunctionType) or value.__module__ != own:
            continue
        if value.__name__ == "<lambda>" or is_wrapped(value):
            continue
        is_dunder = name.startswith("__") and name.endswith("__")
        if is_dunder or (name.startswith("_") and not include_private):
            continue
        # A function of two names gets one wrapper.
        if id(value) not in wrappers:
            wrappers[id(value)] = wrap(value, options)
        namespace[name] = wrappers[id(value)]
    return len(wrappers)
