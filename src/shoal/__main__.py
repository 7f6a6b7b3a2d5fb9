"""The `shoal` command, open to signals before anything is imported that takes time."""

from __future__ import annotations

import os
import signal
import sys

from shoal.core.interrupts import SIGNALS, code_after

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
        raise


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
