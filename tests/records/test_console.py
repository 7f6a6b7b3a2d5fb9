"""The bar of the display."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from rich.console import Console
from support.runs import tiny

from shoal.methods.evolving import Pbt
from shoal.records.console import Display
from shoal.records.recorder import Start


def ended(generation: int) -> Any:
    cards = SimpleNamespace(fitness=np.ones(4), uid=np.arange(4), episodes=np.full(4, 2))
    timing = {"steps_per_second": 1.0}
    return SimpleNamespace(
        generation=generation, cards=cards, parents=cards, copied=np.zeros(4, bool), metrics={}, timing=timing
    )


def test_the_bar_never_runs_backwards() -> None:
    """Through two generations and the last test."""
    display = Display(Console(file=StringIO(), width=100))
    resolved: Any = SimpleNamespace(experiment=tiny(), method=Pbt(), steps=64)
    display.start(Start(resolved, 1, Path("somewhere"), 0))
    seen = []

    def share() -> float:
        with (console := Console(file=StringIO(), width=100)).capture() as shown:
            console.print(display._view())
        return float(shown.get().split("%")[0].split()[-1])

    for generation in range(2):
        for phase, fraction in (("train", 0.0), ("train", 0.5), ("evaluate", 0.0), ("evaluate", 0.3), ("evolve", 0.0)):
            display.progress(generation, phase, fraction)
            seen.append(share())
        display.generation(ended(generation))
        seen.append(share())
    display.progress(1, "champion", 0.0)
    seen.append(share())
    assert seen == [0, 25, 50, 50, 50, 50, 50, 75, 100, 100, 100, 100, 100]
