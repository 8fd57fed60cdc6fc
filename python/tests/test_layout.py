"""The package: its modules and names, what it needs, how it is installed."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import os
import re
import sys
import zipfile
from pathlib import Path

import logkit
import pytest
from helpers import run_python

WHEEL = os.environ.get("BUILT_WHEEL", "")

NAMES = {
    "logkit": "log_call catch logged skip auto_log auto_log_by_name configure Logger set_default_logger "
    "detect_prompt_injection scan_entry_for_injection DbSink CSVSink MarkdownSink JSONSink LLMSink EnvTagger DiffTracker "
    "DynamicRouter MetricsSink WebhookSink LogEntry Sink SQLiteSink PrometheusSink TerminalSink RingBufferSink "
    "AsyncBufferedSink generate_trace_id load_env is_sensitive_key redact_value redact_kwargs redact_args redact_string "
    "log_context span silence temp_level temp_sink debug info warning error event get_logger safe_repr "
    "DEFAULT_MAX_REPR_LENGTH decision_log __version__",
    "logkit.decorators": "log_call catch set_default_logger",
    "logkit.logger": "Logger",
    "logkit.sinks": "Sink DbSink CSVSink MarkdownSink",
    "logkit.json_sink": "JSONSink",
    "logkit.webhook": "WebhookSink",
    "logkit.metrics": "MetricsSink",
    "logkit.llm": "LLMSink detect_prompt_injection",
    "logkit.env": "EnvTagger DynamicRouter DiffTracker generate_trace_id",
    "logkit.auto": "auto_log auto_log_by_name",
    "logkit.logged": "logged",
    "logkit.configure": "configure",
    "logkit.models": "LogEntry safe_repr DEFAULT_MAX_REPR_LENGTH",
    "logkit.redact": "is_sensitive_key redact_value redact_kwargs redact_args redact_string",
    "logkit.__main__": "main",
}


@pytest.mark.parametrize("module", NAMES)
def test_names_of_modules(module: str):
    # Functions named like modules hide them as attributes, not from imports.
    found = importlib.import_module(module)
    assert inspect.ismodule(found)
    for name in NAMES[module].split():
        assert hasattr(found, name), name
        assert getattr(found, name) is getattr(logkit, name, getattr(found, name))


def test_imports_as_programs_write_them():
    run_python(
        "from logkit.logged import logged\n"
        "from logkit.configure import configure\n"
        "import logkit, logkit.configure as module\n"
        "from logkit import *\n"
        "assert callable(logged) and callable(configure) and callable(logkit.configure) and callable(logkit.logged)\n"
    )


def test_all_names_of_all_are_there():
    assert set(logkit.__all__) <= set(dir(logkit))
    assert len(logkit.__all__) == len(set(logkit.__all__))


def test_what_is_public_is_described():
    for name in logkit.__all__:
        value = getattr(logkit, name)
        if callable(value):
            assert (value.__doc__ or "").strip(), name
    for kind in (logkit.Logger, logkit.DbSink, logkit.LogEntry):
        for name, member in inspect.getmembers(kind):
            if not name.startswith("_") and callable(member):
                assert (member.__doc__ or "").strip(), f"{kind.__name__}.{name}"


def test_versions():
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", logkit.__version__)
    assert importlib.metadata.version("llmsrv-logkit") == logkit.__version__
    assert logkit.__interface__ == "0.2.6"


def test_extras_and_no_needs():
    metadata = importlib.metadata.metadata("llmsrv-logkit")
    assert {"grpc", "metrics", "llm", "dev"} <= set(metadata.get_all("Provides-Extra") or [])
    for need in importlib.metadata.requires("llmsrv-logkit") or []:
        assert "extra ==" in need and "dev" in need, need
    assert metadata["Requires-Python"] == ">=3.9"


def test_it_is_typed():
    folder = Path(logkit.__file__).parent
    assert (folder / "py.typed").exists()
    assert (folder / "_native.pyi").exists()


def test_sinks_are_sinks():
    for name in (
        "DbSink",
        "CSVSink",
        "MarkdownSink",
        "JSONSink",
        "MetricsSink",
        "WebhookSink",
        "LLMSink",
        "EnvTagger",
        "DiffTracker",
        "DynamicRouter",
        "RingBufferSink",
        "SyslogSink",
        "TerminalSink",
        "NullSink",
    ):
        assert issubclass(getattr(logkit, name), logkit.Sink), name
    with pytest.raises(TypeError):
        logkit.Sink()  # type: ignore[abstract]


def test_importing_is_quick_and_loads_little():
    done = run_python(
        "import sys\n"
        "before = set(sys.modules)\n"
        "import logkit\n"
        "print(sorted(name for name in set(sys.modules) - before if name.split('.')[0] in "
        "('asyncio', 'sqlite3', 'http', 'urllib', 'ssl', 'json', 'multiprocessing', 'typing_extensions', 'pytest')))\n"
    )
    assert done.stdout.strip() == "[]"


def test_importing_starts_no_thread_and_writes_nothing(tmp_path: Path):
    done = run_python(
        "import logkit, os, threading\n"
        "tasks = '/proc/self/task'\n"
        "assert not os.path.exists(tasks) or len(os.listdir(tasks)) == 1\n"
        "assert os.listdir('.') == []\n",
        cwd=tmp_path,
    )
    assert done.stdout == done.stderr == ""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="older interpreters have no such subinterpreters")
def test_an_interpreter_within_the_process_is_refused_or_works():
    module = "_xxsubinterpreters" if sys.version_info < (3, 13) else "_interpreters"
    run_python(
        f"import {module} as sub\n"
        "import logkit\n"
        "id = sub.create()\n"
        "try: sub.run_string(id, 'import logkit')\n"
        "except Exception: pass\n"
        "try: sub.destroy(id)\n"
        "except Exception: pass\n"
        "assert logkit.safe_repr(1) == '1'\n",
        flags=(),
    )


def test_the_wheel():
    """The one that tests/run has built and installed."""
    if not WHEEL:
        pytest.skip("no wheel was built")
    wheel = Path(WHEEL)
    # That of the tests is hardly optimised: one for users has two thirds of its size.
    assert wheel.stat().st_size < 12_000_000, f"{wheel.stat().st_size} bytes"
    assert re.fullmatch(r"llmsrv_logkit-[^-]+-cp39-abi3-\S+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
    assert "logkit/py.typed" in names and "logkit/_native.abi3.so" in names
    assert not [name for name in names if name.startswith("logkit/tests") or "/benches" in name]
