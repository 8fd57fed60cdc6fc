"""A server of llmsrv for benchmarks in Python, with a folder of models of its own."""

import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "target/release/llmsrv"


class Served:
    def __init__(self, program, folder, port, settings={}):
        own = {"LLMSRV_MODELS": str(folder / f"models-{port}"), "LLMSRV_HOST": f"127.0.0.1:{port}", **settings}
        self.program, self.folder, self.url = str(program), folder, f"http://127.0.0.1:{port}"
        self.quiet = {"env": os.environ | own, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen([self.program, "serve"], **self.quiet)
        for _ in range(100):
            try:
                return urllib.request.urlopen(self.url).close()
            except OSError:
                time.sleep(0.1)
        self.close()
        sys.exit(f"no server answers at {self.url}")

    def create(self, name, path):
        """Makes a model of a GGUF file."""
        modelfile = self.folder / f"{name}.modelfile"
        modelfile.write_text(f"FROM {path.resolve()}\n")
        subprocess.run([self.program, "create", name, "-f", str(modelfile)], check=True, **self.quiet)

    def post(self, path, body):
        """The answer, and how long it took to arrive."""
        data = json.dumps(body, ensure_ascii=False).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        begun = time.perf_counter()
        answer = urllib.request.urlopen(request).read()
        return json.loads(answer), time.perf_counter() - begun

    def close(self):
        self.process.terminate()
        self.process.wait()
