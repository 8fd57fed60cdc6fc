"""The commands of logkit: ``python -m logkit``."""

from __future__ import annotations

import os
import signal
import sys

from . import _native

__all__ = ["main"]


def main() -> int:
    """Do what the command line says, and return the exit status."""
    _restore_signals()
    _restore_locale()
    return _native.main(["logkit", *sys.argv[1:]])


def _restore_signals() -> None:
    """Take back what Python did to signals. It ignores SIGPIPE, and so do the commands."""
    # Ctrl-C became an exception, which nobody would look at. If the signal was ignored from the start, as
    # in the background of a script, it is left so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Commands that run under `logkit run` would inherit that it is ignored.
    if hasattr(signal, "SIGXFSZ"):
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)


def _restore_locale() -> None:
    """Take back the variable that Python may have set for itself: commands run as without us."""
    if os.environ.get("LC_CTYPE") not in ("C.UTF-8", "C.utf8", "UTF-8"):
        return
    try:
        with open("/proc/self/environ", "rb") as file:
            at_start = file.read().split(b"\0")
    except OSError:
        return
    if not any(variable.startswith(b"LC_CTYPE=") for variable in at_start):
        del os.environ["LC_CTYPE"]


if __name__ == "__main__":
    sys.exit(main())
