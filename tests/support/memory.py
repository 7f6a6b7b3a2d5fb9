"""The memory of a process of tests: compiled programs are dropped once they take much, and a test that takes too much fails.

Nearly all that stays of a test are the programs that JAX keeps, about 1.5 MB each, and what compiling them took.
"""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import psutil
import pytest

from shoal.members import trace_cache as sharing
from shoal.members.rollouts.device import DeviceRollouts

# Bytes: programs are dropped once there are so many more than the last time left; beyond the bound, a test fails.
ROOM, BOUND = 0.9e9, 2.0e9
PROGRAMS: sharing.Kept = []  # of the tiny runs of all tests
# Tests of whole runs share them; elsewhere shards are made of parts whose structure nobody states.
RUNS = ("commands", "experiment", "export", "records", "report", "run", "study")
PROCESS, TESTS = psutil.Process(), Path(__file__).parents[1]
_peak, _left = 0, 0.5e9


@contextmanager
def shared() -> Iterator[None]:
    """Runs of the same structure share what was compiled, as those of a study do: compiling takes most of a tiny run."""
    with patch.object(sharing, "MOST", 1_000), sharing.trace_cache(PROGRAMS):
        yield


@pytest.fixture
def trace_cache() -> Iterator[None]:
    with shared():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Share the programs of whole runs, also with fixtures of a module or of all, but where a test is marked to compile its
    own."""
    apart = item.path.relative_to(TESTS).parts[0] not in RUNS or item.get_closest_marker("compiles") is not None
    with nullcontext() if apart else shared():
        return (yield)


def compile_when_called() -> AbstractContextManager[Any]:
    """A context in which shards on the device compile nothing ahead: neither training nor evaluation that nobody calls."""
    return patch.object(DeviceRollouts, "prepare")


@pytest.fixture
def compiled_when_called() -> Iterator[None]:
    with compile_when_called():
        yield


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    global _peak, _left
    before, _peak = _peak, peak()
    if resident() > _left + ROOM:
        make_room()
        _left = resident()
    if before <= BOUND < _peak and item.get_closest_marker("slow") is None:
        pytest.fail(f"this process has taken {_peak / 1e9:.1f} GB: tests may take {BOUND / 1e9:.0f} GB", pytrace=False)


def resident() -> int:
    """Bytes of this process that are in memory."""
    return PROCESS.memory_info().rss


def peak() -> int:
    """Bytes of this process that were in memory when it had the most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def make_room() -> None:
    """Drop all programs that are compiled, and give back to the system what they took."""
    PROGRAMS.clear()
    jax.clear_caches()
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
