"""LogEntry: fields, order, texts and truncation."""

from __future__ import annotations

import dataclasses
import re
from datetime import datetime, timedelta, timezone
from typing import Any

import logkit
import pytest
from helpers import FIELDS, TIMESTAMP, Probe, make_entry
from logkit.models import DEFAULT_MAX_REPR_LENGTH, LogEntry, safe_repr


def test_it_is_a_dataclass_with_the_fields_in_order():
    names = [field.name for field in dataclasses.fields(LogEntry)]
    assert names[:18] == FIELDS
    assert {"extra", "max_repr_length"} <= set(names)
    required = [
        field.name
        for field in dataclasses.fields(LogEntry)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    assert required == FIELDS[:8]


def test_absent_fields_have_the_values_of_the_table():
    entry = make_entry()
    assert entry.return_value is None
    assert entry.duration_ms is None
    for name in (
        "return_type",
        "exception",
        "exception_type",
        "traceback",
        "environment",
        "trace_id",
        "version",
    ):
        assert not getattr(entry, name)
    assert not entry.llm_analysis
    assert entry.extra == {}
    assert entry.max_repr_length == DEFAULT_MAX_REPR_LENGTH == 2048


def test_fields_are_mutable_and_extra_is_not_shared():
    one, other = make_entry(), make_entry()
    one.extra["a"] = 1
    one.environment = "prod"
    assert other.extra == {} and not other.environment
    assert one.environment == "prod"


def test_required_fields_are_required():
    with pytest.raises(TypeError):
        LogEntry(timestamp=LogEntry.now(), level="INFO")  # type: ignore[call-arg]


def test_now_is_utc():
    now = LogEntry.now()
    assert now.utcoffset() == timedelta(0)
    assert abs(datetime.now(timezone.utc) - now) < timedelta(minutes=1)


def test_as_dict_has_the_eighteen_fields_in_order_and_no_extra():
    entry = make_entry(extra={"a": 1}, return_value="ok", return_type="str", duration_ms=1.5)
    assert list(entry.as_dict()) == FIELDS
    fields = entry.as_dict()
    assert fields["args"] == "(3, 7)"
    assert fields["kwargs"] == "{'name': 'x'}"
    assert fields["arg_types"] == "int, int"
    assert fields["kwarg_types"] == "{'name': 'str'}"
    assert fields["return_value"] == "'ok'"
    assert fields["duration_ms"] == 1.5
    assert TIMESTAMP.fullmatch(fields["timestamp"])


def test_a_timestamp_always_has_six_digits():
    entry = make_entry(timestamp=datetime(2026, 11, 20, 19, 54, 48, tzinfo=timezone.utc))
    assert entry.as_dict()["timestamp"] == "2026-11-20T19:54:48.000000+00:00"


def test_as_compact_has_short_keys_and_no_empty_ones():
    entry = make_entry(return_value=10, return_type="int", duration_ms=1.5, trace_id="t1", environment="prod")
    compact = entry.as_compact()
    assert compact["fn"] == "add" and compact["lvl"] == "INFO" and compact["mod"] == "shop"
    assert compact["ret"] == "10" and compact["rt"] == "int" and compact["ms"] == 1.5
    assert compact["env"] == "prod" and compact["tid"] == "t1"
    assert set(compact) == {"fn", "lvl", "mod", "a", "kw", "ret", "rt", "ms", "env", "tid"}
    empty = make_entry(args=(), kwargs={}, arg_types=[], kwarg_types={})
    assert set(empty.as_compact()) == {"fn", "lvl", "mod"}


def test_texts_of_arguments():
    assert make_entry(args=()).args_repr() == "()"
    assert make_entry(args=(1,)).args_repr() == "(1,)"
    assert make_entry(kwargs={}).kwargs_repr() == "{}"
    assert make_entry(return_value=None).return_value_repr() == "None"
    assert make_entry(return_value="it's").return_value_repr() == '"it\'s"'


def test_texts_are_cut_by_characters_with_the_number_cut():
    entry = make_entry(return_value="ż" * 100, max_repr_length=10)
    assert entry.return_value_repr() == "'" + "ż" * 9 + "... [truncated 92 chars]"


@pytest.mark.parametrize("limit", [None, 0, -1])
def test_no_limit(limit: object):
    entry = make_entry(return_value="x" * 5000, max_repr_length=limit)
    assert entry.return_value_repr() == repr("x" * 5000)


def test_a_text_of_exactly_the_limit_is_whole():
    assert safe_repr("x" * 8, 10) == "'xxxxxxxx'"
    assert safe_repr("x" * 9, 10) == "'xxxxxxxxx... [truncated 1 chars]"


def test_the_default_limit():
    assert safe_repr("x" * 3000) == "'" + "x" * 2047 + f"... [truncated {3002 - 2048} chars]"
    assert safe_repr([1, "a", None]) == "[1, 'a', None]"


def test_a_repr_that_fails_is_told():
    class Broken:
        def __repr__(self) -> str:
            raise ValueError("no text")

    assert safe_repr(Broken()) == "<repr failed: ValueError: no text>"


def test_a_repr_that_is_no_text_is_told():
    class Broken:
        def __repr__(self) -> str:
            return 3  # type: ignore[return-value]

    assert safe_repr(Broken()).startswith("<repr failed: TypeError: ")


def test_limits_of_rendered_fields(probe: Probe):
    @logkit.log_call(logger=probe.logger, max_repr_length=12)
    def wide(a: str, *, b: str) -> str:
        return a + b

    wide("ü" * 40, b="é" * 40)
    row = probe.row
    assert row.args == "('" + "ü" * 10 + "... [truncated 33 chars]"
    assert row.kwargs == "{'b': '" + "é" * 5 + "... [truncated 37 chars]"
    assert row.kwarg_types == "{'b': 'str'}"
    assert row.return_value == "'" + "ü" * 11 + "... [truncated 70 chars]"


@pytest.mark.parametrize("limit", [None, 0, -5])
def test_no_limits_of_rendered_fields(probe: Probe, limit: object):
    @logkit.log_call(logger=probe.logger, max_repr_length=limit)
    def wide(a: str) -> str:
        return a

    wide("x" * 5000)
    assert probe.row.args == repr(("x" * 5000,))
    assert probe.row.return_value == repr("x" * 5000)


def test_large_containers_are_cut_without_being_rendered_whole(probe: Probe):
    n_rendered = 0

    class Counted:
        def __repr__(self) -> str:
            nonlocal n_rendered
            n_rendered += 1
            return "counted"

    @logkit.log_call(logger=probe.logger, max_repr_length=100)
    def wide(values: list[object]) -> None:
        pass

    wide([Counted() for _ in range(200_000)])
    row = probe.row
    assert row.args.startswith("([counted, counted, counted")
    assert re.search(r"\.\.\. \[truncated >?\d+ chars\]$", row.args)
    assert n_rendered < 20_000


@pytest.mark.parametrize("native", [True, False])
def test_large_bytes_as_meta(tmp_path: object, native: bool):
    import hashlib

    probe = Probe(tmp_path, native, binary="meta")  # type: ignore[arg-type]

    @logkit.log_call(logger=probe.logger)
    def upload(data: bytes, small: bytes) -> None:
        pass

    data = b"\x01" * 9000
    upload(data, b"ab")
    digest = hashlib.sha256(data).hexdigest()[:16]
    assert probe.row.args == f"(<bytes len=9000 sha256={digest}>, b'ab')"
    probe.logger.close()


def test_bytes_are_rendered_as_they_are_by_default(probe: Probe):
    @logkit.log_call(logger=probe.logger, max_repr_length=0)
    def upload(data: bytes) -> None:
        pass

    upload(b"\x01" * 9000)
    assert probe.row.args == repr((b"\x01" * 9000,))


@pytest.mark.parametrize(
    "value",
    [
        1.5,
        -0.0,
        float("inf"),
        10**40,
        -7,
        True,
        None,
        "",
        "a'b",
        'a"b',
        "a'\"b",
        "tab\tline\n\x00\x7f\xa0",
        "żółw",
        "😀",
        b"bytes\xff",
        (),
        (1,),
        [],
        [[]],
        {},
        {"a": {1: (2,)}},
        {
            1,
        },
        frozenset(),
        range(3),
        3 + 4j,
        ...,
        int,
        bytearray(b"x"),
        slice(1, 2),
        "\u200b\u2028",
        {"k": [1.0, None, True]},
    ],
    ids=repr,
)
def test_texts_are_those_of_repr(probe: Probe, value: object):
    @logkit.log_call(logger=probe.logger)
    def same(value: object) -> object:
        return value

    assert same(value) is value
    assert probe.row.args == repr((value,))
    assert probe.row.return_value == repr(value)
    assert probe.row.return_type == type(value).__name__


def test_containers_that_hold_themselves(probe: Probe):
    @logkit.log_call(logger=probe.logger)
    def same(value: object) -> None:
        pass

    ring: list[object] = [1]
    ring.append(ring)
    table: dict[str, object] = {}
    table["self"] = table
    same(ring)
    same(table)
    assert [row.args for row in probe.rows] == [repr((ring,)), repr((table,))]


def test_subclasses_of_containers_use_their_own_repr(probe: Probe):
    from collections import Counter, OrderedDict, namedtuple

    class Loud(str):
        def __repr__(self) -> str:
            return "LOUD"

    class Numbers(list):  # type: ignore[type-arg]
        def __repr__(self) -> str:
            return "Numbers!"

    class Flag(int):
        def __repr__(self) -> str:
            return "flag"

    Point = namedtuple("Point", "x y")
    values = (Loud("a"), Numbers([1]), Flag(3), Point(1, 2), Counter("aab"), OrderedDict(a=1))

    @logkit.log_call(logger=probe.logger)
    def same(*values: object) -> None:
        pass

    same(*values)
    assert probe.row.args == repr(values)
    assert probe.row.arg_types == "Loud, Numbers, Flag, Point, Counter, OrderedDict"


def test_texts_that_are_no_unicode(probe: Probe):
    @logkit.log_call(logger=probe.logger)
    def odd(text: str) -> str:
        raise ValueError(text)

    with pytest.raises(ValueError):
        odd("half \ud800 pair")
    assert probe.row.args == "('half \\ud800 pair',)"
    assert probe.row.exception.startswith("half ") and probe.row.exception.endswith(" pair")


def test_long_messages_are_cut_at_64_kib(probe: Probe):
    @logkit.log_call(logger=probe.logger)
    def fail() -> None:
        raise ValueError("m" * 200_000)

    with pytest.raises(ValueError):
        fail()
    assert 60_000 < len(probe.row.exception) < 70_000
    assert 60_000 < len(probe.row.traceback) < 70_000
    note = f"... [truncated {200_000 - (64 << 10)} chars]"
    assert probe.row.exception.endswith(note) and probe.row.traceback.endswith(f"{note}\n")


def test_long_messages_of_causes_are_cut_too(probe: Probe):
    @logkit.log_call(logger=probe.logger)
    def fail() -> None:
        try:
            raise KeyError("c" * 200_000)
        except KeyError as error:
            raise ValueError("m" * 200_000) from error

    with pytest.raises(ValueError):
        fail()
    text = probe.row.traceback
    assert 120_000 < len(text) < 140_000
    assert "\nKeyError: 'ccc" in text and "\nValueError: mmm" in text and text.count(" chars]\n") == 2


def test_long_tracebacks_keep_their_start_and_their_end(probe: Probe):
    # Two functions: a line that repeats is not written again.
    code = """
def one(n): two(n - 1)
def two(n):
    if n < 0: raise ValueError("at the bottom")
    one(n - 1)
"""
    functions: dict[str, Any] = {}
    exec(compile(code, "f" * 1000, "exec"), functions)

    @logkit.log_call(logger=probe.logger)
    def fail() -> None:
        functions["one"](400)

    with pytest.raises(ValueError):
        fail()
    text = probe.row.traceback
    assert 190_000 < len(text) < 200_000
    assert text.startswith("Traceback (most recent call last):\n")
    assert ", in fail\n" in text[:1000]
    assert re.search(r", in (one|two)\n\.\.\. \[truncated \d+ chars\]\n  File \"fff", text)
    assert text.endswith(", in two\nValueError: at the bottom\n")


def test_the_repr_is_short_enough_for_a_notebook():
    text = repr(make_entry(args=("x" * 100_000,), traceback="line\n" * 1000))
    assert "add" in text and "INFO" in text
    assert len(text) < 20_000
