"""Scalars of a generation for TensorBoard and W&B: of the population, and of every member."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from shoal.experiment.plan import Plan
    from shoal.methods.method import Method
    from shoal.records.generation import Rows

COMMON = ("diversity/determinant", "diversity/log_determinant")  # metrics that all members have in common
PAIRS = "diversity/to "  # prefix of metrics of pairs of members, which are no curves
MEMBERS_SHOWN = 64  # more curves are illegible, and writing them takes as long as training


class Scalar(NamedTuple):
    """A point of a curve. value: NaN if there is none. member: its uid; None for the population."""

    name: str
    value: float
    member: int | None = None


def scalars(rows: Rows, plan: Plan) -> Iterator[Scalar]:
    """Yield the points of a generation."""
    yield Scalar("population/steps_per_second", rows.metrics["timing"]["steps_per_second"])
    yield Scalar("champion/smoothed_fitness", _number(rows.metrics["champion"]["smoothed_fitness"]))
    yield from _of_sampled(rows) if plan.kind.sampled else _of_members(rows, plan.method)


def _of_members(rows: Rows, method: Method) -> Iterator[Scalar]:
    """Scalars of the population and of its members."""
    for kind in ("best", "median", "worst"):
        if rows.metrics["fitness"][kind] is not None:
            yield Scalar(f"population/fitness/{kind}", rows.metrics["fitness"][kind])
    if method.copies:
        yield Scalar("population/copies", rows.metrics["copies"])
    for name in rows.lineage[0]["hyper"]:
        yield Scalar(f"population/hyper/{name}", median(row["hyper"][name] for row in rows.lineage))
    metrics = rows.metrics["members"]
    for name in COMMON:
        if name in metrics:
            yield Scalar(name, _number(metrics[name][0]))
    own = [name for name in metrics if name not in COMMON and not name.startswith(PAIRS)]
    for i, row in enumerate(rows.lineage[:MEMBERS_SHOWN]):
        tuned = row["hyper"] if method.tunes else {}
        points = {"fitness": row["fitness"]} | {f"hyper/{name}": value for name, value in tuned.items()}
        # A trainer may report a metric of the same name, whose points would lie on the same curve.
        others = {name: metrics[name][i] for name in own if name not in points}
        for name, value in (points | others).items():
            yield Scalar(name, _number(value), row["uid"])


def _of_sampled(rows: Rows) -> Iterator[Scalar]:
    """The mean and its members: one curve for each number."""
    (mean,) = rows.lineage
    yield Scalar("mean/fitness", _number(mean["fitness"]))
    for name, values in rows.metrics["members"].items():
        yield Scalar(name, _number(values[0]))
    for name, value in mean["hyper"].items():
        yield Scalar(f"hyper/{name}", value)


def _number(value: float | None) -> float:
    """NaN for None, as JSON has no NaN."""
    return math.nan if value is None else value
