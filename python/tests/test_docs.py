"""The examples of docs/python.md and of the package's README run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers import STRICT, run_python

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "docs" / "python.md", ROOT / "python" / "README.md"]


def examples() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        if not page.exists():
            continue
        for match in re.finditer(
            r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        ):
            line = page.read_text(encoding="utf-8")[: match.start()].count("\n") + 2
            found.append((f"{page.name}:{line}", match.group(1)))
    return found


EXAMPLES = examples()


def test_there_are_examples():
    assert not PAGES[0].exists() or len(EXAMPLES) > 15


def test_commands():
    """What the pages type is taken by the command: names of traces and files apart."""
    for page in PAGES:
        if page.exists():
            for line in re.findall(r"^\$ logkit tree (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE):
                arguments = line.split("#")[0].split()
                assert len(arguments) == 2 and arguments[1].endswith(".db"), (page.name, line)


@pytest.mark.parametrize(("place", "code"), EXAMPLES, ids=[place for place, _ in EXAMPLES])
def test_example(place: str, code: str, tmp_path: Path):
    flags = (*STRICT, "-W", "ignore::DeprecationWarning") if "os.fork()" in code else STRICT
    run_python(code, cwd=tmp_path, flags=flags)
