"""Runs that many tests look at and none changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from support.memory import PROGRAMS
from support.runs import flags, shoal

from shoal.members import trace_cache as sharing


@contextmanager
def _shared() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, sharing.trace_cache(PROGRAMS):
        patch.setattr(sharing, "MOST", 1_000)
        yield


@pytest.fixture(scope="session")
def shared() -> Callable[[], AbstractContextManager[None]]:
    """In fixtures of several tests, which begin before `share_programs` does: their runs share programs with the tests."""
    return _shared


@pytest.fixture(scope="session")
def six(tmp_path_factory: pytest.TempPathFactory, shared: Callable[[], AbstractContextManager[None]]) -> Path:
    """Six generations, never stopped."""
    run = tmp_path_factory.mktemp("runs") / "six"
    with shared():
        outcome = shoal(*flags(run, generations=6))
    assert (outcome.code, outcome.err) == (0, "")
    (run.parent / "six.out").write_text(outcome.out)
    return run


@pytest.fixture(scope="session")
def thirty(tmp_path_factory: pytest.TempPathFactory, shared: Callable[[], AbstractContextManager[None]]) -> Path:
    """Thirty generations, long enough to be met at work by a signal."""
    run = tmp_path_factory.mktemp("runs") / "thirty"
    with shared():
        assert shoal(*flags(run, "--quiet", generations=30)).code == 0
    return run
