"""Cost of the arms of a study: environment steps of training and of evaluation."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

from shoal.study.results import Results
from shoal.study.sequences import STEPS
from shoal.study.study_file import ALIKE


class Cost(NamedTuple):
    """Mean steps of a run of an arm, over those that are done, without the final evaluation of the champion."""

    arm: str
    training: float
    evaluation: float

    @property
    def all(self) -> float:
        return self.training + self.evaluation


def costs(results: Results) -> dict[str, list[Cost]]:
    """Costs of all arms by task, in the order of the file; without those of which no run records it."""
    found: dict[str, list[Cost]] = {}
    for task, arm in product(results.study.all_tasks, results.study.arms):
        rows = [o.row for o in results.of(task, arm) if o.row["all_steps"]]
        if rows:
            means = [float(np.mean([row[name] for row in rows])) for name in STEPS]
            found.setdefault(task, []).append(Cost(arm, *means))
    return found


def summary(found: dict[str, list[Cost]]) -> list[str]:
    """A line for each task."""
    lines = []
    for task, mine in found.items():
        each = (f"{x.arm} {x.training:,.0f} + {x.evaluation:,.0f} = {x.all:,.0f}" for x in mine)
        lines.append(f"steps of a run{f' on {task}' if task else ''}, training + evaluation: {', '.join(each)}")
    return lines


def dearest(found: dict[str, list[Cost]]) -> str:
    """A sentence on the arm that costs most beside the cheapest of its task; empty where all cost the same."""
    ends = [(max(mine, key=lambda c: c.all), min(mine, key=lambda c: c.all)) for mine in found.values()]
    most, least = max(ends, key=lambda pair: pair[0].all / pair[1].all, default=(None, None))
    if most is None or least is None or most.all <= least.all * (1 + ALIKE):
        return ""
    return (
        f"Arms do not cost the same: {most.arm} takes up to {most.all / least.all:.3g} times the steps of {least.arm}."
    )


def unlike(found: dict[str, list[Cost]]) -> list[str]:
    """A sentence for each task on which arms cost more than the cheapest, evaluation included."""
    sentences = []
    for task, mine in found.items():
        least = min(mine, key=lambda cost: cost.all)
        more = [cost for cost in mine if cost.all > least.all * (1 + ALIKE)]
        if more:
            each = ", ".join(f"{cost.arm} {cost.all / least.all - 1:.0%}" for cost in more)
            equal = max(cost.training for cost in mine) <= min(cost.training for cost in mine) * (1 + ALIKE)
            although = "although they train for equally many" if equal else "and do not train for equally many"
            where = f" on {task}" if task else ""
            sentences.append(
                f"Arms do not cost the same{where}: {each} more steps than {least.arm}, evaluation included, {although}."
            )
    return sentences
