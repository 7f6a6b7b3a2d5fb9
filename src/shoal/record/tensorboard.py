"""TensorBoard scalars: the population as a whole, and every member."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.record.recorder import Recorder

if TYPE_CHECKING:
    from shoal.build import Parts
    from shoal.record.recorder import Generation

MEMBERS_SHOWN = 64  # beyond that a page of curves helps nobody, and writing them costs as much as training


class TensorBoard(Recorder):
    """Writes RUN/tensorboard. The horizontal axis is environment steps per member."""

    def start(self, parts: Parts, run_dir: Path, generation: int) -> None:
        from tensorboard.summary import Writer

        self._writer = Writer(str(run_dir / "tensorboard"))
        self._pool = ThreadPoolExecutor(1, "tensorboard")  # hundreds of scalars, written while the next interval runs

    def generation(self, event: Generation) -> None:
        self._pool.submit(self._write, event._replace(best=replace(event.best)))

    def _write(self, event: Generation) -> None:
        step = int(event.cards.steps.max())
        add = self._writer.add_scalar
        fitness = event.cards.fitness[np.isfinite(event.cards.fitness)]
        if len(fitness):
            for name, kind in (("best", np.max), ("median", np.median), ("worst", np.min)):
                add(f"population/fitness/{name}", float(kind(fitness)), step)
        add("population/copies", int(event.copied.sum()), step)
        add("population/steps_per_second", event.timing["steps_per_second"], step)
        add("champion/fitness", event.best.fitness, step)
        for name, values in event.cards.hyper.items():
            add(f"population/hyper/{name}", float(np.median(values)), step)
        for i, uid in enumerate(event.cards.uid[:MEMBERS_SHOWN]):
            add(f"fitness/member{uid}", float(event.cards.fitness[i]), step)
            for name, values in event.cards.hyper.items():
                add(f"hyper/{name}/member{uid}", float(values[i]), step)
            for name, values in event.metrics.items():
                add(f"{name}/member{uid}", float(values[i]), step)

    def finish(self, result: dict[str, Any] | None) -> None:
        if hasattr(self, "_writer"):
            self._pool.shutdown()
            self._writer.close()
