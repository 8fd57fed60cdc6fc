"""CSV, Markdown, JSON Lines, and their rotation."""

from __future__ import annotations

import csv
import json
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from helpers import FIELDS, Capture, db_rows, json_rows, make_entry
from logkit import CSVSink, DbSink, JSONSink, Logger, MarkdownSink, log_call

AT = datetime(2026, 11, 20, 19, 54, 48, 596202, tzinfo=timezone.utc)
NASTY = [
    "",
    "plain",
    "a,b;c",
    'quo"te',
    "it's",
    "two\nlines",
    "carriage\r\nreturn\r",
    "tab\t",
    "żółw 😀 中文",
    "\u2028\u2029",
    "`tick` ``two``",
    "=1+1",
    "+1",
    "-1",
    "@x",
    "\x00\x01\x1b",
    "# heading",
    "---",
    " spaces ",
    "\\back\\slash",
    "a" * 5000,
    "\ufeff",
    "\u202e right to left",
    "%s {} {{}}",
    "NULL",
    "None",
    "'; DROP TABLE logs; --",
]


def write(sink: Any, *entries: Any) -> None:
    for entry in entries:
        sink.write(entry)
    sink.close()


def read_csv(path: Path) -> list[dict[str, str]]:
    csv.field_size_limit(10**7)
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# CSV.


def test_csv_columns_and_one_header(tmp_path: Path):
    path = tmp_path / "a.csv"
    write(CSVSink(str(path)), make_entry(), make_entry(extra={"a": 1}, duration_ms=1.5))
    write(CSVSink(str(path)), make_entry())
    lines = path.read_bytes().split(b"\r\n")
    assert lines[0].decode() == ",".join([*FIELDS, "extra"])
    assert len(lines) == 5 and lines[-1] == b""
    one, two, three = read_csv(path)
    assert (one["args"], one["duration_ms"], one["extra"]) == ("(3, 7)", "", "")
    assert (two["duration_ms"], json.loads(two["extra"])) == ("1.5", {"a": 1})
    assert one["return_value"] in ("None", "") and three["function_name"] == "add"


def test_csv_follows_the_header_that_is_there(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_bytes((",".join(FIELDS) + "\r\n").encode())
    write(CSVSink(str(path)), make_entry(extra={"a": 1}))
    (row,) = read_csv(path)
    assert list(row) == FIELDS and row["function_name"] == "add"
    assert path.read_bytes().count(b"\r\n") == 2


def test_csv_header_of_an_empty_file(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.touch()
    write(CSVSink(str(path)), make_entry())
    assert len(read_csv(path)) == 1


def test_csv_formulas(tmp_path: Path):
    for safe in (False, True):
        path = tmp_path / f"{safe}.csv"
        write(
            CSVSink(str(path), safe_formulas=safe),
            *(make_entry(exception=text) for text in ("=1", "+a", "-a", "@a", "a", "+1", "-1")),
        )
        cells = [row["exception"] for row in read_csv(path)]
        plain = ["a", "+1", "-1"]  # a number is no formula
        assert cells == (["'=1", "'+a", "'-a", "'@a"] if safe else ["=1", "+a", "-a", "@a"]) + plain


def test_csv_default_path_and_delegate(folder: Path, capture: Capture):
    write(CSVSink(delegate=capture), make_entry())
    assert len(read_csv(folder / "logs.csv")) == 1 and len(capture.rows) == 1


# Markdown.


def test_markdown_of_a_success(tmp_path: Path):
    path = tmp_path / "a.md"
    write(
        MarkdownSink(str(path)),
        make_entry(timestamp=AT, return_value=10, return_type="int", duration_ms=0.125),
    )
    assert path.read_text(encoding="utf-8") == (
        "# Logs\n\n"
        "## 2026-11-20T19:54:48.596202+00:00 | INFO | `add`\n\n"
        "- **Module:** shop\n"
        "- **Args:** `(3, 7)`\n"
        "- **Kwargs:** `{'name': 'x'}`\n"
        "- **Arg types:** int, int\n"
        "- **Duration:** 0.125 ms\n"
        "- **Return:** `10` (int)\n"
        "\n---\n\n"
    )


def test_markdown_of_an_error_with_tags(tmp_path: Path):
    path = tmp_path / "a.md"
    write(
        MarkdownSink(str(path)),
        make_entry(
            timestamp=AT,
            level="ERROR",
            exception="bad\nprice",
            exception_type="ValueError",
            traceback="Traceback\n  ```\nValueError: bad",
            duration_ms=1.0,
            environment="prod",
            trace_id="t1",
            version="1.2",
            llm_analysis="why",
            extra={"a": 1},
        ),
    )
    text = path.read_text(encoding="utf-8")
    assert (
        "- **Exception:** `ValueError`: bad price\n\n````\nTraceback\n  ```\nValueError: bad\n````\n" in text
    )
    assert text.endswith(
        "- **Environment:** prod\n- **Trace ID:** `t1`\n- **Version:** 1.2\n- **LLM Analysis:** why\n"
        '- **Extra:** `{"a":1}`\n\n---\n\n'
    )
    assert "**Return:**" not in text


def test_markdown_is_one_document(tmp_path: Path):
    path = tmp_path / "a.md"
    write(MarkdownSink(str(path)), make_entry())
    write(MarkdownSink(str(path)), make_entry())
    text = path.read_text(encoding="utf-8")
    assert text.count("# Logs\n") == 1 and text.count("\n## ") == 2


# JSON Lines.


def test_json_keys_and_types(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    write(
        JSONSink(str(path)),
        make_entry(return_value="żółw", return_type="str", duration_ms=1.5),
        make_entry(extra={"a": [1]}),
    )
    text = path.read_text(encoding="utf-8")
    assert "żółw" in text
    one, two = (json.loads(line) for line in text.splitlines())
    assert list(one) == FIELDS and list(two) == [*FIELDS, "extra"]
    assert one["duration_ms"] == 1.5 and two["duration_ms"] is None
    assert all(isinstance(value, str) for name, value in one.items() if name != "duration_ms")
    assert two["extra"] == {"a": [1]}


def test_json_pretty(tmp_path: Path):
    path = tmp_path / "a.json"
    write(JSONSink(str(path), pretty=True), make_entry())
    text = path.read_text(encoding="utf-8")
    assert text.startswith('{\n  "timestamp": "')
    assert list(json.loads(text)) == FIELDS


def test_json_compact(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    write(JSONSink(str(path), compact=True), make_entry(return_value=10, return_type="int"))
    line = json.loads(path.read_text(encoding="utf-8"))
    assert line["fn"] == "add" and line["ret"] == "10" and "err" not in line


def test_json_typed(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    write(
        JSONSink(str(path), typed=True), make_entry(return_value={"sum": [1, None, True]}, return_type="dict")
    )
    line = json.loads(path.read_text(encoding="utf-8"))
    assert line["args"] == [3, 7] and line["kwargs"] == {"name": "x"}
    assert line["return_value"] == {"sum": [1, None, True]}


def test_json_delegate_is_the_third_parameter(tmp_path: Path, capture: Capture):
    write(JSONSink(str(tmp_path / "a.jsonl"), False, capture), make_entry())
    assert len(capture.rows) == 1


# All of them.


@pytest.mark.parametrize("text", NASTY, ids=[ascii(text)[:20] for text in NASTY])
def test_any_text_survives(tmp_path: Path, text: str):
    entry = make_entry(
        exception=text,
        exception_type="ValueError",
        level="ERROR",
        environment=text.strip() and text,
        args=(text,),
        return_value=text,
        return_type="str",
        extra={"text": text},
        max_repr_length=0,
    )
    write(JSONSink(str(tmp_path / "a.jsonl")), entry)
    write(CSVSink(str(tmp_path / "a.csv")), entry)
    write(DbSink(str(tmp_path / "a.db")), entry)
    write(MarkdownSink(str(tmp_path / "a.md")), entry)
    (line,) = json_rows(tmp_path / "a.jsonl")
    (row,) = db_rows(tmp_path / "a.db")
    kept = [line.texts, row]
    # The reader of Python before 3.11 refuses the character NUL.
    if "\0" not in text or sys.version_info >= (3, 11):
        kept += read_csv(tmp_path / "a.csv")
        assert len(kept) == 3 and json.loads(kept[2]["extra"])["text"] == text
    for found in kept:
        assert found["exception"] == text
        assert found["args"] == repr((text,))
        assert found["return_value"] == repr(text)
    assert line.extra["text"] == json.loads(row["extra"])["text"] == text
    markdown = (tmp_path / "a.md").read_text(encoding="utf-8")
    assert markdown.startswith("# Logs\n\n## ") and markdown.endswith("\n---\n\n")


def test_half_pairs_harm_nothing(tmp_path: Path):
    entry = make_entry(exception="half \ud800", extra={"a": "\udfff", "\ud800": 1}, environment="\ud8ff")
    for sink in (
        JSONSink(str(tmp_path / "a.jsonl")),
        CSVSink(str(tmp_path / "a.csv")),
        DbSink(str(tmp_path / "a.db")),
        MarkdownSink(str(tmp_path / "a.md")),
    ):
        write(sink, entry)
    assert json_rows(tmp_path / "a.jsonl")[0].exception.startswith("half ")
    assert db_rows(tmp_path / "a.db")[0]["exception"].startswith("half ")


@pytest.mark.parametrize("kind", [CSVSink, MarkdownSink, JSONSink])
def test_rotation(tmp_path: Path, kind: Any):
    path = tmp_path / "a.log"
    sink = kind(str(path), max_bytes=4000, backups=2)
    for n in range(100):
        sink.write(make_entry(args=(n, "x" * 50)))
    sink.close()
    files = sorted(file.name for file in tmp_path.iterdir())
    assert files == ["a.log", "a.log.1", "a.log.2"]
    assert all(file.stat().st_size <= 5000 for file in tmp_path.iterdir())
    assert "(99, " in path.read_text(encoding="utf-8")


def test_rotation_compresses(tmp_path: Path):
    sink = JSONSink(str(tmp_path / "a.jsonl"), max_bytes=2000, backups=2, compress="zstd")
    for n in range(30):
        sink.write(make_entry(args=(n, "x" * 50)))
    sink.close()
    packed = tmp_path / "a.jsonl.1.zst"
    assert packed.read_bytes()[:4] == b"\x28\xb5\x2f\xfd"


def test_rotation_by_day(tmp_path: Path):
    write(JSONSink(str(tmp_path / "a.jsonl"), daily=True), make_entry())
    assert len(json_rows(tmp_path / "a.jsonl")) == 1


@pytest.mark.parametrize("options", [{"max_bytes": -1}, {"backups": -1}, {"compress": "rar"}])
def test_options_that_make_no_sense(tmp_path: Path, options: dict[str, Any]):
    with pytest.raises((ValueError, OverflowError)):
        JSONSink(str(tmp_path / "a.jsonl"), **options)


@pytest.mark.parametrize("kind", [CSVSink, MarkdownSink, JSONSink, DbSink])
def test_paths_that_cannot_be_written(tmp_path: Path, kind: Any):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError):
        kind(str(tmp_path / "file" / "a.log")).write(make_entry())


@pytest.mark.parametrize("kind", [CSVSink, MarkdownSink, JSONSink, DbSink])
def test_objects_with_a_path(tmp_path: Path, kind: Any):
    sink = kind(tmp_path / "a.log")
    sink.write(make_entry())
    sink.close()
    assert (tmp_path / "a.log").stat().st_size > 0


@pytest.mark.parametrize("kind", [CSVSink, MarkdownSink, JSONSink, DbSink])
def test_one_sink_in_two_loggers(tmp_path: Path, kind: Any):
    sink = kind(str(tmp_path / "a.log"))
    loggers = [Logger(name, sinks=[sink], propagate_stdlib=False) for name in ("one", "two")]
    for logger in loggers:
        log_call(logger=logger, name=f"by_{logger.name}")(lambda: None)()
    for logger in loggers:
        logger.close()
    data = (tmp_path / "a.log").read_bytes()
    if kind is DbSink:
        data = repr(db_rows(tmp_path / "a.log")).encode()
    assert b"by_one" in data and b"by_two" in data


def test_a_sink_that_is_closed_harms_nothing(tmp_path: Path):
    sink = JSONSink(str(tmp_path / "a.jsonl"))
    logger = Logger("closed", sinks=[sink], propagate_stdlib=False)
    sink.close()
    work = log_call(logger=logger)(lambda: 5)
    assert work() == 5
    logger.close()
