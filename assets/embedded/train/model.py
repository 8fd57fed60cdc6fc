"""The decoder: llama architecture with grouped-query attention and tied embeddings, in float32.

Weights carry their GGUF names and layout, so reading and writing a file is a copy. Only rotary
positions need care: GGUF's llama rotates neighbouring pairs, and so does this code.
"""

import math
from dataclasses import asdict, dataclass, replace

import gguf
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Shape:
    vocabulary: int = 4096
    width: int = 256
    layers: int = 5
    heads: int = 4
    kv_heads: int = 2
    ffn: int = 768
    context: int = 1024
    theta: float = 10000.0
    epsilon: float = 1e-5

    @property
    def head(self):
        return self.width // self.heads

    def weights(self):
        """Name -> (rows, columns) or (length,) of every weight."""
        kv = self.kv_heads * self.head
        found = {
            "token_embd": (self.vocabulary, self.width),
            "output_norm": (self.width,),
        }
        for i in range(self.layers):
            found |= {
                f"blk.{i}.attn_norm": (self.width,),
                f"blk.{i}.attn_q": (self.width, self.width),
                f"blk.{i}.attn_k": (kv, self.width),
                f"blk.{i}.attn_v": (kv, self.width),
                f"blk.{i}.attn_output": (self.width, self.width),
                f"blk.{i}.ffn_norm": (self.width,),
                f"blk.{i}.ffn_gate": (self.ffn, self.width),
                f"blk.{i}.ffn_up": (self.ffn, self.width),
                f"blk.{i}.ffn_down": (self.width, self.ffn),
            }
        return found


class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        inner = 0.02 / math.sqrt(2 * shape.layers)
        self.w = nn.ParameterDict()
        for name, size in shape.weights().items():
            if len(size) == 1:
                value = torch.ones(size)
            else:
                narrow = name.endswith(("attn_output", "ffn_down"))
                value = torch.randn(size) * (inner if narrow else 0.02)
            self.w[name.replace(".", "_")] = nn.Parameter(value)
        rates = shape.theta ** (-torch.arange(0, shape.head, 2).float() / shape.head)
        angles = torch.outer(torch.arange(shape.context).float(), rates)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def rotate(self, x, first):
        """Rotates neighbouring pairs of (batch, head, position, size)."""
        length = x.shape[2]
        cos, sin = self.cos[first : first + length], self.sin[first : first + length]
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2).to(x.dtype)

    def hidden(self, ids, cache=None, w=None):
        """States after the last norm. With a cache (a list) ids are the next positions.

        w: weights in place of the model's own, in another arithmetic.
        """
        s, w = self.shape, w or dict(self.w)
        batch, length = ids.shape
        first = cache[0][0].shape[2] if cache else 0
        norm = lambda x, name: F.rms_norm(x, (s.width,), w[name], s.epsilon)
        heads = lambda x, n: x.view(batch, length, n, s.head).transpose(1, 2)
        x = F.embedding(ids, w["token_embd"])
        later = torch.full((length, length), -1e4, dtype=x.dtype).triu(1)
        for i in range(s.layers):
            b = f"blk_{i}_"
            y = norm(x, b + "attn_norm")
            q = self.rotate(heads(F.linear(y, w[b + "attn_q"]), s.heads), first)
            k = self.rotate(heads(F.linear(y, w[b + "attn_k"]), s.kv_heads), first)
            v = heads(F.linear(y, w[b + "attn_v"]), s.kv_heads)
            if cache is not None:
                if len(cache) > i:
                    k, v = torch.cat((cache[i][0], k), 2), torch.cat((cache[i][1], v), 2)
                    cache[i] = (k, v)
                else:
                    cache.append((k, v))
            # The query heads that share a key head side by side: (batch, KV head, query, size).
            q = q.reshape(batch, s.kv_heads, -1, s.head) * s.head**-0.5
            a = (q @ k.mT).view(batch, s.kv_heads, -1, length, k.shape[2])
            a = torch.softmax(a + later if length > 1 else a, -1).view(batch, s.kv_heads, -1, k.shape[2]) @ v
            a = a.view(batch, s.heads, length, s.head).transpose(1, 2).reshape(batch, length, -1)
            x = x + F.linear(a, w[b + "attn_output"])
            y = norm(x, b + "ffn_norm")
            gate, up = F.linear(y, w[b + "ffn_gate"]), F.linear(y, w[b + "ffn_up"])
            x = x + F.linear(F.silu(gate) * up, w[b + "ffn_down"])
        return norm(x, "output_norm")

    def logits(self, states):
        return F.linear(states, self.w["token_embd"])

    @torch.no_grad()
    def greedy(self, ids, limit, stops):
        """Yields (token, its logits) by the best logit until a stop token, which is yielded."""
        cache, given = [], ids
        for _ in range(min(limit, self.shape.context - len(ids))):
            row = self.logits(self.hidden(torch.tensor([given]), cache)[0, -1])
            token = int(row.argmax())
            yield token, row
            if token in stops:
                return
            given = [token]


def read(path):
    """A model from a GGUF file of any quantization, its weights as float32."""
    reader = gguf.GGUFReader(path)
    value = lambda key: reader.fields["llama." + key].contents()
    shape = Shape(
        vocabulary=value("vocab_size"),
        width=value("embedding_length"),
        layers=value("block_count"),
        heads=value("attention.head_count"),
        kv_heads=value("attention.head_count_kv"),
        ffn=value("feed_forward_length"),
        context=value("context_length"),
        theta=value("rope.freq_base"),
        epsilon=value("attention.layer_norm_rms_epsilon"),
    )
    model = Model(shape)
    sizes = shape.weights()
    with torch.no_grad():
        for tensor in reader.tensors:
            name = tensor.name.removesuffix(".weight")
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            values = torch.from_numpy(np.array(values, dtype=np.float32)).reshape(sizes.pop(name))
            model.w[name.replace(".", "_")].copy_(values)
    assert not sizes, f"the file lacks {sorted(sizes)}"
    return model.eval()


def grown(model, layers):
    """The model with more layers at its end, whose outputs are zero until they learn."""
    if not layers:
        return model
    larger = Model(replace(model.shape, layers=model.shape.layers + layers))
    with torch.no_grad():
        for name, value in larger.w.items():
            if name in model.w:
                value.copy_(model.w[name])
            elif name.endswith(("attn_output", "ffn_down")):
                value.zero_()
    return larger


def save(model, path, **more):
    """Writes a checkpoint; a reader never sees half a file."""
    part = path.with_suffix(".part")
    torch.save({"shape": asdict(model.shape), "weights": model.state_dict(), **more}, part)
    part.replace(path)


def load(path):
    """The model of a checkpoint, and the rest of what it holds."""
    found = torch.load(path, map_location="cpu", weights_only=False)
    model = Model(Shape(**found["shape"]))
    model.load_state_dict(found["weights"])
    return model, found
