"""Blanks secrets: by the name of what holds them, and by their form within texts."""

from __future__ import annotations

from ._native import is_sensitive_key, redact_args, redact_kwargs, redact_string, redact_value

__all__ = ["REDACTED", "is_sensitive_key", "redact_args", "redact_kwargs", "redact_string", "redact_value"]

#: What stands in place of a secret.
REDACTED = "***REDACTED***"
