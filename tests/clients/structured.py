#!/usr/bin/env python3
"""Asks a model for JSON under the schemas of schemas.json, greedily and sampled; checks every answer and counts its tokens.

Any model of a running server will do. With --peer FILE.gguf, the same weights answer the same prompts
in llama.cpp (package llama-cpp-python) under its own grammar, and the tokens are set beside each other:

    llmsrv create m -f Modelfile && llmsrv serve &
    pip install jsonschema llama-cpp-python
    tests/clients/structured.py --server http://127.0.0.1:11434 --model m --peer model.gguf

Ends with status 1 when an answer is not JSON, is not valid, or has a name twice. An answer that came
to the limit of tokens is closed there: it must be valid, too, and is counted.
"""

import argparse
import json
import pathlib
import statistics
import sys
import urllib.request

import jsonschema

MOST_TOKENS = 800
# What llama.cpp lets between two tokens of JSON today; the converter in the Python package is older.
PEER_BLANKS = r'| " " | "\n"{1,2} [ \t]{0,20}'


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", default="http://127.0.0.1:11434")
    parser.add_argument("--model", required=True, help="name of the model on the server")
    parser.add_argument("--seeds", type=int, default=3, help="sampled answers for each schema")
    parser.add_argument("--peer", metavar="FILE", help="the same model as a GGUF file, for llama.cpp")
    parser.add_argument("--only", help="schemas whose name has this in it")
    parser.add_argument("--verbose", action="store_true", help="print the answers")
    options = parser.parse_args()
    rows = json.loads(pathlib.Path(__file__).with_name("schemas.json").read_text())
    rows = [row for row in rows if not options.only or options.only in row["name"]]
    peer = Peer(options.peer) if options.peer else None

    n_bad = 0
    n_closed = 0
    pairs = []
    print(f"{'schema':26} {'valid':>7} {'closed':>7} {'tokens':>8} {'peer valid':>11} {'peer tokens':>12}  ratio", flush=True)
    for row in rows:
        ours, theirs = [], []
        closed = 0
        for seed in [None, *range(1, options.seeds + 1)]:
            text, n_tokens, warnings, has_ended = ask(options, row, seed)
            wrong = fault(text, row["schema"], warnings)
            closed += not has_ended
            ours.append((n_tokens, wrong, has_ended))
            if wrong or options.verbose:
                print(f"  {row['name']} seed {seed}: {wrong or 'valid'}: {text[:2000]}", flush=True)
            if peer:
                text, n_tokens, is_whole = peer.ask(row, seed)
                wrong = fault(text, row["schema"], row.get("unenforced", [])) if is_whole else "cut"
                theirs.append((n_tokens, wrong, is_whole))
                if options.verbose:
                    print(f"  {row['name']} seed {seed}: peer {wrong or 'valid'}: {text[:2000]}", flush=True)
        n_bad += sum(wrong is not None for _, wrong, _ in ours)
        n_closed += closed
        pairs += both(ours, theirs)
        valid, tokens = summary(ours, 7, 8)
        print(row["name"].ljust(26), valid, str(closed).rjust(7), tokens, *summary(theirs, 11, 12), ratio(ours, theirs), flush=True)
    n_asked = len(rows) * (options.seeds + 1)
    print(f"{n_asked - n_bad} of {n_asked} answers valid, {n_closed} of them closed at {MOST_TOKENS} tokens")
    if pairs:
        own, other = map(sum, zip(*pairs))
        print(f"{len(pairs)} answers valid in both: {own} tokens, {other} of the peer, ratio {own / other:.2f}")
    return 1 if n_bad else 0


def ask(options, row, seed):
    """Returns a text, the number of its tokens, what is named as not enforced, and whether it ended by itself."""
    sampling = {"temperature": 0} if seed is None else {"temperature": 0.8, "seed": seed}
    body = {
        "model": options.model,
        "prompt": prompt(row),
        "raw": True,
        "stream": False,
        "format": row["schema"],
        "options": {"num_predict": MOST_TOKENS, "repeat_penalty": 1.0, "top_k": 40, "top_p": 0.95, **sampling},
    }
    request = urllib.request.Request(f"{options.server}/api/generate", json.dumps(body).encode())
    with urllib.request.urlopen(request) as answer:
        warnings = answer.headers.get_all("warning") or []
        said = json.load(answer)
    return said["response"], said["eval_count"], warnings, said["done_reason"] == "stop"


def prompt(row):
    return f"### User: {row['prompt']}\n### Assistant: "


def fault(text, schema, warnings):
    """Returns what is wrong with an answer, apart from what it was said not to keep to."""
    names_twice = []

    def members(pairs):
        names = [name for name, _ in pairs]
        names_twice.extend({name for name in names if names.count(name) > 1})
        return dict(pairs)

    try:
        value = json.loads(text, object_pairs_hook=members)
    except ValueError as error:
        return f"not JSON: {error}"
    if names_twice:
        return f"names twice: {names_twice}"
    for keyword in ("uniqueItems", "pattern"):
        if any(keyword in warning for warning in warnings):
            schema = without(schema, keyword)
    try:
        checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
        jsonschema.validate(value, schema, jsonschema.Draft202012Validator, format_checker=checker)
    except jsonschema.ValidationError as error:
        return f"not valid: {error.message}"
    return None


def without(schema, keyword):
    if isinstance(schema, list):
        return [without(item, keyword) for item in schema]
    if isinstance(schema, dict):
        return {name: without(field, keyword) for name, field in schema.items() if name != keyword}
    return schema


class Peer:
    """llama.cpp in this process."""

    def __init__(self, path):
        from llama_cpp import Llama, llama_grammar

        llama_grammar.SPACE_RULE = PEER_BLANKS
        self.grammar = llama_grammar.LlamaGrammar
        self.model = Llama(path, n_ctx=4096, verbose=False)

    def ask(self, row, seed):
        try:
            grammar = self.grammar.from_json_schema(json.dumps(row["schema"]), verbose=False)
            sampling = {"temperature": 0} if seed is None else {"temperature": 0.8, "seed": seed}
            answer = self.model.create_completion(
                prompt(row), max_tokens=MOST_TOKENS, grammar=grammar, repeat_penalty=1.0, top_k=40, top_p=0.95, min_p=0, **sampling
            )
        except Exception as error:  # What its converter cannot do it says in many ways.
            return f"{type(error).__name__}: {error}", 0, False
        return answer["choices"][0]["text"], answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"] == "stop"


def summary(answers, *widths):
    if not answers:
        return "-".rjust(widths[0]), "-".rjust(widths[1])
    n_valid = sum(wrong is None for _, wrong, _ in answers)
    mean = statistics.mean(n_tokens for n_tokens, _, _ in answers)
    return f"{n_valid}/{len(answers)}".rjust(widths[0]), f"{mean:.0f}".rjust(widths[1])


def both(ours, theirs):
    """The tokens of the answers that are valid in both and ended by themselves."""
    is_good = lambda answer: answer[1] is None and answer[2]
    return [(own[0], other[0]) for own, other in zip(ours, theirs) if is_good(own) and is_good(other)]


def ratio(ours, theirs):
    pairs = both(ours, theirs)
    if not pairs:
        return "     -"
    own, other = map(sum, zip(*pairs))
    return f"{own / other:6.2f}"


if __name__ == "__main__":
    sys.exit(main())
