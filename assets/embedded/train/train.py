"""Trains on work/train.jsonl. Run it again to go on where it stopped.

usage: train.py [--minutes N | --million N] [--init FILE.gguf | --shape width,layers,heads,kv_heads,ffn]
                [--grow N] [--name model] [--tokens 6144] [--rate 4e-3] [--threads 1] [--float32] [--eager]

The schedule follows the clock: the rate falls to zero when --minutes are over, however fast the
machine is. With --million it follows the tokens instead, for a run that takes what other work
leaves of the machine. Muon for matrices, AdamW for embeddings and norms; weights are float32,
products of matrices bfloat16 where the processor computes them. Data that changed on disk is read
anew. The loss of held-out answers is measured, and the state saved, every four minutes.
"""

import argparse
import json
import math
import random
import time
from functools import partial

import torch
from torch.nn import functional as F

from common import PRESENT, WORK, Chat, read_lines
from model import Model, Shape, grown, load, read, save

parser = argparse.ArgumentParser()
parser.add_argument("--minutes", type=float, default=60)
parser.add_argument("--million", type=float, help="tokens to learn from, instead of the time")
parser.add_argument("--init", default=str(PRESENT))
parser.add_argument("--shape")
parser.add_argument("--name", default="model")
parser.add_argument("--grow", type=int, default=0, help="layers to add, which change nothing at first")
parser.add_argument("--tokens", type=int, default=6144)
parser.add_argument("--rate", type=float, default=4e-3)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--float32", action="store_true")
parser.add_argument("--eager", action="store_true", help="without torch.compile, which needs a C++ compiler")
parser.add_argument("--hold", type=float, default=0.3, help="share of the time at the full rate")
args = parser.parse_args()

WARM = 30
torch.set_num_threads(args.threads)
# Without the instruction bfloat16 is slower than float32.
fast = torch.cpu.get_capabilities().get("avx512_bf16", False) and not args.float32
arithmetic = torch.bfloat16 if fast else torch.float32
torch.manual_seed(1)
chat = Chat()
checkpoint = WORK / f"{args.name}.full.pt"
state = {"step": 0, "seconds": 0.0, "seen": 0, "learned": 0}
if checkpoint.exists():
    model, found = load(checkpoint)
    state = found["state"]
elif args.shape:
    sizes = dict(zip(("width", "layers", "heads", "kv_heads", "ffn"), map(int, args.shape.split(","))))
    model, found = Model(Shape(vocabulary=chat.tokenizer.get_vocab_size(), **sizes)), None
else:
    model, found = grown(read(args.init), args.grow), None
model.train()
parameters = sum(p.numel() for p in model.parameters())
print(f"{parameters} parameters, {model.shape}", flush=True)

names, weights = list(model.w), list(model.w.values())
matrices, others = {}, []
for name, weight in model.w.items():
    if weight.ndim == 2 and name != "token_embd":
        matrices.setdefault(tuple(weight.shape), []).append(weight)
    else:
        others.append(weight)
momentum = {size: torch.zeros(len(group), *size) for size, group in matrices.items()}
adam = torch.optim.AdamW(others, lr=args.rate, betas=(0.9, 0.95), weight_decay=0.0)
if found:
    adam.load_state_dict(found["adam"])
    momentum = found["momentum"]


def orthogonal(g):
    """The nearest matrix with equal singular values, by the Newton-Schulz iteration."""
    tall = g.shape[-2] > g.shape[-1]
    x = g.mT if tall else g
    x = (x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)).to(arithmetic)
    for _ in range(4):
        a = x @ x.mT
        x = 3.4445 * x + (2.0315 * (a @ a) - 4.7750 * a) @ x
    return (x.mT if tall else x).float()


@torch.no_grad()
def muon(rate):
    for size, group in matrices.items():
        g = torch.stack([p.grad for p in group])
        m = momentum[size].lerp_(g, 0.05)
        update = orthogonal(g.lerp(m, 0.95)) * (0.2 * math.sqrt(max(size)))
        for p, u in zip(group, update):
            p.mul_(1 - rate * 0.03).add_(u, alpha=-rate)


def encode(row):
    """The ids of a row and which are learned, None if it is too long."""
    ids, learn = chat.example(row)
    return (ids, learn) if len(ids) <= 400 and any(learn) else None


def batches(rows, most=2048):
    """Rows of like length side by side, so that little is filled up: (ids, places that say what is
    to be learned, what is to be learned there).
    """
    rows = sorted(rows, key=lambda row: len(row[0]))
    group = []
    for row in [*rows, None]:
        if group and (row is None or len(row[0]) * (len(group) + 1) > most):
            width = len(group[-1][0])
            x = torch.full((len(group), width), chat.end_of_text)
            y = torch.full((len(group), width), -100)
            for i, (ids, learn) in enumerate(group):
                x[i, : len(ids)] = torch.tensor(ids)
                y[i, : len(ids)] = torch.tensor([t if k else -100 for t, k in zip(ids, learn)])
            y = y[:, 1:].flatten()
            places = (y != -100).nonzero().flatten()
            yield x[:, :-1], places, y[places]
            group = []
        if row is not None:
            group.append(row)


@partial(torch.compile, dynamic=True, disable=args.eager)
def loss(x, learned, y, *values):
    """Sum over the tokens to learn; the others do not pass the output layer."""
    w = dict(zip(names, values))
    logits = F.linear(model.hidden(x, w=w).flatten(0, 1)[learned], w["token_embd"])
    return F.cross_entropy(logits.float(), y, reduction="sum")


def gradients(batch, values):
    """(loss, its gradients) of one batch."""
    part = loss(*batch, *values)
    return float(part.detach()), torch.autograd.grad(part, values)


def copied():
    """The weights in the arithmetic of the products."""
    return [weight.detach().to(arithmetic).requires_grad_() for weight in weights]


@torch.no_grad()
def held_out():
    parts = list(batches(filter(None, map(encode, read_lines(WORK / "held_out.jsonl")))))
    values = copied()
    return round(sum(float(loss(*part, *values)) for part in parts) / sum(len(part[2]) for part in parts), 4)


data = WORK / "train.jsonl"
stamp = rows = None
queue = []
log = open(WORK / f"{args.name}.log.jsonl", "a", encoding="utf-8")
losses, start = [], time.monotonic() - state["seconds"]
measured = state["seconds"]
while True:
    state["seconds"] = time.monotonic() - start
    share = state["seen"] / (args.million * 1e6) if args.million else state["seconds"] / (args.minutes * 60)
    if share >= 1:
        break
    if data.stat().st_mtime != stamp:
        stamp, rows, queue = data.stat().st_mtime, read_lines(data), []
        print(f"{len(rows)} rows", flush=True)
    step, used = [], 0
    while used < args.tokens:
        if not queue:
            queue = list(range(len(rows)))
            random.Random(state["step"]).shuffle(queue)
        if found := encode(rows[queue.pop()]):
            step.append(found)
            used += len(found[0])
    learned = sum(sum(learn) for _, learn in step)
    rate = args.rate * min(1, (state["step"] + 1) / WARM) * min(1, (1 - share) / (1 - args.hold))
    total = 0.0
    values = copied()
    for batch in batches(step):
        part, slopes = gradients(batch, values)
        total += part / learned
        for weight, gradient in zip(weights, slopes):
            gradient = gradient.float() / learned
            weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)
    torch.nn.utils.clip_grad_norm_(others, 1.0)
    for group in adam.param_groups:
        group["lr"] = rate / 2
    adam.step()
    muon(rate)
    model.zero_grad(set_to_none=True)
    losses.append(total)
    if not math.isfinite(total):
        raise SystemExit("the loss is not finite")
    state["step"] += 1
    state["seen"] += used
    state["learned"] += learned
    now = time.monotonic() - start
    due = now - measured > 240
    if due or state["step"] % 20 == 0:
        entry = {
            "step": state["step"],
            "minutes": round(now / 60, 2),
            "tokens": state["seen"],
            "loss": round(sum(losses) / len(losses), 4),
            "rate": round(rate, 6),
        }
        losses = []
        if due:
            measured = now
            entry["held_out"] = held_out()
            save(model, checkpoint, state=state, adam=adam.state_dict(), momentum=momentum)
        print(json.dumps(entry), flush=True)
        log.write(json.dumps(entry) + "\n")
        log.flush()
final = {"step": state["step"], "tokens": state["seen"], "held_out": held_out()}
print(json.dumps(final))
log.write(json.dumps(final) + "\n")
save(model, WORK / f"{args.name}.pt", state=state)
save(model, checkpoint, state=state, adam=adam.state_dict(), momentum=momentum)
