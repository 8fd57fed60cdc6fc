"""Runs programs in a child process with limits of time, memory and file size."""

import ast
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SECONDS = 5


def blocks(answer):
    """The fenced blocks of an answer, or all of it if there is none."""
    return re.findall(r"```[a-zA-Z+#]*\n(.*?)```", answer, re.S) or [answer]


def run(command, **more):
    """Whether a command ends well. It is not shut off from files and network, only limited."""

    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    quiet = subprocess.DEVNULL
    try:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                command,
                stdout=quiet,
                stderr=quiet,
                timeout=4 * SECONDS,
                preexec_fn=limit,
                cwd=folder,
                check=False,
                **({"stdin": quiet} | more),
            )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def passes(answer, tests, name):
    """Whether the Python functions of an answer pass asserts that call the last one by `name`."""
    try:
        tree = ast.parse("\n".join(blocks(answer)))
    except (SyntaxError, ValueError):
        return False
    # Definitions only: what an answer shows as an example is not run.
    kept = ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom
    tree.body = [node for node in tree.body if isinstance(node, kept)]
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    if not functions:
        return False
    lines = [ast.unparse(tree), f"{name} = {functions[-1]}", *tests]
    code = "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
    return run([sys.executable, "-I", "-S", "-c", code + "\n".join(lines)])


def parses(language, answer):
    """Whether code of another language is accepted by its parser, None where there is none."""
    code = "\n".join(blocks(answer))
    if language == "shell":
        return run(["bash", "-n"], stdin=None, input=code.encode()) if code.strip() else False
    if language == "sql":
        import sqlite3

        # A statement is fine if only its tables or columns are unknown.
        try:
            for statement in filter(str.strip, code.split(";")):
                sqlite3.connect(":memory:").execute("EXPLAIN " + statement)
        except sqlite3.Error as error:
            return any(x in str(error) for x in ("no such table", "no such column", "no such function"))
        return bool(code.strip())
    with tempfile.TemporaryDirectory() as folder:
        if language == "javascript" and shutil.which("node"):
            path = Path(folder) / "code.js"
            path.write_text(code)
            return run(["node", "--check", str(path)])
        if language == "rust" and shutil.which("rustfmt"):
            path = Path(folder) / "code.rs"
            path.write_text(code)
            return run(["rustfmt", "--edition", "2021", "--emit", "stdout", str(path)])
    return None
