"""Reference for the exact tests: ids, best logits and greedy text of a GGUF, in float32.

usage: reference.py MODEL.gguf FIXTURE.json

The prompts are those of the fixture that is there, which is then written anew. The forward pass is
that of model.py on the dequantized weights; it shares nothing with the program's own kernels.
"""

import hashlib
import json
import sys
from pathlib import Path

import torch

from common import WORK, Chat
from model import read

MOST = 48
path, fixture = Path(sys.argv[1]), Path(sys.argv[2])
torch.set_num_threads(1)
chat, model = Chat(WORK / "tokenizer.json"), read(path)
old = json.loads(fixture.read_text(encoding="utf-8"))
cases = []
for case in old["cases"]:
    ids = chat.ids(case["prompt"])
    greedy, gaps, best = [], [], None
    for token, logits in model.greedy(ids, MOST, chat.stops):
        values, places = logits.topk(5)
        best = best or [[int(i), round(float(v), 5)] for v, i in zip(values, places)]
        greedy.append(token)
        gaps.append(round(float(values[0] - values[1]), 4))
    cases.append(
        {
            "name": case["name"],
            "prompt": case["prompt"],
            "prompt_ids": ids,
            "top5_next": best,
            "greedy_ids": greedy,
            "greedy_text": chat.text([token for token in greedy if token not in chat.stops]),
            "stopped": greedy[-1] in chat.stops,
            "min_top1_top2_gap": min(gaps),
            "gaps": gaps,
        }
    )
    print(case["name"], min(gaps), repr(cases[-1]["greedy_text"][:70]))
new = {
    "file": path.name,
    "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    "method": old["method"],
    "stop_ids": old["stop_ids"],
    "cases": cases,
}
fixture.write_text(json.dumps(new, indent=1) + "\n", encoding="utf-8")
