"""Fixtures: each test has a clean environment, and leaves a default logger that keeps nothing."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import logkit
import pytest
from helpers import Capture, Probe, Server, is_read_by_logkit


# Whoever started the tests may ignore signals, as nohup does; what the tests start does not inherit that.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _handler)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in list(os.environ):
        if is_read_by_logkit(name):
            monkeypatch.delenv(name)
    quiet = logkit.Logger("quiet", sinks=[logkit.NullSink()], propagate_stdlib=False)
    logkit.set_default_logger(quiet)
    names = set(logging.Logger.manager.loggerDict)
    yield
    logkit.set_default_logger(quiet)
    for name in set(logging.Logger.manager.loggerDict) - names:
        logging.getLogger(name).handlers.clear()
    quiet.close()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is also the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(params=["native", "object"])
def probe(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Probe]:
    """A logger whose entries can be read: once with a native sink, once with one in Python."""
    made = Probe(tmp_path, request.param == "native")
    yield made
    made.logger.close()


@pytest.fixture
def capture() -> Capture:
    """A sink written in Python."""
    return Capture()


@pytest.fixture
def live(capture: Capture) -> Iterator[Any]:
    """A logger with the sink `capture`."""
    logger = logkit.Logger("live", sinks=[capture], propagate_stdlib=False)
    yield logger
    logger.close()


@pytest.fixture
def server() -> Iterator[Server]:
    """A server on loopback that says 200 to everything."""
    made = Server()
    yield made
    made.close()
