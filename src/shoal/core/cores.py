"""The cores of this machine."""

from __future__ import annotations

import os


def usable_cores() -> list[int]:
    """The numbers of those that this process may run on: all of the machine's where the system does not tell."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
