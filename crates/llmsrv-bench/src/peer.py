"""Measures llama.cpp or ik_llama.cpp through the low-level calls of the package llama-cpp-python or
ik-llama-cpp-python, whichever the interpreter has.

Reads one JSON object a line from stdin and answers each with one on stdout. No sampling, no text:
the same work as llama-bench does.
"""

import ctypes
import json
import os
import sys
import time

# Whatever the library prints must not come between the answers.
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)

try:
    import llama_cpp as lib

    ENGINE = "llama.cpp"

    @lib.llama_log_callback
    def silent(_level, _text, _data):
        pass

    lib.llama_log_set(silent, ctypes.c_void_p(0))

    def forget(sequence, start):
        lib.llama_memory_seq_rm(lib.llama_get_memory(state["context"]), sequence, start, -1)

except ImportError:
    import ik_llama_cpp._ctypes_api as lib
    from ik_llama_cpp._lib_loader import load_shared_library

    ENGINE = "ik_llama.cpp"
    library = load_shared_library()
    callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
    silent = callback(lambda _level, _text, _data: None)
    library.llama_log_set(silent, None)
    library.llama_kv_cache_seq_rm.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32]
    library.llama_synchronize.argtypes = [ctypes.c_void_p]
    lib.llama_synchronize = library.llama_synchronize

    def forget(sequence, start):
        library.llama_kv_cache_seq_rm(state["context"], sequence, start, -1)


lib.llama_backend_init()

STEP = 512
state = {}


def has_gpu():
    """Tells whether the library computes on a GPU here."""
    try:
        return bool(lib.llama_supports_gpu_offload())
    except AttributeError:  # an older one
        return False


def load(model, threads, gpu, positions, sequences, repack):
    on_gpu = gpu and has_gpu()
    options = lib.llama_model_default_params()
    options.n_gpu_layers = 9999 if on_gpu else 0
    if ENGINE == "ik_llama.cpp":
        options.repack_tensors = repack
        options.use_mmap = not repack
    elif not repack:
        options.use_extra_bufts = False
    state["model"] = lib.llama_model_load_from_file(model.encode(), options)
    if not state["model"]:
        raise RuntimeError(f"{ENGINE} cannot load the model")
    options = lib.llama_context_default_params()
    options.n_ctx = (positions + 256) * sequences
    options.n_batch = 2048
    options.n_ubatch = STEP
    options.n_seq_max = sequences
    options.n_threads = threads
    options.n_threads_batch = threads
    state["context"] = lib.llama_init_from_model(state["model"], options)
    if not state["context"]:
        raise RuntimeError(f"{ENGINE} cannot make a context")
    state["batch"] = lib.llama_batch_init(STEP, 0, 1)
    vocab = lib.llama_model_get_vocab(state["model"])
    state["vocab"] = lib.llama_vocab_n_tokens(vocab)
    state["filled"] = [0] * sequences
    state["token"] = 1
    return {"engine": ENGINE, "gpu": on_gpu}


def token():
    state["token"] = (state["token"] * 1664525 + 1013904223) % (1 << 32)
    return (state["token"] >> 8) % state["vocab"]


def step(rows):
    """Computes rows of (sequence, position, whether logits are wanted)."""
    batch = state["batch"]
    batch.n_tokens = len(rows)
    for row, (sequence, position, wanted) in enumerate(rows):
        batch.token[row] = token()
        batch.pos[row] = position
        batch.n_seq_id[row] = 1
        batch.seq_id[row][0] = sequence
        batch.logits[row] = wanted
    if lib.llama_decode(state["context"], batch) != 0:
        raise RuntimeError("llama_decode failed")
    lib.llama_synchronize(state["context"])


def prefill(sequence, start, n):
    end = start + n
    for at in range(start, end, STEP):
        to = min(at + STEP, end)
        step([(sequence, position, position == end - 1) for position in range(at, to)])


def cut(sequences, depth):
    """Leaves so many positions in each of the first sequences, computing those that are missing."""
    for sequence in range(len(state["filled"])):
        keep = depth if sequence < sequences else 0
        forget(sequence, min(keep, state["filled"][sequence]))
        state["filled"][sequence] = min(keep, state["filled"][sequence])
        if state["filled"][sequence] < keep:
            prefill(sequence, state["filled"][sequence], keep - state["filled"][sequence])
            state["filled"][sequence] = keep


def run(kind, n, depth, batch):
    cut(batch, depth)
    start = time.perf_counter()
    if kind == "prefill":
        prefill(0, depth, n)
    else:
        for at in range(depth, depth + n):
            step([(sequence, at, True) for sequence in range(batch)])
    seconds = time.perf_counter() - start
    for sequence in range(batch):
        state["filled"][sequence] = depth + n
    return {"seconds": seconds}


calls = {"load": load, "run": run}
for line in sys.stdin:
    request = json.loads(line)
    try:
        answer = calls[request.pop("call")](**request)
    except Exception as error:  # the caller tells the user
        answer = {"error": str(error) or type(error).__name__}
    answers.write(json.dumps(answer) + "\n")
