"""The `shoal` command, open to signals before anything is imported that takes time."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress

from shoal.core.interrupts import COMPILING, SIGNALS, code_after

SHOW_CURSOR = b"\x1b[?25h"  # a display may have hidden it


def main() -> None:
    """The entry point of the command."""
    for number in SIGNALS:
        signal.signal(number, _interrupted)
    try:
        from shoal.cli import main as command

        command()
    except SystemExit as end:
        code = int(end.code or 0)
        for number in SIGNALS:  # how it ends is decided, and all is said
            signal.signal(number, lambda *_: os._exit(code))
        # MPI is to be told of the end, in order.
        if "mpi4py" not in sys.modules and any(thread.name == COMPILING for thread in threading.enumerate()):
            _leave(code)
        raise


def _leave(code: int) -> None:
    """End without waiting for threads: what they compile is of no use any more, and can take minutes."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, AttributeError):  # nobody reads it, or there is none
            stream.flush()
    os._exit(code)


def _interrupted(number: int, _: object) -> None:
    """End at once: there is nothing yet that could be resumed, or the command is about to end.

    Not by an exception: raised in a callback, of the garbage collector for one, it would be swallowed.
    """
    if sys.stdout is not None and sys.stdout.isatty():
        os.write(sys.stdout.fileno(), SHOW_CURSOR)
    os.write(2, b"shoal: interrupted\n")
    os._exit(code_after(number))


if __name__ == "__main__":
    main()
