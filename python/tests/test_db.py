"""The database."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import logkit
import pytest
from helpers import FIELDS, PATIENCE, TIMESTAMP, Capture, db_rows, make_entry
from logkit import DbSink, Logger, SQLiteSink, catch, log_call

TEXTS = [name for name in FIELDS if name != "duration_ms"]

OLD_TABLE = (
    "CREATE TABLE logs (id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp TEXT, level TEXT, function_name TEXT, "
    "module TEXT, args TEXT, kwargs TEXT, arg_types TEXT, kwarg_types TEXT, return_value TEXT, return_type TEXT, "
    "exception TEXT, exception_type TEXT, traceback TEXT, duration_ms REAL)"
)


def write(path: Path, *entries: object, **settings: object) -> None:
    sink = DbSink(str(path), **settings)
    for entry in entries:
        sink.write(entry)
    sink.close()


def test_the_schema(tmp_path: Path):
    write(tmp_path / "a.db", make_entry())
    connection = sqlite3.connect(str(tmp_path / "a.db"))
    columns = [(row[1], row[2]) for row in connection.execute("PRAGMA table_info(logs)")]
    assert columns == [
        ("id", "INTEGER"),
        *((name, "REAL" if name == "duration_ms" else "TEXT") for name in FIELDS),
        ("extra", "TEXT"),
        ("span_id", "TEXT"),
        ("parent_id", "TEXT"),
    ]
    (sql,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'logs'").fetchone()
    assert "AUTOINCREMENT" in sql
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    indexes = [
        row[0]
        for row in connection.execute(
            "SELECT sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'logs' AND sql IS NOT NULL"
        )
    ]
    assert len(indexes) == 3
    assert sum("WHERE" in sql for sql in indexes) == 2
    assert not any("function_name" in sql for sql in indexes)
    connection.close()


def test_what_a_row_holds(tmp_path: Path):
    path = tmp_path / "a.db"
    logger = Logger("db", sinks=[DbSink(str(path))], propagate_stdlib=False)

    @log_call(level="INFO", logger=logger)
    def add(a: int, b: int, *, name: str) -> dict[str, int]:
        return {"sum": a + b}

    @catch(logger=logger)
    def fail() -> None:
        raise ValueError("bad")

    add(1, 2, name="żółw")
    fail()
    logger.close()
    fine, failed = db_rows(path)
    assert TIMESTAMP.fullmatch(fine["timestamp"])
    assert (fine["args"], fine["kwargs"], fine["return_value"]) == (
        "(1, 2)",
        "{'name': 'żółw'}",
        "{'sum': 3}",
    )
    assert isinstance(fine["duration_ms"], float)
    assert fine["exception"] == fine["traceback"] == fine["environment"] == fine["llm_analysis"] == ""
    assert len(fine["span_id"]) == 16 and fine["parent_id"] == ""
    assert (failed["level"], failed["exception"], failed["exception_type"]) == ("ERROR", "bad", "ValueError")
    assert failed["return_value"] == "None" and failed["return_type"] == ""


def test_absent_texts_are_empty_not_null(tmp_path: Path):
    write(tmp_path / "a.db", make_entry(args=(), kwargs={}, arg_types=[], kwarg_types={}))
    (row,) = db_rows(tmp_path / "a.db")
    assert all(isinstance(row[name], str) for name in TEXTS)
    assert (row["args"], row["kwargs"], row["kwarg_types"], row["duration_ms"]) == ("()", "{}", "{}", None)


def test_extra_can_be_queried(tmp_path: Path):
    write(tmp_path / "a.db", make_entry(extra={"returncode": 3, "tags": ["a"], "name": "żółw"}))
    connection = sqlite3.connect(str(tmp_path / "a.db"))
    (extra,) = connection.execute("SELECT extra FROM logs").fetchone()
    connection.close()
    assert json.loads(extra) == {"returncode": 3, "tags": ["a"], "name": "żółw"}


def test_a_write_is_committed_when_it_returns(tmp_path: Path):
    sink = DbSink(str(tmp_path / "a.db"))
    for n in range(3):
        sink.write(make_entry())
        assert len(db_rows(tmp_path / "a.db")) == n + 1
    sink.close()


@pytest.mark.parametrize("durability", ["sync", "full"])
def test_a_call_is_committed_when_it_returns_if_asked_for(tmp_path: Path, durability: str):
    path = tmp_path / "a.db"
    logger = Logger(
        "db", sinks=[DbSink(str(path), durability=durability)], propagate_stdlib=False, durability=durability
    )

    @log_call(logger=logger)
    def work() -> None: ...

    for n in range(3):
        work()
        assert len(db_rows(path)) == n + 1
    logger.close()


def test_another_table(tmp_path: Path):
    write(tmp_path / "a.db", make_entry(), table="calls_2")
    assert len(db_rows(tmp_path / "a.db", "calls_2")) == 1


@pytest.mark.parametrize("table", ["", "a b", "1a", "a;drop", 'a"b', "ä"])
def test_names_that_are_no_table(tmp_path: Path, table: str):
    with pytest.raises(ValueError):
        DbSink(str(tmp_path / "a.db"), table=table)


def test_the_file_of_the_existing_library(tmp_path: Path):
    path = tmp_path / "old.db"
    connection = sqlite3.connect(str(path))
    connection.execute(OLD_TABLE)
    insert = "INSERT INTO logs (timestamp, level, function_name) VALUES ('2025-01-01T00:00:00+00:00', 'INFO', 'old')"
    connection.execute(insert)
    connection.commit()
    write(path, make_entry(environment="prod", extra={"a": 1}))
    connection.execute(insert)
    connection.commit()
    connection.close()
    rows = db_rows(path)
    assert [row["function_name"] for row in rows] == ["old", "add", "old"]
    assert (rows[1]["environment"], json.loads(rows[1]["extra"])) == ("prod", {"a": 1})


def test_a_reader_beside_the_writer(tmp_path: Path):
    path = tmp_path / "a.db"
    sink = DbSink(str(path))
    sink.write(make_entry())
    reader = sqlite3.connect(str(path))
    cursor = reader.execute("SELECT * FROM logs")
    cursor.fetchone()
    sink.write(make_entry())
    assert reader.execute("SELECT count(*) FROM logs").fetchone()[0] >= 1
    reader.close()
    sink.close()


def test_two_sinks_on_one_file(tmp_path: Path):
    path = tmp_path / "a.db"
    one = Logger("one", sinks=[DbSink(str(path))], propagate_stdlib=False)
    two = Logger("two", sinks=[SQLiteSink(str(path))], propagate_stdlib=False)
    for n in range(100):
        one.emit(make_entry(args=(n,)))
        two.emit(make_entry(args=(n,)))
    one.close()
    two.close()
    assert len(db_rows(path)) == 200


def test_the_default_path(folder: Path):
    sink = DbSink()
    sink.write(make_entry())
    sink.close()
    assert len(db_rows(folder / "logs.db")) == 1


def test_paths_may_be_objects_and_folders_are_made_or_told(tmp_path: Path):
    write(tmp_path / "a.db", make_entry())
    sink = DbSink(tmp_path / "b.db")
    sink.write(make_entry())
    sink.close()
    assert len(db_rows(tmp_path / "b.db")) == 1
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError):
        DbSink(str(tmp_path / "file" / "c.db")).write(make_entry())


def test_sinks_as_context_managers(tmp_path: Path):
    with DbSink(str(tmp_path / "a.db")) as sink:
        sink.write(make_entry())
        sink.write_batch([make_entry(), make_entry()])
        sink.flush()
    assert len(db_rows(tmp_path / "a.db")) == 3
    sink.close()


def test_everything_also_goes_to_the_delegate(tmp_path: Path, capture: Capture):
    sink = DbSink(str(tmp_path / "a.db"), delegate=capture)
    logger = Logger("db", sinks=[sink], propagate_stdlib=False)
    value = object()

    @log_call(logger=logger)
    def same(value: object) -> object:
        return value

    same(value)
    logger.close()
    assert capture.entries[0].args[0] is value and capture.entries[0].return_value is value
    assert len(db_rows(tmp_path / "a.db")) == 1


def test_old_rows_can_be_deleted(tmp_path: Path):
    path = tmp_path / "a.db"
    write(path, *(make_entry() for _ in range(20)))
    sink = DbSink(str(path), max_rows=5, retain="30d")
    sink.write(make_entry())
    sink.close()
    assert len(db_rows(path)) <= 21


def test_a_file_that_is_no_database_harms_no_call(tmp_path: Path):
    path = tmp_path / "a.db"
    path.write_bytes(b"this is no database, it is a text\n" * 100)
    try:
        logger = Logger("db", sinks=[DbSink(str(path))], propagate_stdlib=False)
    except OSError:
        return

    @log_call(logger=logger)
    def work() -> int:
        return 1

    assert work() == 1
    logger.flush(PATIENCE)
    logger.close()
    assert logkit.DbSink is DbSink
