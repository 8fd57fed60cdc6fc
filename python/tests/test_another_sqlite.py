"""The module sqlite3 is a second copy of SQLite in the process: it reads what is being written."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import db_rows, run_python

READS = """
import logkit, sqlite3, time
logger = logkit.configure(sinks=["db:logs.db"], propagate_stdlib=False)

@logkit.log_call
def work(n): return n

n, end = 0, time.monotonic() + 2
while time.monotonic() < end:
    for _ in range(20):
        work(n)
        n += 1
    # Closing it takes the locks away that the sink has on the files.
    connection = sqlite3.connect("logs.db")
    if n > 1000:
        connection.execute("SELECT count(*) FROM logs").fetchone()
    connection.close()
logger.close()
connection = sqlite3.connect("logs.db")
assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
assert connection.execute("SELECT count(*) FROM logs").fetchone() == (n,)
connection.close()
"""


@pytest.mark.parametrize("durability", ["buffered", "sync"])
def test_reading_with_the_standard_library_while_the_sink_writes(tmp_path: Path, durability: str):
    run_python(READS, cwd=tmp_path, env={"LOGKIT_DURABILITY": durability})
    assert db_rows(tmp_path / "logs.db")
    assert [path.name for path in tmp_path.iterdir()] == ["logs.db"]
