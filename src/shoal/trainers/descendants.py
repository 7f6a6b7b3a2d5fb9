"""All processes that a trainer's process has started, also those that have left its session: they inherit a mark in their
environment. For both sides; needs Python 3.8 only.

Found are those of this user on systems with /proc, and not those that were started with an environment without the mark.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

MARK = "SHOAL_TRAINER"  # the variable; its value is another one for each process of a trainer


def marked(value: str) -> set[int]:
    """The ids of the running processes with this value of the mark, but this one."""
    entry, found = os.fsencode(f"{MARK}={value}"), set()
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile, or is another user's
            if entry in (place / "environ").read_bytes().split(b"\0"):
                found.add(int(place.name))
    return found - {os.getpid()}


def end(value: str) -> None:
    """End them all, those too that they start meanwhile."""
    ended: set[int] = set()
    while left := marked(value) - ended:
        for process in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        ended |= left
