"""Runs that many tests look at and none changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runs import flags, shoal

from shoal import loop
from shoal.build import Parts
from shoal.devices import Program

PROGRAMS: dict[tuple[str, ...], Program] = {}


@pytest.fixture
def shared_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of the same structure share what was compiled: tracing takes most of the time of a tiny run."""
    build = loop.build_run

    def build_run(*arguments: Any) -> Parts:
        parts = build(*arguments)
        e = parts.experiment
        islands = getattr(parts.island, "_islands", [parts.island])
        size = len(islands[0].uid)
        structure = repr((e.env, e.env_options, e.agent, e.config, size, e.fitness, e.memory))
        for holder in (part for island in islands for part in (island, island.arena)):
            for name, value in vars(holder).items():
                if isinstance(value, Program):
                    setattr(holder, name, PROGRAMS.setdefault((structure, type(holder).__name__, name), value))
        return parts

    monkeypatch.setattr(loop, "build_run", build_run)


@pytest.fixture(scope="session")
def six(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six generations, never stopped."""
    run = tmp_path_factory.mktemp("runs") / "six"
    outcome = shoal(*flags(run, generations=6))
    assert (outcome.code, outcome.err) == (0, "")
    (run.parent / "six.out").write_text(outcome.out)
    return run


@pytest.fixture(scope="session")
def sixty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty generations, long enough to be met at work by a signal."""
    run = tmp_path_factory.mktemp("runs") / "sixty"
    assert shoal(*flags(run, "--quiet", generations=60)).code == 0
    return run
