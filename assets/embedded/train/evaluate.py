"""Asks a model the held-out prompts and scores its answers.

usage: evaluate.py MODEL.gguf [--prompts work/evaluation.jsonl] [--limit N] [--penalty 1.0]
                   [--answers FILE.jsonl]
       evaluate.py --references

Answers are greedy, in float32 on the dequantized weights, at most 200 tokens. With --answers each
is written to a file as it comes, and a second run goes on there. With --references the reference
answers are scored instead of a model's: all of them must be right. What counts as right:

self      every group of words of the intent is met
python    the asserts pass; "unseen" are functions that are nowhere in the training data
parses    other languages: the code is accepted by a parser; "same": it is that of the reference
error     most words of the cause, and of the fix, are there
json      valid: an object by itself; keys: those of the schema; values: those of the prompt
exact     rewriting, gaps to fill: equal to the reference
define    most words of the reference are there
ends      the model ended the answer by itself
"""

import argparse
import collections
import json
import re
from pathlib import Path

import torch

from common import WORK, Chat, read_lines
from model import read
from sandbox import blocks, parses, passes

LIMIT = 200
PLAIN = set(
    [
        "the",
        "a",
        "an",
        "is",
        "of",
        "to",
        "in",
        "and",
        "or",
        "it",
        "that",
        "for",
        "with",
        "not",
        "its",
        "this",
        "your",
        "be",
        "was",
        "has",
        "are",
        "at",
        "by",
        "as",
        "on",
        "can",
    ]
)


def content(text):
    return {w for w in re.findall(r"[a-z0-9_]+", text.lower()) if w not in PLAIN}


def covers(answer, wanted, share):
    wanted = content(wanted)
    return len(wanted & content(answer)) >= share * len(wanted)


def verdicts(row, answer):
    """Name of a score -> whether the answer has it."""
    kind, check = row["kind"], row.get("check") or {}
    said = row["messages"][-1]["content"] if "messages" in row else row["middle"]
    same = " ".join(answer.split()) == " ".join(said.split())
    if "words" in check:
        low = answer.lower()
        return {kind: all(any(w.lower() in low for w in group) for group in check["words"])}
    if "tests" in check:
        return {
            ("python, unseen" if row.get("new") else "python"): passes(answer, check["tests"], check["name"])
        }
    if "parses" in check:
        code = [" ".join(b.split()) for b in (blocks(answer)[0], blocks(said)[0])]
        right = "```" in answer and parses(check["parses"], answer)
        group = f"{kind}, unseen" if row.get("new") else kind
        return {f"{kind}, parses": right, f"{group}, same": code[0] == code[1]}
    if "cause" in check:
        named = covers(answer, check["cause"], 0.6)
        return {"error, cause": named, "error, fix": covers(answer, check["fix"], 0.5), "error, same": same}
    if "object" in check:
        try:
            found = json.loads(answer)
        except ValueError:
            found = None
        valid = isinstance(found, dict)
        keys = valid and list(found) == list(check["object"])
        return {"json, valid": valid, "json, keys": keys, "json, values": valid and found == check["object"]}
    if kind in ("rewrite", "fim", "review"):
        return {kind: same}
    return {kind: covers(answer, said, 0.6)}


def penalized(model, ids, stops, penalty):
    """Greedy with a repeat penalty over the last 64 tokens, as the manifest may ask for."""
    cache, given, seen, out = [], ids, list(ids), []
    for _ in range(LIMIT):
        with torch.no_grad():
            logits = model.logits(model.hidden(torch.tensor([given]), cache)[0, -1])
        near = torch.tensor(sorted(set(seen[-64:])))
        part = logits[near]
        logits[near] = torch.where(part > 0, part / penalty, part * penalty)
        given = [int(logits.argmax())]
        seen += given
        out += given
        if given[0] in stops:
            break
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?")
    parser.add_argument("--references", action="store_true")
    parser.add_argument("--prompts", type=Path, default=WORK / "evaluation.jsonl")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--penalty", type=float, default=1.0)
    parser.add_argument("--answers", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    chat, model = Chat(), None if args.references else read(args.model)
    rows = read_lines(args.prompts)
    if args.limit:
        rows = rows[:: max(1, len(rows) // args.limit)]
    known = read_lines(args.answers) if args.answers and args.answers.exists() else []
    scores = collections.defaultdict(list)
    for number, row in enumerate(rows):
        if number < len(known):
            answer, ended = known[number]["answer"], known[number]["ended"]
        elif args.references:
            answer, ended = row["messages"][-1]["content"] if "messages" in row else row["middle"], True
        else:
            if "middle" in row:
                ids = chat.fim(row["before"], row["after"])
            else:
                ids = chat.prompt(row["messages"][:-1])
            if args.penalty == 1.0:
                out = [token for token, _ in model.greedy(ids, LIMIT, chat.stops)]
            else:
                out = penalized(model, ids, chat.stops, args.penalty)
            ended = out[-1] in chat.stops
            answer = chat.text([t for t in out if t not in chat.stops])
        found = verdicts(row, answer)
        if args.answers and number >= len(known):
            asked = row.get("before") or row["messages"][-2]["content"]
            with open(args.answers, "a", encoding="utf-8") as file:
                entry = {
                    "kind": row["kind"],
                    "asked": asked,
                    "answer": answer,
                    "ended": ended,
                    "verdicts": found,
                }
                file.write(json.dumps(entry, ensure_ascii=False) + "\n")
        for name, right in {**found, "ends": ended}.items():
            if right is not None:
                scores[name].append(right)
            if args.references and not right:
                print("the reference is not right:", name, row["messages"][0]["content"], answer)
    for name, found in sorted(scores.items()):
        print(f"{name}: {sum(found)} of {len(found)} ({100 * sum(found) / len(found):.0f} %)")


main()
