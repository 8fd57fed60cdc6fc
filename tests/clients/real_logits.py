"""Writes down what llama.cpp computes with a model, for `tests/it/real.rs` to compare.

Usage: python real_logits.py MODEL.gguf FOLDER

Writes to FOLDER, with the name of the model:

    NAME.json    for each prompt
        text     the prompt
        tokens   its tokens, with all that the model wants around a text
        greedy   the most likely tokens that follow, one after the other, up to the end of the text
        margins  by how many nats the best token of each position is ahead of the second
    NAME.f32     logits of the positions that predict the first N_LOGITS of those, prompt after prompt, little endian
    NAME.unpacked.f32
                 the same, with the weights unpacked to f32 first, and a KV cache of f32: llama.cpp rounds what it
                 multiplies with packed weights to 8 bits

A NAME.json that is newer than the model is left as it is. Needs llama-cpp-python, and room for the weights in f32.
But for the last file, arithmetic and KV cache are llama.cpp's usual ones.
"""

import ctypes
import json
import pathlib
import sys
import tempfile

import llama_cpp
import numpy

N_GREEDY = 32
N_LOGITS = 8

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea, there lived",
    "Water boils at 100 degrees Celsius because",
    "The three laws of motion were first written down by",
    "To make pancakes, you need flour, eggs and",
    "Dear Sir or Madam,\n\nI am writing to complain about",
    "Q: What is the largest planet of the solar system?\nA:",
    "1, 1, 2, 3, 5, 8, 13, 21,",
    "If all cats are animals and Tom is a cat, then",
    "Die Hauptstadt von Deutschland ist",
    "La Révolution française a commencé en",
    "El agua se compone de dos átomos de",
    "日本の首都は",
    "中国的首都是",
    "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n",
    "fn main() {\n    let numbers = vec![1, 2, 3];\n    for",
    "SELECT name, count(*) FROM users WHERE",
    "#!/bin/bash\n# Deletes log files that are older than seven days\nfind",
    '{"name": "Ada Lovelace", "born": 1815, "occupation":',
    "<!DOCTYPE html>\n<html>\n<head>\n  <title>",
]


def main(path: pathlib.Path, folder: pathlib.Path) -> None:
    target = folder / f"{path.stem}.json"
    if target.exists() and target.stat().st_mtime > path.stat().st_mtime:
        return
    model = llama_cpp.Llama(str(path), n_ctx=512, n_batch=512, logits_all=True, verbose=False)
    prompts = []
    with target.with_suffix(".f32").open("wb") as file:
        for text in PROMPTS:
            prompts.append(expected(model, text, file))
    with tempfile.TemporaryDirectory(dir=folder) as room:
        unpacked = pathlib.Path(room) / "unpacked.gguf"
        unpack(path, unpacked)
        in_f32(unpacked, prompts, target.with_suffix(".unpacked.f32"))
    target.write_text(json.dumps({"n_vocab": model.n_vocab(), "prompts": prompts}))


def unpack(path: pathlib.Path, target: pathlib.Path) -> None:
    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype = llama_cpp.LLAMA_FTYPE_ALL_F32
    options.allow_requantize = True
    failed = llama_cpp.llama_model_quantize(str(path).encode(), str(target).encode(), ctypes.byref(options))
    assert not failed, "llama.cpp cannot unpack the weights"


def in_f32(path: pathlib.Path, prompts: list[dict], target: pathlib.Path) -> None:
    model = llama_cpp.Llama(
        str(path),
        n_ctx=512,
        n_batch=512,
        logits_all=True,
        type_k=llama_cpp.GGML_TYPE_F32,
        type_v=llama_cpp.GGML_TYPE_F32,
        flash_attn=False,
        verbose=False,
    )
    with target.open("wb") as file:
        for prompt in prompts:
            first = len(prompt["tokens"]) - 1
            n = min(len(prompt["greedy"]), N_LOGITS)
            model.reset()
            model.eval(prompt["tokens"] + prompt["greedy"][: n - 1])
            logits = numpy.asarray(model.scores[first : first + n], dtype="<f4")
            assert numpy.isfinite(logits).all()
            file.write(logits.tobytes())


def expected(model: llama_cpp.Llama, text: str, file) -> dict:
    tokens = model.tokenize(text.encode(), add_bos=True, special=False)
    model.reset()
    model.eval(tokens)
    greedy, margins = [], []
    while len(greedy) < N_GREEDY:
        logits = numpy.asarray(model.scores[model.n_tokens - 1], dtype="<f4")
        assert numpy.isfinite(logits).all()
        if len(greedy) < N_LOGITS:
            file.write(logits.tobytes())
        second, best = numpy.partition(logits, -2)[-2:]
        greedy.append(int(logits.argmax()))
        margins.append(float(best - second))
        if greedy[-1] == model.token_eos():
            break
        model.eval([greedy[-1]])
    return {"text": text, "tokens": tokens, "greedy": greedy, "margins": margins}


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
