"""The `shoal` command, open to signals before anything is imported that takes time."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress

from shoal.core.interrupts import COMPILING, SIGNALS, code_after

SHOW_CURSOR = b"\x1b[?25h"  # a display may hide it


def main() -> None:
    """The entry point of the command."""
    for stream, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, stream) is None:  # closed, as by >&-; the next file to be opened would take its place
            setattr(sys, stream, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    for number in SIGNALS:
        signal.signal(number, _interrupted)
    try:
        from shoal.cli import main as command

        command()
    except SystemExit as end:
        code = int(end.code or 0)
        for number in SIGNALS:  # the exit code is decided, and all output written
            signal.signal(number, lambda *_: os._exit(code))
        # MPI needs an orderly end.
        if "mpi4py" not in sys.modules and any(thread.name == COMPILING for thread in threading.enumerate()):
            _leave(code)
        raise


def _leave(code: int) -> None:
    """End without waiting for compiling threads, which can take minutes."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, AttributeError):  # closed, or missing
            stream.flush()
    os._exit(code)


def _interrupted(number: int, _: object) -> None:
    """End at once: nothing can be resumed yet, or the command is about to end.

    An exception would be swallowed in a callback, such as one of the garbage collector.
    """
    if sys.stdout is not None and sys.stdout.isatty():
        os.write(sys.stdout.fileno(), SHOW_CURSOR)
    os.write(2, b"shoal: interrupted\n")
    os._exit(code_after(number))


if __name__ == "__main__":
    main()
