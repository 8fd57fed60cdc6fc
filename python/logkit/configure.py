"""Makes a logger from arguments and the environment."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal

from . import _native
from ._native import load_env

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ._native import Logger
    from ._types import Redact, SinkOrSpec

__all__ = ["configure", "load_env"]

#: What the last call made.
_made: Logger | None = None


def configure(
    *,
    name: str = "logkit",
    level: str = "DEBUG",
    sinks: Sequence[SinkOrSpec] | SinkOrSpec | None = None,
    modules: Iterable[str] | str | None = None,
    bridge_stdlib: bool = False,
    propagate_stdlib: bool = True,
    env_prefix: str = "LOGKIT_",
    environment: str | None = None,
    version: str | None = None,
    llm_model: str | None = None,
    detect_injection: bool = False,
    force: bool = False,
    redact: Redact | None = None,
    binary: Literal["repr", "meta"] = "repr",
    console: bool | None = None,
    on_full: Literal["block", "drop_new", "drop_old"] | None = None,
    durability: Literal["buffered", "crash", "sync", "full"] | None = None,
    queue: int | None = None,
) -> Logger:
    """Make the default logger, and return it.

    A second call returns the same logger unless ``force`` is set: then what the first one holds is
    written, and it is closed. Variables of the environment go before arguments: ``LOGKIT_LEVEL``,
    ``LOGKIT_ENV``, ``LOGKIT_VERSION``, ``LOGKIT_LLM_MODEL``; ``LOGKIT_SINKS`` counts where there is no
    ``sinks``.

    Args:
        name: Name of the logger.
        level: Lowest level that is logged, to the console and to sinks.
        sinks: Sinks, or their specifications such as ``db:logs.db``. Without any there is the console.
        modules: Loggers of the standard library whose records become entries; without ``modules``,
            ``bridge_stdlib`` takes all of them.
        bridge_stdlib: Make entries of records of the standard library's loggers.
        propagate_stdlib: Write a line for each entry through the standard library's logger ``name``.
        env_prefix: Start of the names of the variables.
        environment: Environment tag of the entries.
        version: Version tag of the entries.
        llm_model: Model that explains errors, such as ``llmsrv/qwen2.5-coder:1.5b``.
        detect_injection: Look for orders to models in arguments.
        force: Make another logger than the one there is.
        redact: More names whose values are secret; ``False`` blanks nothing; or a function that is
            given name and value and returns what is shown.
        binary: ``meta`` tells large bytes by length and digest, ``repr`` as any value.
        console: Write the line of each entry to the console; by default as ``propagate_stdlib`` says.
        on_full: What happens when the queue is full; by default errors wait a little, the rest is dropped.
        durability: When an entry is safe: within 50 ms, or before the call returns.
        queue: Entries that may wait.

    Raises:
        ValueError: A specification makes no sense.
    """
    global _made
    logger = _native.configure(
        name=name,
        level=level,
        sinks=_listed(sinks),
        propagate_stdlib=propagate_stdlib,
        env_prefix=env_prefix,
        environment=environment,
        version=version,
        llm_model=llm_model,
        detect_injection=detect_injection,
        force=force,
        redact=redact,
        binary=binary,
        console=console,
        on_full=on_full,
        durability=durability,
        queue=queue,
    )
    if logger is _made:
        return logger
    _made = logger
    wants_bridge = modules is not None or bridge_stdlib
    if wants_bridge or f"{__package__}._bridge" in sys.modules:
        # The module `logging` takes longer to load than all of this: programs without bridges do not.
        from . import _bridge

        _bridge.remove()
        if wants_bridge:
            _bridge.install(logger, [modules] if isinstance(modules, str) else modules)
    return logger


def _listed(sinks: Sequence[SinkOrSpec] | SinkOrSpec | None) -> list[Any] | None:
    if sinks is None:
        return None
    if isinstance(sinks, (list, tuple)):
        return list(sinks)
    return [sinks]
