"""Rows about errors: what an error means and what to do.

Python errors are really raised: small programs with chosen names run here, in this process, and
their tracebacks are taken. The others are written by hand in sources/.
"""

import builtins
import linecache
import traceback

from code_data import row
from common import SOURCES

FUNCTIONS = [
    "load_config",
    "parse_user",
    "get_price",
    "process_order",
    "handle_request",
    "compute_total",
    "read_settings",
    "fetch_data",
    "save_report",
    "update_account",
    "send_message",
    "build_index",
    "validate_input",
    "run_job",
    "load_model",
    "parse_line",
    "get_user",
    "render_page",
    "import_rows",
    "export_csv",
    "start_server",
    "check_status",
    "convert_value",
    "merge_records",
    "find_item",
    "create_invoice",
    "sync_files",
]
VALUES = [
    "data",
    "user",
    "config",
    "item",
    "order",
    "record",
    "payload",
    "settings",
    "result",
    "values",
    "params",
    "message",
    "response",
    "account",
    "options",
    "entry",
    "product",
    "state",
    "rows",
]
KEYS = [
    "user_id",
    "name",
    "email",
    "price",
    "id",
    "token",
    "total",
    "quantity",
    "address",
    "host",
    "port",
    "status",
    "timestamp",
    "model",
    "type",
    "key",
    "count",
    "username",
    "password",
    "url",
    "path",
    "age",
    "amount",
    "currency",
    "title",
]
FILES = [
    "app.py",
    "main.py",
    "server.py",
    "worker.py",
    "utils.py",
    "service.py",
    "tasks.py",
    "client.py",
    "src/loader.py",
    "lib/report.py",
]
MODULES = [
    "requests",
    "numpy",
    "pandas",
    "flask",
    "django",
    "redis",
    "torch",
    "matplotlib",
    "fastapi",
    "httpx",
    "pydantic",
    "aiohttp",
    "yaml:pyyaml",
    "sklearn:scikit-learn",
    "bs4:beautifulsoup4",
    "PIL:pillow",
    "cv2:opencv-python",
]
METHODS = ["strip", "append", "get", "split", "items", "lower", "keys", "read", "encode", "upper"]
ABSENT = ["config.json", "data.csv", "input.txt", "settings.yaml", "model.bin", "users.db"]

# (parameters, body, call, cause, fix): {f} function, {v} value, {k} key, {o} other key, {n} {i} numbers, {m} method,
# {p} path. Cause and fix use only names that the message or the traceback shows.
RAISED = [
    (
        "{v}",
        'return {v}["{k}"]',
        '{{"{o}": {n}}}',
        "the dictionary has no key `{k}`",
        'check that the key exists, or use `.get("{k}")` with a default value',
    ),
    (
        "{v}, count",
        "return sum({v}) / count",
        "[{n}, {i}], 0",
        "the code divides by zero",
        "check the divisor before dividing",
    ),
    ("{v}", "return {v} / 0", "{n}", "the code divides by zero", "check the divisor before dividing"),
    (
        "{v}",
        "return {v} + {n}",
        '"{i}"',
        "a string and a number cannot be added",
        "convert the string with `int()`, or the number with `str()`",
    ),
    (
        "{v}",
        "return {n} + {v}",
        '"{i}"',
        "a number and a string cannot be added",
        "convert the string with `int()` first",
    ),
    (
        "{v}",
        "return {v}.{m}()",
        "None",
        "the value is None, so it has no method `{m}`",
        "find out why it is None, and check for None before using it",
    ),
    (
        "{v}",
        "return {v}[{i}]",
        "[1, 2]",
        "the index is larger than the last position of the list",
        "check the length of the list before using the index",
    ),
    (
        "{v}",
        "return int({v})",
        '"{o}"',
        "the text '{o}' is not a valid integer",
        "check the input, or catch the ValueError",
    ),
    (
        "{v}",
        "return float({v})",
        '"{o}"',
        "the text '{o}' is not a valid number",
        "check the input, or catch the ValueError",
    ),
    (
        "path",
        "return open(path).read()",
        '"/nowhere/{p}"',
        "the file does not exist at that path",
        "check the path and the working directory, or create the file first",
    ),
    (
        "{v}",
        "return {v}.{k}",
        '{{"{k}": {n}}}',
        "a dictionary has no attribute `{k}`",
        'read the value with `["{k}"]`',
    ),
    (
        "{v}",
        "return {k}s",
        "{n}",
        "the name `{k}s` is not defined",
        "check the spelling, or define it before using it",
    ),
    (
        "{v}, {k}",
        "return {v}",
        "{n}",
        "the function `{f}` was called without the argument `{k}`",
        "pass a value for `{k}`, or give it a default value",
    ),
    (
        "{v}",
        "return {v}",
        "{n}, {i}",
        "the function `{f}` takes one argument but got two",
        "remove the extra argument, or change the function",
    ),
    (
        "text",
        "import json\n    return json.loads(text)",
        '"not json"',
        "the text is not valid JSON",
        "print the text before parsing it; it may be empty or HTML",
    ),
    (
        "{v}",
        "return {f}({v})",
        "{n}",
        "the function calls itself without end",
        "add a base case that stops the recursion",
    ),
    (
        "data",
        'return data.decode("utf-8")',
        'b"\\xff\\xfe{k}"',
        "the bytes are not valid UTF-8",
        'use the right encoding, or pass `errors="replace"`',
    ),
    (
        "{v}",
        "for item in {v}:\n        print(item)",
        "{n}",
        "the value is not a list or another iterable",
        "make sure that it holds a list before looping over it",
    ),
    (
        "{v}",
        "for item in {v}:\n        print(item)",
        "None",
        "the value is None, not a list",
        "find out why it is None, and check for None before the loop",
    ),
    (
        "{v}",
        "a, b = {v}\n    return a",
        "[1, 2, 3]",
        "there are more values than names",
        "use the same number of names as values",
    ),
    (
        "{v}",
        "a, b, c = {v}\n    return a",
        "[1, 2]",
        "there are fewer values than names",
        "use the same number of names as values",
    ),
    (
        "{v}",
        'return {v}["{k}"]',
        "[1, 2]",
        "the value is a list, and list indices must be integers",
        "use a number as the index, or pass a dictionary",
    ),
    (
        "{v}",
        "return {v}()",
        "{n}",
        "the value is not a function and cannot be called",
        "remove the parentheses, or pass a function",
    ),
    (
        "{v}",
        "return {v}[0]",
        "None",
        "the value is None and has no items",
        "find out why it is None, and check for None before using it",
    ),
    (
        "{v}",
        "return {{{v}: 1}}",
        "[1, 2]",
        "a list cannot be a dictionary key or a set item",
        "use a tuple instead",
    ),
    (
        "{v}",
        'assert {v} > 0, "{k} must be positive"',
        "-{n}",
        "the check failed: {k} must be positive",
        "pass a positive value, or handle negative values",
    ),
]

ASK = [
    "Explain this error:\n\n{e}",
    "What does this error mean?\n\n{e}",
    "Why do I get this error?\n\n{e}",
    "How do I fix this error?\n\n{e}",
    "{e}",
    "{e}\n\nWhat went wrong?",
    "I get this error: {e}",
    "Find the root cause:\n\n{e}",
    "My program failed with this error. What is wrong?\n\n```\n{e}\n```",
    "help, {e}",
]
LOGGED = [
    "Explain the root cause of this failed function call and suggest a fix.\n\nFunction `{f}` raised {e}",
    "Root cause analysis:\n\n{f}() | EXCEPTION {e}",
    "This function call failed. Explain why.\n\nFunction: {f}\nException: {e}",
]


def raised(code, path):
    """(type: message, traceback) of a program that fails, as the interpreter prints it."""
    linecache.cache[path] = (len(code), None, code.splitlines(True), path)
    try:
        exec(compile(code, path, "exec"), {"__name__": "__main__"})
    except Exception as error:
        shown = traceback.TracebackException.from_exception(error, limit=4)
        # Those of the interpreter's own library are elsewhere on every machine.
        frames = [frame for frame in shown.stack if frame.filename == path]
        shown.stack = traceback.StackSummary.from_list(frames)
        lines = "".join(shown.format()).rstrip().split("\n")
        # The marks under a line only make the text longer.
        lines = [line for line in lines if not line.strip() or set(line.strip()) - set("^~")]
        return f"{type(error).__name__}: {error}", "\n".join(lines)
    raise AssertionError("no error from " + code)


POOLS = {"functions": FUNCTIONS, "values": VALUES, "keys": KEYS, "files": FILES, "absent": ABSENT}


def python(dice, count=2200, pools=POOLS):
    """(question, cause, fix) of errors that are raised with names from the pools."""
    for number in range(count):
        parameters, body, call, cause, fix = RAISED[number % len(RAISED)]
        k, o = dice.sample(pools["keys"], 2)
        names = {
            "f": dice.choice(pools["functions"]),
            "v": dice.choice(pools["values"]),
            "k": k,
            "o": o,
            "n": dice.randint(2, 9),
            "i": dice.randint(5, 20),
            "m": dice.choice(METHODS),
            "p": dice.choice(pools["absent"]),
        }
        gap = "\n" * dice.choice([1, 2])
        # A name with a letter too many must not be one that Python knows, such as `locals`.
        while hasattr(builtins, names["k"] + "s"):
            names["k"] = dice.choice(pools["keys"])
        code = f"def {{f}}({parameters}):\n    {body}\n{gap}{{f}}({call})\n".format(**names)
        short, long = raised(code, dice.choice(pools["files"]))
        cause, fix = cause.format(**names), fix.format(**names)
        roll = dice.random()
        if roll < 0.4:
            question = dice.choice(ASK).format(e=long)
        elif roll < 0.75:
            question = dice.choice(ASK).format(e=short)
        else:
            question = dice.choice(LOGGED).format(e=short, f=names["f"])
        if f"`{names['f']}`" in cause and names["f"] not in question:
            cause = cause.replace(f" `{names['f']}`", "")
        yield question, cause, fix


def modules(dice):
    for _ in range(260):
        module, _, package = dice.choice(MODULES).partition(":")
        short = f"ModuleNotFoundError: No module named '{module}'"
        long = f'Traceback (most recent call last):\n  File "{dice.choice(FILES)}", line {dice.randint(1, 9)}, in <module>\n    import {module}\n{short}'
        question = dice.choice(ASK).format(e=dice.choice([short, long]))
        yield (
            question,
            f"the module `{module}` is not installed",
            f"install it with `pip install {package or module}`",
        )


def rows(dice):
    for line in (SOURCES / "http.txt").read_text(encoding="utf-8").splitlines():
        code, name, what, do = line.split("|")
        for ask in (
            "What does HTTP {c} mean?",
            "HTTP {c}",
            "{c} {n}",
            "I get a {c} error.",
            "what is status code {c}",
            "Why does the server answer {c} {n}?",
        ):
            yield row(
                "http", ask.format(c=code, n=name), f"{code} {name}: {what}. What to do: {do}.", vary=True
            )
    written = [line.split("|") for line in (SOURCES / "errors.txt").read_text(encoding="utf-8").splitlines()]
    for error, cause, fix in written:
        for ask in ASK:
            yield answer(ask.format(e=error), cause, fix)
    for question, cause, fix in [*python(dice), *modules(dice)]:
        yield answer(question, cause, fix)


def answer(question, cause, fix):
    return row("error", question, f"Cause: {cause}.\nFix: {fix}.", check={"cause": cause, "fix": fix})
