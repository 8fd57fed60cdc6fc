"""Rows about code: functions, queries, commands, explanations of code, gaps to fill."""

import functools
import itertools
import json
import math
import re
import statistics
from typing import NamedTuple

from common import SOURCES, WORK
from sandbox import passes

ASK = {
    "python": [
        "Write a Python function that {what}.",
        "python function that {what}",
        "Give me a short Python function that {what}.",
        "How do I write a Python function that {what}?",
        "can you write python code for a function that {what}?",
        "Write Python code that {what}.",
        "In Python, write a function that {what}.",
        "Write a function in Python that {what}.",
    ],
    "named": [
        "Write a Python function {signature} that {what}.",
        "Implement {signature} in Python. It {what}.",
        "I need a Python function `{signature}`. It {what}.",
        "Write a function named {name} in Python that {what}.",
    ],
    "other": [
        "Write a {language} function that {what}.",
        "{lower} function that {what}",
        "In {language}, write a function that {what}.",
        "How do I write a {language} function that {what}?",
        "Show me {language} code that {what}.",
    ],
    "sql": [
        "Write an SQL query that {what}.",
        "sql query that {what}",
        "SQL: {what}",
        "Give me SQL that {what}.",
        "How do I write a query that {what}?",
    ],
    "shell": [
        "Write a shell command that {what}.",
        "bash: {what}",
        "shell command that {what}",
        "Which Linux command {what}?",
        "Give me a one-line command that {what}.",
        "Bash command that {what}",
    ],
    "git": [
        "Which git command {what}?",
        "git command that {what}",
        "git: {what}",
        "How do I use git so that it {what}?",
    ],
    "explain": [
        "What does this code do?\n\n```{mark}\n{code}\n```",
        "Explain this code:\n\n```{mark}\n{code}\n```",
        "Explain this function:\n\n```{mark}\n{code}\n```",
        "what does this do?\n\n{code}",
    ],
}


def row(kind, question, answer, **more):
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return {"kind": kind, "messages": messages, **more}


def fenced(mark, code, note=""):
    return f"```{mark}\n{code.strip()}\n```" + (f"\n\n{note}" if note else "")


def entries(name):
    """(fields of the head, body) of a source file whose heads begin with @."""
    text = (SOURCES / name).read_text(encoding="utf-8")
    for part in re.split(r"^@ ", text, flags=re.M)[1:]:
        head, body = part.split("\n", 1)
        yield [x.strip() for x in head.split(" | ")], body.strip("\n")


def checked(tasks):
    """The tasks whose code passes its asserts; the verdicts are kept in work/passed.json."""
    path = WORK / "passed.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    good = []
    for task in tasks:
        key = json.dumps([task["code"], task["tests"]])
        if key not in known:
            known[key] = passes(task["code"], task["tests"], task["name"])
        if known[key]:
            good.append(task)
        else:
            print("fails its asserts:", task["name"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(known))
    return good


def pretty(code):
    """One style for all: no brackets around a generator that is the only argument."""
    return re.sub(r"\((\([^()]* for .*\))\)", r"\1", code)


def single():
    """Python functions of sources/tasks.txt."""
    for (signature, what, tests), code in entries("tasks.txt"):
        name = signature.split("(")[0]
        yield {
            "name": name,
            "signature": signature,
            "what": what,
            "tests": tests.split(" ;; "),
            "code": pretty(code),
        }


# What newcomers ask for first.
USUAL = {
    "reverse_string",
    "is_prime",
    "fibonacci",
    "factorial",
    "is_palindrome",
    "fizzbuzz",
    "add",
    "count_vowels",
}


class Filter(NamedTuple):
    name: str
    before: str  # words before "numbers" and after the noun
    after: str
    python: str
    javascript: str
    rust: str


class Change(NamedTuple):
    name: str
    words: str
    python: str
    javascript: str
    rust: str


FILTERS = [
    Filter("", "", "", "", "", ""),
    Filter("even", "even ", "", "x % 2 == 0", "x % 2 === 0", "**x % 2 == 0"),
    Filter("odd", "odd ", "", "x % 2 != 0", "x % 2 !== 0", "**x % 2 != 0"),
    Filter("positive", "positive ", "", "x > 0", "x > 0", "**x > 0"),
    Filter("negative", "negative ", "", "x < 0", "x < 0", "**x < 0"),
    Filter("above", "", " that are greater than {k}", "x > {k}", "x > {k}", "**x > {k}"),
    Filter("below", "", " that are less than {k}", "x < {k}", "x < {k}", "**x < {k}"),
    Filter("divisible", "", " that are divisible by {k}", "x % {k} == 0", "x % {k} === 0", "**x % {k} == 0"),
]
CHANGES = [
    Change("", "", "x", "", ""),
    Change("squares", "squares of the ", "x * x", "x => x * x", "x * x"),
    Change("cubes", "cubes of the ", "x ** 3", "x => x ** 3", "x * x * x"),
    Change("doubles", "doubles of the ", "2 * x", "x => 2 * x", "2 * x"),
]
REDUCERS = {
    "sum": "returns the sum of the ",
    "list": "returns a list of the ",
    "count": "counts the ",
    "largest": "returns the largest of the ",
    "smallest": "returns the smallest of the ",
    "average": "returns the average of the ",
    "product": "returns the product of the ",
}
SAMPLE = [3, -4, 10, 7, 12, -9, 15, 2, 20, 8]


def in_python(reducer, when, each):
    """Lines of the body: `when` is a condition or empty, `each` what becomes of x."""
    if when or each != "x":
        inner = f"{each} for x in items" + (f" if {when}" if when else "")
    else:
        inner = "items"
    if reducer == "count":
        return [f"return sum(1 for x in items if {when})" if when else "return len(items)"]
    if reducer == "average" and inner != "items":
        return [f"values = [{inner}]", "return sum(values) / len(values)"]
    if reducer == "product":
        loop = [f"    if {when}:", f"        result *= {each}"] if when else [f"    result *= {each}"]
        return ["result = 1", "for x in items:", *loop, "return result"]
    line = {
        "sum": f"return sum({inner})",
        "list": f"return [{inner}]",
        "largest": f"return max({inner})",
        "smallest": f"return min({inner})",
        "average": "return sum(items) / len(items)",
    }
    return [line[reducer]]


def in_javascript(reducer, when, each):
    chain = "items" + (f".filter(x => {when})" if when else "") + (f".map({each})" if each else "")
    if reducer == "average":
        return f"const values = {chain};\n  return values.reduce((a, b) => a + b, 0) / values.length;"
    line = {
        "sum": f"{chain}.reduce((a, b) => a + b, 0)",
        "list": chain,
        "count": f"{chain}.length",
        "largest": f"Math.max(...{chain})",
        "smallest": f"Math.min(...{chain})",
        "product": f"{chain}.reduce((a, b) => a * b, 1)",
    }
    return f"return {line[reducer]};"


def in_rust(reducer, when, each):
    """(type of the result, body)."""
    kept = "items.iter()" + (f".filter(|x| {when})" if when else "")
    changed = kept + (f".map(|x| {each})" if each else "")
    owned = changed if each else changed + ".copied()"
    return {
        "sum": ("i64", f"{changed}.sum()"),
        "list": ("Vec<i64>", f"{owned}.collect()"),
        "count": ("usize", f"{kept}.count()"),
        "largest": ("Option<i64>", f"{owned}.max()"),
        "smallest": ("Option<i64>", f"{owned}.min()"),
        "product": ("i64", f"{changed}.product()"),
        "average": (
            "f64",
            f"let values: Vec<i64> = {owned}.collect();\n    values.iter().sum::<i64>() as f64 / values.len() as f64",
        ),
    }[reducer]


def expected(reducer, name, change, k):
    """The result for SAMPLE, computed in another way than by the code that is tested."""
    keeps = {
        "": lambda x: True,
        "even": lambda x: x in range(-100, 100, 2),
        "odd": lambda x: x not in range(-100, 100, 2),
        "positive": lambda x: x in range(1, 100),
        "negative": lambda x: x in range(-100, 0),
        "above": lambda x: x in range(k + 1, 100),
        "below": lambda x: x in range(-100, k),
        "divisible": lambda x: x in range(-100 * k, 100 * k, k),
    }[name]
    becomes = {
        "": lambda x: x,
        "squares": lambda x: x**2,
        "cubes": lambda x: x**3,
        "doubles": lambda x: x + x,
    }
    values = [becomes[change](x) for x in SAMPLE if keeps(x)]
    if reducer == "list":
        return values
    by = {
        "sum": sum,
        "count": len,
        "largest": max,
        "smallest": min,
        "average": statistics.mean,
        "product": math.prod,
    }
    return by[reducer](values)


def combined():
    """Functions put together from a filter, a change and a way to sum up, in three languages."""
    for number, (f, change, reducer) in enumerate(itertools.product(FILTERS, CHANGES, REDUCERS)):
        if (reducer == "count" and change.name) or (reducer == "list" and not (f.name or change.name)):
            continue
        k = (2, 3, 4, 5, 10)[number * 7 % 5]
        name = "_".join(x for x in (reducer, change.name, f.name) if x)
        name += f"_{k}" if "{k}" in f.after else ""
        if name in REDUCERS:
            name += "_all" if name == "count" else "_list"
        what = f"{REDUCERS[reducer]}{change.words}{f.before}numbers in a list{f.after}".format(k=k)
        lines = in_python(reducer, f.python.format(k=k), change.python)
        camel = re.sub(r"_(\w)", lambda x: x[1].upper(), name)
        script = in_javascript(reducer, f.javascript.format(k=k), change.javascript)
        kind, body = in_rust(reducer, f.rust.format(k=k), change.rust)
        yield {
            "name": name,
            "signature": f"{name}(items)",
            "what": what,
            "code": f"def {name}(items):\n" + "\n".join("    " + line for line in lines),
            "tests": [f"assert {name}({SAMPLE}) == {expected(reducer, f.name, change.name, k)}"],
            "javascript": f"function {camel}(items) {{\n  {script}\n}}",
            "rust": f"fn {name}(items: &[i64]) -> {kind} {{\n    {body}\n}}",
            # One combination in nine is in no part of the training data.
            "new": number % 9 == 4,
        }


def chats(task, answer, dice):
    """Chats of two and three questions about one function."""
    first = dice.choice(ASK["python"]).format(**task)
    said = [("explain it", f"`{task['name']}` {task['what']}."), ("thanks", "You are welcome!")]
    for language, proper in (("javascript", "JavaScript"), ("rust", "Rust")):
        if language in task:
            said.append((f"now in {proper}", fenced(language, task[language], f"It {task['what']}.")))
    if dice.random() < 0.4:
        dice.shuffle(said)
        messages = [*row("", first, answer)["messages"]]
        for ask, reply in said[: dice.choice([1, 2])]:
            messages += row("", ask, reply)["messages"]
        yield {"kind": "follow", "messages": messages, "vary": True}


@functools.cache
def tasks():
    """The Python functions that pass their asserts."""
    return checked([*single(), *combined()])


def python(dice):
    known = {task["name"] for task in tasks()}
    for task in tasks():
        answer = fenced("python", task["code"], f"`{task['name']}` {task['what']}.")
        check = {"tests": task["tests"], "name": task["name"]}
        more = {"check": check, "new": task.get("new", False), "vary": True}
        usual = task["name"] in USUAL
        asks = ASK["python"] if "javascript" in task else ASK["python"] + ASK["named"]
        if "javascript" in task:
            asks = dice.sample(asks, 4)
        for ask in asks:
            # The examples of the documents are learned in any case.
            often = usual and ask == ASK["python"][0]
            yield row("python", ask.format(**task), answer, often=often, **more)
        if not task.get("new"):
            yield from chats(task, answer, dice)
            yield {"kind": "raw", "raw": task["code"] + "\n"}
            explained = f"`{task['name']}` {task['what']}."
            for ask in dice.sample(ASK["explain"], 1 if "javascript" in task else 2):
                yield row("explain", ask.format(mark="python", code=task["code"]), explained)
            lines = task["code"].split("\n")
            for _ in range(1 if "javascript" in task else 3):
                first = dice.randrange(1, len(lines))
                last = dice.randrange(first, len(lines)) + 1
                before = "\n".join(lines[:first]) + "\n"
                middle = "\n".join(lines[first:last])
                after = "\n" + "\n".join(lines[last:])
                yield {
                    "kind": "fim",
                    "before": before,
                    "middle": middle,
                    "after": after,
                    "check": {"middle": middle},
                }
    for (title, aim, *note), code in entries("python.txt"):
        names = re.findall(r"^(?:def|class) (\w+)", code, re.M)
        if len(code.split("\n")) > 16 or not names or names[-1] in known:
            continue
        answer = fenced("python", code, note[0] if note else "")
        for ask in (
            "Write a Python function to {aim}.",
            "{title} in Python",
            "How do I {aim} in Python?",
            "python {title}",
            "Show me {title} in Python.",
            "write python code to {aim}",
        ):
            yield row("python", ask.format(aim=aim, title=title), answer, vary=True)
    for task in tasks():
        for language in ("javascript", "rust"):
            if language in task:
                proper = {"javascript": "JavaScript", "rust": "Rust"}[language]
                what = (
                    task["what"].replace("a list", {"javascript": "an array", "rust": "a slice"}[language], 1)
                    if not task["what"].startswith("returns a list")
                    else task["what"]
                )
                for ask in dice.sample(ASK["other"], 2):
                    yield row(
                        language,
                        ask.format(language=proper, lower=language, what=what),
                        fenced(language, task[language], f"It {what}."),
                        check={"parses": language},
                        new=task.get("new", False),
                        vary=True,
                    )


def others(dice):
    """Hand-written code of other languages: `third person | code title` heads or `title | infinitive`."""
    for kind, name, proper in (("rust", "rust.txt", "Rust"), ("shell", "shell.txt", "Bash")):
        for (title, aim, *note), code in entries(name):
            if len(code.split("\n")) > 18:
                continue
            answer = fenced("bash" if kind == "shell" else kind, code, note[0] if note else "")
            noun = "command" if kind == "shell" else "function"
            for ask in (
                f"Write a {proper} {noun} to {{aim}}.",
                f"{{title}} in {proper}",
                f"How do I {{aim}} in {proper}?",
                f"{proper.lower()} {{title}}",
                f"Show me {{title}} in {proper}.",
            ):
                yield row(kind, ask.format(aim=aim, title=title), answer, check={"parses": kind}, vary=True)
    for kind, mark in (("javascript", "javascript"), ("sql", "sql"), ("commands", "bash")):
        path = SOURCES / f"{kind}.txt"
        if not path.exists():
            continue
        for (what, *note), code in entries(path.name):
            answer = fenced(mark, code, note[0] if note else "")
            real = "shell" if kind == "commands" else kind
            explained = f"It {what}." + (f" {note[0]}" if note and note[0] else "")
            yield row("explain", dice.choice(ASK["explain"]).format(mark=mark, code=code), explained)
            yield row(
                "explain", f"What does `{code}` do?" if "\n" not in code else f"Explain:\n\n{code}", explained
            )
            for ask in ASK["other" if kind == "javascript" else real]:
                question = ask.format(language="JavaScript", lower="javascript", what=what)
                yield row(real, question, answer, check={"parses": real}, vary=True)
    for line in (SOURCES / "git.txt").read_text(encoding="utf-8").splitlines():
        what, command, note = line.split("|")
        for ask in ASK["git"]:
            yield row("git", ask.format(what=what), fenced("bash", command, note), vary=True)


TABLES = {
    "users": ("user", ["name", "email", "age", "city", "country"], ["age"], "created_at"),
    "orders": ("order", ["customer_id", "total", "status"], ["total"], "created_at"),
    "products": ("product", ["name", "price", "category", "stock"], ["price", "stock"], "added_at"),
    "employees": ("employee", ["name", "salary", "department"], ["salary"], "hired_at"),
    "books": ("book", ["title", "author", "year"], ["year"], "added_at"),
    "customers": ("customer", ["name", "city", "country"], ["id"], "created_at"),
    "students": ("student", ["name", "grade", "class"], ["grade"], "joined_at"),
    "movies": ("movie", ["title", "rating", "genre"], ["rating"], "released_at"),
}


def queries(dice):
    """SQL put together from tables, columns and tasks."""
    for table, (one, columns, numbers, date) in TABLES.items():
        n, c = dice.choice(numbers), columns[0]
        g = columns[-1]
        k = dice.choice([5, 10, 18, 20, 30, 50, 100, 1000])
        made = [
            (f"selects all rows of the table {table}", f"SELECT * FROM {table};"),
            (f"counts the rows of the table {table}", f"SELECT COUNT(*) FROM {table};"),
            (f"returns the {c} of all {table}", f"SELECT {c} FROM {table};"),
            (f"returns the {table} with {n} greater than {k}", f"SELECT * FROM {table} WHERE {n} > {k};"),
            (f"returns the {table} with {n} less than {k}", f"SELECT * FROM {table} WHERE {n} < {k};"),
            (f"returns the {table} sorted by {n}", f"SELECT * FROM {table} ORDER BY {n};"),
            (
                f"returns the {table} sorted by {n}, highest first",
                f"SELECT * FROM {table} ORDER BY {n} DESC;",
            ),
            (f"returns the ten newest {table}", f"SELECT * FROM {table} ORDER BY {date} DESC LIMIT 10;"),
            (f"counts the {table} of each {g}", f"SELECT {g}, COUNT(*) FROM {table} GROUP BY {g};"),
            (f"returns the average {n} of the {table}", f"SELECT AVG({n}) FROM {table};"),
            (f"returns the highest {n} of the {table}", f"SELECT MAX({n}) FROM {table};"),
            (f"returns the sum of {n} of all {table}", f"SELECT SUM({n}) FROM {table};"),
            (f"returns the distinct {g} values of the {table}", f"SELECT DISTINCT {g} FROM {table};"),
            (f"deletes the {one} with id {k}", f"DELETE FROM {table} WHERE id = {k};"),
            (f"sets the {g} of the {one} with id {k}", f"UPDATE {table} SET {g} = 'value' WHERE id = {k};"),
            (
                f"inserts a new {one}",
                f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))});",
            ),
            (f"adds a column {g} to {table}", f"ALTER TABLE {table} ADD COLUMN {g} TEXT;"),
            (f"creates an index on the {c} of {table}", f"CREATE INDEX idx_{table}_{c} ON {table} ({c});"),
            (f"drops the table {table} if it exists", f"DROP TABLE IF EXISTS {table};"),
            (f"finds {table} whose {c} begins with A", f"SELECT * FROM {table} WHERE {c} LIKE 'A%';"),
            (
                f"returns the {table} with the highest {n}",
                f"SELECT * FROM {table} ORDER BY {n} DESC LIMIT 1;",
            ),
            (
                f"finds {c} values that occur twice in {table}",
                f"SELECT {c}, COUNT(*) FROM {table} GROUP BY {c} HAVING COUNT(*) > 1;",
            ),
        ]
        for what, code in made:
            for ask in dice.sample(ASK["sql"], 2):
                yield row(
                    "sql",
                    ask.format(what=what),
                    fenced("sql", code, f"It {what}."),
                    check={"parses": "sql"},
                    vary=True,
                )


def rows(dice):
    yield from python(dice)
    yield from others(dice)
    yield from queries(dice)
