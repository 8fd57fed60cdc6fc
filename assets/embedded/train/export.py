"""Checkpoint -> GGUF: the weights, the vocabulary and the chat template in one file.

usage: export.py [--name model] [--types Q8_0 F16] [--output FOLDER]

writes FOLDER/TYPE.gguf, named as ../manifest.toml says, and prints size and SHA-256 for it.
"""

import argparse
import hashlib
import json
import tomllib
from pathlib import Path

import gguf
import numpy as np

from common import PRESENT, SPECIAL, WORK
from model import load

TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def vocabulary():
    """Tokens by id, their types, merges, ids of the special tokens."""
    found = json.loads((WORK / "tokenizer.json").read_text(encoding="utf-8"))
    special = {token["content"]: token["id"] for token in found["added_tokens"]}
    ids = found["model"]["vocab"] | special
    tokens = sorted(ids, key=ids.get)
    assert [ids[token] for token in tokens] == list(range(len(tokens)))
    types = [gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token in tokens]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in found["model"]["merges"]]
    return tokens, types, merges, [special[token] for token in SPECIAL]


def write(path, model, kind):
    shape, count = model.shape, sum(p.numel() for p in model.parameters())
    tokens, types, merges, special = vocabulary()
    w = gguf.GGUFWriter(path, "llama")
    manifest = tomllib.loads((PRESENT.parent / "manifest.toml").read_text(encoding="utf-8"))
    w.add_name(manifest["name"].replace("-", " "))
    w.add_basename(manifest["name"])
    w.add_size_label(f"{round(count / 1e6)}M")
    w.add_license(manifest["license"].lower())
    w.add_description(
        f"Small built-in model of llmsrv: a decoder of {count / 1e6:.1f}M parameters, trained from scratch. "
        "A demonstration model: check its answers."
    )
    w.add_quantization_version(2)
    w.add_file_type(getattr(gguf.LlamaFileType, "MOSTLY_" + kind))
    w.add_context_length(shape.context)
    w.add_embedding_length(shape.width)
    w.add_block_count(shape.layers)
    w.add_feed_forward_length(shape.ffn)
    w.add_head_count(shape.heads)
    w.add_head_count_kv(shape.kv_heads)
    w.add_rope_freq_base(shape.theta)
    w.add_layer_norm_rms_eps(shape.epsilon)
    w.add_rope_dimension_count(shape.head)
    w.add_vocab_size(shape.vocabulary)
    w.add_key_length(shape.head)
    w.add_value_length(shape.head)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges(merges)
    text, _, end, prefix, middle, suffix, pad, repository, separator = special
    w.add_bos_token_id(text)
    w.add_eos_token_id(end)
    w.add_pad_token_id(text)
    w.add_eot_token_id(end)
    w.add_add_bos_token(False)
    for key, value in (
        ("pre", prefix),
        ("suf", suffix),
        ("mid", middle),
        ("pad", pad),
        ("rep", repository),
        ("sep", separator),
    ):
        w.add_uint32(f"tokenizer.ggml.fim_{key}_token_id", value)
    w.add_chat_template(TEMPLATE)
    type_id = getattr(gguf.GGMLQuantizationType, kind)
    for name in shape.weights():
        values = model.w[name.replace(".", "_")].detach().numpy().astype(np.float32)
        if values.ndim == 1:
            w.add_tensor(name + ".weight", values)
        elif kind == "F16":
            w.add_tensor(name + ".weight", values.astype(np.float16))
        else:
            w.add_tensor(name + ".weight", gguf.quants.quantize(values, type_id), raw_dtype=type_id)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    print(path, path.stat().st_size, "bytes", hashlib.sha256(path.read_bytes()).hexdigest())


parser = argparse.ArgumentParser()
parser.add_argument("--name", default="model")
parser.add_argument("--types", nargs="+", default=["Q8_0", "F16"])
parser.add_argument("--output", type=Path, default=WORK)
args = parser.parse_args()
model, _ = load(WORK / f"{args.name}.pt")
args.output.mkdir(parents=True, exist_ok=True)
for kind in args.types:
    write(args.output / f"{kind}.gguf", model, kind)
