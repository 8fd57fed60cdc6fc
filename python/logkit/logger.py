"""The class ``Logger``, and the logger that is used where none is named."""

from __future__ import annotations

from ._native import Logger, default_logger, set_default_logger

__all__ = ["Logger", "default_logger", "set_default_logger"]
