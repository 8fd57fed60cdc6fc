"""Importing this module configures logkit from the environment, as ``logkit.configure()`` does."""

from __future__ import annotations

from .configure import configure
from .logger import Logger

__all__ = ["logger"]

#: The logger that was configured.
logger: Logger = configure()
