"""Wrappers that tag entries, compare versions, and choose sinks."""

from __future__ import annotations

from ._native import DiffTracker, DynamicRouter, EnvTagger, generate_trace_id

__all__ = ["DiffTracker", "DynamicRouter", "EnvTagger", "generate_trace_id"]
