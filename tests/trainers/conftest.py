"""Processes of trainers, which end with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shoal.trainers.process import Recipe, TrainerProcess, limited


@pytest.fixture
def process_of(tmp_path: Path) -> Iterator[Callable[..., TrainerProcess]]:
    """Makes a process of an interpreter and a recipe; it writes what it prints to `log`."""
    made: list[TrainerProcess] = []

    def make(python: str, recipe: Recipe, timeout: float = 60.0, **env: str) -> TrainerProcess:
        made.append(TrainerProcess(python, recipe, tmp_path / "log", limited(1, []) | env, timeout))
        return made[-1]

    yield make
    for process in made:
        process.end()
