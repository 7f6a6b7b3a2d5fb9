"""The cores and GPUs of this machine, and the share that each of several processes has of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
GPUS = Path("/proc/driver/nvidia/gpus")


def usable_cores() -> list[int]:
    """Return the numbers of the cores that this process may use: all of the machine if the system does not say."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def usable_gpus() -> list[str]:
    """Return the names of the GPUs that this process may use, by CUDA_VISIBLE_DEVICES: all if it is not set."""
    if not GPUS.is_dir():
        return []
    given = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(len(list(GPUS.iterdir()))))))
    return given.split(",") if given else []


def share(of: Sequence[T], rank: int, size: int) -> Sequence[T]:
    """The part of `of` for one of `size` processes; where there are fewer, neighbours share one."""
    first, after = (len(of) * r // size for r in (rank, rank + 1))
    return of[first : max(after, first + 1)]
