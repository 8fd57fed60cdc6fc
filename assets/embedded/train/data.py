"""Writes work/train.jsonl, held_out.jsonl, evaluation.jsonl, first.jsonl and second.jsonl.

usage: data.py [COPIES [SEED]]

COPIES scales the rows of copy_data, 1 by default: a short run has no time to learn copying. Another
SEED invents other names for them and spells all questions anew, for the next epoch of a long run;
what is held out stays the same.

Everything is generated from sources/ and the modules beside this one, with fixed seeds. Python
functions are kept only if their asserts pass. A question is held out by a hash of its words,
whatever their case and punctuation, so the split stays the same when data is added.
"""

import collections
import hashlib
import random
import re
import sys

import code_data
import copy_data
import fault_data
import teacher_data
import text_data
import wording_data
from common import WORK, write_lines

# How many rows of a kind an epoch has beside those of copy_data: kinds with fewer are repeated,
# with more are thinned.
ROWS = {
    "self": 28000,
    "follow": 900,
    "define": 3500,
    "fact": 1200,
    "sum": 150,
    "python": 4200,
    "javascript": 800,
    "rust": 900,
    "sql": 800,
    "shell": 1800,
    "git": 250,
    "explain": 2500,
    "error": 3200,
    "http": 200,
    "json": 1500,
    "rewrite": 900,
    "fim": 400,
    "review": 80,
    "raw": 150,
    "taught": 12000,
    "taught code": 2500,
}
# How many times more often the commonest questions are learned.
OFTEN = 14
# What programs put before a chat: it changes nothing here.
SYSTEM = [
    "You are a helpful assistant.",
    "You are a helpful coding assistant.",
    "You are an expert programmer. Answer briefly.",
    "You analyze errors in logged function calls.",
    "Be concise.",
    "You are a friendly assistant that answers questions about code.",
]
# How many prompts of a kind the evaluation has: 300 together.
ASKED = {
    "self": 59,
    "python": 54,
    "javascript": 15,
    "rust": 15,
    "sql": 15,
    "shell": 16,
    "error": 50,
    "json": 30,
    "define": 18,
    "fact": 6,
    "rewrite": 10,
    "follow": 7,
    "fim": 5,
}


def words(row):
    """What makes two questions the same."""
    if "raw" in row:
        return row["raw"]
    if "middle" in row:
        return row["before"] + "|" + row["after"]
    asked = " ".join(m["content"] for m in row["messages"] if m["role"] == "user")
    return re.sub(r"[^a-z0-9+*/=<>-]+", " ", asked.lower()).strip()


def held(row):
    """One question in twelve; never the commonest greetings."""
    if row.get("often"):
        return False
    if row.get("new"):
        return True
    # By the first question alone, so that no longer chat gives the answer to a shorter one away.
    first = {**row, "messages": row["messages"][:1]} if "messages" in row else row
    return hashlib.sha256(words(first).encode()).digest()[0] % 12 == 0


def order(row):
    return hashlib.sha256(("order " + words(row)).encode()).digest()


def vary(text, dice):
    """A question as people really type it."""
    plain = text.rstrip("?!.")
    if "\n" in text or not plain:
        return text
    if len(plain) < 25 and dice.random() < 0.3:
        # Greetings and the like come in every case and with any mark.
        plain = dice.choice([plain.upper(), plain.capitalize(), plain.lower()])
        return plain + dice.choice(["", "", "!", "?", ".", " :)", "..."])
    roll = dice.random()
    if roll < 0.35:
        return text
    if roll < 0.65:
        return plain[0].lower() + plain[1:]
    if roll < 0.75:
        return plain[0].upper() + plain[1:] + dice.choice(["", "?", "!", "."])
    if roll < 0.83 and " " in plain:
        first = dice.choice(["please ", "Please ", "hey, ", "Can you help? ", "hi, "])
        return first + text[0].lower() + text[1:]
    if roll < 0.89 and " " in plain:
        return plain + dice.choice([" please", ", please", " please?", ", thanks"])
    if roll < 0.95 and len(plain) > 4 and "`" not in plain and "(" not in plain:
        i = dice.randrange(1, len(plain) - 2)
        return plain[:i] + plain[i + 1] + plain[i] + plain[i + 2 :]
    return text.lower()


def plain(row):
    """The row without what only the evaluation needs."""
    kept = ("kind", "messages", "raw", "before", "middle", "after")
    return {key: row[key] for key in kept if key in row}


def spoken(row, dice):
    """The row with its questions typed anew, now and then after a system message."""
    kept = plain(row)
    if "messages" in row:
        kept["messages"] = [
            {**m, "content": vary(m["content"], dice)} if m["role"] == "user" and row.get("vary") else m
            for m in row["messages"]
        ]
        # A greeting before a question may make another one of it, which is held out.
        if held(kept):
            kept["messages"] = list(row["messages"])
        if dice.random() < 0.08:
            kept["messages"].insert(0, {"role": "system", "content": dice.choice(SYSTEM)})
    return kept


def spellings(row):
    """A question in every case and with every mark."""
    asked, said = row["messages"]
    plain = asked["content"].rstrip("?!.")
    for text in dict.fromkeys(
        (plain, plain.lower(), plain.upper(), plain.capitalize(), plain + "!", plain + "?")
    ):
        yield {**row, "messages": [{**asked, "content": text}, said]}


def copies(share, seed):
    """The rows of copy_data that may be learned."""
    tasks = [task for task in code_data.tasks() if not task.get("new")]
    return [row for row in copy_data.rows(random.Random(31 + seed), tasks, share) if not held(row)]


def main():
    share = float(sys.argv[1]) if len(sys.argv) > 1 else 1
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    dice = random.Random(17 + seed)
    kinds = collections.defaultdict(dict)
    for module in text_data, code_data, fault_data, wording_data, teacher_data:
        for row in module.rows(random.Random(23)):
            if module in (wording_data, teacher_data):
                row["more"] = True
            kinds[row["kind"]].setdefault((words(row), len(row.get("messages", []))), row)
    train, held_out, evaluation = [], [], []
    for kind, found in kinds.items():
        keep = [row for row in found.values() if not held(row)]
        away = sorted((row for row in found.values() if held(row)), key=order)
        away = [row for row in away if not row.get("more")]
        tested = [row for row in away if row.get("check") or kind in ("define", "rewrite", "follow")]
        new = [row for row in tested if row.get("new")]
        asked = new[: ASKED.get(kind, 0) // 3] + [row for row in tested if not row.get("new")]
        asked = asked[: ASKED.get(kind, 0)]
        # What is held out and not asked is not learned either: data that is added later may
        # ask other prompts, and none of them was seen.
        evaluation += asked
        held_out += asked
        keep += [row for row in keep if row.get("often")] * OFTEN
        dice.shuffle(keep)
        wanted = ROWS[kind]
        train += [spoken(row, dice) for row in (keep * (wanted // len(keep) + 1))[:wanted]]
        print(f"{kind}: {len(keep)} rows, {wanted} wanted, {len(asked)} asked")
    train += [spoken(row, dice) for row in copies(share, seed)]
    dice.shuffle(train)
    write_lines(WORK / "evaluation.jsonl", evaluation)
    write_lines(WORK / "held_out.jsonl", [plain(row) for row in held_out])
    write_lines(WORK / "train.jsonl", train)
    first = [row for row in kinds["self"].values() if row.get("often")]
    write_lines(WORK / "second.jsonl", teacher_data.second())
    write_lines(WORK / "first.jsonl", [spelled for row in first for spelled in spellings(row)])
    print(len(train), "rows to learn,", len(evaluation), "to ask")


main()
