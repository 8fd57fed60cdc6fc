"""The module sqlite3 is a second copy of SQLite in the process: it reads what is being written."""

from __future__ import annotations

import sys
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


SNAPSHOT = """
import logkit, sqlite3
logger = logkit.configure(sinks=["db:logs.db"], propagate_stdlib=False)

@logkit.log_call
def work(n): return "r" * 200

def write(n):
    for _ in range(n):
        work(n)
    logger.flush()

write(2000)
# One that is closed takes the sink's own locks away.
sqlite3.connect("logs.db").execute("SELECT count(*) FROM logs").connection.close()
reader = sqlite3.connect("logs.db", isolation_level=None)
reader.execute("PRAGMA cache_size = 1")
reader.execute("BEGIN")
count = "SELECT count(*), sum(length(return_value)) FROM logs"
seen = reader.execute(count).fetchone()
for _ in range(5):
    write(2000)
    assert reader.execute(count).fetchone() == seen
reader.execute("COMMIT")
assert reader.execute(count).fetchone()[0] == 12000
reader.close()
logger.close()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="locks of open file descriptions")
def test_a_transaction_of_the_standard_library_sees_what_it_saw(tmp_path: Path):
    run_python(SNAPSHOT, cwd=tmp_path)
    assert len(db_rows(tmp_path / "logs.db")) == 12000
