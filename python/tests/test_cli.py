"""The commands: `python -m logkit` and `logkit`, which are those of the binary."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from helpers import STRICT, clean_env, db_rows, run_python, wait_until

SCRIPT = Path(sysconfig.get_path("scripts")) / "logkit"
COMMANDS = {"module": [sys.executable, *STRICT, "-m", "logkit"], "script": [str(SCRIPT)]}


@pytest.fixture(params=COMMANDS)
def command(request: pytest.FixtureRequest) -> list[str]:
    if request.param == "script" and not SCRIPT.exists():
        pytest.skip("the package is not installed, it is only on the path")
    return COMMANDS[request.param]


def run(command: list[str], *args: str, cwd: Path, **env: str) -> Any:
    return subprocess.run(
        [*command, *args], cwd=cwd, env=clean_env(**env), capture_output=True, text=True, timeout=60
    )


def test_version(command: list[str], tmp_path: Path):
    import logkit

    done = run(command, "version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"logkit {logkit.__version__}\n")


def test_help_and_wrong_usage(command: list[str], tmp_path: Path):
    done = run(command, cwd=tmp_path)
    assert done.returncode == 0 and "run" in done.stdout and "logs" in done.stdout and "serve" in done.stdout
    assert run(command, "no-such-command", cwd=tmp_path).returncode == 2
    assert run(command, "logs", "--no-such-option", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize("status", [0, 1, 3, 77, 255])
def test_run_has_the_status_of_its_command(command: list[str], tmp_path: Path, status: int):
    code = f"import sys; print('out'); print('err', file=sys.stderr); sys.exit({status})"
    done = run(command, "run", "--", sys.executable, "-c", code, cwd=tmp_path)
    assert done.returncode == status and done.stdout == "out\n" and "err\n" in done.stderr
    (row,) = db_rows(tmp_path / "logkit_logs.db")
    assert row["level"] == ("INFO" if status == 0 else "ERROR") and row["module"] == "cli"
    assert json.loads(row["extra"])["returncode"] == status


def test_run_of_a_command_that_is_killed(command: list[str], tmp_path: Path):
    done = run(command, "run", "--", "sh", "-c", "kill -9 $$", cwd=tmp_path)
    assert done.returncode == 137


def test_run_of_a_command_that_does_not_exist(command: list[str], tmp_path: Path):
    done = run(command, "run", "--", "no-such-command", cwd=tmp_path)
    assert done.returncode == 127 and "logkit: command not found: no-such-command" in done.stderr
    assert db_rows(tmp_path / "logkit_logs.db")[0]["exception_type"] == "FileNotFoundError"


def test_run_with_sinks_and_environment(command: list[str], tmp_path: Path):
    done = run(command, "run", "--sink", "json:a.jsonl", "--env", "prod", "--", "echo", "a b", cwd=tmp_path)
    assert done.stdout == "a b\n"
    (line,) = (tmp_path / "a.jsonl").read_text().splitlines()
    assert json.loads(line)["args"] == "('a b',)" and json.loads(line)["environment"] == "prod"


def test_run_leaves_the_environment_of_its_command_alone(command: list[str], tmp_path: Path):
    plain = subprocess.run(["env"], env=clean_env(LC_ALL="", LANG=""), capture_output=True, text=True)
    done = run(command, "run", "--", "env", cwd=tmp_path, LC_ALL="", LANG="")
    own = re.compile(r"^(LOGKIT_|TRACEPARENT|_=|SHLVL=|OLDPWD=|PWD=)")
    assert {line for line in done.stdout.splitlines() if not own.match(line)} == {
        line for line in plain.stdout.splitlines() if not own.match(line)
    }


def test_logs(command: list[str], tmp_path: Path):
    run_python(
        "import logkit\n"
        "logkit.configure(sinks=['db:calls.db'], propagate_stdlib=False)\n"
        "@logkit.catch\n"
        "def divide(a, b): return a / b\n"
        "divide(1, 2); divide(1, 0)\n",
        cwd=tmp_path,
    )
    done = run(command, "logs", "calls.db", cwd=tmp_path)
    assert done.returncode == 0
    newest, oldest, empty, count = done.stdout.splitlines()
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d \| ERROR \| divide \| ", newest)
    assert "division by zero" in newest and oldest[22:27] == "DEBUG"
    assert (empty, count) == ("", "(2 entries from calls.db)")
    assert len(run(command, "logs", "calls.db", "--errors", cwd=tmp_path).stdout.splitlines()) == 3
    assert (
        len(
            json.loads(
                "["
                + ",".join(run(command, "logs", "calls.db", "--json", cwd=tmp_path).stdout.splitlines())
                + "]"
            )
        )
        == 2
    )


def test_logs_without_a_database(command: list[str], tmp_path: Path):
    done = run(command, "logs", "none.db", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "Database not found: none.db\n")


def test_serve(command: list[str], tmp_path: Path):
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    args = [*command, "serve", "--host", "127.0.0.1", "--port", str(port), "--db", "central.db"]
    with subprocess.Popen(
        args, cwd=tmp_path, env=clean_env(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        url = f"http://127.0.0.1:{port}"

        def up() -> bool:
            assert process.poll() is None
            try:
                with urllib.request.urlopen(url + "/health", timeout=5) as reply:
                    return bool(reply.status == 200)
            except OSError:
                return False

        wait_until(up)
        body = json.dumps({"cmd": "deploy", "args": ["a"], "success": True}).encode()
        with urllib.request.urlopen(url + "/log", data=body, timeout=10) as reply:
            assert json.loads(reply.read())["stored"] is True
        process.terminate()
        process.communicate(timeout=30)
        assert process.returncode in (0, 143, -15)
    assert db_rows(tmp_path / "central.db")[0]["function_name"] == "deploy"


def test_interrupts_end_a_command(command: list[str], tmp_path: Path):
    import signal

    with subprocess.Popen(
        [*command, "run", "--", "sleep", "60"],
        cwd=tmp_path,
        env=clean_env(),
        start_new_session=True,
        stderr=subprocess.PIPE,
    ) as process:
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert b"Traceback" not in errors
    assert len(db_rows(tmp_path / "logkit_logs.db")) == 1


def test_a_reader_that_leaves(command: list[str], tmp_path: Path):
    done = subprocess.run(
        ["sh", "-c", '"$@" --help | head -1', "sh", *command],
        cwd=tmp_path,
        env=clean_env(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Traceback" not in done.stderr and "panicked" not in done.stderr
