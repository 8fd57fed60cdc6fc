"""The sink that counts calls, for Prometheus."""

from __future__ import annotations

from ._native import MetricsSink

__all__ = ["MetricsSink", "PrometheusSink"]

PrometheusSink = MetricsSink
