"""Types a line and a tab into a real shell and prints what the shell makes of it.

usage: complete.py SHELL SCRIPT LINE EXPECTED

Waits until the text that is expected appears, pressing the tab again now and then: the second one
lists what is possible. Without it, prints what came in a minute and exits with 1.
"""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

shell, script, line, expected = sys.argv[1:]
MARK = "READY"
PATIENCE = 60


def start():
    """Returns the command of the shell and what loads the script as the shell itself would."""
    folder = os.path.dirname(script)
    if shell == "bash":
        load = f"PS1='> '; bind 'set bell-style none'; source '{script}'; echo {MARK}"
        return ["bash", "--norc", "--noprofile", "-i"], load
    if shell == "zsh":
        load = (
            f"PS1='> '; fpath=('{folder}' $fpath); autoload -Uz compinit; "
            f"compinit -D -u; unsetopt beep; echo {MARK}"
        )
        return ["zsh", "-f", "-i"], load
    raise SystemExit(f"{shell} is not driven through a terminal")


def plain(seen):
    """What a terminal shows of it."""
    seen = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x07|\r", "", seen)
    back = re.compile(r"[^\x08]\x08")
    while back.search(seen):
        seen = back.sub("", seen)
    return seen.replace("\x08", "")


def read(terminal, is_enough, when_silent=None):
    """Reads until it is enough; returns what came."""
    seen = ""
    deadline = time.monotonic() + PATIENCE
    while not is_enough(plain(seen)) and time.monotonic() < deadline:
        ready, _, _ = select.select([terminal], [], [], 2)
        if ready:
            seen += os.read(terminal, 65536).decode(errors="replace")
        elif when_silent:
            os.write(terminal, when_silent)
    return plain(seen)


if shell == "fish":
    command = f"source '{script}'; complete -C '{line}'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", command], capture_output=True, text=True, timeout=PATIENCE
    )
    print(done.stdout, end="")
    print(done.stderr, end="", file=sys.stderr)
    raise SystemExit(0 if expected in done.stdout else 1)

command, load = start()
pid, terminal = pty.fork()
if pid == 0:
    os.environ["TERM"] = "dumb"
    os.execvp(command[0], command)
os.write(terminal, (load + "\n").encode())
# Once as it is typed, once as it is printed, then the prompt.
read(terminal, lambda seen: re.search(rf"{MARK}[\s\S]*{MARK}\s[\s\S]*> $", seen))
os.write(terminal, (line + "\t").encode())
seen = read(terminal, lambda seen: expected in seen, b"\t")
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)
print(seen)
raise SystemExit(0 if expected in seen else 1)
