"""Secrets: blanked by the names of arguments and within texts, before anything is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import logkit
import pytest
from helpers import Probe
from logkit import is_sensitive_key, log_call, redact_args, redact_kwargs, redact_string, redact_value

MARK = "***REDACTED***"

SECRET = [
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "apikey",
    "authorization",
    "credential",
    "credentials",
    "cookie",
    "api_key",
    "private_key",
    "access_key",
    "secret_key",
    "session_id",
    "auth_header",
    "pass",
    "auth",
    "user_token",
    "apiKey",
    "DB_PASSWORD",
    "API-KEY",
    "my.secret",
    "X-Api-Key",
    "AccessKey",
    "userPassword",
    "sessionId",
    "AUTH",
    "Pass",
    "client_secret",
    "refresh-token",
    "set-cookie",
]
PLAIN = [
    "max_tokens",
    "tokenizer",
    "author",
    "passenger",
    "session_count",
    "authority",
    "compass",
    "keyboard",
    "key",
    "session",
    "name",
    "",
    "tokens",
    "secretary",
    "passport",
    "cookies_enabled",
    "private",
    "access",
    "api",
    "pass_count",
    "auth_type",
    "idsession",
]


@pytest.mark.parametrize("name", SECRET)
def test_names_of_secrets(name: str):
    assert is_sensitive_key(name) is True


@pytest.mark.parametrize("name", PLAIN)
def test_names_that_only_look_like_it(name: str):
    assert is_sensitive_key(name) is False


def test_positional_and_named_arguments(probe: Probe):
    @log_call(logger=probe.logger)
    def login(user: str, password: str, *more: str, api_key: str = "", max_tokens: int = 0) -> bool:
        return password == "hunter2" and api_key == "k-1"

    assert login("ann", "hunter2", "x", api_key="k-1", max_tokens=5) is True
    row = probe.row
    assert row.args == f"('ann', {MARK}, 'x')" or row.args == f"('ann', '{MARK}', 'x')"
    assert MARK in row.kwargs and "k-1" not in row.kwargs and "'max_tokens': 5" in row.kwargs
    assert row.arg_types == "str, str, str"


def test_methods_shift_no_positions(probe: Probe):
    class Client:
        @log_call(logger=probe.logger)
        def login(self, user: str, password: str) -> None: ...

        @classmethod
        @log_call(logger=probe.logger)
        def make(cls, token: str, user: str) -> None: ...

        def __repr__(self) -> str:
            return "Client()"

    Client().login("ann", "hunter2")
    Client.make("tok-1", "ann")
    for row in probe.rows:
        assert "'ann'" in row.args and MARK in row.args
        assert "hunter2" not in row.args and "tok-1" not in row.args


def test_secrets_of_a_decorated_class(probe: Probe):
    @logkit.logged(logger=probe.logger)
    class Client:
        @staticmethod
        def connect(token: str) -> None: ...

        def login(self, password: str) -> None: ...

    Client().login("hunter2")
    Client.connect("hunter2")
    assert all("hunter2" not in row.args and MARK in row.args for row in probe.rows)


def test_secrets_of_a_partial(probe: Probe):
    import functools

    def login(user: str, password: str) -> None: ...

    log_call(logger=probe.logger)(functools.partial(login, "ann"))("hunter2")
    assert "hunter2" not in probe.row.args


def test_the_secret_is_nowhere_in_the_rendered_text(probe: Probe):
    rendered: list[str] = []

    class Password(str):
        def __repr__(self) -> str:
            rendered.append("rendered")
            return str(self)

    @log_call(logger=probe.logger)
    def login(password: str) -> None: ...

    login(Password("hunter2"))
    assert "hunter2" not in probe.row.args


def test_nested_keys_to_depth_four(probe: Probe):
    @log_call(logger=probe.logger)
    def send(value: Any) -> Any:
        return value

    value = {"a": {"password": "s1", "b": [{"token": "s2", "c": 1}]}, "author": "ann"}
    assert send(value) is value
    row = probe.row
    for text in (row.args, row.return_value):
        assert "s1" not in text and "s2" not in text
        assert "'author': 'ann'" in text and "'c': 1" in text
        assert text.count(MARK) == 2
    assert value["a"]["password"] == "s1"  # type: ignore[index]


def test_the_result(probe: Probe):
    @log_call(logger=probe.logger)
    def make() -> dict[str, str]:
        return {"api_key": "k-1", "name": "x"}

    assert make() == {"api_key": "k-1", "name": "x"}
    assert "k-1" not in probe.row.return_value and "'name': 'x'" in probe.row.return_value


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("password=hunter2 and more", "hunter2"),
        ("token: abc123def", "abc123def"),
        ("run --api-key k-987 now", "k-987"),
        ("Authorization: Bearer abc.def-ghi", "abc.def-ghi"),
        ("postgres://ann:hunter2@db.example/x", "hunter2"),
        ("key AKIAABCDEFGHIJKLMNOP end", "AKIAABCDEFGHIJKLMNOP"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----", "MIIabc"),
        ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlLWhlcmU end", "c2lnbmF0dXJlLWhlcmU"),
    ],
)
def test_secrets_within_texts(probe: Probe, text: str, secret: str):
    scrubbed = redact_string(text)
    assert secret not in scrubbed and MARK in scrubbed

    @logkit.catch(logger=probe.logger)
    def fail() -> None:
        raise ValueError(text)

    fail()
    assert secret not in probe.row.exception
    assert secret not in probe.row.traceback


@pytest.mark.parametrize("text", ["max_tokens=512", "the author: ann", "a plain text", "", "passenger=7"])
def test_texts_without_secrets_stay(text: str):
    assert redact_string(text) == text


def test_the_functions():
    assert redact_value("password", "x") == MARK
    assert redact_value("author", "ann") == "ann"
    assert redact_value("n", 5) == 5
    assert redact_kwargs({"token": "x", "n": 1}) == {"token": MARK, "n": 1}
    assert redact_kwargs({"a": {"token": "x"}}) == {"a": {"token": MARK}}
    args = redact_args(("a", 1, {"password": "x"}))
    assert list(args) == ["a", 1, {"password": MARK}]


def test_names_of_ones_own(probe: Probe):
    @log_call(redact=["pin"], logger=probe.logger)
    def pay(amount: int, pin: str, *, card_pin: str = "", password: str = "") -> None: ...

    pay(1, "1234", card_pin="5678", password="hunter2")
    for secret in ("1234", "5678", "hunter2"):
        assert secret not in probe.row.args + probe.row.kwargs


def test_a_function_may_switch_it_off(probe: Probe):
    @log_call(redact=False, logger=probe.logger)
    def login(password: str) -> None: ...

    login("hunter2")
    assert probe.row.args == "('hunter2',)"


def test_a_function_of_ones_own(probe: Probe):
    """It is given name and value of each argument; the built-in rules hold besides."""

    @log_call(redact=lambda name, value: value[0] + "…" if name == "name" else value, logger=probe.logger)
    def greet(name: str, n: int, *, password: str) -> str:
        return "hello"

    assert greet("ann", 5, password="hunter2") == "hello"
    row = probe.row
    assert "ann" not in row.args and "a…" in row.args and "5" in row.args
    assert "hunter2" not in row.kwargs


@pytest.mark.parametrize("native", [True, False])
def test_a_logger_may_know_more_names_or_none(tmp_path: Path, native: bool):
    for redact, args in ((["pin"], ("9876",)), (False, ())):
        folder = tmp_path / str(redact)
        folder.mkdir()
        probe = Probe(folder, native, redact=redact)

        @log_call(logger=probe.logger)
        def pay(pin: str, password: str) -> None: ...

        pay("9876", "hunter2")
        if redact is False:
            assert probe.row.args == "('9876', 'hunter2')"
        else:
            assert "9876" not in probe.row.args and "hunter2" not in probe.row.args
        probe.logger.close()
        assert args is not None


def test_a_redactor_that_fails_keeps_the_secret_out(probe: Probe):
    def broken(name: str, value: object) -> object:
        raise RuntimeError("redactor")

    @log_call(redact=broken, logger=probe.logger)
    def login(name: str) -> int:
        return 5

    assert login("very-secret") == 5
    for row in probe.rows:
        assert "very-secret" not in row.args


def test_sinks_in_python_get_live_objects_and_redacted_texts():
    """The objects are those of the call; what a sink writes of them as text is blanked."""
    from helpers import Capture

    capture = Capture()
    logger = logkit.Logger("live", sinks=[capture], propagate_stdlib=False)

    @log_call(logger=logger)
    def login(user: str, password: str) -> None: ...

    login("ann", "hunter2")
    entry = capture.entries[0]
    assert "hunter2" not in entry.args_repr()
    assert "hunter2" not in str(entry.as_dict())
    logger.close()


def test_messages(probe: Probe):
    logkit.set_default_logger(probe.logger)
    logkit.info("login with password=hunter2", token="tok-1", n=5)
    row = probe.row
    assert "hunter2" not in row.return_value + str(row.extra)
    assert row.extra["token"] == MARK and row.extra["n"] == 5
