"""The wrapper that lets a model explain errors, and the search for orders to models."""

from __future__ import annotations

from ._native import LLMSink, detect_prompt_injection, scan_entry_for_injection

__all__ = ["LLMSink", "detect_prompt_injection", "scan_entry_for_injection"]
