"""Writes work/tokenizer.json: the vocabulary of the model in the program, or a new one.

usage: vocabulary.py [FILE.gguf | SIZE]
"""

import sys

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from common import PRESENT, SPECIAL, SPLIT, WORK, read_lines


def empty(model):
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def of_file(path):
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(x.split(" ")) for x in fields["tokenizer.ggml.merges"].contents()]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = empty(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.add_special_tokens([AddedToken(x, special=True, normalized=False) for x in SPECIAL])
    assert tokenizer.get_vocab_size() == len(tokens)
    return tokenizer


def trained(size):
    tokenizer = empty(models.BPE())
    rows = read_lines(WORK / "train.jsonl")
    texts = (m["content"] for row in rows for m in row.get("messages", []))
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        max_token_length=24,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(x, special=True, normalized=False) for x in SPECIAL])
    return tokenizer


source = sys.argv[1] if len(sys.argv) > 1 else str(PRESENT)
WORK.mkdir(parents=True, exist_ok=True)
made = trained(int(source)) if source.isdigit() else of_file(source)
made.save(str(WORK / "tokenizer.json"))
print("vocabulary", made.get_vocab_size(), {x: made.token_to_id(x) for x in SPECIAL})
