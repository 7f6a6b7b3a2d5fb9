"""Runs that many tests look at and none changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runs import flags, shoal


@pytest.fixture(scope="session")
def six(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six generations, never stopped."""
    run = tmp_path_factory.mktemp("runs") / "six"
    outcome = shoal(*flags(run, generations=6))
    assert (outcome.code, outcome.err) == (0, "")
    (run.parent / "six.out").write_text(outcome.out)
    return run


@pytest.fixture(scope="session")
def thirty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty generations, long enough to be met at work by a signal."""
    run = tmp_path_factory.mktemp("runs") / "thirty"
    assert shoal(*flags(run, "--quiet", generations=30)).code == 0
    return run
