"""What every step shares: folders, the chat format, the tokenizer."""

import json
import os
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "sources"
# Everything that a step writes goes here and can be made anew.
WORK = Path(os.environ.get("WORK", HERE / "work"))
# The model that the program carries: start of the training and home of the vocabulary.
PRESENT = HERE.parent / "model.gguf"

SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
]
# Words as qwen2 splits them, one digit a token: the rule that `tokenizer.ggml.pre` = qwen2 names.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def read_lines(path):
    """The objects of a file of JSON lines."""
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def write_lines(path, rows):
    """Writes objects as JSON lines; a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with open(part, "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    part.replace(path)


class Chat:
    """Text to ids: ChatML turns, fill-in-the-middle, and which ids are to be learned."""

    def __init__(self, path=None):
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(str(path or WORK / "tokenizer.json"))
        self.end_of_text, self.start, self.end, self.prefix, self.middle, self.suffix = (
            self.tokenizer.token_to_id(name) for name in SPECIAL[:6]
        )
        self.stops = {self.end_of_text, self.end}

    def ids(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def text(self, ids):
        return self.tokenizer.decode(ids)

    def prompt(self, messages):
        """Ids of a chat up to the point where the assistant speaks."""
        ids = []
        for message in messages:
            ids += [self.start, *self.ids(f"{message['role']}\n{message['content']}"), self.end]
            ids += self.ids("\n")
        return [*ids, self.start, *self.ids("assistant\n")]

    def fim(self, before, after):
        """Ids of a gap to fill: prefix, suffix, then the middle follows."""
        return [self.prefix, *self.ids(before), self.suffix, *self.ids(after), self.middle]

    def example(self, row):
        """Ids of a row of training data and, for each, whether it is to be learned."""
        if "middle" in row:
            given = self.fim(row["before"], row["after"])
            wanted = [*self.ids(row["middle"]), self.end_of_text]
            return given + wanted, [0] * len(given) + [1] * len(wanted)
        if "raw" in row:
            ids = [*self.ids(row["raw"]), self.end_of_text]
            return ids, [0] + [1] * (len(ids) - 1)
        ids, learn = [], []
        for message in row["messages"]:
            head = [self.start, *self.ids(message["role"] + "\n")]
            body = [*self.ids(message["content"]), self.end]
            tail = self.ids("\n")
            ids += head + body + tail
            said = int(message["role"] == "assistant")
            learn += [0] * len(head) + [said] * len(body) + [0] * len(tail)
        return ids, learn
