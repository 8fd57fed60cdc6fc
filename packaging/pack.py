"""What the scripts that make packages have in common."""

import argparse
import os
import re
import subprocess
from pathlib import Path

from elf import fail

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
VERSION = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]


def arguments(about, folder, build=None, **more):
    """Reads `--binary FILE`, `--out DIR`, `--fast` and the options `more`, which each have their help; returns all of
    them with `program`, which is built if none is given, and `out`, a folder that is there.

    `about` is the text of the script, `folder` that below `target` where the package goes, `build` the command
    that builds the program and prints its path last (by default cargo).
    """
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--binary", type=Path, metavar="FILE", help="the program [default: it is built]")
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"the folder of the package [default: target/{folder}]")
    parser.add_argument("--fast", action="store_true", help="compress less, and sooner: for tests")
    for name, text in more.items():
        parser.add_argument(f"--{name}", metavar="DIR", help=text)
    args = parser.parse_args()
    args.program = args.binary
    if args.program is None and build:
        done = subprocess.run(build, check=True, stdout=subprocess.PIPE, text=True)
        args.program = Path(done.stdout.splitlines()[-1])
    elif args.program is None:
        subprocess.run(["cargo", "build", "--locked", "--release", "-p", "llmsrv"], cwd=ROOT, check=True)
        args.program = TARGET / "release/llmsrv"
    if not args.program.is_file():
        fail(f"there is no file {args.program}")
    args.out = (args.out or TARGET / folder).absolute()
    args.out.mkdir(parents=True, exist_ok=True)
    return args
