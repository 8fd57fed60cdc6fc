"""Lets a larger model judge the answers about errors that evaluate.py wrote.

usage: judge.py work/answers.jsonl MODEL [--server http://127.0.0.1:11434] > work/judged.md

MODEL is one of a running llmsrv. It sees message, reference and answer, and says for each whether the
answer names the cause, and whether its next step is sensible. Prints a table for the card: the verdicts
of the key words, those of the judge, and the answer, to be read by eye.
"""

import argparse
import json
import urllib.request

from common import WORK, read_lines

QUESTIONS = {
    "cause": "Does the answer name the same cause of the error as the reference?",
    "fix": "Is the fix in the answer a sensible next step for this error, as good as that of the reference?",
}


def ask(server, model, question, row, said, answer):
    """Whether the judge says yes, greedily."""
    text = (
        f"Error message:\n{row}\n\nReference:\n{said}\n\nAnswer:\n{answer}\n\n{question} Reply with yes or no."
    )
    body = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "format": {"type": "string", "enum": ["yes", "no"]},
        "options": {"temperature": 0, "num_predict": 8},
        "stream": False,
    }
    request = urllib.request.Request(f"{server}/api/chat", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=300) as reply:
        return json.loads(json.load(reply)["message"]["content"]) == "yes"


def cell(text):
    return " ".join(text.split()).replace("|", "\\|")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("answers")
    parser.add_argument("model")
    parser.add_argument("--server", default="http://127.0.0.1:11434")
    args = parser.parse_args()
    references = {}
    for row in read_lines(WORK / "evaluation.jsonl"):
        if row["kind"] == "error":
            references[row["messages"][-2]["content"]] = row["messages"][-1]["content"]
    print("| message | answer | cause: words, judge | next step: words, judge |\n|---|---|---|---|")
    counts = {"cause": 0, "fix": 0}
    found = [row for row in read_lines(args.answers) if row["kind"] == "error"]
    for row in found:
        cells = []
        for part, question in QUESTIONS.items():
            said = references[row["asked"]]
            judged = ask(args.server, args.model, question, row["asked"], said, row["answer"])
            counts[part] += judged
            words = row["verdicts"][f"error, {part}"]
            cells.append(f"{'yes' if words else 'no'}, {'yes' if judged else 'no'}")
        print(f"| {cell(row['asked'])} | {cell(row['answer'])} | {cells[0]} | {cells[1]} |")
    print(f"\nThe judge says yes to {counts['cause']} causes and {counts['fix']} next steps of {len(found)}.")


main()
