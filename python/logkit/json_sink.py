"""The sink for files of JSON lines."""

from __future__ import annotations

from ._native import JSONSink

__all__ = ["JSONSink"]
