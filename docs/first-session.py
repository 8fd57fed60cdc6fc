#!/usr/bin/env python3
"""Runs a first session with the program and draws what it printed as docs/first-session.svg.

Usage: docs/first-session.py target/release/llmsrv
"""

import html
import pathlib
import subprocess
import sys
import tempfile

SESSION = [
    ["run", "default", "Write a Python function that reverses a string."],
    ["list"],
    ["show", "default"],
]

program = pathlib.Path(sys.argv[1]).resolve()
lines = []
with tempfile.TemporaryDirectory() as home:
    env = {"HOME": home, "PATH": "/usr/bin:/bin", "LLMSRV_HOST": "127.0.0.1:9", "COLUMNS": "90"}
    for args in SESSION:
        shown = " ".join(f'"{arg}"' if " " in arg else arg for arg in args)
        lines.append(("prompt", f"$ llmsrv {shown}"))
        output = subprocess.run([program, *args], env=env, cwd=home, text=True, capture_output=True, check=True)
        lines += [("text", line) for line in output.stdout.rstrip().splitlines()]
        lines.append(("text", ""))

height, width = 19 * len(lines) + 30, 8.45 * max(len(text) for _, text in lines) + 40
out = [
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" font-family="monospace" font-size="14">',
    f'<rect width="{width:.0f}" height="{height}" rx="8" fill="#16191f"/>',
]
for row, (kind, text) in enumerate(lines):
    fill = "#8fd18f" if kind == "prompt" else "#d6dae2"
    out.append(f'<text x="20" y="{30 + 19 * row}" fill="{fill}" xml:space="preserve">{html.escape(text)}</text>')
out.append("</svg>")
pathlib.Path(__file__).with_suffix(".svg").write_text("\n".join(out) + "\n")
