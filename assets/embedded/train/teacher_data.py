"""Definitions and Python functions by a larger model, the teacher.

usage: teacher_data.py MODEL [--server http://127.0.0.1:11434] [--samples 6]

MODEL is one of a running llmsrv. It is asked for every term of sources/asked_terms.txt and every task of
sources/asked_tasks.txt, 16 requests at a time. What it says goes to work/teacher.jsonl as it comes, and a
second run goes on there. Of the answers to a term those are kept that are one or two plain sentences with
a word that a right answer has; the one that shares most words with the others is taken. Of the functions
those are kept that pass their asserts, and the shortest is taken. The result is written to
sources/teacher_terms.txt and sources/teacher_tasks.txt, to be read by eye: a line that is wrong is deleted
there, and its term goes into sources/refused_terms.txt, so that it stays away.
"""

import argparse
import ast
import collections
import concurrent.futures
import itertools
import json
import re
import threading
import urllib.request

import code_data
from common import SOURCES, WORK, read_lines
from sandbox import blocks, passes

TOGETHER = 16
# Of a term, how the built-in model is asked: `ASKS` are learned, `OTHER` only asked.
ASKS = (
    "What is {x}?",
    "what's {x}",
    "Explain {x}.",
    "Define {x}.",
    "What does {x} mean?",
    "{x}?",
    "Tell me about {x}.",
    "{x}",
    "do you know what {x} is?",
    "What is meant by {x}?",
    "please explain {x}",
    "explain {x} to me",
    "tell me what {x} is",
    "can you explain {x}?",
    "can you define {x}?",
    "could you tell me about {x}?",
    "what exactly is {x}?",
    "In one sentence, what is {x}?",
    "I do not understand {x}.",
    "I read the word {x}. What does it mean?",
    "describe {x}",
    "How would you describe {x}?",
    "{x} explained",
    "{x} definition",
    "{x}: what is it?",
    "definition of {x}",
    "the meaning of {x}",
    "What do people mean by {x}?",
    "a simple explanation of {x}",
    "What is {x}? Keep it short.",
    "teach me {x}",
    "I want to know what {x} is.",
)
OTHER = (
    "Can you tell me what {x} is?",
    "I keep reading about {x}. What is it?",
    "Explain {x} in simple words.",
    "{x}, what is that?",
    "Give me a definition of {x}.",
)
OTHER_TASKS = (
    "I want a Python function which {what}.",
    "Show me how to write a function in Python that {what}.",
    "Could you code a Python function that {what}?",
)
UNKNOWN = "I do not know. I am a tiny model without a network; a larger one knows more (`llmsrv install-model`)."
# What a definition never says.
REFUSED = re.compile(r"\b(I|I'm|me|my|sorry|AI language|example:|as follows)\b|[^ -~]|[*#|`:]", re.I)


def terms(name):
    """(term, what stands after it) of each line of a source file."""
    path = SOURCES / name
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [(line + "|").split("|")[:2] for line in lines]


def tasks():
    for line in (SOURCES / "asked_tasks.txt").read_text(encoding="utf-8").splitlines():
        signature, what, tests = line.split(" | ")
        name = signature.split("(")[0]
        yield {"name": name, "signature": signature, "what": what, "tests": tests.split(" ;; ")}


def prompts(samples):
    """(key, question) for each sample that is wanted; a key has the number of its sample."""
    for number, (term, _) in itertools.product(range(samples), terms("asked_terms.txt")):
        text = f"What is {term}? Answer in one short sentence, in plain words, without an example."
        yield f"{number} term {term}", text
    for number, task in itertools.product(range(samples), tasks()):
        text = (
            f"Write a short Python function `{task['signature']}` that {task['what']}. "
            "Reply with the code alone, without comments."
        )
        yield f"{number} task {task['name']}", text


def ask(server, model, key, text):
    number = int(key.split()[0])
    body = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        # The first sample is the likeliest answer.
        "options": {"temperature": 0.7 if number else 0, "seed": number, "num_predict": 160},
        "stream": False,
    }
    request = urllib.request.Request(f"{server}/api/chat", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=600) as reply:
        said = json.load(reply)
    return {"key": key, "said": said["message"]["content"], "ended": said["done_reason"] == "stop"}


def ask_all(server, model, samples):
    path = WORK / "teacher.jsonl"
    found = read_lines(path) if path.exists() else []
    known = {row["key"] for row in found}
    missing = [(key, text) for key, text in prompts(samples) if key not in known]
    lock = threading.Lock()
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as file, concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:

        def one(pair):
            row = ask(server, model, *pair)
            with lock:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                file.flush()
                found.append(row)

        # list() raises what a request raised.
        list(pool.map(one, missing))
    return found


def meant(text):
    return set(re.findall(r"[a-z]{4,}", text.lower()))


def short(said):
    """The first sentence of an answer, with the second if both are short."""
    sentences = re.findall(r"[^.!?]+(?:\.[^ ][^.!?]*)*[.!?](?= |$)", said.split("\n")[0].strip())
    text = (sentences or [""])[0].strip()
    if len(sentences) > 1 and len(text) + len(sentences[1]) <= 170:
        text += " " + sentences[1].strip()
    return text


def definition(term, wanted, samples):
    """The answer to keep, or None."""
    wanted = wanted.split()
    good = []
    for said in samples:
        text = short(said)
        right = not wanted or any(word in text.lower() for word in wanted)
        if right and 30 <= len(text) <= 230 and not REFUSED.search(text):
            good.append(text)
    if len(good) < 3:
        return None

    def shared(text):
        words = meant(text)
        others = [meant(other) for other in good]
        return sum(len(words & other) / max(1, len(words | other)) for other in others) - len(text) / 400

    return max(good, key=shared)


def function(task, samples):
    """The shortest code that passes, as `ast` writes it, or None."""
    good = []
    for said in samples:
        try:
            tree = ast.parse("\n".join(blocks(said)))
        except (SyntaxError, ValueError):
            continue
        kept = [x for x in tree.body if isinstance(x, (ast.FunctionDef, ast.Import, ast.ImportFrom))]
        defined = [x for x in kept if isinstance(x, ast.FunctionDef)]
        if len(defined) != 1 or defined[0].name != task["name"]:
            continue
        if ast.get_docstring(defined[0]):
            defined[0].body = defined[0].body[1:]
        code = code_data.pretty("\n".join(ast.unparse(x) for x in kept))
        if len(code) < 400 and passes(code, task["tests"], task["name"]):
            good.append(code)
    return min(good, key=len, default=None)


def choose(found):
    samples = collections.defaultdict(list)
    for row in sorted(found, key=lambda row: row["key"]):
        if row["ended"]:
            samples[row["key"].split(" ", 1)[1]].append(row["said"])
    refused = {term for term, _ in terms("refused_terms.txt")}
    kept = {}
    for term, wanted in terms("asked_terms.txt"):
        said = definition(term, wanted, samples[f"term {term}"])
        # One text for two terms is wrong for one of them.
        if said and term not in refused and said not in kept.values():
            kept[term] = said
    code = [(task, function(task, samples[f"task {task['name']}"])) for task in tasks()]
    code = [(task, lines) for task, lines in code if lines]
    print(f"{len(kept)} of {len(terms('asked_terms.txt'))} terms, {len(code)} of {len(list(tasks()))} tasks")
    text = "".join(f"{term}|{said}\n" for term, said in kept.items())
    (SOURCES / "teacher_terms.txt").write_text(text, encoding="utf-8")
    heads = [f"@ {t['signature']} | {t['what']} | {' ;; '.join(t['tests'])}\n{lines}\n" for t, lines in code]
    (SOURCES / "teacher_tasks.txt").write_text("".join(heads), encoding="utf-8")


def known_tasks():
    for (signature, what, tests), code in code_data.entries("teacher_tasks.txt"):
        name = signature.split("(")[0]
        yield {"name": name, "signature": signature, "what": what, "tests": tests.split(" ;; "), "code": code}


def task_row(kind, task, question, **more):
    answer = code_data.fenced("python", task["code"], f"`{task['name']}` {task['what']}.")
    question = question.format(**task)
    return code_data.row(kind, question, answer, **more)


def rows(dice):
    """What is learned: every term in every wording, chats from one term to the next, every function."""
    known = terms("teacher_terms.txt")
    for (term, said), text in itertools.product(known, ASKS):
        question = text.format(x=term)
        yield code_data.row("taught", question[0].upper() + question[1:], said, vary=True)
    for term, said in known:
        other, meaning = dice.choice(known)
        first = code_data.row("taught", f"What is {term}?", said)
        text = dice.choice(("And {x}?", "and what is {x}?", "What about {x}?", "thanks. and {x}?"))
        first["messages"] += [
            {"role": "user", "content": text.format(x=other)},
            {"role": "assistant", "content": meaning},
        ]
        yield first
    # Of what the teacher did not know either it says so.
    answered = {term for term, _ in known}
    for term, _ in terms("asked_terms.txt"):
        for text in ASKS[:3] if term not in answered else ():
            question = text.format(x=term)
            yield code_data.row("taught", question[0].upper() + question[1:], UNKNOWN, vary=True)
    for task in code_data.checked(list(known_tasks())):
        for text in code_data.ASK["python"] + code_data.ASK["named"]:
            yield task_row("taught code", task, text, vary=True)


def second():
    """The second list of prompts: the teacher's terms and tasks in wordings that are never learned."""
    wanted = dict(terms("asked_terms.txt"))
    for number, (term, said) in enumerate(terms("teacher_terms.txt")):
        text = OTHER[number % len(OTHER)].format(x=term)
        row = code_data.row("define", text[0].upper() + text[1:], said)
        if wanted.get(term):
            row["check"] = {"words": [wanted[term].split()]}
        yield row
    for number, task in enumerate(known_tasks()):
        check = {"tests": task["tests"], "name": task["name"]}
        yield task_row("python", task, OTHER_TASKS[number % len(OTHER_TASKS)], check=check)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--server", default="http://127.0.0.1:11434")
    parser.add_argument("--samples", type=int, default=6)
    args = parser.parse_args()
    choose(ask_all(args.server, args.model, args.samples))


if __name__ == "__main__":
    main()
