"""The sink that announces errors to Slack, Discord, Teams or anything that takes JSON."""

from __future__ import annotations

from ._native import WebhookSink

__all__ = ["WebhookSink"]
